"""What the writer accepts, refuses and keeps."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.records import RolloutRecord
from orchestrator.store import reading
from orchestrator.store.files import read_lines
from orchestrator.store.root import Root
from orchestrator.store.schemas import TABLES
from orchestrator.store.writer import Writer, abandoned, journal_for
from tests.unit.store_support import (
    action,
    digest,
    evaluation_rows,
    example_record,
    open_root,
    settle,
    small_lock,
)

LOCK = small_lock()
FIRST, SECOND = (planned.rollout_id for planned in LOCK.rollouts[:2])


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    opened = open_root(tmp_path / "root", LOCK)
    with opened.writer():
        yield opened


@pytest.fixture
def writer(root: Root) -> Writer:
    return Writer(root, LOCK)


def begun(writer: Writer) -> RolloutRecord:
    return example_record(LOCK, FIRST, writer.begin_attempt(FIRST, {}))


# ---------------------------------------------------------------------- attempts


def test_attempts_are_numbered_across_writers(root: Root) -> None:
    assert Writer(root, LOCK).begin_attempt(FIRST, {"worker": 3}) == f"{FIRST}.a1"
    later = Writer(root, LOCK)
    assert later.begin_attempt(FIRST, {}) == f"{FIRST}.a2"
    assert later.begin_attempt(SECOND, {}) == f"{SECOND}.a1"
    first, *_ = reading.attempts(root)
    assert (first.number, first.rollout_id, first.facts) == (1, FIRST, {"worker": 3})


def test_an_end_is_written_once(root: Root, writer: Writer) -> None:
    attempt = writer.begin_attempt(FIRST, {})
    writer.end_attempt(attempt, "infrastructure", "server: gone", {"status": 503})
    writer.end_attempt(attempt, "infrastructure", "server: gone")
    with pytest.raises(IntegrityError, match="has ended before"):
        writer.end_attempt(attempt, "unknown", "changed my mind")
    (stored,) = reading.attempts(root)
    assert stored.end is not None
    assert (stored.end.outcome, stored.end.facts) == ("infrastructure", {"status": 503})


@pytest.mark.parametrize("name", [f"{FIRST}.a7", "nobody.a1", FIRST, f"{FIRST}.a01"])
def test_an_attempt_that_never_began_cannot_end(writer: Writer, name: str) -> None:
    writer.begin_attempt(FIRST, {})
    with pytest.raises(IntegrityError):
        writer.end_attempt(name, "unknown", "")


def test_settled_is_true_only_of_the_attempt_that_committed(writer: Writer) -> None:
    lost, won = writer.begin_attempt(FIRST, {}), writer.begin_attempt(FIRST, {})
    with pytest.raises(IntegrityError, match="did not settle"):
        writer.end_attempt(won, "settled", "")
    writer.commit(example_record(LOCK, FIRST, won))
    with pytest.raises(IntegrityError, match="did not settle"):
        writer.end_attempt(lost, "settled", "")
    writer.end_attempt(won, "settled", "")


def test_unknown_outcome_is_refused(writer: Writer) -> None:
    with pytest.raises(IntegrityError, match="unknown outcome"):
        writer.end_attempt(writer.begin_attempt(FIRST, {}), "fine", "")


def test_no_attempt_after_settling_and_none_of_a_foreign_rollout(writer: Writer) -> None:
    settle(writer, LOCK, FIRST)
    with pytest.raises(IntegrityError, match="settled"):
        writer.begin_attempt(FIRST, {})
    with pytest.raises(IntegrityError, match="not a rollout"):
        writer.begin_attempt("foreign", {})


def test_a_killed_runs_attempts_are_closed_by_what_they_left(root: Root, writer: Writer) -> None:
    committed = writer.begin_attempt(FIRST, {})
    writer.commit(example_record(LOCK, FIRST, committed))  # killed before the attempt's end
    open_one = writer.begin_attempt(SECOND, {})
    assert abandoned(root) == sorted([committed, open_one])
    resumed = Writer(root, LOCK)
    assert resumed.close_abandoned() == {committed: "settled", open_one: "abandoned"}
    assert abandoned(root) == []
    assert SECOND in reading.owed(LOCK, root)
    assert reading.failed_attempts(root) == {}


def test_journal_is_durable_line_by_line_and_needs_no_writer(root: Root, writer: Writer) -> None:
    attempt = writer.begin_attempt(FIRST, {})
    writer.journal(attempt)(b'{"seq": 0}')
    journal_for(root.journal_path(attempt))(b'{"seq": 1}\n')
    assert read_lines(root.journal_path(attempt)) == [b'{"seq": 0}', b'{"seq": 1}']
    with pytest.raises(IntegrityError, match="never began"):
        writer.journal(f"{FIRST}.a9")


# ---------------------------------------------------------------------- records


def test_commit_leaves_the_whole_record(root: Root, writer: Writer) -> None:
    record = begun(writer)
    assert writer.commit(record) is True
    directory = root.record_path(FIRST)
    assert {entry.name for entry in directory.iterdir()} == {
        "rollout.parquet",
        "actions.parquet",
        "proposals.parquet",
        "verdicts.parquet",
        "receipt.json",
        "ledger.jsonl",
    }
    assert reading.read_table(root, "rollout").to_pylist() == [
        {column.name: record.rollout[column.name] for column in TABLES["rollout"]}
    ]
    assert reading.read_table(root, "actions").column("turn").to_pylist() == [1, 2, 3]
    assert (directory / "ledger.jsonl").read_bytes() == b"".join(record.ledger)
    assert (directory / "receipt.json").read_bytes() == record.receipt
    ((patch, content),) = record.patches.items()
    assert root.patch_path(patch).read_bytes() == content
    ((blob, content),) = record.blobs.items()
    assert root.blob_path(blob).read_bytes() == content
    assert root.blob_path(blob).parent.name == blob[:2]
    assert list(root.scratch.iterdir()) == []


def test_commit_again_is_a_no_op_if_the_outcome_is_equal(root: Root, writer: Writer) -> None:
    record = begun(writer)
    writer.commit(record)
    before = root.record_path(FIRST).stat()
    slower = replace(record, rollout={**record.rollout, "wall_seconds": 99.0})
    assert writer.commit(slower) is False
    assert root.record_path(FIRST).stat() == before
    table = reading.read_table(root, "rollout")
    assert table.column("wall_seconds").to_pylist() == [record.rollout["wall_seconds"]]


@pytest.mark.parametrize("table", ["rollout", "actions", "verdicts"])
def test_commit_of_another_outcome_is_refused(root: Root, writer: Writer, table: str) -> None:
    record = begun(writer)
    writer.commit(record)
    other = deepcopy(record)
    if table == "rollout":
        other.rollout["visible_tests"] = 1
    elif table == "actions":
        other.actions[0]["reply"] = "another reply"
    else:
        other.verdicts[0]["outcome"] = "fail"
    with pytest.raises(IntegrityError, match=f"{table}.parquet: is committed already"):
        writer.commit(other)
    assert reading.read_table(root, "rollout").column("visible_tests").to_pylist() == [0]


Change = Callable[[RolloutRecord], None]


def put(part: str, column: str, value: Any) -> Change:
    """Set a column of the rollout row, or of the first row of another table."""

    def change(record: RolloutRecord) -> None:
        row = record.rollout if part == "rollout" else getattr(record, part)[0]
        row[column] = value

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "missing column": (lambda r: r.rollout.pop("actions"), "column actions is missing"),
    "unknown column": (put("rollout", "score", 1.0), "unknown column 'score'"),
    "null": (put("actions", "reply", None), "actions: reply is null"),
    "bool for int": (put("rollout", "visible_tests", True), "visible_tests is no int64"),
    "int for bool": (put("rollout", "escalated", 0), "escalated is no bool"),
    "text for float": (put("actions", "tool_seconds", "1"), "tool_seconds is no double"),
    "nan": (put("rollout", "wall_seconds", float("nan")), "wall_seconds is no double"),
    "too large": (put("actions", "request_seed", 2**63), "request_seed is no int64"),
    "surrogate": (put("actions", "reply", "\ud800"), "reply is no string"),
    "vocabulary": (put("actions", "kind", "ponder"), "not one of search"),
    "digest": (put("actions", "prompt_sha256", "abc"), "prompt_sha256 is no SHA-256"),
    "foreign lock": (put("actions", "lock_id", digest("other")), "lock_id is"),
    "foreign rollout in a row": (put("verdicts", "rollout_id", SECOND), "rollout_id is"),
    "foreign arm": (put("rollout", "binding", None), "binding is null"),
    "another seed": (put("rollout", "seed", 9), "seed is 9, expected 1"),
    "turn twice": (put("actions", "turn", 2), "turn does not count"),
    "miscounted": (put("rollout", "tokens_prompt", 1), "tokens_prompt is 1, its rows say 300"),
    "broken lineage": (put("actions", "state_after", digest("x")), "does not start in the state"),
    "proposal without edit": (put("proposals", "turn", 1), "belongs to no edit"),
    "proposal not retained": (put("proposals", "retained", False), "differ in their states"),
    "outcome missing": (put("rollout", "accepted", None), "accepted is None"),
    "no accepted state": (put("rollout", "accepted_state_id", None), "accepted_state_id is None"),
    "no final state": (put("rollout", "final_state_id", None), "final_state_id is null"),
    "end reason": (put("rollout", "end_reason", "server"), "end_reason 'server'"),
    "receipt": (put("rollout", "receipt_sha256", digest("x")), "receipt_sha256 is not"),
    "patch missing": (lambda r: r.patches.clear(), "patch [0-9a-f]+ is missing"),
    "blob missing": (lambda r: r.blobs.clear(), "blob [0-9a-f]+ is missing"),
    "patch edited": (
        lambda r: r.patches.update(dict.fromkeys(r.patches, b"other")),
        "content does not match its digest",
    ),
    "no ledger": (lambda r: r.ledger.clear(), "0 events, settled as agent"),
    "newline": (lambda r: r.ledger.append(b"a\nb"), "an event contains a newline"),
    "never begun": (put("rollout", "attempt_id", f"{FIRST}.a5"), "never began"),
    "foreign attempt": (put("rollout", "attempt_id", f"{SECOND}.a1"), "another rollout's"),
    "foreign rollout": (put("rollout", "rollout_id", "foreign"), "not a rollout of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_record_is_refused_and_leaves_nothing(
    root: Root, writer: Writer, case: str
) -> None:
    change, message = REFUSED[case]
    writer.begin_attempt(SECOND, {})
    record = begun(writer)
    change(record)
    with pytest.raises(IntegrityError, match=message):
        writer.commit(record)
    assert list(root.records.iterdir()) == []
    assert list((root.path / "patches").iterdir()) == []
    assert reading.owed(LOCK, root)[0] == FIRST


def test_shared_patches_need_not_be_handed_in_again(root: Root, writer: Writer) -> None:
    first = settle(writer, LOCK, FIRST)
    second = example_record(LOCK, SECOND, writer.begin_attempt(SECOND, {}))
    ((sha, _),) = first.patches.items()
    second.proposals[0]["patch_sha256"] = sha
    assert writer.commit(replace(second, patches={})) is True


def test_a_row_without_outcome_is_built_from_the_lock(root: Root, writer: Writer) -> None:
    for _ in range(2):
        attempt = writer.begin_attempt(FIRST, {})
        writer.end_attempt(attempt, "infrastructure", "server: gone")
    assert writer.commit_without_outcome(FIRST, "infrastructure", "server") is True
    assert writer.commit_without_outcome(FIRST, "infrastructure", "server") is False
    (row,) = reading.read_table(root, "rollout").to_pylist()
    assert row["accepted"] is row["final_state_id"] is None
    assert (row["settled_as"], row["end_reason"]) == ("infrastructure", "server")
    assert (row["attempt_id"], row["actions"], row["ledger_head"]) == (f"{FIRST}.a2", 0, "")
    assert row["base_state_id"] == LOCK.tasks[0].base_state_id
    receipt = json.loads((root.record_path(FIRST) / "receipt.json").read_bytes())
    assert receipt["settled_as"] == "infrastructure"
    assert reading.settled(root) == {FIRST: "infrastructure"}
    assert [end.outcome for end in reading.failed_attempts(root)[FIRST]] == ["infrastructure"] * 2


def test_a_row_without_outcome_needs_an_attempt_and_never_replaces(writer: Writer) -> None:
    with pytest.raises(IntegrityError):
        writer.commit_without_outcome(FIRST, "infrastructure", "server")
    settle(writer, LOCK, FIRST)
    with pytest.raises(IntegrityError, match="another outcome"):
        writer.commit_without_outcome(FIRST, "infrastructure", "server")
    writer.begin_attempt(SECOND, {})
    with pytest.raises(IntegrityError, match="agent"):
        writer.commit_without_outcome(SECOND, "agent", "submitted")


# ---------------------------------------------------------------------- evaluations


def test_evaluation_is_written_once(root: Root, writer: Writer) -> None:
    rows = evaluation_rows(settle(writer, LOCK, FIRST))
    assert writer.commit_evaluation(FIRST, rows[::-1]) is True
    again = [{**row, "duration_seconds": 9.0} for row in rows]
    assert writer.commit_evaluation(FIRST, again) is False
    stored = reading.read_table(root, "evaluations").to_pylist()
    assert [row["proposal"] for row in stored] == [0, 1]
    assert stored[0]["failed_ids"] == ["test_a", "test_b"]
    other = [rows[0], {**rows[1], "full": False, "resolved": False}]
    with pytest.raises(IntegrityError, match="another outcome"):
        writer.commit_evaluation(FIRST, other)


def test_evaluation_of_proposals_alone_is_enough(writer: Writer) -> None:
    rows = evaluation_rows(settle(writer, LOCK, FIRST))
    assert writer.commit_evaluation(FIRST, rows[1:]) is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resolved": False}, "conjunction"),
        ({"state_id": digest("other")}, "another state or patch"),
        ({"patch_sha256": digest("other")}, "another state or patch"),
        ({"subject": "base"}, "cannot be of subject"),
        ({"proposal": 2}, "recorded"),
        ({"task_id": "t9"}, "task_id is"),
        ({"failed_ids": "test_a"}, "failed_ids is no list"),
    ],
)
def test_a_wrong_evaluation_is_refused(
    root: Root, writer: Writer, changes: dict[str, object], message: str
) -> None:
    base, judged = evaluation_rows(settle(writer, LOCK, FIRST))
    with pytest.raises(IntegrityError, match=message):
        writer.commit_evaluation(FIRST, [base, {**judged, **changes}])
    with pytest.raises(IntegrityError, match="recorded"):
        writer.commit_evaluation(FIRST, [base])
    with pytest.raises(IntegrityError, match="twice"):
        writer.commit_evaluation(FIRST, [base, base, judged])
    assert list(root.evaluations.iterdir()) == []


def test_evaluation_before_settling_is_refused(writer: Writer) -> None:
    rows = evaluation_rows(begun(writer))
    with pytest.raises(IntegrityError, match="before it has settled"):
        writer.commit_evaluation(FIRST, rows)


def test_example_rows_have_every_column() -> None:
    """The examples follow the schema, so the refusals above are for the stated reason."""
    planned = example_record(LOCK, FIRST, f"{FIRST}.a1").rollout
    assert action(planned, 1).keys() == {column.name for column in TABLES["actions"]}
