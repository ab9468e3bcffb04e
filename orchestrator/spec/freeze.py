"""Freezing, the pure part: enumerate every rollout, order them, digest the whole, compare locks.

No I/O: :mod:`orchestrator.cluster.resolve` reads and hashes the world and hands it in.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.spec.errors import BadInput
from orchestrator.spec.identity import digest_json
from orchestrator.spec.lock import Lock, LockedTask, PlannedRollout
from orchestrator.spec.study import Study


def rollout_id(task_id: str, levels: Mapping[str, str], seed: int) -> str:
    """Readable id that doubles as a directory name: ``task__level_level__s1``."""
    return f"{task_id}__{'_'.join(levels.values())}__s{seed}"


def _shuffled(items: Sequence[Any], *key: object) -> list[Any]:
    """Order by SHA-256 of (key, item): random, and the same on every Python version."""
    return sorted(items, key=lambda item: digest_json([*key, item]))


def enumerate_rollouts(study: Study, task_ids: Sequence[str]) -> tuple[PlannedRollout, ...]:
    """Tasks x cells x seeds in randomised, blocked dispatch order (protocol §1 "order").

    A block holds all arms of one task and seed, so no arm is confounded with time; blocks are in
    random order, arms in random order within their block. The tuple is sorted by ``order``.
    """
    blocks = [[task_id, seed] for task_id in sorted(task_ids) for seed in study.seeds]
    planned: list[PlannedRollout] = []
    for block, (task_id, seed) in enumerate(_shuffled(blocks, study.schedule_seed, "blocks")):
        cells = _shuffled(study.cells(), study.schedule_seed, task_id, seed)
        for levels in cells:
            planned.append(
                PlannedRollout(
                    rollout_id=rollout_id(task_id, levels, seed),
                    task_id=task_id,
                    seed=seed,
                    levels=levels,
                    arm=study.arm(levels),
                    block=block,
                    order=len(planned),
                )
            )
    return tuple(planned)


def select_tasks(
    study: Study, available: Mapping[str, tuple[str, str | None]], study_file: str
) -> tuple[str, ...]:
    """Task ids of the study. ``available`` maps id -> (project, why it is in no study or None).

    Raises BadInput for an unknown id, an included one that is in no study (a pilot, a standing
    negative case), more than ``max_per_project`` tasks of a project, or none at all.
    """
    chosen = study.tasks.include
    if chosen is None:
        chosen = tuple(task_id for task_id, (_, barred) in available.items() if barred is None)
    if not chosen:
        raise BadInput(
            study_file, "tasks", "no task of the manifest is left", "Name another manifest."
        )
    per_project: dict[str, int] = {}
    for task_id in chosen:
        if task_id not in available:
            raise BadInput(
                study_file,
                "tasks.include",
                f"unknown task id {task_id!r}",
                "Use an id of the task manifest.",
            )
        project, barred = available[task_id]
        if barred is not None:
            raise BadInput(
                study_file,
                "tasks.include",
                f"{task_id} is {barred}",
                "Such tasks are excluded from studies.",
            )
        per_project[project] = per_project.get(project, 0) + 1
        if per_project[project] > study.tasks.max_per_project:
            raise BadInput(
                study_file,
                "tasks",
                f"more than {study.tasks.max_per_project} tasks of project {project}",
                "Narrow `include` or raise `max_per_project`.",
            )
    if len(set(chosen)) != len(chosen):
        raise BadInput(study_file, "tasks.include", "a task id is repeated", "Name each task once.")
    return tuple(sorted(chosen))


def make_lock(
    *,
    study_path: str,
    study: Study,
    stack: Mapping[str, object],
    simulated: bool,
    sources: Mapping[str, str],
    prompts: Mapping[str, str],
    sandbox: Mapping[str, str],
    code: str,
    tasks: Sequence[LockedTask],
) -> Lock:
    """The lock of a resolved study. Equal inputs give an equal lock, byte for byte."""
    rollouts = enumerate_rollouts(study, [task.task_id for task in tasks])
    content: dict[str, object] = {
        "schema": "factorial/lock@2",
        "study_path": study_path,
        "study": study.model_dump(mode="json", by_alias=True),
        "stack": dict(stack),
        "simulated": simulated,
        "sources": dict(sorted(sources.items())),
        "prompts": dict(sorted(prompts.items())),
        "sandbox": dict(sorted(sandbox.items())),
        "code": code,
        "tasks": [t.model_dump(mode="json") for t in sorted(tasks, key=lambda t: t.task_id)],
        "rollouts": [r.model_dump(mode="json") for r in rollouts],
    }
    return Lock.model_validate({**content, "lock_id": Lock.digest(content)})


def lock_content(lock: Lock) -> dict[str, Any]:
    """The lock as JSON data, keys as in the file."""
    return lock.model_dump(mode="json", by_alias=True)


def differences(frozen: Mapping[str, Any], present: Mapping[str, Any]) -> tuple[str, ...]:
    """Leaf-by-leaf differences, each naming its place and both values.

    ``lock_id`` is left out, and ``study_path``: where a study lies depends on where one stands;
    what it says is hashed among the sources.
    """
    return tuple(
        line
        for key in sorted({*frozen, *present} - {"lock_id", "study_path"})
        for line in _differ(key, frozen.get(key), present.get(key))
    )


def _differ(place: str, frozen: Any, present: Any) -> Iterator[str]:
    if frozen == present:
        return
    if isinstance(frozen, dict) and isinstance(present, dict):
        for key in sorted({*frozen, *present}):
            yield from _differ(f"{place}.{key}", frozen.get(key), present.get(key))
    elif isinstance(frozen, list) and isinstance(present, list) and len(frozen) == len(present):
        for before, after in zip(frozen, present, strict=True):
            yield from _differ(f"{place}[{_label(before)}]", before, after)
    else:
        yield f"{place}: frozen {_shown(frozen)}, now {_shown(present)}"


def _label(item: Any) -> str:
    if isinstance(item, dict):
        return str(item.get("rollout_id") or item.get("task_id") or item.get("name") or "")
    return str(item)


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
