"""What a run recorded beside its outcomes: cost per cell, attempts per cell, and its provenance.

Comes in: an opened run. Goes out: plain numbers per cell of the plan, asked from the views of
:mod:`analysis.views`, and the identities that the lock holds. A table from elsewhere has none of
them: None, never 0.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.errors import AnalysisError
from analysis.outcomes import SETTLED
from analysis.plan import Plan

if TYPE_CHECKING:
    from analysis.notebook import Loaded

COSTS = (
    *("actions", "revisions", "visible_tests", "tokens_prompt", "tokens_completion"),
    *("tokens_served", "charged_seconds", "wall_seconds"),
)
"""Summed over the rollouts of a cell that settled with an outcome."""

RUNNING = "no end recorded"


@dataclass(frozen=True)
class Attempt:
    """How many attempts of one cell ended so. ``outcome``: settled, infrastructure, ..."""

    cell: int
    outcome: str
    reason: str
    attempts: int


@dataclass(frozen=True)
class Origin:
    """Where a root comes from: identities of the lock. Empty where the lock does not say."""

    lock_id: str
    code: str
    schema: str
    sandbox: str
    sampling: str
    amendments: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """``costs``: per cell of the plan, name -> sum. None: the source does not record it."""

    costs: tuple[dict[str, float], ...] | None
    attempts: tuple[Attempt, ...] | None
    origin: Origin | None
    decision_kept: str | None


NOTHING = Facts(None, None, None, None)
"""Of an outcome table from elsewhere."""


def read_facts(run: "Loaded") -> Facts:
    """Facts of an opened run or table. Raises ``AnalysisError`` where a file cannot be read."""
    if run.root is None:
        return NOTHING
    kept = run.root / "analysis" / "decision.json"
    return Facts(
        costs=_costs(run),
        attempts=_attempts(run),
        origin=_origin(run.root),
        decision_kept=kept.read_text(encoding="utf-8") if kept.is_file() else None,
    )


def _factors(plan: Plan) -> str:
    return ", ".join(f'o."{factor.name}"' for factor in plan.factors)


def _places(plan: Plan) -> dict[tuple[str, ...], int]:
    return {tuple(cell.values()): at for at, cell in enumerate(plan.cells())}


def _costs(run: "Loaded") -> tuple[dict[str, float], ...]:
    sums = ", ".join(f"coalesce(sum(r.{name}), 0)::DOUBLE" for name in COSTS)
    found = _rows(
        run,
        f"SELECT {_factors(run.plan)}, {sums} FROM outcomes o JOIN rollouts r USING (rollout_id) "
        f"WHERE o.settled_as = '{SETTLED}' GROUP BY ALL",
    )
    width, places = len(run.plan.factors), _places(run.plan)
    by_cell = {places[row[:width]]: dict(zip(COSTS, row[width:], strict=True)) for row in found}
    nothing = dict.fromkeys(COSTS, 0.0)
    return tuple(by_cell.get(at, nothing) for at in range(len(places)))


def _attempts(run: "Loaded") -> tuple[Attempt, ...] | None:
    """None where the root keeps no attempt at all: each rollout has made at least one."""
    found = _rows(
        run,
        f"SELECT {_factors(run.plan)}, coalesce(a.outcome, '{RUNNING}'), coalesce(a.reason, ''), "
        "count(*) FROM attempts a JOIN outcomes o USING (rollout_id) GROUP BY ALL ORDER BY ALL",
    )
    width, places = len(run.plan.factors), _places(run.plan)
    made = tuple(Attempt(places[row[:width]], *row[width:]) for row in found)
    return made or None


def _rows(run: "Loaded", query: str) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in run.arrow(query).columns]
    return list(zip(*columns, strict=True))


def _origin(root: Path) -> Origin | None:
    lock = root / "lock.json"
    if not lock.is_file():
        return None
    try:
        data = json.loads(lock.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AnalysisError(str(lock), "", f"not readable JSON ({error})", "Restore it.") from None
    return Origin(
        lock_id=str(data.get("lock_id", "")),
        code=str(data.get("code", "")),
        schema=str(data.get("schema", "")),
        sandbox=_line(data.get("sandbox"), ("backend", "version")),
        sampling=_line(_inner(data.get("study"), "sampling")),
        amendments=tuple(sorted(path.name for path in root.glob("amendments/*"))),
    )


def _inner(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _line(value: object, keys: tuple[str, ...] = ()) -> str:
    """``name value`` pairs of an object on one line."""
    pairs = _pairs(value, keys)
    return ", ".join(f"{key.replace('_', ' ')} {shown}" for key, shown in pairs)


def _pairs(value: object, keys: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((key, value[key]) for key in keys or sorted(value) if key in value)


def per(total: float, count: int | None) -> Fraction | None:
    """Total divided by a count; None where there is nothing to divide by."""
    return Fraction(total) / count if count else None
