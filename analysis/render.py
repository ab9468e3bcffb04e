"""The analysis as a table that a reviewer reads: what was run, what came out, what is decided.

Comes in: an :class:`~analysis.results.Analysis`. Goes out: rich renderables, or plain text of fixed
width. Effects are in points (100 x a difference of probabilities); nothing is computed here.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.inference import Estimate
from analysis.plan import MAIN_ENDPOINTS, Levels
from analysis.results import Analysis, EffectResult, FamilyResult, Range, Sensitivity, Verdict
from analysis.summary import Cell
from analysis.transitions import Rate

WIDTH = 118
SIMULATED = (
    "SIMULATED: a privileged, simulated coder produced these rollouts. They show that the pipeline "
    "recovers what was planted and say nothing about any model."
)
BEHAVIOUR = {
    "rollouts_with_invalid_actions": "rollouts with invalid actions",
    "invalid_actions": "invalid actions",
    "rollouts_with_deadline_hits": "rollouts with deadline hits",
    "deadline_hits": "test deadline hits",
    "suite_deadline_hits": "suite runs ended by deadline",
    "interceptions": "stale interceptions",
    "shell_code_runs": "shell code runs",
    "actions_exhausted": "ended by action budget",
    "wall_exhausted": "ended by wall clock",
    "tokens_exhausted": "ended by token budget",
    "escalated": "escalated",
}
GATE_ERRORS = (
    ("passes", "wrong", "gate passed / wrong proposals"),
    ("rejections", "right", "gate rejected / right proposals"),
)


def render(analysis: Analysis) -> RenderableType:
    """Everything, for a rich console."""
    return Group(*_parts(analysis))


def render_text(analysis: Analysis, width: int = WIDTH) -> str:
    """The same as plain text."""
    stream = StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(
        render(analysis)
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _parts(analysis: Analysis) -> Iterator[RenderableType]:
    if analysis.simulated:
        yield Text(SIMULATED, style="bold red")
    yield from (Text(line) for line in _head(analysis))
    yield _cells(analysis)
    yield _behaviour(analysis)
    yield _effects(analysis)
    yield _robustness(analysis)
    yield _left_out(analysis)
    yield _sensitivity_rows(analysis)
    yield from (Text(line, style="bold") for line in decision_lines(analysis))
    yield from (_family(family) for family in analysis.families)
    if analysis.transitions:
        yield _transitions(analysis)
    yield from (Text(line) for line in _notes(analysis))


def _head(analysis: Analysis) -> Iterator[str]:
    design, coverage = analysis.design, analysis.coverage
    factors = " x ".join(f"{name} {{{', '.join(ls)}}}" for name, ls in design.factors.items())
    constants = "".join(f"; {name} held at {level}" for name, level in design.constants.items())
    yield f"{analysis.study}: {analysis.title}"
    yield f"stack {analysis.stack} · lock {analysis.lock_id[:16] or 'none'}"
    yield (
        f"Design: {design.tasks} tasks of {design.projects} projects x {design.cells} cells "
        f"({factors}) x {design.seeds} seeds = {design.rollouts} rollouts{constants}"
    )
    owed = " + ".join(f"{count} {reason}" for reason, count in coverage.owed.items())
    yield f"Coverage: planned {coverage.planned} = settled {coverage.settled} + owed {owed}"


def _cells(analysis: Analysis) -> Table:
    """Counts of settled rollouts, the main ones with their share; unreported ones left out."""
    reported = [
        name
        for name in analysis.cells[0].endpoints
        if any(cell.endpoints[name] is not None for cell in analysis.cells)
    ]
    shown = (name.removesuffix("_submissions").replace("_", "\n") for name in reported)
    heads = ["settled", *shown]
    table = _table("Completions per cell (rollouts, share of settled)", ["cell"], heads)
    for cell in analysis.cells:
        settled = f"{cell.coverage.settled}/{cell.coverage.planned}"
        table.add_row(_label(cell.levels), settled, *(_tally(cell, name) for name in reported))
    return table


def _tally(cell: Cell, name: str) -> str:
    count = cell.endpoints[name]
    if count is None or name not in MAIN_ENDPOINTS or not cell.coverage.settled:
        return _count(count)
    return f"{count} ({_rate(Fraction(count, cell.coverage.settled))})"


def _behaviour(analysis: Analysis) -> RenderableType:
    """Friction, interceptions, budget ends and gate errors; unreported ones left out."""
    table = _table("Behaviour per cell", ["count"], [_label(c.levels) for c in analysis.cells])
    for name, shown in BEHAVIOUR.items():
        counts = [cell.behaviour[name] for cell in analysis.cells]
        if any(count is not None for count in counts):
            table.add_row(shown, *(_count(count) for count in counts))
    for error, kind, shown in GATE_ERRORS if analysis.cells[0].gate is not None else ():
        table.add_row(shown, *(_gate(cell, error, kind) for cell in analysis.cells))
    return table if table.row_count else Text("Behaviour per cell: not reported by this table.")


def _gate(cell: Cell, error: str, kind: str) -> str:
    gate = cell.gate or {}
    return f"{gate[f'gate_false_{error}']}/{gate[f'{kind}_proposals']}"


def _effects(analysis: Analysis) -> Table:
    percent = _percent(analysis.decision.level)
    heads = ["effect", f"{percent} CI", f"lower {percent}", f"upper {percent}", "Monte Carlo CI"]
    table = _table("Task-equal effects, points", ["contrast", "endpoint"], heads)
    for result in analysis.effects:
        low, high = result.least, result.greatest
        table.add_row(
            result.effect,
            result.endpoint,
            _range((low.effect, high.effect)),
            _interval(low.bounds.ci_low, high.bounds.ci_high),
            _points(low.bounds.lower),
            _points(high.bounds.upper),
            _agreement(result, low, high),
        )
    return table


def _robustness(analysis: Analysis) -> Table:
    heads = [
        "tasks not 0",
        "sign-flip p",
        "Monte Carlo p",
        "project-equal",
        "leave one project out",
    ]
    table = _table("Sensitivity of the effects, points", ["contrast", "endpoint"], heads)
    for result in analysis.effects:
        decided = result.p is not None
        table.add_row(
            result.effect,
            result.endpoint,
            str(result.least.nonzero_tasks) if decided else "-",
            _p(result.least.p) if decided else "-",
            _p(result.least.monte_carlo_p) if decided else "-",
            _range(result.project_equal),
            _lopo(result.leave_one_project_out.values()),
        )
    return table


def _left_out(analysis: Analysis) -> Table:
    """One row per project that is left out: the decision's effect on the three main endpoints."""
    name = analysis.decision.effect
    table = _table(f"{name} without one project, points", ["without"], MAIN_ENDPOINTS)
    results = [analysis.effect(name, endpoint) for endpoint in MAIN_ENDPOINTS]
    for project in results[0].leave_one_project_out:
        values = [_range(result.leave_one_project_out[project]) for result in results]
        table.add_row(project, *values)
    if not table.row_count:
        table.add_row("there is only one project", *["-"] * len(results))
    return table


