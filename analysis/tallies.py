"""Sums per cell and task: the numbers that every rate and count is made of.

Comes in: a plan and its outcome table. Goes out: for each cell and task the sum over its settled
rollouts of each measure. A measure that the source does not report for every such rollout is None.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from analysis.outcomes import SETTLED, Outcomes
from analysis.plan import Levels, Plan

Number = int | float | None
Sums = dict[str, Number]
Key = tuple[str, ...]
"""Levels of a cell, task, project."""

FLAGS = (
    *("accepted", "unsafe", "sound", "discovered", "admitted", "retained", "final_correct"),
    *("empty_submission", "actions_exhausted", "wall_exhausted", "tokens_exhausted", "escalated"),
)
COUNTS = (
    *("invalid_actions", "deadline_hits", "suite_deadline_hits", "interceptions"),
    *("shell_code_runs", "actions", "visible_tests", "suite_runs", "certifications"),
    *("certifications_passed", "tokens", "charged_seconds"),
)


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(column, pa.int64())


def _as_it_is(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column


def _any(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return _whole(pc.greater(column, 0))


def _one(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return _whole(pc.is_valid(column))


MEASURES: dict[str, tuple[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]]] = {
    "rollouts": ("settled_as", _one),
    **{name: (name, _whole) for name in FLAGS},
    **{name: (name, _as_it_is) for name in COUNTS},
    "rollouts_with_invalid_actions": ("invalid_actions", _any),
    "rollouts_with_deadline_hits": ("deadline_hits", _any),
}
"""Measure -> outcome column that it needs, and what one rollout adds to it."""

EDITS: dict[str, tuple[str, bool, str | None, bool]] = {
    "wrong_before": ("before", False, None, True),
    "repairs": ("before", False, "after", True),
    "right_before": ("before", True, None, True),
    "harms": ("before", True, "after", False),
    "wrong_proposals": ("after", False, None, True),
    "gate_false_passes": ("after", False, "gate_passed", True),
    "right_proposals": ("after", True, None, True),
    "gate_false_rejections": ("after", True, "gate_passed", False),
}
"""Measure -> proposals whose first column has this value and whose second, if any, has that one."""


@dataclass(frozen=True)
class Tally:
    """Sums of one task at one cell, over its settled rollouts (at least one)."""

    cell: tuple[str, ...]
    task_id: str
    project: str
    sums: Sums


def tallies(plan: Plan, outcomes: Outcomes) -> list[Tally]:
    """One :class:`Tally` per cell and task with a settled rollout, by cell and task."""
    settled = outcomes.table.filter(pc.equal(outcomes.table["settled_as"], SETTLED))
    names = (*(factor.name for factor in plan.factors), "task_id", "project")
    keys = {f"key{place}": settled[name] for place, name in enumerate(names)}
    known = set(settled.column_names)
    values = {
        name: value(settled[column])
        for name, (column, value) in MEASURES.items()
        if column in known
    }
    sums = _grouped(keys, values)
    edits = _edits(settled["rollout_id"], keys, outcomes.proposals)
    blank: Sums = dict.fromkeys((*MEASURES, *EDITS))
    none: Sums = {} if outcomes.proposals is None else dict.fromkeys(EDITS, 0)
    return [
        Tally(key[:-2], key[-2], key[-1], blank | none | sums[key] | edits.get(key, {}))
        for key in sorted(sums)
    ]


def total(group: Iterable[Tally], measure: str) -> Number:
    """Sum over tallies; None where any of them does not report the measure."""
    values = [tally.sums[measure] for tally in group]
    return None if None in values else sum(value for value in values if value is not None)


def at_cell(group: Iterable[Tally], levels: Levels) -> list[Tally]:
    """The tallies of one cell; of all where ``levels`` is empty."""
    wanted = tuple(levels.values())
    return [tally for tally in group if not wanted or tally.cell == wanted]


def _grouped(
    keys: Mapping[str, pa.ChunkedArray], values: Mapping[str, pa.ChunkedArray]
) -> dict[Key, Sums]:
    """Sum of each value per group of equal keys; None where one of them is null."""
    asked = [(name, how) for name in values for how in ("sum", "count")]
    grouped = (
        pa.table({**keys, **values}).group_by(list(keys)).aggregate([*asked, ([], "count_all")])
    )
    return {
        tuple(row[key] for key in keys): {
            name: row[f"{name}_sum"] if row[f"{name}_count"] == row["count_all"] else None
            for name in values
        }
        for row in grouped.to_pylist()
    }


def _edits(
    rollouts: pa.ChunkedArray, keys: Mapping[str, pa.ChunkedArray], proposals: pa.Table | None
) -> dict[Key, Sums]:
    """Proposals of settled rollouts, counted per cell and task."""
    if proposals is None:
        return {}
    place = pc.index_in(proposals["rollout_id"], rollouts)
    mine = proposals.filter(pc.is_valid(place))
    at = pc.drop_null(place)
    values = {name: _whole(_holds(mine, *test)) for name, test in EDITS.items()}
    return _grouped({name: column.take(at) for name, column in keys.items()}, values)


def _holds(
    proposals: pa.Table, first: str, value: bool, second: str | None, wanted: bool
) -> pa.ChunkedArray:
    given = pc.equal(proposals[first], value)
    return given if second is None else pc.and_(given, pc.equal(proposals[second], wanted))
