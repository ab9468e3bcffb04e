"""A small lock and records that fit it, for the tests of the store."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.freeze import lock_content, make_lock
from orchestrator.spec.identity import canonical_json, sha256_hex
from orchestrator.spec.lock import Lock, LockedTask
from orchestrator.spec.records import RolloutRecord, Row
from orchestrator.spec.study import Study
from orchestrator.store.integrity import Checks
from orchestrator.store.planned import planned_rows
from orchestrator.store.root import Root
from orchestrator.store.writer import Writer


def digest(text: str) -> str:
    return sha256_hex(text.encode())


def study(seeds: int = 1) -> Study:
    return Study.model_validate(
        {
            "schema": "factorial/study@1",
            "name": "small",
            "title": "A small study",
            "tasks": {"manifest": "tasks.yaml"},
            "stack": "stack.yaml",
            "prompts": "prompts",
            "factors": [
                {"name": "evidence", "levels": ["current", "stale"]},
                {"name": "contract", "levels": ["OFF", "ON"]},
            ],
            "seeds": list(range(1, seeds + 1)),
            "effects": [
                {
                    "name": "contract",
                    "kind": "contrast",
                    "factor": "contract",
                    "low": "OFF",
                    "high": "ON",
                }
            ],
            "decision": {"effect": "contract"},
        }
    )


def task(task_id: str) -> LockedTask:
    return LockedTask(
        task_id=task_id,
        project=f"project-{task_id}",
        base_state_id=digest(f"base {task_id}"),
        agent_commit="a" * 40,
        evaluator_commit="b" * 40,
        suites={},
        gold_patch_sha256=digest("gold"),
        source_id=digest("source"),
        relation="consecutive releases",
        eligibility_sha256=digest("eligibility"),
        certificate_sha256=digest("certificate"),
        environment_id=digest("environment"),
        statement_sha256=digest("statement"),
        gate_overlap=False,
        variants_id=None,
    )


def small_lock(tasks: int = 1, seeds: int = 1) -> Lock:
    """4 rollouts per task and seed."""
    return make_lock(
        study_path="small.yaml",
        study=study(seeds),
        stack={"name": "none"},
        simulated=True,
        sources={},
        prompts={},
        sandbox={},
        code="code",
        tasks=[task(f"t{number}") for number in range(tasks)],
    )


def lock_bytes(lock: Lock) -> bytes:
    return json.dumps(lock_content(lock), sort_keys=True, indent=1).encode() + b"\n"


def open_root(path: Path, lock: Lock) -> Root:
    return Root.open(path, lock_bytes(lock))


def ledger_of(rollout_id: str, events: int = 3) -> list[bytes]:
    """Lines that end in a newline and carry their own hash, as the contract's do."""
    lines: list[bytes] = []
    for number in range(events):
        body = {"seq": number, "kind": "event", "rollout": rollout_id}
        lines.append(canonical_json({**body, "hash": sha256_hex(canonical_json(body))}) + b"\n")
    return lines


def check_ledger(lines: list[bytes]) -> None:
    """The hash of each line is right, and they count from 0."""
    for number, line in enumerate(lines):
        event = json.loads(line)
        claimed = event.pop("hash")
        if event["seq"] != number or sha256_hex(canonical_json(event)) != claimed:
            raise IntegrityError(f"ledger line {number + 1}", "broken")


def check_receipt(lines: list[bytes], receipt: bytes) -> None:
    if json.loads(receipt) != {"events": len(lines)}:
        raise IntegrityError("receipt", "does not follow from the ledger")


def check_rows(rows: Mapping[str, Sequence[Row]], receipt: bytes) -> list[str]:
    """Stands for the contract's: these receipts say nothing of rows but the rollout's id."""
    assert rows["rollout"]
    return [] if receipt else ["the receipt is empty"]


CHECKS = Checks(check_ledger, check_receipt, check_rows)


def action(planned: Row, turn: int, **changes: Any) -> Row:
    base = planned["base_state_id"]
    return {
        "lock_id": planned["lock_id"],
        "rollout_id": planned["rollout_id"],
        "turn": turn,
        "kind": "view",
        "result": "done",
        "reason": None,
        "reply": f'{{"kind": "view", "path": "module_{turn}.py"}}',
        "finish_reason": "stop",
        "request_seed": 17 * turn,
        "prompt_sha256": digest(f"prompt {turn}"),
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "observation": f"text of module {turn}",
        "observation_sha256": digest(f"text of module {turn}"),
        "observation_truncated": False,
        "state_before": base,
        "state_after": base,
        "reply_source": "simulated",
        "tokens_served": 0,
        "latency_seconds": 0.25,
        "tool_seconds": 0.5,
        **changes,
    }


def proposal(planned: Row, state_id: str, patch_sha256: str, **changes: Any) -> Row:
    return {
        "lock_id": planned["lock_id"],
        "rollout_id": planned["rollout_id"],
        "proposal": 1,
        "turn": 2,
        "state_before": planned["base_state_id"],
        "state_id": state_id,
        "patch_sha256": patch_sha256,
        "gate_passed": True,
        "retained": True,
        "files_changed": 1,
        "evidence_state_id": None,
        **changes,
    }


