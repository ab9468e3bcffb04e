"""Counts per cell and coverage: the plain numbers that stand beside every estimate.

Counts only; every column that the source does not report is None, never zero.
"""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from analysis.outcomes import OWED, SETTLED, Outcomes
from analysis.plan import Levels, Plan
from analysis.tallies import Tally, at_cell, tallies, total

ENDPOINT_COUNTS = (
    *("accepted", "unsafe", "sound", "discovered", "admitted", "retained"),
    *("final_correct", "empty_submission"),
)
BEHAVIOUR_COUNTS = (
    *("rollouts_with_invalid_actions", "invalid_actions", "rollouts_with_deadline_hits"),
    *("deadline_hits", "suite_deadline_hits", "interceptions", "shell_code_runs"),
    *("actions_exhausted", "wall_exhausted", "tokens_exhausted", "escalated"),
)
GATE_COUNTS = (
    *("wrong_proposals", "gate_false_passes", "right_proposals", "gate_false_rejections"),
)
"""Names of measures (:mod:`analysis.tallies`)."""


@dataclass(frozen=True)
class Coverage:
    """planned = settled + owed; ``owed``: reason -> rollouts with a null outcome."""

    planned: int
    settled: int
    owed: dict[str, int]


@dataclass(frozen=True)
class Cell:
    """One cell: ``endpoints``, ``behaviour`` count its settled rollouts; ``gate`` its proposals."""

    levels: Levels
    coverage: Coverage
    endpoints: dict[str, int | None]
    behaviour: dict[str, int | None]
    gate: dict[str, int] | None


def coverage(table: pa.Table) -> Coverage:
    """How many of the planned rollouts have an outcome, and why the others have none."""
    words: Counter[str] = Counter()
    for item in pc.value_counts(table["settled_as"]).to_pylist():
        words[item["values"]] += item["counts"]
    return Coverage(table.num_rows, words[SETTLED], {word: words[word] for word in OWED})


def cells(plan: Plan, outcomes: Outcomes, found: list[Tally] | None = None) -> tuple[Cell, ...]:
    """One :class:`Cell` per cell of the plan, in its order; ``found``: its tallies, if at hand."""
    found = tallies(plan, outcomes) if found is None else found
    return tuple(
        Cell(
            levels=levels,
            coverage=coverage(_rows(outcomes.table, levels)),
            endpoints=_counts(at_cell(found, levels), ENDPOINT_COUNTS),
            behaviour=_counts(at_cell(found, levels), BEHAVIOUR_COUNTS),
            gate=None if outcomes.proposals is None else _gate(at_cell(found, levels)),
        )
        for levels in plan.cells()
    )


def _rows(table: pa.Table, levels: Levels) -> pa.Table:
    for name, level in levels.items():
        table = table.filter(pc.equal(table[name], level))
    return table


def _counts(group: list[Tally], names: tuple[str, ...]) -> dict[str, int | None]:
    """Sums over the settled rollouts; None where one of them does not report the column."""
    sums = {name: total(group, name) for name in names}
    return {name: None if value is None else int(value) for name, value in sums.items()}


def _gate(group: list[Tally]) -> dict[str, int]:
    return {name: count or 0 for name, count in _counts(group, GATE_COUNTS).items()}
