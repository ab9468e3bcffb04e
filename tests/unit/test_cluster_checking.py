"""A row that does not follow from its receipt, or a receipt of another arm, is found."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.cluster.checking import row_check
from orchestrator.contract import codec
from orchestrator.contract.ledger import read
from orchestrator.contract.policy import Context, Policy
from orchestrator.spec.lock import Lock
from tests.property.test_spec_freeze import lock as make_lock
from tests.unit.agent_support import FIX, SUBMIT, TEST, Rollout, roll


def honest() -> tuple[Rollout, dict[str, Any]]:
    done = roll([TEST, FIX, TEST, "nonsense", SUBMIT], "BAC", "stale")
    rows = {
        "rollout": [dict(done.record.rollout)],
        "proposals": [dict(row) for row in done.record.proposals],
        "verdicts": [dict(row) for row in done.record.verdicts],
    }
    return done, rows


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The row check with the policy that the unit rollouts really have."""
    done, rows = honest()
    policy = codec.decode_policy(read(done.record.ledger)[0][0])
    known = {rows["rollout"][0]["rollout_id"]: policy}
    monkeypatch.setattr("orchestrator.cluster.checking.expected_policies", lambda _lock: known)
    return row_check(make_lock(["a"]))


def test_an_honest_record_has_no_finding(check: Any) -> None:
    done, rows = honest()
    assert check(rows, done.record.receipt) == []


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("rollout", "accepted", False),
        ("rollout", "accepted_via", "checkpoint"),
        ("rollout", "end_reason", "escalated"),
        ("rollout", "interceptions_edit", 3),
        ("rollout", "checkpoint_state_id", None),
        ("rollout", "empty_submission", True),
        ("rollout", "actions_exhausted", True),
        ("proposals", "gate_passed", False),
        ("proposals", "state_id", "0" * 64),
        ("verdicts", "outcome", "pass"),
        ("verdicts", "execution_id", "0" * 64),
    ],
)
def test_an_edited_row_is_found(check: Any, table: str, column: str, value: object) -> None:
    done, rows = honest()
    row = next(row for row in rows[table] if row[column] != value)
    if table == "verdicts" and column == "outcome":
        row = next(row for row in rows[table] if row["purpose"] != "diagnostic")
        value = "fail"
    row[column] = value
    assert check(rows, done.record.receipt)


def test_a_receipt_of_another_arm_is_found(check: Any) -> None:
    _, rows = honest()
    other = roll([TEST, FIX, TEST, "nonsense", SUBMIT], "BA", "stale")
    assert any("policy" in problem for problem in check(rows, other.record.receipt))


@pytest.mark.parametrize(
    ("name", "value"),
    [("lock_id", "0" * 64), ("rollout_id", "another"), ("task_id", "another")],
)
def test_a_receipt_of_another_context_is_found(
    check: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Ledger, receipt and rows of a rollout that is like this one in all but its place."""
    done, rows = honest()
    policy = codec.decode_policy(read(done.record.ledger)[0][0])
    assert policy.context is not None
    foreign = replace(policy, context=replace(policy.context, **{name: value}))
    known = {rows["rollout"][0]["rollout_id"]: foreign}
    monkeypatch.setattr("orchestrator.cluster.checking.expected_policies", lambda _lock: known)
    problems = row_check(make_lock(["a"]))(rows, done.record.receipt)
    assert any("context_sha256" in problem for problem in problems)


def test_policies_follow_the_lock() -> None:
    lock: Lock = make_lock(["a"])
    suites = {"gate": "0" * 64, "diagnostic": "1" * 64}
    task = lock.tasks[0].model_copy(update={"suites": suites})
    lock = lock.model_copy(update={"tasks": (task,)})
    from orchestrator.cluster.checking import expected_policies

    policies = expected_policies(lock)
    assert len({policy.digest for policy in policies.values()}) == 4, "one policy per arm"
    assert len(set(policies.values())) == len(lock.rollouts), "one context per rollout"
    planned = lock.rollouts[0]
    arm = planned.arm.model_dump(exclude={"revision_cap"})
    expected = Policy(**arm, base_state_id=task.base_state_id,
                      diagnostic_suite_id="1" * 64, gate_suite_id="0" * 64,
                      verifier_id=lock.verifier_id,
                      context=Context(lock.lock_id, planned.rollout_id, "a"))  # fmt: skip
    assert policies[planned.rollout_id] == expected
