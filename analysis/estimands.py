"""What is estimated: task-equal effects of a factorial, each a weighted sum over its cells.

Comes in: a plan and its outcome table. Goes out: for every effect and endpoint the effects of the
tasks, as whole numbers of one unit. Within a task, seeds and the other factors are averaged; all
tasks weigh the same (docs/protocol.md, "Decision").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.errors import AnalysisError
from analysis.lattice import EXACT_FLOATS, TaskEffects
from analysis.outcomes import Outcomes
from analysis.plan import Interaction, Levels, MainEffect, Plan

Cube = NDArray[np.int64]
"""Tasks x cells x seeds, in plan order: 1, 0, or MISSING where a rollout has no outcome."""
MISSING = -1


@dataclass(frozen=True)
class Weights:
    """Weight of cell c is ``units[c] / denominator``; a task effect is a sum over cell means."""

    units: tuple[int, ...]
    denominator: int


def endpoint_cube(plan: Plan, outcomes: Outcomes, endpoint: str, drop_empty: bool = False) -> Cube:
    """Outcomes of one endpoint. ``drop_empty``: accepted base trees count as not accepted.

    An empty submission stays in the denominator: no rollout is ever dropped.
    """
    table, places = outcomes.table, _places(plan, outcomes)
    values = table[endpoint]
    if drop_empty:
        values = pc.and_(values, pc.invert(pc.fill_null(table["empty_submission"], False)))
    shape = (len(plan.tasks), len(plan.cells()), len(plan.seeds))
    cube = np.full(shape, MISSING, dtype=np.int64)
    cube.ravel()[places] = pc.fill_null(values.cast(pa.int64()), MISSING).to_numpy()
    return cube


def _places(plan: Plan, outcomes: Outcomes) -> NDArray[np.int64]:
    """Place of every row of the table in a flattened cube."""
    columns: list[tuple[str, Sequence[str | int]]]
    columns = [("task_id", [task.task_id for task in plan.tasks])]
    columns += [(factor.name, factor.levels) for factor in plan.factors]
    columns += [("seed", plan.seeds)]
    at = [
        pc.index_in(outcomes.table[name], value_set=pa.array(known)).to_numpy()
        for name, known in columns
    ]
    places: NDArray[np.int64] = np.ravel_multi_index(at, [len(known) for _, known in columns])
    return places


def cell_weights(plan: Plan, name: str) -> Weights:
    """Weights of an effect over the plan's cells (docs/protocol.md, "Depth" for linear).

    A main effect weighs the levels of its factor; an interaction multiplies the weights of its two
    main effects; every factor not named is averaged.
    """
    effect = plan.effect(name)
    mains = [plan.main(of) for of in effect.of] if isinstance(effect, Interaction) else [effect]
    by_factor = {main.factor: level_weights(plan, main) for main in mains}
    others = 1
    for factor in plan.factors:
        others *= 1 if factor.name in by_factor else len(factor.levels)
    weights = [_cell_weight(by_factor, cell) / others for cell in plan.cells()]
    denominator = lcm(*(weight.denominator for weight in weights))
    units = tuple(int(weight * denominator) for weight in weights)
    if sum(map(abs, units)) * len(plan.seeds) * len(plan.tasks) >= EXACT_FLOATS:
        problem = f"{name}: the numeric levels have too many digits for exact arithmetic"
        raise AnalysisError(plan.file, "effects", problem, "Use rounder levels.")
    return Weights(units, denominator)


def level_weights(plan: Plan, main: MainEffect) -> dict[str, Fraction]:
    """Weight of each level of the factor: +1 and -1 for a contrast, a fitted change for linear.

    Linear: with x the numeric levels, the least-squares slope is sum (x - mean) y divided by
    sum (x - mean)^2, and the effect is the slope times (high - low).
    """
    levels = next(factor.levels for factor in plan.factors if factor.name == main.factor)
    if main.kind == "contrast":
        return {level: Fraction((level == main.high) - (level == main.low)) for level in levels}
    numbers = {level: Fraction(level) for level in levels}
    centre = sum(numbers.values(), Fraction(0)) / len(levels)
    spread = sum((x - centre) ** 2 for x in numbers.values())
    change = numbers[main.high] - numbers[main.low]
    return {level: (x - centre) * change / spread for level, x in numbers.items()}


def _cell_weight(by_factor: dict[str, dict[str, Fraction]], cell: Levels) -> Fraction:
    weight = Fraction(1)
    for factor, weights in by_factor.items():
        weight *= weights[cell[factor]]
    return weight


def task_effects(cube: Cube, weights: Weights, greatest: bool = False) -> TaskEffects:
    """Effects of the tasks under one extreme assignment of missing outcomes.

    Missing outcomes take the value that makes every task's effect as small (``greatest``: as great)
    as it can be; without any, both assignments are the effect itself.
    """
    units = np.array(weights.units, dtype=object)
    raising = (units > 0 if greatest else units < 0).astype(np.int64)
    filled = np.where(cube == MISSING, raising[None, :, None], cube)
    sums = filled.sum(axis=2).astype(object) @ units
    return TaskEffects(tuple(int(unit) for unit in sums), weights.denominator * cube.shape[2])


def missing(cube: Cube, weights: Weights) -> int:
    """Missing outcomes that the effect depends on."""
    used = np.array([unit != 0 for unit in weights.units])
    return int((cube[:, used, :] == MISSING).sum())


def project_equal(effects: TaskEffects, projects: Sequence[str]) -> Fraction:
    """Mean over projects of the mean over a project's tasks; ``projects[i]`` is of task i."""
    sums = _by_project(effects, projects)
    means = [Fraction(total, count * effects.denominator) for total, count in sums.values()]
    return sum(means, Fraction(0)) / len(means)


def leave_one_out(effects: TaskEffects, projects: Sequence[str]) -> dict[str, Fraction]:
    """Task-equal effect without each project in turn; empty where there is only one project."""
    sums, total, tasks = _by_project(effects, projects), sum(effects.units), len(effects.units)
    if len(sums) < 2:
        return {}
    return {
        name: Fraction(total - part, (tasks - count) * effects.denominator)
        for name, (part, count) in sums.items()
    }


def _by_project(effects: TaskEffects, projects: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Sum of units and number of tasks of every project, by name."""
    sums = dict.fromkeys(sorted(set(projects)), (0, 0))
    for unit, name in zip(effects.units, projects, strict=True):
        part, count = sums[name]
        sums[name] = part + unit, count + 1
    return sums


def baseline_cells(plan: Plan, name: str) -> tuple[int, ...]:
    """Cells at the low level of every factor the effect names: the baseline of a decision."""
    effect = plan.effect(name)
    mains = [plan.main(of) for of in effect.of] if isinstance(effect, Interaction) else [effect]
    return tuple(
        at
        for at, cell in enumerate(plan.cells())
        if all(cell[main.factor] == main.low for main in mains)
    )


def task_equal_rate(cube: Cube, cells: Sequence[int], missing_as: int = 0) -> Fraction:
    """Rate over some cells (all tasks weigh the same; each has every cell and seed)."""
    chosen = cube[:, list(cells), :]
    return Fraction(int(np.where(chosen == MISSING, missing_as, chosen).sum()), int(chosen.size))
