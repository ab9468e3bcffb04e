"""The analysis as a reviewer reads it: the decision first, then what it rests on.

Comes in: an :class:`~analysis.results.Analysis`. Goes out: rich renderables, or plain text. Effects
are in points (100 x a difference of probabilities); nothing is computed here.
"""

from collections.abc import Iterable, Iterator
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from analysis.cell_tables import cell_tables
from analysis.inference import Estimate
from analysis.plan import MAIN_ENDPOINTS
from analysis.results import Analysis, EffectResult, FamilyResult, Range, Sensitivity
from analysis.verdict import decision_lines
from analysis.wide import WideTable
from analysis.wording import interval, p_value, percent, points, spread, yes

WIDTH = 118
"""Of plain text that goes to no terminal."""
SIMULATED = (
    "SIMULATED: a privileged, simulated coder produced these rollouts. They show that the pipeline "
    "recovers what was planted and say nothing about any model."
)


def render(analysis: Analysis) -> RenderableType:
    """Everything, for a rich console; tables take the width that the console has."""
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
    yield Text(f"{analysis.study}: {analysis.title}", style="bold")
    yield Text(f"stack {analysis.stack} · lock {analysis.lock_id[:16] or 'none'}")
    yield Text()
    yield from map(_indented, decision_lines(analysis))
    yield Text()
    yield from (Text(line) for line in _design(analysis))
    yield _effects(analysis)
    yield _robustness(analysis)
    yield _left_out(analysis)
    yield _sensitivity_rows(analysis)
    yield from (_family(family) for family in analysis.families)
    if analysis.paired:
        yield _paired(analysis)
    yield from cell_tables(analysis)
    yield from (Text(line) for line in _notes(analysis))


def _indented(line: str) -> RenderableType:
    """Bold, its indentation kept where it is wrapped."""
    text = line.lstrip(" ")
    return Padding(Text(text, style="bold"), (0, 0, 0, len(line) - len(text)))


def _design(analysis: Analysis) -> Iterator[str]:
    design, coverage = analysis.design, analysis.coverage
    factors = " x ".join(f"{name} {{{', '.join(ls)}}}" for name, ls in design.factors.items())
    constants = "".join(f"; {name} held at {level}" for name, level in design.constants.items())
    yield (
        f"Design: {design.tasks} tasks of {design.projects} projects x {design.cells} cells "
        f"({factors}) x {design.seeds} seeds = {design.rollouts} rollouts{constants}"
    )
    owed = " + ".join(f"{count} {reason}" for reason, count in coverage.owed.items())
    yield f"Coverage: planned {coverage.planned} = settled {coverage.settled} + owed {owed}"


def _effects(analysis: Analysis) -> WideTable:
    level = percent(analysis.decision.level)
    heads = ["effect", f"{level} CI", f"lower {level}", f"upper {level}", "Monte Carlo CI"]
    made = WideTable("Task-equal effects, points", ["contrast", "endpoint"], heads)
    for result in analysis.effects:
        low, high = result.least, result.greatest
        made.add_row(
            result.effect,
            result.endpoint,
            spread((low.effect, high.effect)),
            interval(low.bounds.ci_low, high.bounds.ci_high),
            points(low.bounds.lower),
            points(high.bounds.upper),
            _agreement(result, low, high),
        )
    return made


def _robustness(analysis: Analysis) -> WideTable:
    heads = [
        *("tasks\nnot 0", "sign-flip\np", "Monte\nCarlo p", "project-\nequal"),
        *("rollout-pooled\n(no interval)", "leave one\nproject out"),
    ]
    made = WideTable("Sensitivity of the effects, points", ["contrast", "endpoint"], heads)
    for result in analysis.effects:
        decided = result.p is not None
        pooled = result.rollout_pooled
        made.add_row(
            result.effect,
            result.endpoint,
            str(result.least.nonzero_tasks) if decided else "-",
            p_value(result.least.p if decided else None),
            p_value(result.least.monte_carlo_p if decided else None),
            spread(result.project_equal),
            "-" if pooled is None else points(pooled),
            _lopo(result.leave_one_project_out.values()),
        )
    return made


def _left_out(analysis: Analysis) -> RenderableType:
    """One row per project that is left out: the decision's effect on the three main endpoints."""
    name = analysis.decision.effect
    made = WideTable(f"{name} without one project, points", ["without"], MAIN_ENDPOINTS)
    results = [analysis.effect(name, endpoint) for endpoint in MAIN_ENDPOINTS]
    for project in results[0].leave_one_project_out:
        made.add_row(project, *(spread(one.leave_one_project_out[project]) for one in results))
    return made if made.rows else Text("There is only one project: none can be left out.")


def _lopo(ranges: Iterable[Range]) -> str:
    pairs = list(ranges)
    if not pairs:
        return "-"
    return f"{points(min(low for low, _ in pairs))} to {points(max(high for _, high in pairs))}"


def _agreement(result: EffectResult, low: Estimate, high: Estimate) -> str:
    if low.exact is None or high.exact is None:
        return "decides"
    if result.monte_carlo_agrees:
        return "same"
    return interval(low.monte_carlo.ci_low, high.monte_carlo.ci_high)


def _sensitivity_rows(analysis: Analysis) -> RenderableType:
    if not analysis.sensitivities:
        return Text("Empty submissions are not reported by this table.")
    heads = ["tasks", "unsafe", "upper", "sound", "lower", "superior", "non-inferior", "joint"]
    made = WideTable(f"Sensitivity of {analysis.decision.effect}, points", ["reading"], heads)
    for one in analysis.sensitivities:
        made.add_row(_reading(one), str(one.tasks), *_sensitivity(one))
    return made


def _reading(one: Sensitivity) -> str:
    return f"{one.name} ({one.changed_rollouts})" if one.changed_rollouts else one.name


def _sensitivity(one: Sensitivity) -> list[str]:
    words = (one.verdict.superiority, one.verdict.non_inferiority, one.verdict.joint)
    return [
        spread((one.unsafe.least.effect, one.unsafe.greatest.effect)),
        points(one.verdict.unsafe_upper),
        spread((one.sound.least.effect, one.sound.greatest.effect)),
        points(one.verdict.sound_lower),
        *map(yes, words),
    ]


def _family(family: FamilyResult) -> WideTable:
    title = f"Holm family {family.name} ({len(family.rows)} sign-flip tests)"
    heads = ["p", "Holm p", "Monte Carlo p", "Monte Carlo Holm p", f"p ≤ {float(family.alpha):g}"]
    made = WideTable(title, ["contrast", "endpoint"], heads)
    for row in family.rows:
        values = (row.p, row.p_holm, row.monte_carlo_p, row.monte_carlo_p_holm)
        word = "undecided" if row.significant is None else yes(row.significant)
        made.add_row(row.effect, row.endpoint, *map(p_value, values), word)
    return made


def _paired(analysis: Analysis) -> WideTable:
    heads = ["newly solved", "regressed", "both", "neither", "undetermined", "McNemar p"]
    made = WideTable(
        "Tasks solved (more than half of a level's rollouts)", ["contrast", "unit"], heads
    )
    for one in analysis.paired:
        for unit, change in (("task", one.tasks), ("pair of rollouts", one.pairs)):
            counts = (change.newly_solved, change.regressed, change.solved, change.unsolved)
            p = p_value(one.p) if unit == "task" else "-"
            made.add_row(one.effect, unit, *map(str, (*counts, change.undetermined)), p)
    return made


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
