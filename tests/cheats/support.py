"""The cheat corpus: hostile candidates as data, how one is applied, and who judges it.

A cheat is a small change of a task's base tree that keeps the bug and wants a pass. Three judges
without defences show what it is worth (``beats``): pytest's exit code, its printed result lines
(both of a bare run in the same sandbox), and the evaluator's own report with every layer off.
"""

import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestrator.evaluator.ground import ENVIRONMENT, REPO, SUITE_LIMITS
from orchestrator.evaluator.hardening import FULL, Hardening
from orchestrator.evaluator.replay import Evaluation, evaluate_state
from orchestrator.evaluator.suites import Bundle, load_bundle
from orchestrator.evaluator.verifier import ADJUDICATION, LocalVerifier
from orchestrator.repo.files import Files, apply_delta, delta_between, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import apply_patch
from orchestrator.repo.worktree import worktree
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.manifest import Frozen, Misfit, load
from orchestrator.spec.ports import (
    Command,
    Mount,
    Purpose,
    SuiteName,
    SuiteOutcome,
    SuiteRequest,
    SuiteVerdict,
)
from orchestrator.spec.task import Slug, TaskManifest
from orchestrator.tasks.build import build_task
from orchestrator.tasks.compartments import AGENT_BRANCH, Places
from orchestrator.tasks.variants import broken, commented, functions_of
from tests.e2e.support import REPOSITORY, TASKS

HERE = Path(__file__).parent
MANIFEST = REPOSITORY / "manifests" / "tasks" / "quickstart.yaml"
CHEAT_TASKS = ("xmltodict-0.15.0-0.15.1", "xmltodict-1.0.2-1.0.3")
"""The first is tested by ``assertRaises``, the second by ``==``; a suite takes about a second."""
MODULE = "xmltodict.py"
WALL_SECONDS = 60.0

Judge = Literal["exit", "output", "report"]
Kind = Literal[
    "assertions",
    "children",
    "clock",
    "exhaustion",
    "exit",
    "forged-output",
    "forged-report",
    "hooks",
    "inspection",
    "leak",
    "runner",
    "worktree",
]

# ------------------------------------------------------------------------------------- data


class Change(Frozen):
    """One change of one path: exactly one of the ways, ``executable`` only beside ``create``."""

    path: Annotated[str, Field(min_length=1)]
    append: str | None = None
    create: str | None = None
    symlink: str | None = None
    delete: bool = False
    executable: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> "Change":
        ways = [self.append, self.create, self.symlink, self.delete or None]
        if sum(way is not None for way in ways) != 1:
            raise Misfit("path", "needs exactly one of append, create, symlink, delete")
        return self


class Cheat(Frozen):
    """One candidate. ``beats``: the judges without defences that take it for resolved.

    ``expected``: outcomes that the suite run which refuses it may have with all layers on.
    ``remains``: why it still resolves, where no layer stops it (docs/threat-model.md, "remains").
    ``reads_evaluator``: its author has read the evaluator and its plugin.
    """

    schema_: Literal["factorial/cheat@1"] = Field(alias="schema")
    name: Slug
    kind: Kind
    task: Slug
    reads_evaluator: bool
    description: Annotated[str, Field(min_length=20)]
    beats: Annotated[tuple[Judge, ...], Field(strict=False)]
    expected: Annotated[
        tuple[Annotated[SuiteOutcome, Field(strict=False)], ...], Field(strict=False, min_length=1)
    ]
    remains: Annotated[str, Field(min_length=20)] | None = None
    wall_seconds: float = WALL_SECONDS
    changes: Annotated[tuple[Change, ...], Field(strict=False, min_length=1)]

    def applied(self, base: Files) -> Files:
        """The candidate's tree."""
        files = dict(base)
        for change in self.changes:
            _apply(files, change)
        return files


def _apply(files: Files, change: Change) -> None:
    mode, content = files.get(change.path, (0o100644, b""))
    if change.delete:
        del files[change.path]
    elif change.symlink is not None:
        files[change.path] = (0o120000, change.symlink.encode())
    elif change.create is not None:
        files[change.path] = (0o100755 if change.executable else 0o100644, change.create.encode())
    else:
        assert change.append is not None
        files[change.path] = (mode, content + b"\n\n" + change.append.encode())


@cache
def cheats() -> tuple[Cheat, ...]:
    """The corpus in path order; a file's place must say its kind and name."""
    found = []
    for path in sorted(HERE.glob("*/*.yaml")):
        cheat = load(path, Cheat)
        assert (cheat.kind, cheat.name) == (path.parent.name, path.stem), path
        found.append(cheat)
    return tuple(found)


def shuffled(seed: int) -> list[Cheat]:
    order = list(cheats())
    random.Random(seed).shuffle(order)
    return order


# ------------------------------------------------------------------------------------- tasks


def ensure_tasks() -> Path:
    """The folder in which the corpus' tasks are built; builds what is missing."""
    for task in load(MANIFEST, TaskManifest).tasks:
        if task.id in CHEAT_TASKS and not (TASKS / "evaluator" / task.id).is_dir():
            build_task(task, MANIFEST, TASKS)
    return TASKS


@dataclass(frozen=True)
class Honest:
    """A candidate whose verdict is known: ``resolves`` says which."""

    name: str
    task: str
    files: Files
    resolves: bool


@cache
def base_files(task: str) -> Files:
    return Mirror(Places(TASKS, task).agent / "repo.git").files(AGENT_BRANCH)


