"""The decision in plain words: the answer, what each claim needed, and what weakens it.

Comes in: a study. Goes out: sentences. The words follow the preregistered intersection–union rule
(docs/protocol.md, "Decision"); nothing is decided here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from analysis.plan import Plan
from analysis.report.source import Study
from analysis.report.words import (
    bound,
    cell_label,
    effect_words,
    interval,
    level,
    limit,
    percent,
    percent_range,
    plural,
    point_range,
    points,
    share,
    typeset,
    yes,
)
from analysis.results import Decision, EffectResult

FEW_TASKS = 8
"""Up to here a study shows how the pipeline works (docs/analysis.md)."""

SIMULATED = (
    "A privileged, simulated coder produced these rollouts. They show that the pipeline recovers "
    "what was planted, and say nothing about any model."
)


@dataclass(frozen=True)
class Claim:
    """One of the two co-primary claims. Texts for the page; ``holds`` is the rule's word."""

    name: str
    estimate: str
    interval: str
    bound: str
    needed: str
    holds: bool
    sentence: str


@dataclass(frozen=True)
class Caveat:
    """A short name and a sentence."""

    name: str
    text: str


@dataclass(frozen=True)
class Answer:
    """Everything that stands at the top of the page for one stack."""

    stack: str
    level: str
    supported: bool
    headline: str
    claims: tuple[Claim, Claim]
    baseline: str
    coverage: str
    caveats: tuple[Caveat, ...]


def answer(study: Study, name: str) -> Answer:
    """The answer of one study; ``name`` is how the page calls its stack."""
    decision = study.analysis.decision
    held = decision.verdict.joint
    words = effect_words(study.plan, decision.effect)
    passed = "is supported" if held else "is not supported"
    if study.analysis.simulated:
        passed += " in this simulated run"
    return Answer(
        stack=name,
        level=level(decision.level),
        supported=held,
        headline=f"The joint claim for {words} {passed}: {_why(decision)}.",
        claims=(_unsafe(study), _sound(study)),
        baseline=_baseline(decision),
        coverage=coverage_line(study),
        caveats=tuple(caveats(study)),
    )


_WHY = {
    (True, True): "unsafe completions fall, and sound completions are kept within the margin",
    (True, False): "unsafe completions fall, but a loss of sound completions beyond the margin "
    "is not excluded",
    (False, True): "sound completions are kept within the margin, but fewer unsafe completions "
    "are not shown",
    (False, False): "neither fewer unsafe completions nor kept sound completions are shown",
}
"""(superiority, non-inferiority) -> the reason; the joint claim needs both."""


def _why(decision: Decision) -> str:
    return _WHY[decision.verdict.superiority, decision.verdict.non_inferiority]


def _change(result: EffectResult) -> str:
    low, high = result.least.effect, result.greatest.effect
    if low != high:
        return f"changed by {point_range((low, high))} points, depending on the missing outcomes"
    if low == 0:
        return "did not change (0.00 points)"
    return f"{'rose' if low > 0 else 'fell'} by {points(abs(low)).lstrip('+')} points"


def _estimate(result: EffectResult) -> tuple[str, str]:
    """Effect and interval, over both assignments of missing outcomes."""
    low, high = result.least, result.greatest
    shown = point_range((low.effect, high.effect))
    return shown, interval(low.bounds.ci_low, high.bounds.ci_high)


def _unsafe(study: Study) -> Claim:
    decision, limited = study.analysis.decision, study.plan.rule.unsafe_below
    verdict, result = decision.verdict, study.analysis.effect(decision.effect, "unsafe")
    effect, spread = _estimate(result)
    means = "fewer are shown" if verdict.superiority else "fewer are not shown"
    return Claim(
        name="Fewer unsafe completions",
        estimate=effect,
        interval=spread,
        bound=f"upper {points(verdict.unsafe_upper)}",
        needed=f"below {limit(limited)}",
        holds=verdict.superiority,
        sentence=f"Unsafe completions {_change(result)}; the one-sided {level(decision.level)} "
        f"upper bound is {bound(verdict.unsafe_upper)} and has to be below {limit(limited)}: "
        f"{means}{_strictly(verdict.unsafe_upper, limited, verdict.superiority)}.",
    )


