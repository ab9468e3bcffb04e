"""What a root's files say: what is settled, what is owed, how far a run is; and compacted tables.

Reads only terminal facts (records, attempts, evaluations), so it may run beside the writer; every
answer is a pure function of the files. ``compact`` alone writes, copies under ``tables/``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.lock import Lock
from orchestrator.spec.records import Row
from orchestrator.store.attempts import Attempt, AttemptEnd, read_attempts
from orchestrator.store.files import write_atomic
from orchestrator.store.parquet import encode_described, read_files, table_of
from orchestrator.store.root import Root
from orchestrator.store.schemas import ATTEMPT, TABLES

RATE_WINDOW = 32
"""Settlements over which the rate is taken: recent enough for an ETA, enough to be steady."""

COUNTED = ("actions", "tokens_prompt", "tokens_completion", "tokens_served")
SUMMARY = ("rollout_id", "settled_as", *COUNTED)
FAILED = ("infrastructure", "unknown")


def _files(root: Root, name: str) -> list[Path]:
    """Files that hold a table's rows, sorted. A record directory is there whole or not at all."""
    if name == "evaluations":
        return sorted(root.evaluations.glob("*.parquet"))
    return [directory / f"{name}.parquet" for directory in sorted(root.records.iterdir())]


def read_table(
    root: Root, name: str, rollout_id: str | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """A table, sorted by rollout and key: of one settled rollout (None = all), some columns (None =
    all). Raises IntegrityError where a file is missing or damaged.
    """
    files = _files(root, name)
    if rollout_id is not None:
        record = root.record_path(rollout_id) / f"{name}.parquet"
        files = [root.evaluation_path(rollout_id) if name == "evaluations" else record]
    return read_files(files, name, columns)


@lru_cache(maxsize=1 << 16)
def _summary(path: Path, _changed_ns: int) -> Row:
    """The columns of a rollout row that this module counts; a committed file never changes."""
    (row,) = read_files([path], "rollout", SUMMARY).to_pylist()
    return dict(row)


def _summaries(root: Root) -> list[Row]:
    return [_summary(path, _changed_ns(path)) for path in _files(root, "rollout")]


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise IntegrityError(
            str(path), f"is damaged ({error.strerror}); restore it, or remove its whole directory"
        ) from None


def settled(root: Root) -> dict[str, str]:
    """Rollout id -> ``settled_as`` of every settled rollout."""
    return {row["rollout_id"]: row["settled_as"] for row in _summaries(root)}


def owed(lock: Lock, root: Root) -> list[str]:
    """Planned minus settled, in dispatch order. Attempts, journals and side files have no say."""
    done = settled(root)
    ordered = sorted(lock.rollouts, key=lambda rollout: rollout.order)
    return [rollout.rollout_id for rollout in ordered if rollout.rollout_id not in done]


def attempts(root: Root) -> list[Attempt]:
    """Every attempt with its end (None = none yet), by rollout id and number."""
    return read_attempts(root)


def failed_attempts(root: Root) -> dict[str, list[AttemptEnd]]:
    """Rollout id -> ends of attempts that used up a try (infrastructure or unknown), in order.

    Abandoned ones say nothing of the rollout and don't count.
    """
    failed: dict[str, list[AttemptEnd]] = {}
    for attempt in attempts(root):
        if attempt.end is not None and attempt.end.outcome in FAILED:
            failed.setdefault(attempt.rollout_id, []).append(attempt.end)
    return failed


@dataclass(frozen=True)
class Progress:
    """How far a run is: ``planned`` = ``settled`` + ``owed``.

    ``settled_by`` counts by ``settled_as``, ``attempts_by`` by outcome (``running``: no end yet).
    Tokens and actions are those of settled rollouts. ``rate_per_hour`` (settled rollouts, over the
    last :data:`RATE_WINDOW`) and ``eta_seconds`` are None until two have settled.
    """

    planned: int
    settled: int
    settled_by: dict[str, int]
    owed: int
    attempts_by: dict[str, int]
    actions: int
    tokens_prompt: int
    tokens_completion: int
    tokens_served: int
    rate_per_hour: float | None
    eta_seconds: float | None
    evaluated: int


def progress(root: Root, lock: Lock) -> Progress:
    """Where the run stands, from the files alone; cheap to ask again and again."""
    planned = {rollout.rollout_id for rollout in lock.rollouts}
    rows = [row for row in _summaries(root) if row["rollout_id"] in planned]
    tries = attempts(root)
    rate = _rate_per_hour(tries)
    owed_now = len(planned) - len(rows)
    return Progress(
        planned=len(planned),
        settled=len(rows),
        settled_by=dict(sorted(Counter(row["settled_as"] for row in rows).items())),
        owed=owed_now,
        attempts_by=dict(sorted(Counter(_outcome(attempt) for attempt in tries).items())),
        **{name: sum(row[name] for row in rows) for name in COUNTED},
        rate_per_hour=rate,
        eta_seconds=owed_now / rate * 3600.0 if rate else None,
        evaluated=len(_files(root, "evaluations")),
    )


def _outcome(attempt: Attempt) -> str:
    return attempt.end.outcome if attempt.end else "running"


def _rate_per_hour(tries: Iterable[Attempt]) -> float | None:
    ends = [a.end.ended_at for a in tries if a.end is not None and a.end.outcome == "settled"]
    recent = sorted(ends)[-RATE_WINDOW:]
    if len(recent) < 2 or recent[-1] <= recent[0]:
        return None
    return (len(recent) - 1) / (recent[-1] - recent[0]) * 3600.0


def compact(root: Root) -> dict[str, int]:
    """Rebuild ``tables/*.parquet`` from the facts, each atomically; returns table -> rows.

    Equal facts give equal bytes. ``attempts.parquet`` is added to the tables of the schemas.
    """
    tables = {name: read_table(root, name) for name in TABLES}
    rows: list[Row] = [attempt.row() for attempt in attempts(root)]
    tables["attempts"] = table_of(ATTEMPT, rows)
    for name, table in tables.items():
        write_atomic(root.tables / f"{name}.parquet", encode_described(table.combine_chunks()))
    return {name: table.num_rows for name, table in tables.items()}
