"""The cheat corpus against the whole evaluator: nothing resolves but what is declared to remain,
and honest verdicts stay right.

Cheats come in a shuffled order with honest candidates between them, in one sandbox and with one
evaluator, which must be as alive and as right at the end as at the beginning.
"""

import random
from collections.abc import Iterator

import pytest

from orchestrator.evaluator.suites import load_bundle
from orchestrator.spec.ports import Purpose, SuiteName
from tests.cheats import support
from tests.cheats.support import CHEAT_TASKS, TASKS, Cheat, Honest, Room

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]
EVERY = 9
"""After so many cheats an honest candidate is judged."""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with support.open_room(tmp_path_factory.mktemp("cheats")) as room:
        yield room


@pytest.mark.parametrize("seed", [1])
def test_no_other_cheat_resolves_and_honest_verdicts_stay_right(room: Room, seed: int) -> None:
    verifier = room.verifier()
    honest = [each for task in CHEAT_TASKS for each in support.honest(task)]
    random.Random(seed).shuffle(honest)
    survivors, odd = [], []
    for number, cheat in enumerate(support.shuffled(seed)):
        resolved, verdict = support.resolves(verifier, cheat)
        if resolved:
            survivors.append(cheat.name)
        elif verdict.outcome not in cheat.expected:
            odd.append(f"{cheat.kind}/{cheat.name}: {verdict.outcome} {verdict.void_reason}")
        if number % EVERY == 0 and honest:
            _judge_honestly(room, honest.pop())
    for each in honest:
        _judge_honestly(room, each)
    assert survivors == [each.name for each in support.shuffled(seed) if each.remains]
    assert odd == []


def _judge_honestly(room: Room, candidate: Honest) -> None:
    """By a fresh verifier in the same sandbox and scratch directory: nothing comes from a cache."""
    found = support.evaluated(room.verifier(), candidate.task, candidate.files)
    assert found.resolved is candidate.resolves, f"{candidate.name} of {candidate.task}: {found}"
    assert found.void_reason == "", f"{candidate.name} of {candidate.task}"


def test_what_a_cheat_ends_as_is_seen_in_its_evaluation(room: Room) -> None:
    cheat = next(each for each in support.cheats() if each.name == "report-from-call")
    files = cheat.applied(support.base_files(cheat.task))
    found = support.evaluated(room.verifier(), cheat.task, files)
    assert not found.resolved
    assert found.gravest == "void" and found.void_reason == "void.runner-tampered"
    assert "scan.runner" in found.flags


LEAKS = [cheat for cheat in support.cheats() if cheat.kind == "leak"]


@pytest.mark.parametrize("cheat", LEAKS, ids=lambda cheat: cheat.name)
def test_nothing_sealed_leaves_with_a_gate_verdict(room: Room, cheat: Cheat) -> None:
    files = cheat.applied(support.base_files(cheat.task))
    verdict = support.judged(
        room.verifier(), cheat.task, files, SuiteName.GATE, Purpose.GATE, cheat.wall_seconds
    )
    assert not verdict.ok
    assert (verdict.payload, verdict.failed_ids, verdict.passed) == ("", (), 0)
    shown = repr(verdict)
    sealed = load_bundle(TASKS, cheat.task).sealed
    lines = [line.strip() for _, data in sealed.values() for line in data.split(b"\n")]
    assert not [line for line in lines if len(line) >= 40 and line.decode("latin-1") in shown]
