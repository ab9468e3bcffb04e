"""Where the rows of a typed table belong in a plan: tasks x seeds x cells, each place taken once.

Comes in: checked columns and a plan, open or whole. Goes out: the order of the rows in the plan; a
level, seed or task that the plan does not know, a doubled row and a missing one are refused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.errors import AnalysisError
from analysis.plan import Levels, Plan, Rollout, Task
from analysis.tabular import Codes, Column, shown

Axis = tuple[str, Sequence[object]]
"""A column and the values that it may have, in the plan's order."""

STRANGE = {"task_id": "unplanned row of task {}", "seed": "seed {} is not in the plan"}
"""What is wrong with a value that the plan does not know; any other column holds levels."""


@dataclass(frozen=True, eq=False)
class Places:
    """``rows[p]``: row (from 0) at place p of tasks x seeds x cells, flattened, tasks slowest."""

    tasks: tuple[str, ...]
    rows: Codes


def places(typed: dict[str, Column], plan: Plan, file: str) -> Places:
    """Place of every row; refuses unknown levels, seeds and tasks, doubled and missing rows."""
    tasks = tuple(task.task_id for task in plan.tasks)
    if plan.open:
        tasks = tuple(sorted(str(task) for task in typed["task_id"].values))
    axes: list[Axis] = [("task_id", tasks), ("seed", plan.seeds)]
    axes += [(factor.name, factor.levels) for factor in plan.factors]
    _check_known(typed, axes, file)
    sizes = [len(known) for _, known in axes]
    flat = np.ravel_multi_index([_on_axis(typed[name], known) for name, known in axes], sizes)
    rows = np.argsort(flat, kind="stable")
    ordered = flat[rows]

    def key(place: int) -> str:
        at = np.unravel_index(place, sizes)
        return ", ".join(
            f"{name} {known[int(i)]}" for (name, known), i in zip(axes, at, strict=True)
        )

    twice = rows[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        row = int(twice.min())
        problem = f"doubles {key(int(flat[row]))}"
        raise AnalysisError(file, f"row {row + 1}", problem, "One row per rollout.")
    if len(flat) < math.prod(sizes):
        gap = np.flatnonzero(np.append(ordered, -1) != np.arange(len(flat) + 1))[0]
        problem = f"no row for {key(int(gap))}"
        raise AnalysisError(file, "", problem, "No rollout may be dropped.")
    return Places(tasks, rows.astype(np.int64))


def _check_known(typed: dict[str, Column], axes: Sequence[Axis], file: str) -> None:
    """Refuse the first row that holds something the plan does not know."""
    found = []
    for name, known in axes:
        column, allowed = typed[name], set(known)
        strange = [at for at, value in enumerate(column.values) if value not in allowed]
        if strange:
            first = column.first_rows()
            row, at = min((int(first[at]), at) for at in strange)
            few = ", ".join(map(str, known[:20])) + (", ..." if len(known) > 20 else "")
            found.append((row, name, column.values[at], f"Known: {few}."))
    if found:
        row, name, value, remedy = min(found, key=lambda one: one[0])
        problem = STRANGE.get(name, "unknown level {}").format(shown(value))
        raise AnalysisError(file, f"{name}, row {row}", problem, remedy)


def _on_axis(column: Column, known: Sequence[object]) -> Codes:
    at = {value: place for place, value in enumerate(known)}
    return np.array([at[value] for value in column.values], dtype=np.int64)[column.codes]


def completed(
    plan: Plan,
    stack: str,
    tasks: tuple[str, ...],
    projects: dict[str, object],
    overlap: dict[str, object],
) -> Plan:
    """An open plan takes tasks, stack and rollouts from the table."""
    cells = [(_label(cell), cell) for cell in plan.cells()]
    made = tuple(Task(task, str(projects[task]), bool(overlap[task])) for task in tasks)
    rollouts = tuple(
        Rollout(f"{task.task_id}/{label}/{seed}", task.task_id, task.project, stack, seed, cell)
        for task in made
        for seed in plan.seeds
        for label, cell in cells
    )
    return replace(plan, stack=stack, tasks=made, rollouts=rollouts)


def _label(cell: Levels) -> str:
    """Levels joined by slashes; a slash within one is escaped, so that labels stay distinct."""
    return "/".join(level.replace("%", "%25").replace("/", "%2F") for level in cell.values())


def planned(plan: Plan, found: Places) -> Codes:
    """Place of every planned rollout in tasks x seeds x cells."""
    tasks = {task: at for at, task in enumerate(found.tasks)}
    seeds = {seed: at for at, seed in enumerate(plan.seeds)}
    cells = {tuple(cell.values()): at for at, cell in enumerate(plan.cells())}
    names = [factor.name for factor in plan.factors]
    order = [
        (tasks[one.task_id] * len(seeds) + seeds[one.seed]) * len(cells)
        + cells[tuple(one.levels[name] for name in names)]
        for one in plan.rollouts
    ]
    return np.array(order, dtype=np.int64)
