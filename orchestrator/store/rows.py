"""What a row must be before it is committed, and what must agree within one rollout's record.

Pure functions that return problems as sentences; the writer refuses a record that has any, and the
validation of the matrix reads the same rules back from the files.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from orchestrator.spec.records import Row
from orchestrator.store.schemas import BOOL, FLOAT, INT, STR, STRINGS, TABLES, Column

RECORD_TABLES = ("rollout", "actions", "proposals", "verdicts")
"""The tables of a record directory; ``evaluations`` come after unsealing, in files of their own."""

KEYS: dict[str, tuple[str, ...]] = {
    "rollout": (),
    "actions": ("turn",),
    "proposals": ("proposal",),
    "verdicts": ("sequence",),
    "evaluations": ("proposal",),
}
"""What tells the rows of one rollout apart, and sorts them."""

SETTLED_AS = ("agent", "infrastructure", "unknown")
AGENT_ENDS = ("submitted", "escalated", "actions", "wall", "tokens")

VOCABULARY: dict[tuple[str, str], tuple[str, ...]] = {
    ("rollout", "settled_as"): SETTLED_AS,
    ("rollout", "evidence"): ("current", "stale"),
    ("rollout", "accepted_via"): ("submission", "checkpoint"),
    ("actions", "kind"): (
        "search",
        "view",
        "edit",
        "shell",
        "test",
        "submit",
        "escalate",
        "invalid",
    ),
    ("actions", "result"): ("done", "invalid", "refused", "stale", "accepted", "rejected"),
    ("actions", "reply_source"): ("model", "shared", "recorded", "simulated"),
    ("verdicts", "purpose"): ("diagnostic", "gate", "certification"),
    ("verdicts", "outcome"): ("pass", "fail", "timeout", "void"),
    ("evaluations", "subject"): ("base", "proposal"),
    ("evaluations", "outcome"): ("pass", "fail", "timeout", "void"),
}
"""Closed vocabularies of the schemas' text columns."""

