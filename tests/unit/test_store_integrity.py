"""The matrix validates, and each kind of damage is found and named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from orchestrator.spec.identity import sha256_hex
from orchestrator.store.integrity import (
    compare,
    outcome_digest,
    validate_evaluations,
    validate_matrix,
)
from orchestrator.store.parquet import encode_small, read_file, table_of
from orchestrator.store.reading import read_table
from orchestrator.store.root import Root
from orchestrator.store.rows import table_problems
from orchestrator.store.schemas import TABLES
from tests.unit.store_support import (
    CHECKS,
    complete_run,
    digest,
    ledger_of,
    small_lock,
)

LOCK = small_lock()
FIRST, SECOND = (planned.rollout_id for planned in LOCK.rollouts[:2])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return complete_run(tmp_path_factory.mktemp("whole") / "root", LOCK)


@pytest.fixture
def root(whole: Root, tmp_path: Path) -> Root:
    """A copy that the test may damage."""
    shutil.copytree(whole.path, tmp_path / "copy")
    return Root.existing(tmp_path / "copy")


def findings(root: Root) -> list[str]:
    return validate_matrix(LOCK, root, CHECKS)


def rewrite(root: Root, table: str, column: str, value: Any, rollout_id: str = FIRST) -> None:
    """Change one value of the first row, as a valid Parquet file."""
    path = root.record_path(rollout_id) / f"{table}.parquet"
    if table == "evaluations":
        path = root.evaluation_path(rollout_id)
    rows = read_file(path, table)
    rows[0][column] = value
    path.write_bytes(encode_small(table_of(TABLES[table], rows)))


def double_row(root: Root) -> None:
    path = root.record_path(FIRST) / "rollout.parquet"
    rows = read_file(path, "rollout") * 2
    path.write_bytes(encode_small(table_of(TABLES["rollout"], rows)))


def replace_tree(root: Root) -> None:
    shutil.rmtree(root.record_path(FIRST))
    shutil.copytree(root.record_path(SECOND), root.record_path(FIRST))


def first_patch(root: Root) -> Path:
    rows = read_file(root.record_path(FIRST) / "proposals.parquet", "proposals")
    return root.patch_path(rows[0]["patch_sha256"])


def first_blob(root: Root) -> Path:
    rows = read_file(root.record_path(FIRST) / "actions.parquet", "actions")
    return root.blob_path(rows[0]["observation_sha256"])


def other_schema(root: Root) -> None:
    path = root.record_path(FIRST) / "verdicts.parquet"
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["cached"]), path)


def other_version(root: Root) -> None:
    path = root.record_path(FIRST) / "verdicts.parquet"
    pq.write_table(pq.ParquetFile(path).read().replace_schema_metadata(None), path)


def edited_receipt(root: Root) -> None:
    (root.record_path(FIRST) / "receipt.json").write_bytes(b'{"events": 4}')
    rewrite(root, "rollout", "receipt_sha256", sha256_hex(b'{"events": 4}'))


DAMAGE: dict[str, tuple[Callable[[Root], object], str]] = {
    "record lost": (lambda r: shutil.rmtree(r.record_path(FIRST)), "is not settled"),
    "file lost": (lambda r: (r.record_path(FIRST) / "ledger.jsonl").unlink(), "ledger.jsonl"),
    "file added": (lambda r: (r.record_path(FIRST) / "x").touch(), "unexpected: x"),
    "torn": (
        lambda r: (r.record_path(FIRST) / "actions.parquet").write_bytes(b"PAR1"),
        "not readable as Parquet",
    ),
    "columns": (other_schema, "its columns are not those of table verdicts"),
    "version": (other_version, "schema version none, expected 1"),
    "row doubled": (double_row, "2 rows, expected one"),
    "another's record": (replace_tree, "rollout_id is"),
    "lock": (lambda r: rewrite(r, "actions", "lock_id", digest("x")), "lock_id is"),
    "arm": (lambda r: rewrite(r, "rollout", "revision_cap", 9), "revision_cap is 9"),
    "count": (lambda r: rewrite(r, "rollout", "gate_passes", 0), "gate_passes is 0"),
    "lineage": (lambda r: rewrite(r, "actions", "state_before", digest("x")), "does not start"),
    "patch edited": (lambda r: first_patch(r).write_bytes(b"x"), "is missing or damaged"),
    "patch lost": (lambda r: first_patch(r).unlink(), "is missing or damaged"),
    "blob edited": (lambda r: first_blob(r).write_bytes(b"x"), "turn 1: observation"),
    "ledger edited": (
        lambda r: (r.record_path(FIRST) / "ledger.jsonl").write_bytes(
            b"".join(ledger_of(FIRST)).replace(b"event", b"evens")
        ),
        "ledger line 1: broken",
    ),
    "ledger cut": (
        lambda r: (r.record_path(FIRST) / "ledger.jsonl").write_bytes(
            b"".join(ledger_of(FIRST)[:2])
        ),
        "receipt: does not follow",
    ),
    "ledger head": (
        lambda r: rewrite(r, "rollout", "ledger_head", digest("x")),
        "ledger_head is not the hash of the last event",
    ),
    "receipt swapped": (
        lambda r: (r.record_path(FIRST) / "receipt.json").write_bytes(b"{}"),
        "does not match receipt_sha256",
    ),
    "receipt and digest edited": (edited_receipt, "receipt: does not follow"),
    "attempt lost": (lambda r: r.attempt_path(f"{FIRST}.a1").unlink(), "is not recorded"),
}


def test_a_whole_run_has_no_findings(whole: Root) -> None:
    assert findings(whole) == []
    assert validate_evaluations(LOCK, whole) == []


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found_and_named(root: Root, case: str) -> None:
    damage, message = DAMAGE[case]
    damage(root)
    found = findings(root)
    assert any(line.startswith(f"{FIRST}: ") and message in line for line in found), found
    assert not any(line.startswith(SECOND) for line in found)


def test_a_lost_record_leaves_its_cell_short(root: Root) -> None:
    shutil.rmtree(root.record_path(FIRST))
    assert any(line.startswith("matrix: cell ") and "0 of 1" in line for line in findings(root))


def test_a_foreign_record_is_found(root: Root) -> None:
    shutil.copytree(root.record_path(FIRST), root.record_path("foreign"))
    assert findings(root) == ["foreign: is not in the lock"]


def test_missing_and_edited_evaluations_are_found(root: Root) -> None:
    root.evaluation_path(FIRST).unlink()
    rewrite(root, "evaluations", "state_id", digest("x"), SECOND)
    found = validate_evaluations(LOCK, root)
    assert len(found) == 2
    assert any(line.startswith(f"{FIRST}: ") for line in found)
    assert any("another state or patch" in line for line in found)


def test_compare_names_table_row_and_column(whole: Root, root: Root) -> None:
    assert compare(whole, root) == []
    rewrite(root, "actions", "reply", "another")
    rewrite(root, "rollout", "own_seconds", 99.0)  # volatile: no difference
    root.evaluation_path(SECOND).unlink()
    before = outcome_digest(whole)
    assert outcome_digest(root) != before
    lines = compare(whole, root)
    assert len(lines) == 3
    assert lines[0].startswith(f"actions rollout={FIRST}, turn=1: reply is ")
    assert lines[1].endswith("only in the first")


def test_volatile_columns_do_not_enter_the_digest(whole: Root, root: Root) -> None:
    rewrite(root, "rollout", "wall_seconds", 99.0)
    rewrite(root, "rollout", "attempt_id", f"{FIRST}.a2")
    assert outcome_digest(root) == outcome_digest(whole)
    rewrite(root, "rollout", "visible_tests", 1)
    assert outcome_digest(root) != outcome_digest(whole)


@pytest.mark.parametrize(("outcome", "reason"), [("void", ""), ("fail", "void.residue")])
def test_a_reason_stands_exactly_where_a_run_was_void(
    root: Root, outcome: str, reason: str
) -> None:
    rows = read_table(root, "verdicts", FIRST).to_pylist()
    assert table_problems("verdicts", rows, {}) == []
    rows[0] |= {"outcome": "void", "void_reason": "void.residue"}
    assert table_problems("verdicts", rows, {}) == []
    rows[0] |= {"outcome": outcome, "void_reason": reason}
    (problem,) = table_problems("verdicts", rows, {})
    assert problem == f"verdicts: void_reason is {reason!r} where outcome is {outcome}"