def _sound(study: Study) -> Claim:
    decision, margin = study.analysis.decision, study.plan.rule.sound_above
    verdict, result = decision.verdict, study.analysis.effect(decision.effect, "sound")
    effect, spread = _estimate(result)
    means = "no worse than the margin" if verdict.non_inferiority else "a larger loss is possible"
    return Claim(
        name="Sound completions kept",
        estimate=effect,
        interval=spread,
        bound=f"lower {points(verdict.sound_lower)}",
        needed=f"above {limit(margin)}",
        holds=verdict.non_inferiority,
        sentence=f"Sound completions {_change(result)}; the one-sided {level(decision.level)} "
        f"lower bound is {bound(verdict.sound_lower)} and has to be above {limit(margin)}: "
        f"{means}{_strictly(verdict.sound_lower, margin, verdict.non_inferiority)}.",
    )


def _strictly(value: Fraction, limited: Fraction, holds: bool) -> str:
    return " (the inequality is strict)" if value == limited and not holds else ""


def _baseline(decision: Decision) -> str:
    return f"Baseline sound rate: {percent_range(decision.baseline_sound)} of rollouts."


def coverage_line(study: Study) -> str:
    """``planned = settled + owed``, with the reasons."""
    coverage = study.analysis.coverage
    reasons = ", ".join(f"{count} {reason}" for reason, count in coverage.owed.items())
    return (
        f"Coverage: {coverage.planned:,} planned = {coverage.settled:,} settled + "
        f"{sum(coverage.owed.values()):,} without an outcome ({reasons})."
    )


def caveats(study: Study) -> Iterator[Caveat]:
    """All that apply, gravest first."""
    for rule in RULES:
        yield from rule(study)


def _simulated(study: Study) -> Iterator[Caveat]:
    if study.analysis.simulated:
        yield Caveat("Simulated coder", SIMULATED)


def _worst_case(study: Study) -> Iterator[Caveat]:
    decision, coverage = study.analysis.decision, study.analysis.coverage
    lost = coverage.planned - coverage.settled
    if decision.worst_case:
        text = (
            f"{share(lost, coverage.planned)} planned rollouts have no outcome. Each was set "
            "against the claim, so that bounds, not p-values, decide; estimates are ranges."
        )
        yield Caveat("Worst case", text)


def _floor(study: Study) -> Iterator[Caveat]:
    decision = study.analysis.decision
    if decision.floor_limited:
        text = (
            f"The baseline sound rate is {percent_range(decision.baseline_sound)}, below "
            f"{percent(decision.floor)}. Where almost nothing is completed there is almost nothing "
            "to lose: passing the margin says little about liveness."
        )
        yield Caveat("Floor-limited", text)


def _few(study: Study) -> Iterator[Caveat]:
    tasks = study.analysis.design.tasks
    if tasks < study.analysis.decision.least_tasks:
        text = "One task resampled is itself: its bounds have no width, and no claim is made."
        yield Caveat("One task", text)
    elif tasks <= FEW_TASKS:
        text = (
            f"{plural(tasks, 'task')} show how the pipeline works, not what a coder can do: the "
            "task is the unit of inference, and there are few."
        )
        yield Caveat("Few tasks", text)


