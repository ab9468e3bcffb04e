"""From plan and outcome table to the whole analysis: effects, decision, families, sensitivities.

One direction: nothing here reads files or prints. The exact bootstrap decides; the preregistered
Monte Carlo draws stand beside it, and a disagreement between the two is part of the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import pyarrow.compute as pc

from analysis.calibrated import calibrated_bounds
from analysis.effects import Matrix, Pair, build_matrix, effect_results
from analysis.errors import AnalysisError
from analysis.estimands import (
    Cube,
    Weights,
    baseline_cells,
    cell_weights,
    task_effects,
    task_equal_rate,
)
from analysis.figures import Figure, in_words, plain_figure
from analysis.inference import holm, non_inferior, superior, zero_event_bound
from analysis.lattice import TaskEffects
from analysis.outcomes import Outcomes
from analysis.paired import paired
from analysis.plan import Family, Interaction, Plan, Rule
from analysis.rates import ESTIMANDS, Rate, rates
from analysis.results import (
    Analysis,
    Calibrated,
    Decision,
    Design,
    EffectResult,
    FamilyResult,
    FamilyRow,
    Observed,
    Range,
    Sensitivity,
    Verdict,
    ZeroEvents,
)
from analysis.summary import cells, coverage
from analysis.tallies import tallies
from analysis.transitions import transitions

LEAST_CLUSTERS = 2
"""One task resampled is itself: its bounds have no width, so that they support no claim."""


def analyze(plan: Plan, outcomes: Outcomes) -> Analysis:
    """The whole analysis of one stack's outcome table (docs/protocol.md, "Decision").

    Raises ``AnalysisError`` where a family asks for an endpoint that the table does not report.
    """
    matrix = build_matrix(plan, outcomes)
    pairs = [(effect.name, endpoint) for effect in plan.effects for endpoint in matrix.cubes]
    effects = effect_results(plan, matrix, pairs)
    decisive = _Decisive.of(plan, matrix)
    decision, found = _decision(plan, matrix, effects), tallies(plan, outcomes)
    descriptive = rates(plan, outcomes, found=found)
    return Analysis(
        study=plan.study,
        title=plan.title,
        lock_id=plan.lock_id,
        stack=plan.stack,
        simulated=plan.simulated,
        design=_design(plan),
        coverage=coverage(outcomes.table),
        cells=cells(plan, outcomes, found),
        effects=tuple(effects.values()),
        decision=decision,
        calibrated=_calibrated(plan, decisive),
        families=tuple(_family(plan, family, effects) for family in plan.families),
        sensitivities=_sensitivities(plan, outcomes, matrix),
        paired=paired(plan, matrix.cubes["sound"]),
        zero_events=_zero_events(plan, matrix.cubes["unsafe"]),
        transitions=transitions(plan, outcomes, found),
        estimands=_definitions(descriptive),
        rates=descriptive,
        timing=rates(plan, outcomes, volatile=True, found=found),
        observed=Observed(*decisive.each_task(), decision.baseline_sound[0]),
        bootstrap_draws=plan.inference.bootstrap_draws,
        sign_flip_draws=plan.inference.sign_flip_draws,
        seed=plan.inference.seed,
    )


@dataclass(frozen=True)
class _Decisive:
    """Task effects of the decision, missing outcomes set against both claims, and their range."""

    unsafe: TaskEffects
    sound: TaskEffects
    support: tuple[int, int]

    @classmethod
    def of(cls, plan: Plan, matrix: Matrix) -> "_Decisive":
        weights = cell_weights(plan, plan.rule.effect)
        return cls(
            task_effects(matrix.cubes["unsafe"], weights, greatest=True),
            task_effects(matrix.cubes["sound"], weights),
            _support(weights, len(plan.seeds)),
        )

    def each_task(self) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """Unsafe and sound effects as fractions."""
        unsafe, sound = (
            tuple(Fraction(unit, effects.denominator) for unit in effects.units)
            for effects in (self.unsafe, self.sound)
        )
        return unsafe, sound


def _support(weights: Weights, seeds: int) -> tuple[int, int]:
    """Least and greatest possible task effect, in units of ``task_effects``."""
    low = seeds * sum(unit for unit in weights.units if unit < 0)
    high = seeds * sum(unit for unit in weights.units if unit > 0)
    return low, high


def _calibrated(plan: Plan, decisive: _Decisive) -> Calibrated:
    unsafe, sound = (
        calibrated_bounds(one.units, one.denominator, plan.rule.level, decisive.support)
        for one in (decisive.unsafe, decisive.sound)
    )
    tasks = len(plan.tasks)
    return Calibrated(
        unsafe=unsafe,
        sound=sound,
        verdict=_verdict(plan.rule, tasks, unsafe.upper, sound.lower),
        figure=plain_figure(
            f"task-equal {in_words(plan, plan.rule.effect)} on unsafe and sound",
            "bounds for a mean of bounded task effects (random simplex weights)",
            tasks,
        ),
    )


def _definitions(descriptive: Sequence[Rate]) -> dict[str, str]:
    names = {rate.estimand for rate in descriptive}
    return {
        one.name: f"{one.events} per {one.trials}: {one.meaning}"
        for one in ESTIMANDS
        if one.name in names
    }


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


def _decision(plan: Plan, matrix: Matrix, effects: dict[Pair, EffectResult]) -> Decision:
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
        unsafe_below=rule.unsafe_below,
        sound_above=rule.sound_above,
        least_tasks=LEAST_CLUSTERS,
        figure=_decision_figure(plan, unsafe, exact),
    )


def _decision_figure(plan: Plan, unsafe: EffectResult, exact: bool) -> Figure:
    rule = plan.rule
    return replace(
        unsafe.figure,
        estimand=f"task-equal {in_words(plan, rule.effect)} on unsafe and on sound",
        method=f"intersection-union test of two one-sided bounds at {float(rule.level):g}, both "
        f"strict; {'exact' if exact else 'Monte Carlo'} task-cluster percentile bootstrap",
        sign_flips=None,
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
    alpha, figure = 1 - plan.rule.level, _family_figure(plan, members)
    if any(member.missing for member in members):
        empty = [FamilyRow(*pair, None, None, None, None, None) for pair in pairs]
        return FamilyResult(family.name, alpha, tuple(empty), figure)
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
    return FamilyResult(family.name, alpha, tuple(rows), figure)


def _family_figure(plan: Plan, members: Sequence[EffectResult]) -> Figure:
    exact = all(one.least.exact_p is not None for one in members)
    return Figure(
        estimand="no effect on any member, two-sided",
        method=f"{'exact' if exact else 'Monte Carlo'} sign flips of task effects, Holm-adjusted",
        tasks=len(plan.tasks),
        draws=None,
        sign_flips=plan.inference.sign_flip_draws,
        seed=plan.inference.seed,
    )


def _sensitivities(plan: Plan, outcomes: Outcomes, matrix: Matrix) -> tuple[Sensitivity, ...]:
    """Empty submissions as not accepted (where reported); tasks by gate overlap (where mixed)."""
    made = []
    taken = outcomes.table.filter(outcomes.table["accepted"])["empty_submission"]
    if taken.null_count == 0:
        dropped = build_matrix(plan, outcomes, drop_empty=True)
        empty = int(pc.sum(taken).as_py() or 0)
        made.append(_sensitivity(plan, "without empty submissions", dropped, empty))
    overlap = [task.gate_overlap for task in plan.tasks]
    if len(set(overlap)) == 2:
        apart = [not flag for flag in overlap]
        made.append(_sensitivity(plan, "tasks without gate overlap", matrix.only(apart)))
        made.append(_sensitivity(plan, "tasks with gate overlap", matrix.only(overlap)))
    return tuple(made)


def _sensitivity(plan: Plan, name: str, matrix: Matrix, changed: int = 0) -> Sensitivity:
    pairs = [(plan.rule.effect, endpoint) for endpoint in ("unsafe", "sound")]
    unsafe, sound = effect_results(plan, matrix, pairs).values()
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
                found.append(_no_event(plan, factor.name, level))
    return tuple(found)


def _no_event(plan: Plan, factor: str, level: str) -> ZeroEvents:
    tasks, rule_level = len(plan.tasks), float(plan.rule.level)
    figure = plain_figure(
        f"rate of unsafe completion at {factor} {level}",
        f"one-sided {rule_level:g} bound after no event in n task clusters, 1 - (1 - level)^(1/n)",
        tasks,
    )
    return ZeroEvents(factor, level, tasks, zero_event_bound(tasks, rule_level), figure)


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
