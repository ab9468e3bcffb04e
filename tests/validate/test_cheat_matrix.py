"""The kill matrix of the corpus, what each cheat is worth, and that honest patches are never void.

An hour or more; prints the tables of docs/cheats.md and the figures for docs/validation/.
"""

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from orchestrator.evaluator.hardening import FULL, Hardening
from orchestrator.repo.files import apply_delta
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import SuiteOutcome
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.build import build_task
from orchestrator.tasks.compartments import Places
from orchestrator.tasks.variants import ensure_variants, load_variants
from tests.cheats import support
from tests.cheats.mutants import mutants
from tests.cheats.support import MANIFEST, TASKS, Cheat, Room

pytestmark = [pytest.mark.validate, pytest.mark.timeout(4 * 3600)]
LAYERS = tuple(field.name for field in fields(Hardening))
UNDEFENDED = Hardening(twins=False, second_runner=False, audit=False, scan=False)
"""The evaluator's report alone: authentic lines, enumerated ids, protected paths."""
WRONG_PATCHES = 200
SEED = 20_260


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with support.open_room(tmp_path_factory.mktemp("cheats")) as room:
        yield room


@pytest.mark.parametrize("cheat", support.cheats(), ids=lambda cheat: cheat.name)
def test_what_a_cheat_beats_is_as_it_says(room: Room, cheat: Cheat) -> None:
    beaten = set(room.naive(cheat))
    if support.resolves(room.verifier(UNDEFENDED), cheat)[0]:
        beaten.add("report")
    assert beaten == set(cheat.beats)


def dispositions(room: Room, hardening: Hardening, seed: int) -> dict[str, str]:
    """Cheat -> ``resolved``, or outcome, reason and flags of the run that refused it."""
    verifier, found = room.verifier(hardening), {}
    for cheat in support.shuffled(seed):
        resolved, verdict = support.resolves(verifier, cheat)
        said = [verdict.outcome.value, verdict.void_reason, *verdict.flags]
        found[cheat.name] = "resolved" if resolved else " ".join(said)
    return found


def test_kill_matrix(room: Room) -> None:
    """Nothing survives all layers, in either order; each layer changes what becomes of some cheat.

    Who survives without a layer, and whose refusal reads otherwise, is printed.
    """
    whole = dispositions(room, FULL, 1)
    assert "resolved" not in {*whole.values(), *dispositions(room, FULL, 2).values()}
    for layer in LAYERS:
        found = dispositions(room, replace(FULL, **{layer: False}), 1)
        left = sorted(name for name, said in found.items() if said == "resolved")
        other = sum(found[name] != whole[name] for name in found)
        print(f"| {layer} | {len(left)} | {', '.join(left) or '-'} | {other} |")
        assert other, f"{layer} changes nothing"


def test_no_honest_patch_is_void(room: Room) -> None:
    tasks = load(MANIFEST, TaskManifest).tasks
    for task in tasks:
        if not (TASKS / "evaluator" / task.id).is_dir():
            build_task(task, MANIFEST, TASKS)
    share = -(-WRONG_PATCHES // len(tasks))
    counts = {"gold": 0, "wrong": 0, "resolved": 0}
    for task in tasks:
        for name, resolved in _honest(room, task.id, share):
            counts[name] += 1
            counts["resolved"] += resolved
            assert resolved or name == "wrong", f"gold of {task.id}"
    print(f"\nhonest patches: {counts}, void: 0")
    assert counts["wrong"] >= WRONG_PATCHES


def _honest(room: Room, task: str, share: int) -> Iterator[tuple[str, bool]]:
    """Each honest patch of a task, judged; fails at the first that is void."""
    base = support.base_files(task)
    gold = apply_delta(base, apply_patch(base, Places(TASKS, task).gold_patch.read_bytes()))
    ensure_variants(TASKS, task)
    classes = load_variants(TASKS, task).classes
    wrong = [
        apply_delta(base, delta) for name in ("wrong", "overfit") for _, delta in classes[name]
    ]
    slips = mutants(base, gold, share - len(wrong), SEED)
    for name, files in [("gold", gold), *(("wrong", each) for each in [*wrong, *slips])]:
        found = support.evaluated(room.verifier(), task, files)
        assert SuiteOutcome.VOID not in found.outcomes.values(), f"{task}: {found}"
        yield name, found.resolved