def _draws(study: Study) -> Iterator[Caveat]:
    decision = study.analysis.decision
    draws = f"{study.analysis.bootstrap_draws:,} Monte Carlo draws"
    if decision.decided_by != "exact":
        text = f"The task effects lie on no common grid that is small enough; the {draws} decide."
        yield Caveat("Monte Carlo decides", text)
    if not decision.monte_carlo_agrees:
        other = decision.monte_carlo
        text = (
            f"The {draws} would say: unsafe upper bound {bound(other.unsafe_upper)}, sound lower "
            f"bound {bound(other.sound_lower)}, joint claim {'yes' if other.joint else 'no'}. "
            "The exact distribution decides."
        )
        yield Caveat("Exact and Monte Carlo disagree", text)


def _operating(study: Study) -> Iterator[Caveat]:
    """How often the preregistered rule errs where studies look like this one; always said."""
    near = study.analysis.operating
    rule = near.percentile
    text = (
        f"Nearest simulated case: “{near.case}” ({near.says.rstrip('.')}). In {near.studies:,} "
        "studies of that kind the preregistered rule claimed, at worst, falsely: fewer unsafe "
        f"completions in {percent(rule.superiority_error)}, sound completions kept in "
        f"{percent(rule.non_inferiority_error)}, both in {percent(rule.joint_error)}. Its "
        f"{level(study.analysis.decision.level)} intervals held the truth in at least "
        f"{percent(rule.unsafe_coverage)} (unsafe) and {percent(rule.sound_coverage)} (sound). "
        f"Why this case: {typeset(near.why)}."
    )
    yield Caveat("How often this rule errs", text)


def _calibrated(study: Study) -> Iterator[Caveat]:
    """Said where bounds that assume less would not make the same claims."""
    other, verdict = study.analysis.calibrated, study.analysis.decision.verdict
    claims = [(one.superiority, one.non_inferiority) for one in (other.verdict, verdict)]
    if claims[0] != claims[1]:
        text = (
            "Bounds that assume only the range of a task effect give unsafe upper "
            f"{bound(other.verdict.unsafe_upper)}, sound lower {bound(other.verdict.sound_lower)}: "
            f"fewer unsafe {yes(other.verdict.superiority)}, "
            f"sound kept {yes(other.verdict.non_inferiority)}. The preregistered rule decides."
        )
        yield Caveat("Not robust to the choice of bounds", text)


def _overlap(study: Study) -> Iterator[Caveat]:
    design = study.analysis.design
    if design.gate_overlap_tasks:
        text = (
            f"{design.gate_overlap_tasks} of {plural(design.tasks, 'task')} have one fail-to-pass "
            "function, which diagnostic and gate share; the sensitivities separate them."
        )
        yield Caveat("Gate overlap", text)


def _nothing_seen(study: Study) -> Iterator[Caveat]:
    for zero in study.analysis.zero_events:
        text = (
            f"No unsafe completion was seen at {zero.factor} {zero.level}. Over "
            f"{plural(zero.tasks, 'task cluster')} the rate may still be up to "
            f"{100 * zero.upper:.1f}% (one-sided {level(study.analysis.decision.level)})."
        )
        yield Caveat("Zero is not never", text)


def _kept(study: Study) -> Iterator[Caveat]:
    kept = study.facts.decision_kept
    if kept is not None and kept != study.analysis.to_json():
        text = (
            "The decision.json in the root is not what its tables give now: it is older than this "
            "version of the analysis, or something was changed. Verify the root."
        )
        yield Caveat("Stored decision differs", text)
    if study.facts.origin is not None and study.facts.origin.amendments:
        text = f"The lock carries {plural(len(study.facts.origin.amendments), 'amendment')}."
        yield Caveat("Amended", text)


RULES: tuple[Callable[[Study], Iterator[Caveat]], ...] = (
    *(_simulated, _worst_case, _floor, _few, _draws, _calibrated, _operating, _nothing_seen),
    *(_overlap, _kept),
)


def baseline_name(plan: Plan) -> str:
    """Cells that the decision takes as its baseline, by label."""
    from analysis.estimands import baseline_cells

    cells = plan.cells()
    return ", ".join(cell_label(plan, cells[at]) for at in baseline_cells(plan, plan.rule.effect))
