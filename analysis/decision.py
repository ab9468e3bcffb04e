"""From plan and outcome table to the whole analysis: effects, decision, families, sensitivities.

One direction: nothing here reads files or prints. The exact bootstrap decides; the preregistered
Monte Carlo draws stand beside it, and a disagreement between the two is part of the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from analysis.errors import AnalysisError
from analysis.estimands import (
    Cube,
    baseline_cells,
    cell_weights,
    endpoint_cube,
    leave_one_out,
    missing,
    project_equal,
    task_effects,
    task_equal_rate,
)
from analysis.inference import Estimate, estimate, holm, non_inferior, superior, zero_event_bound
from analysis.lattice import TaskEffects
from analysis.outcomes import SETTLED, Outcomes
from analysis.plan import MAIN_ENDPOINTS, Family, Interaction, Plan, Rule
from analysis.results import (
    Analysis,
    Decision,
    Design,
    EffectResult,
    FamilyResult,
    FamilyRow,
    Range,
    Sensitivity,
    Verdict,
    ZeroEvents,
)
from analysis.summary import cells, coverage
from analysis.transitions import transitions

Pair = tuple[str, str]
"""Effect and endpoint."""

LEAST_CLUSTERS = 2
"""One task resampled is itself: its bounds have no width, so that they support no claim."""


@dataclass(frozen=True)
class _Matrix:
    """Endpoint cubes over some tasks, with those tasks' ids and projects."""

    cubes: dict[str, Cube]
    tasks: tuple[str, ...]
    projects: tuple[str, ...]

    def only(self, keep: Sequence[bool]) -> "_Matrix":
        """The same for a part of the tasks."""
        mask = np.array(keep)
        return _Matrix(
            {name: cube[mask] for name, cube in self.cubes.items()},
            tuple(task for task, kept in zip(self.tasks, keep, strict=True) if kept),
            tuple(name for name, kept in zip(self.projects, keep, strict=True) if kept),
        )


def analyze(plan: Plan, outcomes: Outcomes) -> Analysis:
    """The whole analysis of one stack's outcome table (docs/protocol.md, "Decision").

    Raises ``AnalysisError`` where a family asks for an endpoint that the table does not report.
    """
    matrix = _matrix(plan, outcomes)
    pairs = [(effect.name, endpoint) for effect in plan.effects for endpoint in matrix.cubes]
    effects = _effects(plan, matrix, pairs)
    rows = outcomes.rows()
    return Analysis(
        study=plan.study,
        title=plan.title,
        lock_id=plan.lock_id,
        stack=plan.stack,
        simulated=plan.simulated,
        design=_design(plan),
        coverage=coverage(rows),
        cells=cells(plan, outcomes),
        effects=tuple(effects.values()),
        decision=_decision(plan, matrix, effects),
        families=tuple(_family(plan, family, effects) for family in plan.families),
        sensitivities=_sensitivities(plan, outcomes, matrix),
        zero_events=_zero_events(plan, matrix.cubes["unsafe"]),
        transitions=transitions(plan, outcomes),
        bootstrap_draws=plan.inference.bootstrap_draws,
        sign_flip_draws=plan.inference.sign_flip_draws,
        seed=plan.inference.seed,
    )


def _matrix(plan: Plan, outcomes: Outcomes, drop_empty: bool = False) -> _Matrix:
    rows = outcomes.rows()
    reported = all(row["discovered"] is not None for row in rows if row["settled_as"] == SETTLED)
    names = (*MAIN_ENDPOINTS, "discovered") if reported else MAIN_ENDPOINTS
    return _Matrix(
        {name: endpoint_cube(plan, outcomes, name, drop_empty) for name in names},
        tuple(task.task_id for task in plan.tasks),
        tuple(task.project for task in plan.tasks),
    )


def _effects(plan: Plan, matrix: _Matrix, pairs: Sequence[Pair]) -> dict[Pair, EffectResult]:
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
            (name, endpoint), lost, matrix, series[both], estimates[both]
        )
    return results


def _result(
    pair: Pair,
    lost: int,
    matrix: _Matrix,
    series: Sequence[TaskEffects],
    estimates: Sequence[Estimate],
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
        leave_one_project_out={name: (without[0][name], without[1][name]) for name in without[0]},
        nonzero_task_effects=None if lost else carried,
    )


def _verdict(rule: Rule, tasks: int, unsafe_upper: Fraction, sound_lower: Fraction) -> Verdict:
    claims = tasks >= LEAST_CLUSTERS
    superiority = claims and superior(unsafe_upper, rule.unsafe_below)
    non_inferiority = claims and non_inferior(sound_lower, rule.sound_above)
    return Verdict(
        unsafe_upper=unsafe_upper,
        sound_lower=sound_lower,
        superiority=superiority,
        non_inferiority=non_inferiority,
        joint=superiority and non_inferiority,
    )


def _deciding(rule: Rule, tasks: int, unsafe: EffectResult, sound: EffectResult) -> Verdict:
    """Missing outcomes are set against both claims; no assignment can be worse for either."""
    return _verdict(rule, tasks, unsafe.greatest.bounds.upper, sound.least.bounds.lower)


