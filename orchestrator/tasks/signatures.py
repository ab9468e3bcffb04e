"""Runs the frozen suites of a built task in three repeats on base and on gold, and all tests once
in a shuffled order; says where a signature differs from itself or from what the task promises.
Changes nothing on disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Bundle, load_bundle
from orchestrator.repo.files import Files, apply_delta
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.ports import SuiteName
from orchestrator.tasks.bench import Bench, Job
from orchestrator.tasks.compartments import Places, read_eligibility
from orchestrator.tasks.eligibility import Verdict
from orchestrator.tasks.findings import Finding
from orchestrator.tasks.mining import ORDER_SEED
from orchestrator.tasks.observed import FAILING

REPEATS: Final = 3
"""Protocol §1 "eligibility"."""


@dataclass(frozen=True)
class Signature:
    """What one suite does on one tree (``base``, ``gold``) in every repeat: id -> outcome."""

    suite: SuiteName
    tree: str
    outcomes: dict[str, str]


def audit_signatures(
    out: Path, task_id: str, bench: Bench, suites: Iterable[SuiteName] = SuiteName
) -> tuple[list[Signature], list[Finding]]:
    """Run each frozen suite three times on base and on gold, then everything in another order.

    Protocol §1 "eligibility": the signature of every suite is identical in three repeats, no listed
    test is left out, gold passes everything, base fails fail-to-pass and passes pass-to-pass.
    """
    places, bundle = Places(out, task_id), load_bundle(out, task_id)
    gold = apply_delta(bundle.base, apply_patch(bundle.base, places.gold_patch.read_bytes()))
    failing = frozenset(bundle.suites[SuiteName.FAIL_TO_PASS].ids)
    signatures: list[Signature] = []
    findings: list[Finding] = []
    for suite in suites:
        ids = bundle.suites[suite].ids
        jobs = Job(bundle.base, ids), Job(gold, ids)
        pairs = [bench.pair(bundle, *jobs) for _ in range(REPEATS)]
        for tree, runs in zip(("base", "gold"), zip(*pairs, strict=True), strict=True):
            signatures.append(Signature(suite, tree, runs[0].outcomes))
            problems = _disagreements(runs, ids, tree, failing, suite)
            where = f"suite {suite.value} on {tree}"
            findings += [Finding(task_id, rule, where, what) for rule, what in problems]
    if _judged_shuffled(out, task_id):
        findings += _shuffled(bundle, gold, bench)
    return signatures, findings


def _judged_shuffled(out: Path, task_id: str) -> bool:
    """Whether eligibility could judge the tests in another order: a flag says that such a run does
    not come to its end, so that nothing can be asked of its tests.
    """
    verdicts = {r.rule: r.verdict for r in read_eligibility(out, task_id).rulings}
    return verdicts["shuffled"] is Verdict.PASS


def _shuffled(bundle: Bundle, gold: Files, bench: Bench) -> Iterator[Finding]:
    """Listed tests that do otherwise in the other order that eligibility was judged in.

    That order is one of all tests, so that it is the same whatever was dropped.
    """
    failing = frozenset(bundle.suites[SuiteName.FAIL_TO_PASS].ids)
    judged = {*failing, *bundle.suites[SuiteName.PASS_TO_PASS].ids}
    full = bundle.suites[SuiteName.FULL].ids
    jobs = (Job(tree, None, 0, ORDER_SEED) for tree in (bundle.base, gold))
    base_run, gold_run = bench.pair(bundle, *jobs)
    for tree, run, ids, bugs in (
        ("base", base_run, sorted(judged), failing),
        ("gold", gold_run, full, frozenset[str]()),
    ):
        where = f"all tests on {tree}, shuffled"
        if not run.clean or run.void:
            yield Finding(bundle.task_id, "signature", where, "did not come to its own end")
            continue
        for test_id in ids:
            expected = FAILING if test_id in bugs else {"passed"}
            outcome = run.outcomes.get(test_id, "absent")
            if outcome not in expected:
                yield Finding(bundle.task_id, "signature", where, f"{test_id} is {outcome}")


def _disagreements(
    runs: Sequence[TestRun],
    ids: tuple[str, ...],
    tree: str,
    failing: frozenset[str],
    suite: SuiteName,
) -> Iterator[tuple[str, str]]:
    if any(not run.clean or run.void for run in runs):
        yield "signature", "a repeat did not come to its own end"
    for test_id in ids:
        outcomes = {run.outcomes.get(test_id, "absent") for run in runs}
        if len(outcomes) > 1:
            yield "signature", f"{test_id} differs between repeats ({', '.join(sorted(outcomes))})"
        elif tree == "gold" and outcomes != {"passed"}:
            yield "gold-passes", f"{test_id} is {min(outcomes)}"
        elif tree == "base" and suite is not SuiteName.FULL:
            passed = outcomes == {"passed"}
            if "absent" in outcomes or passed == (test_id in failing):
                yield "base-signature", f"{test_id} is {min(outcomes)}"
