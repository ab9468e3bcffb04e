"""The one writer of a root: attempts, records, evaluations. Each commit is atomic and durable.

What is committed is checked against the schemas and the lock first and never changed afterwards:
the same record again is a no-op, another one for the same rollout is refused. Content-addressed
files come before the record that names them, so no record ever names a missing patch.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.lock import Lock
from orchestrator.spec.records import RolloutRecord, Row
from orchestrator.store import attempts
from orchestrator.store.attempts import Attempt, AttemptEnd, abandoned
from orchestrator.store.files import (
    append_durable,
    disk_faults,
    write_addressed,
    write_directory,
    write_exclusive,
)
from orchestrator.store.parquet import encode_small, read_file, table_of
from orchestrator.store.planned import (
    planned_rows,
    receipt_without_outcome,
    row_without_outcome,
)
from orchestrator.store.root import Root
from orchestrator.store.rows import RECORD_TABLES, evaluation_problems, record_problems
from orchestrator.store.schemas import TABLES, outcome_columns

__all__ = ["Writer", "abandoned", "journal_for"]


def journal_for(path: Path) -> Callable[[bytes], None]:
    """A function that appends one ledger event (bytes without a newline) to ``path``, durably.

    Needs no writer: the process that runs an attempt keeps that attempt's journal itself.
    """
    return partial(append_durable, path)


class Writer:
    """Writes the facts of one lock's run; only within ``root.writer()``.

    Every method raises IntegrityError for what contradicts the lock or an earlier fact, and
    InfrastructureFault (boundary ``disk``) where the disk is full or fails.
    """

    def __init__(self, root: Root, lock: Lock) -> None:
        root.require_writer()
        with disk_faults(root.scratch):
            root.scratch.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._planned = planned_rows(lock)
        self._numbers = attempts.numbers(root)

    # ------------------------------------------------------------------ attempts

    def begin_attempt(self, rollout_id: str, facts: Mapping[str, object]) -> str:
        """Record, before any side effect, that an attempt begins; returns its id.

        ``facts`` is JSON data (placement, versions). A settled rollout has no further attempts.
        """
        self._root.require_writer()
        lock_id = self._require_planned(rollout_id)["lock_id"]
        if self._root.record_path(rollout_id).exists():
            raise IntegrityError(rollout_id, "is settled; no further attempt can begin")
        number = self._numbers.get(rollout_id, 0) + 1
        name = attempts.attempt_id(rollout_id, number)
        attempts.write_begin(
            self._root, Attempt(name, rollout_id, number, lock_id, time.time(), facts, None)
        )
        self._numbers[rollout_id] = number
        return name

    def end_attempt(
        self,
        attempt_id: str,
        outcome: str,
        reason: str,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """Record how an attempt ended. Again with the same outcome and reason: a no-op.

        ``settled`` is true only of an attempt whose record has been committed.
        """
        self._root.require_writer()
        if outcome not in attempts.OUTCOMES:
            raise IntegrityError(attempt_id, f"unknown outcome {outcome!r}")
        rollout_id = self._rollout_of(attempt_id)
        if outcome == "settled" and self._settling_attempt(rollout_id) != attempt_id:
            raise IntegrityError(attempt_id, "did not settle its rollout")
        before = attempts.read_end(self._root, attempt_id)
        if before is None:
            end = AttemptEnd(str(outcome), reason, time.time(), facts or {})
            attempts.write_end(self._root, attempt_id, end)
        elif (before.outcome, before.reason) != (outcome, reason):
            raise IntegrityError(attempt_id, f"has ended before, as {before.outcome}")

    def close_abandoned(self) -> dict[str, str]:
        """End the attempts that a killed run left open; returns attempt id -> outcome.

        Such an attempt says nothing (``abandoned``: its rollout is owed again), unless its record
        was committed before the kill (``settled``).
        """
        closed: dict[str, str] = {}
        for name in abandoned(self._root):
            done = self._settling_attempt(self._rollout_of(name)) == name
            closed[name] = "settled" if done else "abandoned"
            reason = "committed before the run was killed" if done else "the run was killed"
            self.end_attempt(name, closed[name], reason)
        return closed

    def journal(self, attempt_id: str) -> Callable[[bytes], None]:
        """The attempt's journal (see :func:`journal_for`)."""
        self._rollout_of(attempt_id)
        return journal_for(self._root.journal_path(attempt_id))

    # ------------------------------------------------------------------ records

    def commit(self, record: RolloutRecord) -> bool:
        """Settle a rollout; True if this call did, False if it was settled so before.

        Raises IntegrityError, and changes nothing, for a rollout that isn't in the lock, rows that
        violate a schema or each other, content that does not match its digest, and a rollout that
        is settled with other outcome columns.
        """
        self._root.require_writer()
        rollout_id = str(record.rollout.get("rollout_id"))
        rows = _tables(record)
        problems = record_problems(rows, self._require_planned(rollout_id))
        problems = problems or self._content_problems(record, rows)
        if problems:
            raise IntegrityError(rollout_id, "; ".join(problems[:5]))
        target = self._root.record_path(rollout_id)
        if target.exists():
            _require_equal(target, rows)
            return False
        addressed = {self._root.patch_path(sha): data for sha, data in record.patches.items()}
        addressed |= {self._root.blob_path(sha): data for sha, data in record.blobs.items()}
        write_addressed(addressed, self._root.scratch)
        write_directory(target, _record_files(record, rows), self._root.scratch)
        return True

    def commit_without_outcome(self, rollout_id: str, settled_as: str, reason: str) -> bool:
        """Settle a rollout that could not be had in its attempts, with a null outcome.

        ``settled_as``: ``infrastructure`` or ``unknown``; ``reason`` becomes ``end_reason`` (the
        faulty boundary, or what is known). Times are those of the last attempt. Returns and raises
        as :meth:`commit` does.
        """
        planned = self._require_planned(rollout_id)
        last = attempts.read_attempt(self._root, rollout_id, self._numbers.get(rollout_id, 0))
        times: Row = {
            "attempt_id": last.attempt_id,
            "started_at": last.began_at,
            "wall_seconds": max(0.0, last.end.ended_at - last.began_at) if last.end else 0.0,
        }
        row = row_without_outcome(planned, settled_as, reason, times)
        receipt = receipt_without_outcome(planned, settled_as, reason)
        row["receipt_sha256"] = sha256_hex(receipt)
        return self.commit(RolloutRecord(row, [], [], [], [], receipt))

    def commit_evaluation(self, rollout_id: str, rows: Sequence[Row]) -> bool:
        """Write the replay verdicts of a settled rollout: every proposal, with or without the base.

        Returns and raises as :meth:`commit` does.
        """
        self._root.require_writer()
        self._require_planned(rollout_id)
        record = self._root.record_path(rollout_id)
        if not record.exists():
            raise IntegrityError(rollout_id, "is evaluated before it has settled")
        (rollout,) = read_file(record / "rollout.parquet", "rollout")
        proposals = read_file(record / "proposals.parquet", "proposals")
        if problems := evaluation_problems(rows, rollout, proposals):
            raise IntegrityError(rollout_id, "; ".join(problems[:5]))
        ordered = sorted(rows, key=lambda row: int(row["proposal"]))
        target = self._root.evaluation_path(rollout_id)
        if target.exists():
            _require_equal_rows(target, "evaluations", ordered)
            return False
        data = encode_small(table_of(TABLES["evaluations"], ordered))
        write_exclusive(target, data, self._root.scratch)
        return True

    # ------------------------------------------------------------------ guards

    def _require_planned(self, rollout_id: str) -> Row:
        if rollout_id not in self._planned:
            raise IntegrityError(rollout_id, "is not a rollout of this root's lock")
        return self._planned[rollout_id]

    def _rollout_of(self, attempt_id: str) -> str:
        rollout_id, _, _ = attempt_id.rpartition(".a")
        self._require_planned(rollout_id)
        if not self._root.attempt_path(attempt_id).exists():
            raise IntegrityError(attempt_id, "never began")
        return rollout_id

    def _settling_attempt(self, rollout_id: str) -> str | None:
        path = self._root.record_path(rollout_id) / "rollout.parquet"
        return str(read_file(path, "rollout")[0]["attempt_id"]) if path.exists() else None

    def _content_problems(
        self, record: RolloutRecord, rows: Mapping[str, Sequence[Row]]
    ) -> list[str]:
        """Digests, the receipt, the attempt, and whether every named patch and blob is kept."""
        rollout = rows["rollout"][0]
        if self._rollout_of(rollout["attempt_id"]) != rollout["rollout_id"]:
            return [f"rollout: attempt {rollout['attempt_id']} is another rollout's"]
        if sha256_hex(record.receipt) != rollout["receipt_sha256"]:
            return ["rollout: receipt_sha256 is not the digest of the receipt"]
        if (rollout["settled_as"] == "agent") != bool(record.ledger):
            return [f"ledger: {len(record.ledger)} events, settled as {rollout['settled_as']}"]
        if any(b"\n" in line.removesuffix(b"\n") for line in record.ledger):
            return ["ledger: an event contains a newline"]
        addressed = [*record.patches.items(), *record.blobs.items()]
        wrong = [sha for sha, data in addressed if sha256_hex(data) != sha]
        return [f"content does not match its digest {sha}" for sha in wrong] or [
            *self._missing(record, rows)
        ]

    def _missing(self, record: RolloutRecord, rows: Mapping[str, Sequence[Row]]) -> list[str]:
        patches = {row["patch_sha256"] for row in rows["proposals"]} - record.patches.keys()
        cut = {r["observation_sha256"] for r in rows["actions"] if r["observation_truncated"]}
        blobs = cut - record.blobs.keys()
        return [
            *(
                f"patch {sha} is missing"
                for sha in sorted(patches)
                if not self._root.patch_path(sha).exists()
            ),
            *(
                f"blob {sha} is missing"
                for sha in sorted(blobs)
                if not self._root.blob_path(sha).exists()
            ),
        ]


