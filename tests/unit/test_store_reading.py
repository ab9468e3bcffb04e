"""What is settled, owed and how far a run is; compacted tables."""

from pathlib import Path

import duckdb
import pytest

from orchestrator.spec.errors import IntegrityError
from orchestrator.store import reading
from orchestrator.store.integrity import outcome_digest
from orchestrator.store.schemas import ATTEMPT, TABLES
from orchestrator.store.writer import Writer
from tests.unit.store_support import complete_run, open_root, settle, small_lock

LOCK = small_lock()
IDS = [planned.rollout_id for planned in LOCK.rollouts]


def test_an_empty_root_owes_everything_in_dispatch_order(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    assert reading.settled(root) == {}
    assert reading.owed(LOCK, root) == IDS
    for name in TABLES:
        table = reading.read_table(root, name)
        assert table.num_rows == 0
        assert table.column_names == [column.name for column in TABLES[name]]
    now = reading.progress(root, LOCK)
    assert (now.planned, now.settled, now.owed, now.rate_per_hour) == (4, 0, 4, None)


def test_side_files_have_no_say_in_what_is_owed(tmp_path: Path) -> None:
    """A begun, journalled, even 'finished' attempt without a record is owed."""
    root = open_root(tmp_path / "root", LOCK)
    with root.writer():
        writer = Writer(root, LOCK)
        attempt = writer.begin_attempt(IDS[0], {})
        writer.journal(attempt)(b"{}")
        (root.scratch / ".half.tmp").mkdir()
        assert reading.owed(LOCK, root) == IDS
        settle(writer, LOCK, IDS[1])
        assert reading.owed(LOCK, root) == [IDS[0], *IDS[2:]]


def test_progress_adds_up(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    with root.writer():
        writer = Writer(root, LOCK)
        for rollout_id in IDS[:2]:
            settle(writer, LOCK, rollout_id)
        lost = writer.begin_attempt(IDS[2], {})
        writer.end_attempt(lost, "infrastructure", "server: gone")
        writer.commit_without_outcome(IDS[2], "infrastructure", "server")
        writer.begin_attempt(IDS[3], {})
    now = reading.progress(root, LOCK)
    assert now.settled + now.owed == now.planned == 4
    assert now.settled_by == {"agent": 2, "infrastructure": 1}
    assert now.attempts_by == {"infrastructure": 1, "running": 1, "settled": 2}
    assert (now.actions, now.tokens_prompt, now.tokens_completion) == (6, 600, 60)
    assert now.rate_per_hour is not None
    assert now.eta_seconds == pytest.approx(3600 / now.rate_per_hour)
    assert now.evaluated == 0


def test_read_table_of_one_rollout_and_of_some_columns(tmp_path: Path) -> None:
    root = complete_run(tmp_path / "root", LOCK)
    one = reading.read_table(root, "actions", IDS[0]).to_pylist()
    assert [(row["rollout_id"], row["turn"]) for row in one] == [(IDS[0], n) for n in (1, 2, 3)]
    assert reading.read_table(root, "evaluations", IDS[0]).num_rows == 2
    some = reading.read_table(root, "verdicts", columns=["outcome"])
    assert some.column_names == ["outcome"]
    assert some.num_rows == 8
    with pytest.raises(IntegrityError):
        reading.read_table(root, "actions", "nobody")


@pytest.mark.parametrize("damage", [b"", b"PAR1 torn"])
def test_a_damaged_file_is_named_not_skipped(tmp_path: Path, damage: bytes) -> None:
    root = complete_run(tmp_path / "root", LOCK)
    path = root.record_path(IDS[1]) / "rollout.parquet"
    path.write_bytes(damage)
    with pytest.raises(IntegrityError, match=IDS[1]):
        reading.read_table(root, "rollout")
    with pytest.raises(IntegrityError, match=IDS[1]):
        reading.owed(LOCK, root)


def test_compacted_tables_equal_the_records_byte_by_byte_repeatable(tmp_path: Path) -> None:
    root = complete_run(tmp_path / "root", LOCK)
    counts = reading.compact(root)
    assert counts == {
        "rollout": 4,
        "actions": 12,
        "proposals": 4,
        "verdicts": 8,
        "evaluations": 8,
        "attempts": 4,
    }
    before = {path.name: path.read_bytes() for path in root.tables.iterdir()}
    reading.compact(root)
    assert {path.name: path.read_bytes() for path in root.tables.iterdir()} == before
    for name in TABLES:
        copy = duckdb.read_parquet(str(root.tables / f"{name}.parquet")).to_arrow_table()
        assert copy.to_pylist() == reading.read_table(root, name).to_pylist()
    attempts = duckdb.read_parquet(str(root.tables / "attempts.parquet"))
    assert attempts.columns == [column.name for column in ATTEMPT]
    assert {row[0] for row in attempts.select("outcome").fetchall()} == {"settled"}


def test_compact_needs_no_rollout(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    assert set(reading.compact(root).values()) == {0}
    assert duckdb.read_parquet(str(root.tables / "actions.parquet")).fetchall() == []


def test_column_meanings_travel_with_the_compacted_tables(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    reading.compact(root)
    import pyarrow.parquet as pq

    file = pq.ParquetFile(root.tables / "rollout.parquet")
    assert file.metadata.metadata[b"schema_version"] == b"1"
    assert file.schema_arrow.field("seed").metadata[b"meaning"] == b"preregistered seed"


def test_two_runs_agree_whatever_order_and_attempts(tmp_path: Path) -> None:
    straight = complete_run(tmp_path / "a", LOCK)
    disturbed = open_root(tmp_path / "b", LOCK)
    with disturbed.writer():
        writer = Writer(disturbed, LOCK)
        writer.begin_attempt(IDS[3], {})
        writer.close_abandoned()
        for rollout_id in reversed(IDS):
            settle(writer, LOCK, rollout_id)
    assert outcome_digest(straight) != outcome_digest(disturbed)  # evaluations are missing
    for path in straight.evaluations.iterdir():
        disturbed.evaluation_path(path.stem).write_bytes(path.read_bytes())
    assert outcome_digest(straight) == outcome_digest(disturbed)