SHA256 = re.compile(r"[0-9a-f]{64}")


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate: no UTF-8, so no Parquet string
        return False
    return True


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_float(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(_is_text(item) for item in value)


CHECKS: dict[pa.DataType, Callable[[object], bool]] = {
    STR: _is_text,
    INT: _is_int,
    FLOAT: _is_float,
    BOOL: lambda value: isinstance(value, bool),
    STRINGS: _is_texts,
}


def row_problems(table: str, row: Row) -> Iterator[str]:
    """Missing or unknown columns, nulls, types and vocabularies of one row."""
    columns = TABLES[table]
    for name in sorted(row.keys() - {column.name for column in columns}):
        yield f"{table}: unknown column {name!r}"
    for column in columns:
        if column.name not in row:
            yield f"{table}: column {column.name} is missing"
        elif problem := _value_problem(table, column, row[column.name]):
            yield f"{table}: {column.name} {problem}"


def _value_problem(table: str, column: Column, value: object) -> str | None:
    if value is None:
        return None if column.nullable else "is null"
    if not CHECKS[column.type](value):
        return f"is no {column.type} ({value!r:.60})"
    words = VOCABULARY.get((table, column.name))
    if words is not None and value not in words:
        return f"is {value!r}, not one of {', '.join(words)}"
    if column.name.endswith("_sha256") and not SHA256.fullmatch(str(value)):
        return f"is no SHA-256 ({value!r:.60})"
    return None


def _void_problems(table: str, row: Row) -> Iterator[str]:
    """A reason exactly where the outcome is void, in the tables that have both."""
    if "void_reason" in row and (row["outcome"] == "void") != bool(row["void_reason"]):
        yield f"{table}: void_reason is {row['void_reason']!r} where outcome is {row['outcome']}"


def table_problems(table: str, rows: Sequence[Row], expected: Mapping[str, object]) -> list[str]:
    """Problems of one table's rows: each by itself, and columns that must have a given value."""
    problems = [problem for row in rows for problem in row_problems(table, row)]
    problems = problems or [problem for row in rows for problem in _void_problems(table, row)]
    if problems:
        return problems
    return [
        f"{table}: {name} is {row[name]!r}, expected {value!r}"
        for row in rows
        for name, value in expected.items()
        if row[name] != value
    ]


def record_problems(rows: Mapping[str, Sequence[Row]], planned: Row) -> list[str]:
    """Everything wrong with one rollout's four tables; empty = valid.

    ``planned``: the columns that the lock fixes (:func:`orchestrator.store.planned.planned_rows`).
    """
    identity = {name: planned[name] for name in ("lock_id", "rollout_id")}
    problems = [
        problem
        for table in RECORD_TABLES
        for problem in table_problems(
            table, rows[table], planned if table == "rollout" else identity
        )
    ]
    if len(rows["rollout"]) != 1:
        problems.append(f"rollout: {len(rows['rollout'])} rows, expected one")
    if problems:
        return problems
    rollout = rows["rollout"][0]
    return [
        *_outcome_problems(rollout),
        *_numbering_problems(rows),
        *_count_problems(rollout, rows),
        *_lineage_problems(rollout, rows),
    ]


def _outcome_problems(rollout: Row) -> Iterator[str]:
    """Null outcome exactly where the row did not settle by the agent's doing."""
    settled_as, accepted = rollout["settled_as"], rollout["accepted"]
    if (settled_as == "agent") == (accepted is None):
        yield f"rollout: accepted is {accepted} where settled_as is {settled_as}"
    if (settled_as == "agent") == (rollout["final_state_id"] is None):
        yield "rollout: final_state_id is null exactly where there is no outcome"
    if settled_as == "agent" and rollout["end_reason"] not in AGENT_ENDS:
        yield f"rollout: end_reason {rollout['end_reason']!r} is none of {', '.join(AGENT_ENDS)}"
    for name in ("accepted_via", "accepted_state_id"):
        if bool(accepted) == (rollout[name] is None):
            yield f"rollout: {name} is {rollout[name]!r} where accepted is {accepted}"


def _numbering_problems(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for table in RECORD_TABLES[1:]:
        (key,) = KEYS[table]
        numbers = [row[key] for row in rows[table]]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{table}: {key} does not count 1, 2, ... {len(numbers)}"


def _count_problems(rollout: Row, rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Counters of the rollout row against the rows that they count."""
    actions, proposals, verdicts = rows["actions"], rows["proposals"], rows["verdicts"]
    counted = {
        "actions": len(actions),
        "invalid_actions": sum(row["kind"] == "invalid" for row in actions),
        "refused_actions": sum(row["result"] == "refused" for row in actions),
        "tokens_prompt": sum(row["prompt_tokens"] for row in actions),
        "tokens_completion": sum(row["completion_tokens"] for row in actions),
        "revisions": len(proposals),
        "gate_passes": sum(row["gate_passed"] for row in proposals),
        "gate_rejections": sum(not row["gate_passed"] for row in proposals),
        "certifications": sum(row["purpose"] == "certification" for row in verdicts),
    }
    for name, count in counted.items():
        if rollout[name] != count:
            yield f"rollout: {name} is {rollout[name]}, its rows say {count}"


def _lineage_problems(rollout: Row, rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Each action starts where the last one ended; each proposal belongs to an edit."""
    state = rollout["base_state_id"]
    for row in rows["actions"]:
        if row["state_before"] != state:
            yield f"actions: turn {row['turn']} does not start in the state before it"
        state = row["state_after"]
    actions = {row["turn"]: row for row in rows["actions"]}
    for row in rows["proposals"]:
        edit = actions.get(row["turn"])
        if edit is None or edit["kind"] != "edit":
            yield f"proposals: proposal {row['proposal']} belongs to no edit"
            continue
        kept = row["state_id"] if row["retained"] else row["state_before"]
        if (edit["state_before"], edit["state_after"]) != (row["state_before"], kept):
            yield f"proposals: proposal {row['proposal']} and its edit differ in their states"


def evaluation_problems(
    evaluations: Sequence[Row], rollout: Row, proposals: Sequence[Row]
) -> list[str]:
    """Problems of a rollout's replay rows: every proposal judged once, on its own state and patch.

    A row for the base tree (proposal 0) may be among them.
    """
    identity = {name: rollout[name] for name in ("lock_id", "rollout_id", "task_id")}
    problems = table_problems("evaluations", evaluations, identity)
    if problems:
        return problems
    subjects: dict[int, tuple[str, str | None]] = {0: (rollout["base_state_id"], None)}
    subjects |= {row["proposal"]: (row["state_id"], row["patch_sha256"]) for row in proposals}
    numbers = sorted(row["proposal"] for row in evaluations)
    if [number for number in numbers if number] != sorted(subjects.keys() - {0}):
        return [f"evaluations: proposals {numbers} judged, {sorted(subjects)[1:]} recorded"]
    if numbers.count(0) > 1:
        return ["evaluations: the base tree is judged twice"]
    return [problem for row in evaluations for problem in _judged_problems(row, subjects)]


def _judged_problems(row: Row, subjects: Mapping[int, tuple[str, str | None]]) -> Iterator[str]:
    name = f"evaluations: proposal {row['proposal']}"
    if (row["subject"] == "base") != (row["proposal"] == 0):
        yield f"{name} cannot be of subject {row['subject']}"
    if (row["state_id"], row["patch_sha256"]) != subjects[row["proposal"]]:
        yield f"{name} was judged on another state or patch"
    if row["resolved"] != (row["fail_to_pass"] and row["pass_to_pass"] and row["full"]):
        yield f"{name}: resolved is not the conjunction of the three suites"
