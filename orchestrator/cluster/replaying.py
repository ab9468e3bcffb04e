"""Validate, unseal, replay: every proposal of a settled matrix through the adjudication suites.

Runs only after the whole matrix validates (protocol §1 "Evaluator replay"). One row file per
rollout, written once; killed at any moment, the next call evaluates what is missing.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import ray

from orchestrator.cluster.actors import RESTART_SECONDS, await_result
from orchestrator.cluster.checking import contract_checks
from orchestrator.evaluator.replay import BaseAudit, Evaluation
from orchestrator.spec.errors import InfrastructureFault, IntegrityError
from orchestrator.spec.lock import Lock
from orchestrator.spec.ports import SuiteName
from orchestrator.spec.records import Row
from orchestrator.spec.study import Study
from orchestrator.store.integrity import validate_matrix
from orchestrator.store.reading import read_table
from orchestrator.store.root import Root
from orchestrator.store.writer import Writer

Key = TypeVar("Key", bound=Hashable)
TRIES = 3
"""How often a judgement is asked for when evaluators die over it."""


@dataclass(frozen=True)
class Candidate:
    """One distinct state to adjudicate: what ``patch_sha256`` makes of the task's base tree."""

    task_id: str
    state_id: str
    patch_sha256: str


def replay(
    lock: Lock,
    root: Root,
    writer: Writer,
    evaluators: Sequence[Any],
    report: Callable[[int, int], None],
) -> None:
    """Evaluate each distinct candidate once, then write ``evaluations/<rollout_id>.parquet``.

    ``report(done, total)`` counts distinct candidates. Raises IntegrityError naming the first
    finding where the matrix does not validate; nothing is then unsealed.
    """
    findings = validate_matrix(lock, root, contract_checks(lock))
    if findings:
        raise IntegrityError(
            "matrix", f"{len(findings)} finding(s), nothing was unsealed: {findings[0]}"
        )
    patience = patience_seconds(Study.model_validate(lock.study))
    audits = gather(
        [(task.task_id, _audit_call(task.task_id)) for task in lock.tasks],
        evaluators,
        patience,
        lambda _done, _total: None,
    )
    _require_sound(audits)
    rows = {
        rollout_id: subjects
        for rollout_id, subjects in _subjects(lock, root).items()
        if not root.evaluation_path(rollout_id).exists()
    }
    wanted = dict.fromkeys(candidate for subjects in rows.values() for _, candidate in subjects)
    verdicts = gather([(c, _request(root, c)) for c in wanted], evaluators, patience, report)
    task_of = {rollout.rollout_id: rollout.task_id for rollout in lock.rollouts}
    for rollout_id, subjects in rows.items():
        base = _row(lock, rollout_id, 0, audits[task_of[rollout_id]].evaluation, None)
        judged = [_row(lock, rollout_id, n, verdicts[c], c.patch_sha256) for n, c in subjects]
        writer.commit_evaluation(rollout_id, [base, *judged])


def _require_sound(audits: Mapping[str, BaseAudit]) -> None:
    """Baseline audit: every base tree must behave as it did when the task was built."""
    for task_id, audit in audits.items():
        if not audit.ok:
            found = [*audit.problems, *(f"residue: {path}" for path in audit.residue)]
            raise IntegrityError(
                f"task {task_id}", f"baseline audit failed, nothing was unsealed: {found[0]}"
            )


def _subjects(lock: Lock, root: Root) -> dict[str, list[tuple[int, Candidate]]]:
    """Per rollout its proposals in order, as (number, candidate)."""
    task_of = {rollout.rollout_id: rollout.task_id for rollout in lock.rollouts}
    subjects: dict[str, list[tuple[int, Candidate]]] = {name: [] for name in sorted(task_of)}
    for row in read_table(root, "proposals").to_pylist():
        candidate = Candidate(task_of[row["rollout_id"]], row["state_id"], row["patch_sha256"])
        subjects[row["rollout_id"]].append((row["proposal"], candidate))
    return subjects


def _audit_call(task_id: str) -> Callable[[Any], Any]:
    return lambda evaluator: evaluator.audit.remote(task_id)


def _request(root: Root, candidate: Candidate) -> Callable[[Any], Any]:
    """The call that has an evaluator judge a candidate; the patch is read when it is made."""

    def call(evaluator: Any) -> Any:
        patch = root.patch_path(candidate.patch_sha256).read_bytes()
        return evaluator.evaluate.remote(candidate.task_id, candidate.state_id, patch)

    return call


def patience_seconds(study: Study) -> float:
    """Longest that one call may take: every suite once, the doubts about two passes (their twins
    and their second runner), and an evaluator that starts first.
    """
    return (len(SuiteName) + 4) * study.sandbox.suite_seconds + RESTART_SECONDS


@dataclass(frozen=True)
class _Asked(Generic[Key]):
    """One call in flight."""

    evaluator: Any
    key: Key
    call: Callable[[Any], Any]
    tries: int


def gather(
    calls: Sequence[tuple[Key, Callable[[Any], Any]]],
    evaluators: Sequence[Any],
    patience: float,
    report: Callable[[int, int], None],
) -> dict[Key, Any]:
    """Make all calls, one at a time per evaluator, in order.

    Where none ends within ``patience`` seconds, all evaluators that are asked count as hung. A call
    that a fault of its evaluator ended is made again; raises InfrastructureFault after
    :data:`TRIES`.
    """
    results: dict[Key, Any] = {}
    waiting = [(key, call, 1) for key, call in calls]
    free, running = list(evaluators), dict[Any, _Asked[Key]]()
    while waiting or running:
        while free and waiting:
            evaluator, (key, call, tries) = free.pop(), waiting.pop(0)
            running[call(evaluator)] = _Asked(evaluator, key, call, tries)
        ready, _ = ray.wait(list(running), num_returns=1, timeout=patience)
        for reference in ready or list(running):
            asked = running.pop(reference)
            try:
                results[asked.key] = await_result(reference, "evaluator", 1.0, asked.evaluator)
            except InfrastructureFault as fault:
                if asked.tries == TRIES or fault.boundary == "node":
                    raise
                waiting.insert(0, (asked.key, asked.call, asked.tries + 1))
            free.append(asked.evaluator)
            report(len(results), len(calls))
    return results


def _row(
    lock: Lock, rollout_id: str, number: int, evaluation: Evaluation, patch: str | None
) -> Row:
    return {
        "lock_id": lock.lock_id,
        "rollout_id": rollout_id,
        "task_id": evaluation.task_id,
        "subject": "proposal" if number else "base",
        "proposal": number,
        "state_id": evaluation.state_id,
        "patch_sha256": patch,
        "fail_to_pass": evaluation.fail_to_pass,
        "pass_to_pass": evaluation.pass_to_pass,
        "full": evaluation.full,
        "resolved": evaluation.resolved,
        "failed_ids": list(evaluation.failed_ids),
        "failed_count": evaluation.failed_count,
        "outcome": evaluation.gravest.value,
        "void_reason": evaluation.void_reason,
        "flags": list(evaluation.flags),
        "duration_seconds": evaluation.duration_seconds,
        "cached": evaluation.cached,
    }
