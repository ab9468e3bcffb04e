"""Tables with one column or row per cell: completions, rates, behaviour, transitions.

Comes in: an :class:`~analysis.results.Analysis`. Goes out: rich tables; what the source does not
report is left out. Nothing is computed here.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from rich.console import RenderableType
from rich.text import Text

from analysis.plan import MAIN_ENDPOINTS
from analysis.rates import ESTIMANDS, Rate
from analysis.results import Analysis
from analysis.summary import Cell
from analysis.transitions import Rate as Transition
from analysis.wide import WideTable
from analysis.wording import cell, count, share

BEHAVIOUR = {
    "invalid_actions": "invalid actions",
    "deadline_hits": "test deadline hits",
    "suite_deadline_hits": "suite runs ended by deadline",
    "interceptions": "stale interceptions",
    "shell_code_runs": "shell code runs",
}
COSTS = frozenset(one.name for one in ESTIMANDS if one.per_completion)
IN_COMPLETIONS = frozenset({"completion", "unsafe", "sound"})
"""Estimands that the table of completions shows already."""


def cell_tables(analysis: Analysis) -> Iterator[RenderableType]:
    """All of them, in reading order."""
    yield _completions(analysis)
    yield from _rates(analysis)
    yield _behaviour(analysis)
    if analysis.transitions:
        yield _transitions(analysis)


def _completions(analysis: Analysis) -> WideTable:
    """Counts of settled rollouts, the main ones with their share; unreported ones left out."""
    reported = [
        name
        for name in analysis.cells[0].endpoints
        if any(one.endpoints[name] is not None for one in analysis.cells)
    ]
    shown = (name.removesuffix("_submissions").replace("_", "\n") for name in reported)
    made = WideTable(
        "Completions per cell (rollouts, share of settled)", ["cell"], ["settled", *shown]
    )
    for one in analysis.cells:
        settled = f"{one.coverage.settled}/{one.coverage.planned}"
        made.add_row(cell(one.levels), settled, *(_tally(one, name) for name in reported))
    return made


def _tally(one: Cell, name: str) -> str:
    value = one.endpoints[name]
    if value is None or name not in MAIN_ENDPOINTS or not one.coverage.settled:
        return count(value)
    return f"{value} ({share(Fraction(value, one.coverage.settled))})"


def _rates(analysis: Analysis) -> Iterator[RenderableType]:
    """One row per estimand: task-equal value, and events/trials; what never happened, in a line."""
    heads = ["all", *(cell(one.levels) for one in analysis.cells)]
    made = WideTable("Rates, task-equal (events/trials; descriptive)", ["estimand"], heads)
    never = []
    for name, rows in _by_name((*analysis.rates, *analysis.timing)).items():
        shown = name.replace("_", " ")
        if not rows[0].events:
            never.append(f"{shown} {rows[0].events}/{rows[0].trials}")
        elif name not in IN_COMPLETIONS:
            made.add_row(shown, *map(_rate, rows))
    if made.rows:
        yield made
    if never:
        yield Text(f"No event in any cell (events/trials): {', '.join(never)}.")


def _by_name(rates: Iterable[Rate]) -> dict[str, list[Rate]]:
    found: dict[str, list[Rate]] = {}
    for rate in rates:
        found.setdefault(rate.estimand, []).append(rate)
    return found


def _rate(rate: Rate) -> str:
    if rate.task_equal is None:
        return "-"
    if rate.estimand in COSTS:
        return f"{rate.task_equal:,.1f}"
    return f"{share(rate.task_equal)} {rate.events}/{rate.trials}"


def _behaviour(analysis: Analysis) -> RenderableType:
    """Friction and interceptions, counted; unreported ones left out."""
    made = WideTable("Behaviour per cell", ["count"], [cell(one.levels) for one in analysis.cells])
    for name, shown in BEHAVIOUR.items():
        counts = [one.behaviour[name] for one in analysis.cells]
        if any(value is not None for value in counts):
            made.add_row(shown, *map(count, counts))
    return made if made.rows else Text("Behaviour per cell: not reported by this table.")


def _transitions(analysis: Analysis) -> WideTable:
    heads = ["repairs (α)", "α task-equal", "harms (β)", "β task-equal", "q by proposal", "α/(α+β)"]
    made = WideTable("Transitions over proposals", ["cell"], heads)
    for one in analysis.transitions:
        path = " ".join(f"{step.current}/{step.rollouts}" for step in one.steps) or "-"
        threshold = "-" if one.threshold is None else f"{float(one.threshold):.3f}"
        made.add_row(
            cell(one.levels), *_transition(one.alpha), *_transition(one.beta), path, threshold
        )
    return made


def _transition(rate: Transition) -> tuple[str, str]:
    equal = "-" if rate.task_equal is None else f"{float(rate.task_equal):.3f}"
    return f"{rate.events}/{rate.trials}", equal