def _interval(low: Fraction, high: Fraction) -> str:
    return f"[{_points(low)}, {_points(high)}]"


def _lopo(ranges: Iterable[Range]) -> str:
    pairs = list(ranges)
    if not pairs:
        return "-"
    return f"{_points(min(low for low, _ in pairs))} to {_points(max(high for _, high in pairs))}"


def _agreement(result: EffectResult, low: Estimate, high: Estimate) -> str:
    if low.exact is None or high.exact is None:
        return "decides"
    if result.monte_carlo_agrees:
        return "same"
    sampled = low.monte_carlo, high.monte_carlo
    return _interval(sampled[0].ci_low, sampled[1].ci_high)


def _sensitivity_rows(analysis: Analysis) -> Table:
    heads = ["tasks", "unsafe", "upper", "sound", "lower", "superior", "non-inferior", "joint"]
    table = _table(f"Sensitivity of {analysis.decision.effect}, points", ["reading"], heads)
    for one in analysis.sensitivities:
        table.add_row(_reading(one), str(one.tasks), *_sensitivity(one))
    if not analysis.sensitivities:
        table.add_row("empty submissions are not reported", *["-"] * len(heads))
    return table


def _reading(one: Sensitivity) -> str:
    return f"{one.name} ({one.changed_rollouts})" if one.changed_rollouts else one.name


def _sensitivity(one: Sensitivity) -> list[str]:
    words = (one.verdict.superiority, one.verdict.non_inferiority, one.verdict.joint)
    return [
        _range((one.unsafe.least.effect, one.unsafe.greatest.effect)),
        _points(one.verdict.unsafe_upper),
        _range((one.sound.least.effect, one.sound.greatest.effect)),
        _points(one.verdict.sound_lower),
        *(_yes(word) for word in words),
    ]


