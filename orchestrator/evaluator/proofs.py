"""What hardening must not do with a task's own honest code, found by trying it on base and gold.

Curation calls this once and seals the answer into the bundle; gold is known to nobody later. What
is named here is switched off for this task alone, so that an honest candidate is never void.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.evaluator.doubts import DOUBTED, Desk, confirm_singly, doubted, run_twins
from orchestrator.evaluator.hardening import Watch
from orchestrator.evaluator.runner import TestRun, run_tests
from orchestrator.evaluator.suites import Bundle, Suite, function_of
from orchestrator.repo.files import Files
from orchestrator.repo.worktree import worktree
from orchestrator.spec.ports import SuiteName


@dataclass(frozen=True)
class Proofs:
    """As in :class:`~orchestrator.evaluator.suites.BundleFile`; each sorted."""

    untwinned: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    unwatched: tuple[str, ...] = ()
    unredacted: tuple[str, ...] = ()


def prove(
    bundle: Bundle,
    suites: Mapping[SuiteName, Sequence[str]],
    trees: Sequence[Files],
    gold: Files,
    desk: Desk,
) -> Proofs:
    """Try every layer on ``trees`` (production files of base and gold; ``gold`` is one of them).

    ``suites`` take the place of the bundle's own. Raises InfrastructureFault.
    """
    whole = replace(
        bundle, suites={name: Suite(name, tuple(ids), "") for name, ids in suites.items()}
    )
    functions = {
        name: ids for suite in DOUBTED for name, ids in doubted(whole, suite, flagged=True).items()
    }
    bare = replace(desk, watch=_watch(whole))
    twins = [run_twins(whole, functions, whole.laid_down(tree), bare) for tree in trees]
    runs = [run for run in twins if run]
    unwatched = {rule for tree in trees for rule in _broken_rules(whole, tree, desk)}
    unwatched |= {rule for run in runs for rule in run.tampered}
    watched = replace(desk, watch=_watch(whole, tuple(sorted(unwatched))))
    untwinned = {name for run in runs for name in _passing(run)}
    return Proofs(
        untwinned=tuple(sorted(untwinned)),
        unconfirmed=_unconfirmed(whole, functions, gold, watched),
        unwatched=tuple(sorted(unwatched)),
        unredacted=_unredacted(whole, trees, desk),
    )


def _watch(bundle: Bundle, unwatched: Sequence[str] = ()) -> Watch:
    return Watch(sorted(bundle.sealed), unwatched)


def _run(bundle: Bundle, files: Files, suite: SuiteName, desk: Desk, watch: bool) -> TestRun:
    with worktree(files, desk.scratch) as tree:
        return run_tests(
            desk.sandbox,
            bundle.ground,
            tree,
            bundle.suites[suite].ids,
            wall_seconds=desk.wall_seconds,
            scratch=desk.scratch,
            limits=desk.limits,
            watch=_watch(bundle) if watch else None,
        )


def _broken_rules(bundle: Bundle, tree: Files, desk: Desk) -> set[str]:
    """Rules of the watcher that honest code breaks, in the whole suite."""
    return set(_run(bundle, bundle.laid_down(tree), SuiteName.FULL, desk, watch=True).tampered)


def _passing(twins: TestRun) -> set[str]:
    """Functions one of whose twins does not fail: what was altered decides nothing there."""
    return {function_of(test_id) for test_id, found in twins.outcomes.items() if found == "passed"}


def _unconfirmed(
    bundle: Bundle, functions: Mapping[str, Sequence[str]], gold: Files, desk: Desk
) -> tuple[str, ...]:
    """Functions that pass on gold in their suite but not by themselves."""
    with worktree(bundle.laid_down(gold), desk.scratch) as tree:
        single = confirm_singly(bundle, functions, tree, desk)
    return tuple(sorted({*single.refuted, *single.owed}))


def _unredacted(bundle: Bundle, trees: Sequence[Files], desk: Desk) -> tuple[str, ...]:
    """All redacted files, where the diagnostic suite does otherwise on what is left of them."""
    for tree in trees:
        files = bundle.laid_down(tree)
        plain = _run(bundle, files, SuiteName.DIAGNOSTIC, desk, watch=False)
        cut = _run(bundle, files | bundle.redaction.files, SuiteName.DIAGNOSTIC, desk, watch=False)
        if (plain.outcomes, plain.messages) != (cut.outcomes, cut.messages):
            return tuple(sorted(bundle.redaction.files))
    return ()
