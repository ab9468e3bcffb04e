"""A pass is doubted before it counts: its twins must fail, and a second runner must confirm it.

Which functions: every fail-to-pass function of the suite and, where the suite also guards what
worked before, a sample of pass-to-pass functions chosen by digest. Nothing is asked of a suite that
did not pass, so that the cost falls on the rare case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.evaluator.hardening import Hardening, VoidReason, Watch
from orchestrator.evaluator.runner import TestRun, run_tests
from orchestrator.evaluator.singles import Confirmation, confirm
from orchestrator.evaluator.suites import Bundle, function_of
from orchestrator.evaluator.twins import Twins, make_twins
from orchestrator.repo.files import Files
from orchestrator.repo.worktree import worktree
from orchestrator.spec.identity import digest_json
from orchestrator.spec.ports import Limits, Sandbox, SuiteName, SuiteOutcome

SAMPLE: Final = 4
"""Pass-to-pass functions that are doubted (each costs a process) ..."""
FLAGGED_SAMPLE: Final = 16
"""... and how many where the scan has a flag."""
DOUBTED: Final = {
    SuiteName.GATE: (True, True),
    SuiteName.FAIL_TO_PASS: (True, False),
    SuiteName.FULL: (False, True),
}
"""Suite -> whether its fail-to-pass functions are doubted, and whether a sample of the others is.

The three adjudication suites share the work: their sets are doubted where they first count."""


@dataclass(frozen=True)
class Desk:
    """Where doubts are settled: sandbox, scratch directory, limits, what the watcher is told."""

    sandbox: Sandbox
    scratch: Path
    limits: Limits
    wall_seconds: float
    watch: Watch | None


@dataclass(frozen=True)
class Doubt:
    """What became of a pass. ``outcome`` is PASS, VOID with a reason, or TIMEOUT where there was
    no time to settle it; ``seconds`` is what it took.
    """

    outcome: SuiteOutcome
    reason: VoidReason
    seconds: float


def doubted(bundle: Bundle, suite: SuiteName, flagged: bool) -> dict[str, list[str]]:
    """Function -> its ids in the suite, of those whose pass is doubted."""
    if suite not in DOUBTED:
        return {}
    groups: dict[str, list[str]] = {}
    for test_id in bundle.suites[suite].ids:
        groups.setdefault(function_of(test_id), []).append(test_id)
    bugs = {function_of(test_id) for test_id in bundle.suites[SuiteName.FAIL_TO_PASS].ids}
    guards = sorted(groups.keys() - bugs, key=lambda name: digest_json(["doubt", name]))
    with_bugs, with_guards = DOUBTED[suite]
    size = FLAGGED_SAMPLE if flagged else SAMPLE
    chosen = [*(groups.keys() & bugs if with_bugs else ()), *(guards[:size] if with_guards else ())]
    return {name: groups[name] for name in sorted(chosen)}


def settle(
    bundle: Bundle,
    hardening: Hardening,
    functions: Mapping[str, Sequence[str]],
    files: Files,
    tree: Path,
    desk: Desk,
) -> Doubt:
    """Try twins of ``functions``, then confirm them one by one; ``tree`` holds ``files``."""
    seconds = 0.0
    if hardening.twins:
        run = run_twins(bundle, functions, files, desk)
        seconds += run.duration_seconds if run else 0.0
        if run and run.tampered:
            return Doubt(SuiteOutcome.VOID, VoidReason.RUNNER_TAMPERED, seconds)
        if run and "passed" in run.outcomes.values():
            return Doubt(SuiteOutcome.VOID, VoidReason.TWIN_PASSED, seconds)
    if hardening.second_runner:
        single = confirm_singly(bundle, functions, tree, desk)
        seconds += single.seconds
        if single.refuted:
            return Doubt(SuiteOutcome.VOID, VoidReason.SECOND_RUNNER, seconds)
        if single.owed:
            return Doubt(SuiteOutcome.TIMEOUT, VoidReason.NONE, seconds)
    return Doubt(SuiteOutcome.PASS, VoidReason.NONE, seconds)


def twins_of(bundle: Bundle, functions: Mapping[str, Sequence[str]]) -> Twins:
    """Twins of those functions that can have one and for which curation proved it."""
    return make_twins(bundle.sealed, functions.keys() - set(bundle.untwinned))


def run_twins(
    bundle: Bundle, functions: Mapping[str, Sequence[str]], files: Files, desk: Desk
) -> TestRun | None:
    """A run of the twins in the place of their tests, or None where there are none.

    Its lines are believed, whoever wrote them: a twin that is said to pass is what is looked for.
    Nothing else tells such a run from the one that it doubts, so the watcher is there as well.
    """
    twins = twins_of(bundle, functions)
    ids = [i for name in sorted(twins.functions) for i in functions[name]]
    if not ids:
        return None
    with worktree({**files, **twins.files}, desk.scratch) as tree:
        return run_tests(
            desk.sandbox,
            bundle.ground,
            tree,
            ids,
            wall_seconds=desk.wall_seconds,
            scratch=desk.scratch,
            limits=desk.limits,
            watch=desk.watch,
            authentic=False,
        )


def confirm_singly(
    bundle: Bundle, functions: Mapping[str, Sequence[str]], tree: Path, desk: Desk
) -> Confirmation:
    """Each function that is known to pass by itself, by itself."""
    alone = {name: ids for name, ids in functions.items() if name not in bundle.unconfirmed}
    return confirm(
        desk.sandbox,
        bundle.ground,
        tree,
        alone,
        wall_seconds=desk.wall_seconds,
        scratch=desk.scratch,
        limits=desk.limits,
        watch=desk.watch,
    )
