"""Outcome tables from elsewhere: any Parquet or CSV file with one row per rollout.

Needs ``task_id, project, stack, seed, <factor columns>, accepted, resolved``; further columns of
:mod:`analysis.outcomes` are used where they are present. Nothing is guessed: a cell that is
missing, doubled, unknown or of the wrong type is an ``AnalysisError`` that names row and column.
"""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from analysis.errors import AnalysisError
from analysis.outcomes import (
    BEHAVIOUR,
    BOOL,
    COLUMNS,
    INT,
    OWED,
    SETTLED,
    Outcomes,
    Row,
    outcome_schema,
)
from analysis.plan import Plan, Rollout, Task, check_design

REQUIRED = ("task_id", "project", "stack", "seed", "accepted", "resolved")
OPTIONAL = (
    *("gate_overlap", "settled_as", "empty_submission", "discovered", "admitted", "retained"),
    *("final_correct", *BEHAVIOUR),
)
NULLABLE = frozenset({"accepted", "resolved", *OPTIONAL} - {"settled_as"})
_WORDS = {"true": True, "false": False, "1": True, "0": False}


def read_outcomes(path: Path, plan: Plan) -> tuple[Plan, Outcomes]:
    """The plan, completed by the table where it is open, and the outcomes in its order."""
    rows = _read(path)
    return from_rows(rows, plan, str(path))


def from_rows(rows: list[Row], plan: Plan, file: str = "outcomes") -> tuple[Plan, Outcomes]:
    """The same from rows in memory: each a dict column -> value."""
    if not rows:
        raise AnalysisError(file, "", "the table has no rows", "Give one row per rollout.")
    factors = tuple(factor.name for factor in plan.factors)
    _check_columns(rows[0], factors, file)
    typed = [_typed(row, factors, f"row {number}", file) for number, row in enumerate(rows, 1)]
    plan = _completed(typed, plan, file)
    matched = _match(typed, plan, file)
    table = pa.Table.from_pylist(matched, schema=outcome_schema(factors))
    return plan, Outcomes(table, None)


def _read(path: Path) -> list[Row]:
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise AnalysisError(str(path), "", "neither .csv nor .parquet", "Convert the table.")
    if not path.is_file():
        raise AnalysisError(str(path), "", "no such file", "Check the path.")
    return readers[path.suffix.lower()](path)