def decision_lines(analysis: Analysis) -> Iterator[str]:
    """The decision in sentences: what was tested, against what, with which answer."""
    decision, verdict = analysis.decision, analysis.decision.verdict
    floor = f"floor-limited, below {_rate(decision.floor)}"
    percent = _percent(decision.level)
    yield (
        f"Decision on {decision.effect}, {percent} one-sided bounds, "
        f"{decision.decided_by} bootstrap over {analysis.design.tasks} tasks"
        + (", missing outcomes set against the claim" if decision.worst_case else "")
    )
    upper = _bound(verdict.unsafe_upper)
    yield f"  unsafe superiority: {_yes(verdict.superiority)}  (upper {upper})"
    yield (
        f"  sound non-inferiority: {_yes(verdict.non_inferiority)}  "
        f"(lower {_bound(verdict.sound_lower)}; baseline sound rate "
        f"{_rate_range(decision.baseline_sound)}{'; ' + floor if decision.floor_limited else ''})"
    )
    yield f"  joint: {_yes(verdict.joint)}"
    if not decision.monte_carlo_agrees:
        sampled = _words(decision.monte_carlo)
        yield f"  Monte Carlo disagrees: {sampled}; {decision.decided_by} decides"


def _words(verdict: Verdict) -> str:
    return (
        f"superiority {_yes(verdict.superiority)} (upper {_bound(verdict.unsafe_upper)}), "
        f"non-inferiority {_yes(verdict.non_inferiority)} (lower {_bound(verdict.sound_lower)})"
    )


def _family(family: FamilyResult) -> Table:
    title = f"Holm family {family.name} ({len(family.rows)} sign-flip tests)"
    heads = ["p", "Holm p", "Monte Carlo p", "Monte Carlo Holm p", f"p ≤ {float(family.alpha):g}"]
    table = _table(title, ["contrast", "endpoint"], heads)
    for row in family.rows:
        values = (row.p, row.p_holm, row.monte_carlo_p, row.monte_carlo_p_holm)
        shown = ["-" if value is None else _p(value) for value in values]
        word = "undecided" if row.significant is None else _yes(row.significant)
        table.add_row(row.effect, row.endpoint, *shown, word)
    return table


def _transitions(analysis: Analysis) -> Table:
    heads = ["repairs (α)", "α task-equal", "harms (β)", "β task-equal", "q by proposal", "α/(α+β)"]
    table = _table("Transitions over proposals", ["cell"], heads)
    for one in analysis.transitions:
        path = " ".join(f"{step.current}/{step.rollouts}" for step in one.steps) or "-"
        threshold = "-" if one.threshold is None else f"{float(one.threshold):.3f}"
        rates = [*_transition(one.alpha), *_transition(one.beta)]
        table.add_row(_label(one.levels) or "all", *rates, path, threshold)
    return table


def _transition(rate: Rate) -> tuple[str, str]:
    equal = "-" if rate.task_equal is None else f"{float(rate.task_equal):.3f}"
    return f"{rate.events}/{rate.trials}", equal


def _notes(analysis: Analysis) -> Iterator[str]:
    for zero in analysis.zero_events:
        yield (
            f"No unsafe completion at {zero.factor} = {zero.level} in {zero.tasks} task clusters: "
            f"the rate may still be up to {100 * zero.upper:.1f}% (one-sided)."
        )
    yield (
        f"Bootstrap: exact distribution over tasks, beside {analysis.bootstrap_draws:,} draws; "
        f"sign flips: exact, beside {analysis.sign_flip_draws:,} (seed {analysis.seed}). "
        "'-' is not reported or not defined."
    )


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _label(levels: Levels) -> str:
    return "/".join(levels.values())


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _points(value: Fraction) -> str:
    return "0.00" if value == 0 else f"{100 * float(value):+.2f}"


def _bound(value: Fraction) -> str:
    return "exactly 0" if value == 0 else f"{_points(value)} points"


def _range(values: Range) -> str:
    low, high = values
    return _points(low) if low == high else f"{_points(low)} to {_points(high)}"


def _rate(value: Fraction) -> str:
    return f"{100 * float(value):.1f}%"


def _rate_range(values: Range) -> str:
    low, high = values
    return _rate(low) if low == high else f"{_rate(low)} to {_rate(high)}"


def _percent(level: Fraction) -> str:
    return f"{100 * float(level):g}%"


def _p(value: Fraction | float) -> str:
    return f"{float(value):.4f}" if value >= 0.0001 else f"{float(value):.1e}"


def _yes(word: bool) -> str:
    return "yes" if word else "no"
