"""What the lock already says of a rollout's row, and the row of a rollout without an outcome."""

from orchestrator.spec.identity import canonical_json
from orchestrator.spec.lock import Lock, LockedTask, PlannedRollout
from orchestrator.spec.records import Row
from orchestrator.store.schemas import BOOL, FLOAT, INT, ROLLOUT

ARM = ("evidence", "binding", "admission", "certification", "revision_cap")
"""Columns that hold the treatment."""


def planned_rows(lock: Lock) -> dict[str, Row]:
    """Rollout id -> the columns of its ``rollout`` row that the lock fixes, in dispatch order."""
    tasks = {task.task_id: task for task in lock.tasks}
    ordered = sorted(lock.rollouts, key=lambda rollout: rollout.order)
    return {r.rollout_id: _planned_row(lock, tasks[r.task_id], r) for r in ordered}


def _planned_row(lock: Lock, task: LockedTask, planned: PlannedRollout) -> Row:
    return {
        "lock_id": lock.lock_id,
        "rollout_id": planned.rollout_id,
        "study": lock.study["name"],
        "task_id": task.task_id,
        "project": task.project,
        "stack": lock.stack["name"],
        "simulated": lock.simulated,
        "seed": planned.seed,
        "block": planned.block,
        "order": planned.order,
        **{name: getattr(planned.arm, name) for name in ARM},
        "gate_overlap": task.gate_overlap,
        "base_state_id": task.base_state_id,
    }


_ZERO: dict[object, object] = {BOOL: False, INT: 0, FLOAT: 0.0}


def row_without_outcome(planned: Row, settled_as: str, reason: str, attempt: Row) -> Row:
    """The ``rollout`` row of a rollout that could not be had: null outcome, nothing counted.

    ``attempt`` fills ``attempt_id``, ``started_at`` and ``wall_seconds``.
    """
    blank = {c.name: None if c.nullable else _ZERO.get(c.type, "") for c in ROLLOUT}
    settled = {"settled_as": settled_as, "end_reason": reason}
    return {**blank, **planned, **settled, **attempt}


def receipt_without_outcome(planned: Row, settled_as: str, reason: str) -> bytes:
    """What stands in ``receipt.json`` of such a rollout: a statement, without any authority.

    It depends on nothing but the lock and the reason, so that equal runs have equal receipts.
    """
    return canonical_json(
        {
            "schema": "factorial/no-outcome@1",
            "lock_id": planned["lock_id"],
            "rollout_id": planned["rollout_id"],
            "settled_as": settled_as,
            "reason": reason,
        }
    )