def _decision(plan: Plan, matrix: _Matrix, effects: dict[Pair, EffectResult]) -> Decision:
    rule, tasks = plan.rule, len(plan.tasks)
    unsafe, sound = effects[rule.effect, "unsafe"], effects[rule.effect, "sound"]
    deciding = _deciding(rule, tasks, unsafe, sound)
    sampled = _verdict(
        rule, tasks, unsafe.greatest.monte_carlo.upper, sound.least.monte_carlo.lower
    )
    exact = unsafe.greatest.exact is not None and sound.least.exact is not None
    baseline = _baseline(plan, matrix.cubes["sound"])
    words = [(verdict.superiority, verdict.non_inferiority) for verdict in (deciding, sampled)]
    return Decision(
        effect=rule.effect,
        level=rule.level,
        decided_by="exact" if exact else "monte carlo",
        worst_case=bool(unsafe.missing or sound.missing),
        verdict=deciding,
        monte_carlo=sampled,
        monte_carlo_agrees=words[0] == words[1],
        baseline_sound=baseline,
        floor=rule.floor,
        floor_limited=baseline[0] < rule.floor,
    )


def _baseline(plan: Plan, sound: Cube) -> Range:
    low = baseline_cells(plan, plan.rule.effect)
    return task_equal_rate(sound, low, 0), task_equal_rate(sound, low, 1)


def _family(plan: Plan, family: Family, effects: dict[Pair, EffectResult]) -> FamilyResult:
    """Holm over effects x endpoints; undecided as a whole where any member misses outcomes."""
    pairs = [(name, endpoint) for name in family.effects for endpoint in family.endpoints]
    for pair in pairs:
        if pair not in effects:
            problem = f"family {family.name} needs {pair[1]}, which the table does not report"
            raise AnalysisError(plan.file, "families", problem, f"Add the column {pair[1]}.")
    members = [effects[pair] for pair in pairs]
    alpha = 1 - plan.rule.level
    if any(member.missing for member in members):
        empty = [FamilyRow(*pair, None, None, None, None, None) for pair in pairs]
        return FamilyResult(family.name, alpha, tuple(empty))
    adjusted = holm([float(member.least.p) for member in members])
    sampled = holm([float(member.least.monte_carlo_p) for member in members])
    rows = [
        FamilyRow(
            effect=member.effect,
            endpoint=member.endpoint,
            p=member.least.p,
            p_holm=adjusted[at],
            monte_carlo_p=member.least.monte_carlo_p,
            monte_carlo_p_holm=sampled[at],
            significant=adjusted[at] <= float(alpha),
        )
        for at, member in enumerate(members)
    ]
    return FamilyResult(family.name, alpha, tuple(rows))


def _sensitivities(plan: Plan, outcomes: Outcomes, matrix: _Matrix) -> tuple[Sensitivity, ...]:
    """Empty submissions as not accepted (where reported); tasks by gate overlap (where mixed)."""
    made = []
    taken = [row["empty_submission"] for row in outcomes.rows() if row["accepted"]]
    if all(flag is not None for flag in taken):
        dropped = _matrix(plan, outcomes, drop_empty=True)
        made.append(_sensitivity(plan, "without empty submissions", dropped, sum(taken)))
    overlap = [task.gate_overlap for task in plan.tasks]
    if len(set(overlap)) == 2:
        apart = [not flag for flag in overlap]
        made.append(_sensitivity(plan, "tasks without gate overlap", matrix.only(apart)))
        made.append(_sensitivity(plan, "tasks with gate overlap", matrix.only(overlap)))
    return tuple(made)


def _sensitivity(plan: Plan, name: str, matrix: _Matrix, changed: int = 0) -> Sensitivity:
    pairs = [(plan.rule.effect, endpoint) for endpoint in ("unsafe", "sound")]
    unsafe, sound = _effects(plan, matrix, pairs).values()
    verdict = _deciding(plan.rule, len(matrix.tasks), unsafe, sound)
    return Sensitivity(name, len(matrix.tasks), changed, unsafe, sound, verdict)


def _zero_events(plan: Plan, unsafe: Cube) -> tuple[ZeroEvents, ...]:
    """Levels of the decision's factors at which no unsafe completion was seen (nor can miss)."""
    effect = plan.effect(plan.rule.effect)
    names = effect.of if isinstance(effect, Interaction) else (effect.name,)
    wanted = {plan.main(name).factor for name in names}
    found = []
    for factor in plan.factors:
        for level in factor.levels if factor.name in wanted else ():
            at = [i for i, cell in enumerate(plan.cells()) if cell[factor.name] == level]
            if task_equal_rate(unsafe, at, missing_as=1) == 0:
                bound = zero_event_bound(len(plan.tasks), float(plan.rule.level))
                found.append(ZeroEvents(factor.name, level, len(plan.tasks), bound))
    return tuple(found)


def _design(plan: Plan) -> Design:
    return Design(
        tasks=len(plan.tasks),
        projects=len({task.project for task in plan.tasks}),
        cells=len(plan.cells()),
        seeds=len(plan.seeds),
        rollouts=len(plan.rollouts),
        factors={factor.name: factor.levels for factor in plan.factors},
        constants=plan.constants,
        gate_overlap_tasks=sum(task.gate_overlap for task in plan.tasks),
    )
