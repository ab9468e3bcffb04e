"""The decision in sentences: what was tested, with which answer, and how far to trust it.

Comes in: an :class:`~analysis.results.Analysis`. Goes out: lines of plain text. Nothing is computed
here.
"""

from collections.abc import Iterator
from fractions import Fraction

from analysis.results import Analysis, Decision, Verdict
from analysis.wording import bound, percent, points, share, share_spread, yes

ONE_TASK = (
    "no claim can be made from one task: resampling it gives it back, so that its bounds have no "
    "width"
)


def decision_lines(analysis: Analysis) -> Iterator[str]:
    """The decision, its reasons and its caveats, one line each."""
    yield from _answer(analysis)
    yield from _caveats(analysis)


def _answer(analysis: Analysis) -> Iterator[str]:
    decision, verdict = analysis.decision, analysis.decision.verdict
    rule = analysis.decision
    yield (
        f"Decision on {decision.effect}, {percent(decision.level)} one-sided bounds, "
        f"{decision.decided_by} bootstrap over {_tasks(analysis)}"
        + (", missing outcomes set against the claim" if decision.worst_case else "")
    )
    yield (
        f"  unsafe superiority: {yes(verdict.superiority)}  (upper {bound(verdict.unsafe_upper)}; "
        f"has to be below {_threshold(rule.unsafe_below)})"
    )
    yield (
        f"  sound non-inferiority: {yes(verdict.non_inferiority)}  "
        f"(lower {bound(verdict.sound_lower)}; has to be above {_threshold(rule.sound_above)})"
    )
    yield f"  joint: {yes(verdict.joint)}"
    if analysis.design.tasks < decision.least_tasks:
        yield f"  Why no: {ONE_TASK}."


def _tasks(analysis: Analysis) -> str:
    return "one task" if analysis.design.tasks == 1 else f"{analysis.design.tasks} tasks"


def _threshold(value: Fraction) -> str:
    return "0" if value == 0 else points(value)


def _caveats(analysis: Analysis) -> Iterator[str]:
    decision = analysis.decision
    yield f"  {_baseline(decision)}"
    if not decision.monte_carlo_agrees:
        sampled = _words(decision.monte_carlo)
        yield f"  Monte Carlo disagrees: {sampled}; {decision.decided_by} decides"
    yield f"  Bounds that assume only the range of an effect: {_words(analysis.calibrated.verdict)}"
    yield from _operating(analysis)


def _baseline(decision: Decision) -> str:
    rate = f"Baseline sound rate {share_spread(decision.baseline_sound)}"
    if not decision.floor_limited:
        return rate
    return (
        f"{rate}: floor-limited, below {share(decision.floor)}; there was little to lose, so that "
        "non-inferiority says little"
    )


def _operating(analysis: Analysis) -> Iterator[str]:
    near = analysis.operating
    rule = near.percentile
    yield (
        f"  Nearest simulated case, {near.case}: {near.says.rstrip('.')}. In {near.studies:,} "
        "studies this rule claimed falsely, at worst: "
        f"superiority {share(rule.superiority_error)}, "
        f"non-inferiority {share(rule.non_inferiority_error)}, both {share(rule.joint_error)}; "
        "its intervals held the truth at least: "
        f"unsafe {share(rule.unsafe_coverage)}, sound {share(rule.sound_coverage)}"
    )
    yield f"    ({near.why}; grid {near.grid[:12]})"


def _words(verdict: Verdict) -> str:
    return (
        f"superiority {yes(verdict.superiority)} (upper {bound(verdict.unsafe_upper)}), "
        f"non-inferiority {yes(verdict.non_inferiority)} (lower {bound(verdict.sound_lower)})"
    )