def verdict(planned: Row, sequence: int, purpose: str, state_id: str) -> Row:
    return {
        "lock_id": planned["lock_id"],
        "rollout_id": planned["rollout_id"],
        "sequence": sequence,
        "purpose": purpose,
        "suite": "gate",
        "suite_id": digest("gate"),
        "state_id": state_id,
        "execution_id": digest(f"execution {sequence}"),
        "outcome": "pass",
        "void_reason": "",
        "flags": [],
        "payload_sha256": None,
        "cached": False,
        "duration_seconds": 1.5,
    }


COUNTERS = (
    "submissions",
    "rejected_submissions",
    "certifications",
    "flaky_certifications",
    "actions",
    "invalid_actions",
    "refused_actions",
    "revisions",
    "visible_tests",
    "test_deadline_hits",
    "interceptions_delivery",
    "interceptions_edit",
    "gate_passes",
    "gate_rejections",
    "rollbacks",
    "shell_commands",
    "shell_code_runs",
    "shell_write_attempts",
    "shell_deadline_hits",
    "tokens_prompt",
    "tokens_completion",
    "tokens_served",
)


def rollout_row(planned: Row, attempt_id: str, state_id: str, receipt: bytes) -> Row:
    rollout_id = str(planned["rollout_id"])
    return {
        **planned,
        **dict.fromkeys(COUNTERS, 0),
        "settled_as": "agent",
        "end_reason": "submitted",
        "accepted": True,
        "accepted_via": "submission",
        "accepted_state_id": state_id,
        "final_state_id": state_id,
        "checkpoint_state_id": state_id,
        "empty_submission": False,
        "submissions": 1,
        "certifications": 1,
        "actions": 3,
        "revisions": 1,
        "gate_passes": 1,
        "escalated": False,
        "actions_exhausted": False,
        "wall_exhausted": False,
        "tokens_prompt": 300,
        "tokens_completion": 30,
        "ledger_head": json.loads(ledger_of(rollout_id)[-1])["hash"],
        "receipt_sha256": sha256_hex(receipt),
        "charged_seconds": 2.25,
        "wall_seconds": 4.5,
        "own_seconds": 0.125,
        "attempt_id": attempt_id,
        "started_at": 1.7e9,
    }


def example_record(lock: Lock, rollout_id: str, attempt_id: str) -> RolloutRecord:
    """View, edit (gate passed, kept), submit (certified); the view's observation was cut."""
    planned = planned_rows(lock)[rollout_id]
    patch = f"patch of {rollout_id}\n".encode()
    blob = f"long text for {rollout_id} ".encode() * 50
    state, receipt = digest(f"state {rollout_id}"), canonical_json({"events": 3})
    cut = {"observation_sha256": sha256_hex(blob), "observation_truncated": True}
    return RolloutRecord(
        rollout_row(planned, attempt_id, state, receipt),
        [
            action(planned, 1, **cut),
            action(planned, 2, kind="edit", state_after=state),
            action(
                planned, 3, kind="submit", result="accepted", state_before=state, state_after=state
            ),
        ],
        [proposal(planned, state, sha256_hex(patch))],
        [verdict(planned, 1, "gate", state), verdict(planned, 2, "certification", state)],
        ledger_of(rollout_id),
        receipt,
        {sha256_hex(patch): patch},
        {sha256_hex(blob): blob},
    )


def evaluation_rows(record: RolloutRecord) -> list[Row]:
    rollout = record.rollout
    subjects: list[Mapping[str, Any]] = [
        {"proposal": 0, "state_id": rollout["base_state_id"], "patch_sha256": None},
        *record.proposals,
    ]
    return [
        {
            "lock_id": rollout["lock_id"],
            "rollout_id": rollout["rollout_id"],
            "task_id": rollout["task_id"],
            "subject": "proposal" if subject["proposal"] else "base",
            "proposal": subject["proposal"],
            "state_id": subject["state_id"],
            "patch_sha256": subject["patch_sha256"],
            "fail_to_pass": bool(subject["proposal"]),
            "pass_to_pass": True,
            "full": bool(subject["proposal"]),
            "resolved": bool(subject["proposal"]),
            "failed_ids": [] if subject["proposal"] else ["test_a", "test_b"],
            "failed_count": 0 if subject["proposal"] else 2,
            "outcome": "pass" if subject["proposal"] else "fail",
            "void_reason": "",
            "flags": [],
            "duration_seconds": 3.5,
            "cached": False,
        }
        for subject in subjects
    ]


def settle(writer: Writer, lock: Lock, rollout_id: str) -> RolloutRecord:
    """Begin an attempt, commit its record, end the attempt."""
    attempt_id = writer.begin_attempt(rollout_id, {"worker": 0})
    record = example_record(lock, rollout_id, attempt_id)
    writer.commit(record)
    writer.end_attempt(attempt_id, "settled", "")
    return record


def complete_run(path: Path, lock: Lock) -> Root:
    """Every rollout settled and evaluated."""
    root = open_root(path, lock)
    with root.writer():
        writer = Writer(root, lock)
        for planned in lock.rollouts:
            record = settle(writer, lock, planned.rollout_id)
            writer.commit_evaluation(planned.rollout_id, evaluation_rows(record))
    return root
