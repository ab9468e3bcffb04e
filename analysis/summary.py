"""Counts per cell and coverage: the plain numbers that stand beside every estimate.

Counts only; every column that the source does not report is None, never zero.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from analysis.outcomes import OWED, SETTLED, Outcomes, Row
from analysis.plan import Levels, Plan

ENDPOINT_COUNTS = (
    *("accepted", "unsafe", "sound", "discovered", "admitted", "retained"),
    *("final_correct", "empty_submission"),
)
BEHAVIOUR_COUNTS: dict[str, tuple[str, Callable[[int], int]]] = {
    "rollouts_with_invalid_actions": ("invalid_actions", bool),
    "invalid_actions": ("invalid_actions", int),
    "rollouts_with_deadline_hits": ("deadline_hits", bool),
    "deadline_hits": ("deadline_hits", int),
    "suite_deadline_hits": ("suite_deadline_hits", int),
    "interceptions": ("interceptions", int),
    "shell_code_runs": ("shell_code_runs", int),
    "actions_exhausted": ("actions_exhausted", int),
    "wall_exhausted": ("wall_exhausted", int),
    "tokens_exhausted": ("tokens_exhausted", int),
    "escalated": ("escalated", int),
}
"""Name of the count -> column, and what one rollout adds to it."""

GATE_COUNTS: dict[str, Callable[[Row], bool]] = {
    "wrong_proposals": lambda edit: not edit["after"],
    "gate_false_passes": lambda edit: not edit["after"] and edit["gate_passed"],
    "right_proposals": lambda edit: bool(edit["after"]),
    "gate_false_rejections": lambda edit: edit["after"] and not edit["gate_passed"],
}


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


def coverage(rows: list[Row]) -> Coverage:
    """How many of the planned rollouts have an outcome, and why the others have none."""
    words = Counter(row["settled_as"] for row in rows)
    return Coverage(len(rows), words[SETTLED], {word: words[word] for word in OWED})


def cells(plan: Plan, outcomes: Outcomes) -> tuple[Cell, ...]:
    """One :class:`Cell` per cell of the plan, in its order."""
    edits: dict[str, list[Row]] = {}
    for edit in outcomes.proposals.to_pylist() if outcomes.proposals is not None else ():
        edits.setdefault(edit["rollout_id"], []).append(edit)
    rows = outcomes.rows()
    made = []
    for levels in plan.cells():
        mine = [row for row in rows if all(row[name] == level for name, level in levels.items())]
        made.append(_cell(levels, mine, None if outcomes.proposals is None else edits))
    return tuple(made)


def _cell(levels: Levels, rows: list[Row], edits: dict[str, list[Row]] | None) -> Cell:
    settled = [row for row in rows if row["settled_as"] == SETTLED]
    return Cell(
        levels=levels,
        coverage=coverage(rows),
        endpoints={name: _total(settled, name, int) for name in ENDPOINT_COUNTS},
        behaviour={
            name: _total(settled, column, add) for name, (column, add) in BEHAVIOUR_COUNTS.items()
        },
        gate=None if edits is None else _gate(settled, edits),
    )


def _total(rows: list[Row], column: str, add: Callable[[int], int]) -> int | None:
    """Sum over rows; None where any row does not report the column."""
    values = [row[column] for row in rows]
    return None if any(value is None for value in values) else sum(add(v) for v in values)


def _gate(rows: list[Row], edits: dict[str, list[Row]]) -> dict[str, int]:
    mine = [edit for row in rows for edit in edits.get(row["rollout_id"], ())]
    return {name: sum(bool(test(edit)) for edit in mine) for name, test in GATE_COUNTS.items()}