def _tables(record: RolloutRecord) -> dict[str, list[Row]]:
    """The four tables; a record without a ledger may leave its head and receipt digest out."""
    rollout = dict(record.rollout)
    if not record.ledger:
        rollout.setdefault("ledger_head", "")
        rollout.setdefault("receipt_sha256", sha256_hex(record.receipt))
    return {
        "rollout": [rollout],
        "actions": record.actions,
        "proposals": record.proposals,
        "verdicts": record.verdicts,
    }


def _record_files(record: RolloutRecord, rows: Mapping[str, Sequence[Row]]) -> dict[str, bytes]:
    tables = {
        f"{name}.parquet": encode_small(table_of(TABLES[name], rows[name]))
        for name in RECORD_TABLES
    }
    ledger = b"".join(line.removesuffix(b"\n") + b"\n" for line in record.ledger)
    return {**tables, "ledger.jsonl": ledger, "receipt.json": record.receipt}


def _require_equal(directory: Path, rows: Mapping[str, Sequence[Row]]) -> None:
    for name in RECORD_TABLES:
        _require_equal_rows(directory / f"{name}.parquet", name, rows[name])


def _require_equal_rows(path: Path, name: str, rows: Sequence[Row]) -> None:
    """The stored rows have the same outcome columns as ``rows``, or IntegrityError."""
    columns = outcome_columns(name)
    # Through Arrow, so that both sides have its types.
    given = table_of(TABLES[name], rows).select(columns).to_pylist()
    stored = [{column: row[column] for column in columns} for row in read_file(path, name)]
    if stored != given:
        raise IntegrityError(str(path), "is committed already, with another outcome")