def _read_csv(path: Path) -> list[Row]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = list(csv.reader(stream, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnalysisError(str(path), "", f"not readable CSV ({error})", "Mend it.") from None
    header, body = (lines[0], lines[1:]) if lines else ([], [])
    if len(set(header)) != len(header):
        raise AnalysisError(str(path), "", "the header repeats a column", "Name each once.")
    for number, line in enumerate(body, 1):
        if len(line) != len(header):
            problem = f"row {number} has {len(line)} values for {len(header)} columns"
            raise AnalysisError(str(path), "", problem, "Mend the row.")
    return [
        {name: value if value != "" else None for name, value in zip(header, line, strict=True)}
        for line in body
    ]


def _read_parquet(path: Path) -> list[Row]:
    import duckdb

    try:
        with duckdb.connect() as con:
            rows: list[Row] = con.read_parquet([str(path)]).to_arrow_table().to_pylist()
            return rows
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise AnalysisError(str(path), "", problem, "Give a Parquet file.") from None


def _check_columns(row: Row, factors: tuple[str, ...], file: str) -> None:
    for column in (*REQUIRED, *factors):
        if column not in row:
            known = ", ".join((*REQUIRED, *factors))
            raise AnalysisError(file, column, "the column is missing", f"Needed: {known}.")
    for column in row:
        if column not in {*REQUIRED, *OPTIONAL, *factors}:
            problem = "unknown column"
            raise AnalysisError(file, column, problem, f"Drop it; optional: {', '.join(OPTIONAL)}.")


def _typed(row: Row, factors: tuple[str, ...], where: str, file: str) -> Row:
    """One row with checked types, derived outcomes and null for what is not reported."""
    typed: Row = dict.fromkeys(COLUMNS)
    for column, value in row.items():
        typed[column] = _value(column, value, f"{column}, {where}", file)
    typed["settled_as"] = typed["settled_as"] or SETTLED
    typed["gate_overlap"] = bool(typed["gate_overlap"])
    _check_outcome(typed, where, file)
    accepted, resolved = typed["accepted"], typed["resolved"]
    typed["unsafe"] = None if accepted is None else accepted and not resolved
    typed["sound"] = None if accepted is None else accepted and resolved is True
    return typed


def _value(column: str, value: Any, field: str, file: str) -> object:
    if isinstance(value, float) and math.isnan(value):
        raise AnalysisError(file, field, "is NaN", "Use null (an empty value in CSV) or a value.")
    if value is None:
        if column in NULLABLE or column == "settled_as":
            return None
        raise AnalysisError(file, field, "is null", "Give a value.")
    kind = COLUMNS.get(column)
    if kind == BOOL:
        return _boolean(value, field, file)
    if kind == INT:
        return _whole(value, field, file)
    if isinstance(value, str) or (column not in COLUMNS and type(value) in (int, bool)):
        return str(value)  # a factor's level may be stored as a number
    raise AnalysisError(file, field, f"expected text, found {value!r}", "Correct the type.")


def _boolean(value: object, field: str, file: str) -> bool:
    word = str(value).lower()
    if isinstance(value, bool | int | str) and word in _WORDS:
        return _WORDS[word]
    raise AnalysisError(file, field, f"expected true/false or 1/0, found {value!r}", "Correct it.")


def _whole(value: object, field: str, file: str) -> int:
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    raise AnalysisError(file, field, f"expected a whole number, found {value!r}", "Correct it.")


def _check_outcome(row: Row, where: str, file: str) -> None:
    settled = row["settled_as"]
    if settled not in (SETTLED, *OWED):
        known = f"Use one of {SETTLED}, {', '.join(OWED)}."
        raise AnalysisError(file, f"settled_as, {where}", f"unknown word {settled!r}", known)
    if (row["accepted"] is not None) != (settled == SETTLED):
        problem = f"accepted is {row['accepted']} where settled_as is {settled}"
        remedy = "Null outcomes belong to infrastructure or unknown rows, and to all of them."
        raise AnalysisError(file, f"accepted, {where}", problem, remedy)
    if row["accepted"] and row["resolved"] is None:
        problem = "accepted, but resolved is null"
        remedy = "Every accepted state needs a verdict; it is never assumed wrong."
        raise AnalysisError(file, f"resolved, {where}", problem, remedy)


def _completed(rows: list[Row], plan: Plan, file: str) -> Plan:
    """An open plan takes tasks, stack and rollouts from the table; another one is kept as it is."""
    projects = _projects(rows, file)
    if not plan.open:
        return plan
    stacks = sorted({row["stack"] for row in rows})
    if plan.stack not in ("", *stacks) or len(stacks) > 1:
        problem = f"holds stacks {', '.join(stacks)}; the plan names {plan.stack or 'none'}"
        remedy = "Each stack is analysed separately: give a table of one."
        raise AnalysisError(file, "stack", problem, remedy)
    overlap = _overlaps(rows, file)
    tasks = tuple(Task(task, projects[task], overlap[task]) for task in sorted(projects))
    rollouts = tuple(
        Rollout(_label(task.task_id, cell, seed), task.task_id, task.project, stacks[0], seed, cell)
        for task in tasks
        for seed in plan.seeds
        for cell in plan.cells()
    )
    completed = replace(plan, stack=stacks[0], tasks=tasks, rollouts=rollouts)
    check_design(completed)
    return completed


def _projects(rows: list[Row], file: str) -> dict[str, str]:
    projects: dict[str, str] = {}
    for row in rows:
        if projects.setdefault(row["task_id"], row["project"]) != row["project"]:
            problem = f"task {row['task_id']} is in two projects"
            raise AnalysisError(file, "project", problem, "A task belongs to one project.")
    return projects


def _overlaps(rows: list[Row], file: str) -> dict[str, bool]:
    overlap: dict[str, bool] = {}
    for row in rows:
        if overlap.setdefault(row["task_id"], row["gate_overlap"]) != row["gate_overlap"]:
            problem = f"task {row['task_id']} is flagged both ways"
            raise AnalysisError(file, "gate_overlap", problem, "It is a property of the task.")
    return overlap


def _label(task: str, cell: dict[str, str], seed: int) -> str:
    return "/".join([task, *cell.values(), str(seed)])


def _match(rows: list[Row], plan: Plan, file: str) -> list[Row]:
    """Rows in the plan's order, each with its rollout id and planned ``gate_overlap``."""
    factors = [factor.name for factor in plan.factors]
    found: dict[tuple[object, ...], Row] = {}
    for number, row in enumerate(rows, 1):
        _check_levels(row, plan, number, file)
        key = (row["task_id"], row["seed"], *(row[name] for name in factors))
        if key in found:
            raise AnalysisError(file, f"row {number}", f"doubles {key}", "One row per rollout.")
        found[key] = row
    overlap = {task.task_id: task.gate_overlap for task in plan.tasks}
    matched = []
    for rollout in plan.rollouts:
        key = (rollout.task_id, rollout.seed, *(rollout.levels[name] for name in factors))
        if key not in found:
            raise AnalysisError(file, "", f"no row for {key}", "No rollout may be dropped.")
        row = found.pop(key)
        _check_identity(row, rollout, file)
        known = {"rollout_id": rollout.rollout_id, "gate_overlap": overlap[rollout.task_id]}
        matched.append(row | known)
    if found:
        raise AnalysisError(file, "", f"unplanned row {next(iter(found))}", "Drop it.")
    return matched


def _check_levels(row: Row, plan: Plan, number: int, file: str) -> None:
    for factor in plan.factors:
        if row[factor.name] not in factor.levels:
            problem = f"unknown level {row[factor.name]!r}"
            known = f"Known: {', '.join(factor.levels)}."
            raise AnalysisError(file, f"{factor.name}, row {number}", problem, known)
    if row["seed"] not in plan.seeds:
        problem = f"seed {row['seed']} is not in the plan"
        raise AnalysisError(file, f"seed, row {number}", problem, f"Known: {plan.seeds}.")


def _check_identity(row: Row, rollout: Rollout, file: str) -> None:
    for column, planned in (("project", rollout.project), ("stack", rollout.stack)):
        if row[column] != planned:
            problem = f"{row[column]!r} is not the planned {planned!r} ({rollout.rollout_id})"
            raise AnalysisError(file, column, problem, "Use the table of this plan.")