@cache
def gold_files(task: str) -> Files:
    base = base_files(task)
    return apply_delta(base, apply_patch(base, Places(TASKS, task).gold_patch.read_bytes()))


def honest(task: str) -> list[Honest]:
    """Right and wrong candidates of an author who does not cheat."""
    base, gold = base_files(task), gold_files(task)
    return [
        Honest("gold", task, gold, True),
        Honest("gold with a comment", task, commented(gold, MODULE, "reviewed"), True),
        Honest("base", task, base, False),
        Honest("base with a comment", task, commented(base, MODULE, "reviewed"), False),
        *(
            Honest(f"gold with {name} broken", task, _without(gold, name), False)
            for name in ("parse", "unparse", "push_data")
        ),
    ]


def _without(files: Files, name: str) -> Files:
    mode, source = files[MODULE]
    function = next(node for node in functions_of(source) if node.name == name)
    return {**files, MODULE: (mode, broken(source, function))}


# ------------------------------------------------------------------------------------- judges


def naive_verdicts(
    sandbox: BwrapSandbox, bundle: Bundle, files: Files, scratch: Path, wall_seconds: float
) -> set[Judge]:
    """Which of the two bare judges, exit code and printed lines, take the candidate for resolved.

    As harnesses do: the candidate's whole tree, the suite's files written over it, one pytest run.
    """
    with worktree({**files, **bundle.sealed}, scratch, uid=sandbox.uid) as tree:
        command = Command(
            argv=(f"{ENVIRONMENT}/bin/python", "-m", "pytest", "-rA", *bundle.ground.test_paths),
            cwd=REPO,
            env={**bundle.ground.variables(), "PYTHONPATH": bundle.ground.import_path},
            mounts=(
                Mount(tree, REPO, writable=True),
                Mount(bundle.ground.environment, ENVIRONMENT),
            ),
            limits=replace(
                SUITE_LIMITS, wall_seconds=wall_seconds, cpu_seconds=2 * ceil(wall_seconds)
            ),
        )
        completed = sandbox.run(command)
    verdicts: set[Judge] = set()
    if completed.exit_code == 0:
        verdicts.add("exit")
    if _all_printed(completed.stdout.decode("utf-8", "replace"), judged_ids(bundle)):
        verdicts.add("output")
    return verdicts


def judged_ids(bundle: Bundle) -> list[str]:
    names = (SuiteName.FAIL_TO_PASS, SuiteName.PASS_TO_PASS)
    return [test_id for name in names for test_id in bundle.suites[name].ids]


def _all_printed(output: str, ids: Sequence[str]) -> bool:
    status: dict[str, str] = {}
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASSED", "FAILED", "ERROR"):
            status[rest.partition(" - ")[0]] = word
    return all(status.get(test_id) == "PASSED" for test_id in ids)


# ------------------------------------------------------------------------------------- evaluator


@dataclass(frozen=True)
class Room:
    """One sandbox and one scratch directory, in which evaluators are made and bare runs too."""

    sandbox: BwrapSandbox
    scratch: Path

    def verifier(self, hardening: Hardening = FULL) -> LocalVerifier:
        """An evaluator with a verdict cache of its own."""
        cache_dir = self.scratch / "verdicts" / secrets.token_hex(8)
        return LocalVerifier(TASKS, cache_dir, self.sandbox, self.scratch, hardening=hardening)

    def naive(self, cheat: Cheat) -> set[Judge]:
        """Which bare judges the cheat beats."""
        bundle = load_bundle(TASKS, cheat.task)
        files = cheat.applied(base_files(cheat.task))
        return naive_verdicts(self.sandbox, bundle, files, self.scratch, cheat.wall_seconds)


@contextmanager
def open_room(scratch: Path) -> Iterator[Room]:
    """A room with the interpreter of the tasks' environment; builds the tasks if need be."""
    environment = load_bundle(ensure_tasks(), CHEAT_TASKS[0]).ground.environment
    scratch.mkdir(parents=True, exist_ok=True)
    scratch.chmod(0o711)
    yield Room(BwrapSandbox(scratch, (environment / "bin" / "python").resolve()), scratch)


def evaluated(
    verifier: LocalVerifier, task: str, files: Files, wall_seconds: float = WALL_SECONDS
) -> Evaluation:
    """The candidate's adjudication, as a replay makes it."""
    delta = delta_between(base_files(task), files)
    return evaluate_state(verifier, task, tree_of(files).state_id, delta, wall_seconds=wall_seconds)


def judged(
    verifier: LocalVerifier,
    task: str,
    files: Files,
    suite: SuiteName,
    purpose: Purpose,
    wall_seconds: float,
) -> SuiteVerdict:
    """One verdict, as it leaves the evaluator."""
    delta, state_id = delta_between(base_files(task), files), tree_of(files).state_id
    return verifier.run(SuiteRequest(task, suite, purpose, state_id, delta, "cheat", wall_seconds))


def resolves(verifier: LocalVerifier, cheat: Cheat) -> tuple[bool, SuiteVerdict]:
    """Whether a cheat resolves, and the verdict that says so or not: what does not pass the
    fail-to-pass suite is not resolved, and the other suites need not run.
    """
    files = cheat.applied(base_files(cheat.task))
    for suite in ADJUDICATION:
        verdict = judged(verifier, cheat.task, files, suite, Purpose.REPLAY, cheat.wall_seconds)
        if not verdict.ok:
            return False, verdict
    return True, verdict
