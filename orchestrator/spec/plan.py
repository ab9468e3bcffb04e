"""``plan.json``: the resolved design that the analysis reads, so that it needs no other room."""

from typing import Any

from orchestrator.spec.lock import Lock


def plan_of(lock: Lock) -> dict[str, Any]:
    """Design, task list, rollouts and decision rule of a lock as plain JSON data."""
    stack = str(lock.stack["name"])
    projects = {task.task_id: task.project for task in lock.tasks}
    return {
        **design_of(dict(lock.study)),
        "lock_id": lock.lock_id,
        "simulated": lock.simulated,
        "stack": stack,
        "tasks": [
            {"task_id": t.task_id, "project": t.project, "gate_overlap": t.gate_overlap}
            for t in lock.tasks
        ],
        "rollouts": [
            {
                "rollout_id": r.rollout_id,
                "task_id": r.task_id,
                "project": projects[r.task_id],
                "stack": stack,
                "seed": r.seed,
                "levels": r.levels,
            }
            for r in sorted(lock.rollouts, key=lambda r: r.rollout_id)
        ],
    }


def design_of(study: dict[str, Any]) -> dict[str, Any]:
    """A study's design without tasks, stack and rollouts: an outcome table completes it."""
    kept = (
        "title",
        "factors",
        "constants",
        "seeds",
        "effects",
        "decision",
        "families",
        "inference",
    )
    return {
        "schema": "factorial/plan@1",
        "study": study["name"],
        **{name: study[name] for name in kept},
        "lock_id": "",
        "simulated": False,
        "stack": "",
        "tasks": [],
        "rollouts": [],
    }
