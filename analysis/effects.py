"""From the outcome table to every effect of the plan: estimates, bounds and named alternatives.

Comes in: a plan and its outcome table as cubes. Goes out: one result per effect and endpoint, under
both extreme assignments of missing outcomes. Nothing is decided here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow.compute as pc

from analysis.estimands import (
    MISSING,
    Cube,
    Weights,
    cell_weights,
    endpoint_cube,
    leave_one_out,
    missing,
    project_equal,
    task_effects,
)
from analysis.figures import Figure, effect_figure
from analysis.inference import Estimate, estimate
from analysis.lattice import TaskEffects
from analysis.outcomes import SETTLED, Outcomes
from analysis.plan import MAIN_ENDPOINTS, Plan
from analysis.results import EffectResult

Pair = tuple[str, str]
"""Effect and endpoint."""


@dataclass(frozen=True)
class Matrix:
    """Endpoint cubes over some tasks, with those tasks' ids and projects."""

    cubes: dict[str, Cube]
    tasks: tuple[str, ...]
    projects: tuple[str, ...]

    def only(self, keep: Sequence[bool]) -> "Matrix":
        """The same for a part of the tasks."""
        mask = np.array(keep)
        return Matrix(
            {name: cube[mask] for name, cube in self.cubes.items()},
            tuple(task for task, kept in zip(self.tasks, keep, strict=True) if kept),
            tuple(name for name, kept in zip(self.projects, keep, strict=True) if kept),
        )


def build_matrix(plan: Plan, outcomes: Outcomes, drop_empty: bool = False) -> Matrix:
    settled = outcomes.table.filter(pc.equal(outcomes.table["settled_as"], SETTLED))
    reported = settled["discovered"].null_count == 0
    names = (*MAIN_ENDPOINTS, "discovered") if reported else MAIN_ENDPOINTS
    return Matrix(
        {name: endpoint_cube(plan, outcomes, name, drop_empty) for name in names},
        tuple(task.task_id for task in plan.tasks),
        tuple(task.project for task in plan.tasks),
    )


def effect_results(plan: Plan, matrix: Matrix, pairs: Sequence[Pair]) -> dict[Pair, EffectResult]:
    """All asked-for effects under both extreme assignments, in one Monte Carlo pass."""
    weights = {name: cell_weights(plan, name) for name, _ in pairs}
    series = [
        task_effects(matrix.cubes[endpoint], weights[name], greatest)
        for name, endpoint in pairs
        for greatest in (False, True)
    ]
    estimates = estimate(series, plan.rule.level, plan.inference)
    results = {}
    for at, (name, endpoint) in enumerate(pairs):
        both = slice(2 * at, 2 * at + 2)
        lost = missing(matrix.cubes[endpoint], weights[name])
        results[name, endpoint] = _result(
            (name, endpoint),
            lost,
            matrix,
            series[both],
            estimates[both],
            rollout_pooled(matrix.cubes[endpoint], weights[name]),
            effect_figure(plan, name, endpoint, len(matrix.tasks), estimates[both]),
        )
    return results


def rollout_pooled(cube: Cube, weights: Weights) -> Fraction | None:
    """The effect on pooled rates of settled rollouts; a number only, by design without an interval.

    None where a cell that the effect depends on has no settled rollout.
    """
    settled = (cube != MISSING).sum(axis=(0, 2)).tolist()
    events = (cube == 1).sum(axis=(0, 2)).tolist()
    used = [(u, e, n) for u, e, n in zip(weights.units, events, settled, strict=True) if u]
    if any(n == 0 for _, _, n in used):
        return None
    total = sum((u * Fraction(e, n) for u, e, n in used), Fraction(0))
    return total / weights.denominator


def _result(
    pair: Pair,
    lost: int,
    matrix: Matrix,
    series: Sequence[TaskEffects],
    estimates: Sequence[Estimate],
    pooled: Fraction | None,
    figure: Figure,
) -> EffectResult:
    least, greatest = series
    equal = project_equal(least, matrix.projects), project_equal(greatest, matrix.projects)
    without = [leave_one_out(effects, matrix.projects) for effects in series]
    carried = {
        task: Fraction(unit, least.denominator)
        for task, unit in zip(matrix.tasks, least.units, strict=True)
        if unit
    }
    return EffectResult(
        effect=pair[0],
        endpoint=pair[1],
        missing=lost,
        least=estimates[0],
        greatest=estimates[1],
        project_equal=equal,
        rollout_pooled=pooled,
        leave_one_project_out={name: (without[0][name], without[1][name]) for name in without[0]},
        nonzero_task_effects=None if lost else carried,
        figure=figure,
    )
