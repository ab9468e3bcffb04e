"""Rows must say what their receipt says: the tables are derived facts, the ledger is the source.

``validate_matrix`` calls this for every settled rollout, so that an edited table is found even
where ledger and receipt were left as they are.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.agent.broker import execution_id
from orchestrator.contract.ledger import check as check_ledger
from orchestrator.contract.policy import Context, Policy
from orchestrator.contract.receipt import identities, receipt_follows
from orchestrator.spec.lock import Lock
from orchestrator.spec.records import Row
from orchestrator.store.integrity import Checks

Rows = Mapping[str, Sequence[Row]]

EVIDENCE = (
    ("diagnostic", "diagnostics", "payload_sha256"),
    ("gate", "gate", "outcome"),
    ("certification", "certifications", "outcome"),
)
"""Purpose of a verdict row, its list in the receipt, and the column that says what was seen."""


def contract_checks(lock: Lock) -> Checks:
    """Everything that ``validate_matrix`` has to ask the contract about this lock's records."""
    return Checks(check_ledger, receipt_follows, row_check(lock))


def row_check(lock: Lock) -> Callable[[Rows, bytes], list[str]]:
    """The check of one rollout's rows against its receipt, and of the receipt against the lock."""
    policies = expected_policies(lock)

    def check(rows: Rows, receipt: bytes) -> list[str]:
        said = json.loads(receipt)
        return [
            *_identity_problems(said, policies[rows["rollout"][0]["rollout_id"]]),
            *_execution_problems(rows["rollout"][0], rows["verdicts"]),
            *_rollout_problems(rows["rollout"][0], said),
            *_verdict_problems(rows["verdicts"], said["evidence"]),
            *_proposal_problems(rows["proposals"], said["evidence"]["gate"]),
        ]

    return check


def expected_policies(lock: Lock) -> dict[str, Policy]:
    """Rollout id -> the contract's policy that the lock prescribes for it."""
    tasks = {task.task_id: task for task in lock.tasks}
    return {
        planned.rollout_id: Policy(
            evidence=planned.arm.evidence,
            binding=planned.arm.binding,
            admission=planned.arm.admission,
            certification=planned.arm.certification,
            base_state_id=tasks[planned.task_id].base_state_id,
            diagnostic_suite_id=tasks[planned.task_id].suites["diagnostic"],
            gate_suite_id=tasks[planned.task_id].suites["gate"],
            verifier_id=lock.verifier_id,
            context=Context(lock.lock_id, planned.rollout_id, planned.task_id),
        )
        for planned in lock.rollouts
    }


def _identity_problems(said: Mapping[str, Any], policy: Policy) -> Iterator[str]:
    """Policy, suites, verifier and context that the receipt is bound to against the lock's."""
    bound = said["identities"]
    for name, value in identities(policy).items():
        if bound.get(name) != value:
            yield f"receipt: its {name} is not the one that the lock prescribes"


def _execution_problems(rollout: Row, verdicts: Sequence[Row]) -> Iterator[str]:
    """A suite run belongs to one rollout: its id follows from the rollout's and its place."""
    for row in verdicts:
        if row["execution_id"] != execution_id(rollout["rollout_id"], row["sequence"]):
            yield f"verdicts: run {row['sequence']} is not an execution of this rollout"


def _rollout_problems(rollout: Row, said: Mapping[str, Any]) -> Iterator[str]:
    checkpoint = said["checkpoint"] or {}
    accepted, reason = said["accepted_state_id"], said["end_reason"]
    follows = {
        **{name: count for name, count in said["delivery"].items() if name in rollout},
        "end_reason": reason,
        "accepted": accepted is not None,
        "accepted_state_id": accepted,
        "accepted_via": said["accepted_via"],
        "base_state_id": said["base_state_id"],
        "final_state_id": said["final_state_id"],
        "checkpoint_state_id": checkpoint.get("state_id"),
        "empty_submission": accepted == said["base_state_id"],
        "escalated": reason == "escalated",
        "actions_exhausted": reason == "actions",
        "wall_exhausted": reason == "wall",
    }
    for name, value in follows.items():
        if rollout[name] != value:
            yield f"rollout: {name} is {rollout[name]!r}, its receipt says {value!r}"


def _verdict_problems(verdicts: Sequence[Row], evidence: Mapping[str, Any]) -> Iterator[str]:
    for purpose, listed, seen in EVIDENCE:
        names = ("state_id", "suite_id", "execution_id", seen)
        rows = [tuple(row[n] for n in names) for row in verdicts if row["purpose"] == purpose]
        if rows != [tuple(entry[n] for n in names) for entry in evidence[listed]]:
            yield f"verdicts: the {purpose} runs are not those of the receipt"


def _proposal_problems(
    proposals: Sequence[Row], gate: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    judged = [(entry["state_id"], entry["outcome"] == "pass") for entry in gate]
    if [(row["state_id"], row["gate_passed"]) for row in proposals] != judged:
        yield "proposals: they are not those that the receipt's gate judged"
