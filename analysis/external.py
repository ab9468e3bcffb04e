"""Outcome tables from elsewhere: any Parquet or CSV file with one row per rollout.

Needs ``task_id, project, stack, seed, <factor columns>, accepted, resolved``; further columns of
:mod:`analysis.outcomes` are used where they are present. Nothing is guessed: a cell that is
missing, doubled, unknown or of the wrong type is an ``AnalysisError`` that names row and column
(rows count from 1, after the header).
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from analysis.costs import COSTS, FLOAT
from analysis.errors import AnalysisError
from analysis.outcomes import (
    BEHAVIOUR,
    BOOL,
    COLUMNS,
    INT,
    OUTCOMES,
    OWED,
    SETTLED,
    Outcomes,
    Row,
    outcome_schema,
)
from analysis.placing import completed, places, planned
from analysis.plan import Plan
from analysis.tabular import Codes, Column, Table, read_table, shown, table_of

REQUIRED = ("task_id", "project", "stack", "seed", "accepted", "resolved")
OPTIONAL = (
    *("gate_overlap", "settled_as", "empty_submission", "discovered", "admitted", "retained"),
    *("final_correct", *BEHAVIOUR, *COSTS),
)
NULLABLE = frozenset({"accepted", "resolved", *OPTIONAL})
DEFAULTS: dict[str, object] = {"settled_as": SETTLED, "gate_overlap": False}
"""What null, or an absent column, means where it is not "not reported"."""

GREATEST = 2**63 - 1
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "1": True, "0": False}


@dataclass
class _Refused(Exception):
    """A value that its column cannot have."""

    problem: str
    remedy: str


def read_outcomes(path: Path, plan: Plan) -> tuple[Plan, Outcomes]:
    """The plan, completed by the table where it is open, and the outcomes in its order."""
    return _outcomes(read_table(path), plan)


def from_rows(rows: list[Row], plan: Plan, file: str = "outcomes") -> tuple[Plan, Outcomes]:
    """The same from rows in memory: each a dict column -> value."""
    return _outcomes(table_of(rows, file), plan)


def _outcomes(table: Table, plan: Plan) -> tuple[Plan, Outcomes]:
    if not table.rows:
        raise AnalysisError(table.file, "", "the table has no rows", "Give one row per rollout.")
    factors = tuple(factor.name for factor in plan.factors)
    _check_columns(table, factors)
    typed = _typed(table)
    _check_outcomes(typed, table.file)
    projects = _by_task(typed, "project", "is in two projects", table.file)
    overlap = _by_task(typed, "gate_overlap", "is flagged both ways", table.file)
    _check_stack(typed, plan, table.file)
    found = places(typed, plan, table.file)
    if plan.open:
        order = found.rows
        plan = completed(plan, str(typed["stack"].values[0]), found.tasks, projects, overlap)
    else:
        _check_projects(typed, projects, plan, table.file)
        order = found.rows[planned(plan, found)]
    return plan, Outcomes(_arrow(typed, order, plan), None)


def _check_columns(table: Table, factors: tuple[str, ...]) -> None:
    for column in (*REQUIRED, *factors):
        if column not in table.columns:
            known = ", ".join((*REQUIRED, *factors))
            raise AnalysisError(table.file, column, "the column is missing", f"Needed: {known}.")
    for column in table.columns:
        if column not in {*REQUIRED, *OPTIONAL, *factors}:
            remedy = f"Drop it; optional: {', '.join(OPTIONAL)}."
            raise AnalysisError(table.file, column, "unknown column", remedy)


def _typed(table: Table) -> dict[str, Column]:
    """Columns of checked types; of several bad values the one in the first row is named."""
    made, bad = {}, []
    for name, column in table.columns.items():
        values, refused = [], {}
        for code, value in enumerate(column.values):
            try:
                values.append(_value(name, value, table.text))
            except _Refused as error:
                refused[code] = error
        if refused:
            first = column.first_rows()
            row, code = min((int(first[code]), code) for code in refused)
            bad.append((row, name, refused[code]))
        else:
            made[name] = _merged(values, column.codes)
    if bad:
        row, name, refusal = min(bad, key=lambda found: found[0])
        raise AnalysisError(table.file, f"{name}, row {row}", refusal.problem, refusal.remedy)
    for name, value in DEFAULTS.items():
        made.setdefault(name, Column([value], np.zeros(table.rows, dtype=np.int64)))
    return made


def _merged(values: list[object], codes: Codes) -> Column:
    """A column whose values are distinct again: different words may mean one value."""
    places = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return Column(list(places), np.array([places[value] for value in values])[codes])


def _value(column: str, value: object, text: bool) -> object:
    """One value in its type. ``text``: from CSV, where numbers and flags are written out."""
    if isinstance(value, float) and math.isnan(value):
        raise _Refused("is NaN", "Use null (an empty value in CSV) or a value.")
    if value is None:
        if column in NULLABLE:
            return DEFAULTS.get(column)
        raise _Refused("is null", "Give a value.")
    kind = COLUMNS.get(column)
    if kind == BOOL:
        return _boolean(value, text)
    if kind == INT:
        return _whole(value, text)
    if kind == FLOAT:
        return _number(value, text)
    if column not in COLUMNS and type(value) in (int, bool):
        return str(value)  # a factor's level may be stored as a number
    if not isinstance(value, str):
        raise _Refused(f"expected text, found {shown(value)}", "Correct the type.")
    if not value.strip():
        raise _Refused("is blank", "Give a value.")
    return value


def _boolean(value: object, text: bool) -> bool:
    if not text and isinstance(value, int) and value in (0, 1):
        return bool(value)
    if text and isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise _Refused(f"expected true/false or 1/0, found {shown(value)}", "Correct it.")


def _whole(value: object, text: bool) -> int:
    if text and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) is not int or value < 0:
        raise _Refused(f"expected a whole number, found {shown(value)}", "Correct it.")
    if value > GREATEST:
        raise _Refused("is too large", f"At most {GREATEST}.")
    return value


def _number(value: object, text: bool) -> float:
    """A finite number of at least 0."""
    if text and isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if type(value) not in (int, float) or not 0 <= value < math.inf:  # type: ignore[operator]
        raise _Refused(f"expected a number of at least 0, found {shown(value)}", "Correct it.")
    return float(value)  # type: ignore[arg-type]


def _check_outcomes(typed: dict[str, Column], file: str) -> None:
    """The rules that tie outcome columns together, once per combination that occurs."""
    names = ["settled_as", "accepted", *(name for name in OUTCOMES if name in typed)]
    names = list(dict.fromkeys(names))
    for name in names[1:]:
        columns = [typed["settled_as"], typed["accepted"], typed[name]]
        combined, rows = _combinations(columns)
        for row, (settled, accepted, value) in sorted(zip(rows, combined, strict=True)):
            _check_outcome(settled, accepted, name, value, row, file)


def _combinations(columns: Sequence[Column]) -> tuple[list[tuple[object, ...]], list[int]]:
    """Combinations of values that occur, and the first row (from 1) of each."""
    sizes = [len(column.values) for column in columns]
    codes = np.ravel_multi_index([column.codes for column in columns], sizes)
    found, first = np.unique(codes, return_index=True)
    places = zip(*(part.tolist() for part in np.unravel_index(found, sizes)), strict=True)
    combined = [
        tuple(column.values[at] for column, at in zip(columns, place, strict=True))
        for place in places
    ]
    return combined, [int(row) + 1 for row in first]


def _check_outcome(
    settled: object, accepted: object, name: str, value: object, row: int, file: str
) -> None:
    if settled not in (SETTLED, *OWED):
        known = f"Use one of {SETTLED}, {', '.join(OWED)}."
        raise AnalysisError(file, f"settled_as, row {row}", f"unknown word {shown(settled)}", known)
    remedy = "Null outcomes belong to infrastructure or unknown rows, and to all of them."
    if (accepted is not None) != (settled == SETTLED):
        problem = f"accepted is {accepted} where settled_as is {settled}"
        raise AnalysisError(file, f"accepted, row {row}", problem, remedy)
    if accepted is None and value is not None:
        problem = f"{name} is {value} where settled_as is {settled}"
        raise AnalysisError(file, f"{name}, row {row}", problem, remedy)
    if name == "resolved" and accepted and value is None:
        remedy = "Every accepted state needs a verdict; it is never assumed wrong."
        raise AnalysisError(file, f"resolved, row {row}", "accepted, but resolved is null", remedy)


def _by_task(typed: dict[str, Column], name: str, problem: str, file: str) -> dict[str, object]:
    """Value of a column that belongs to the task; refused where rows of a task differ."""
    combined, rows = _combinations([typed["task_id"], typed[name]])
    found: dict[str, object] = {}
    for row, (task, value) in sorted(zip(rows, combined, strict=True), key=lambda pair: pair[0]):
        if found.setdefault(str(task), value) != value:
            remedy = f"A task has one {name}: {shown(found[str(task)])} stands in an earlier row."
            raise AnalysisError(file, f"{name}, row {row}", f"task {task} {problem}", remedy)
    return found


def _check_stack(typed: dict[str, Column], plan: Plan, file: str) -> None:
    stacks = sorted(str(stack) for stack in typed["stack"].values)
    if len(stacks) > 1 or plan.stack not in ("", *stacks):
        problem = f"holds stacks {', '.join(stacks)}"
        problem += f"; the planned one is {plan.stack}" if plan.stack else ""
        remedy = "Each stack is analysed separately: give a table of one, the planned one."
        raise AnalysisError(file, "stack", problem, remedy)


def _check_projects(
    typed: dict[str, Column], projects: dict[str, object], plan: Plan, file: str
) -> None:
    for task in plan.tasks:
        if projects[task.task_id] != task.project:
            code = typed["task_id"].values.index(task.task_id)
            row = typed["task_id"].first_rows()[code]
            problem = f"{projects[task.task_id]!r} is not the planned {task.project!r}"
            raise AnalysisError(
                file,
                f"project, row {row}",
                f"{problem} of {task.task_id}",
                "Use this plan's table.",
            )


def _arrow(typed: dict[str, Column], order: Codes, plan: Plan) -> pa.Table:
    """The outcome table in the plan's order; what the table does not report is null."""
    schema = outcome_schema(tuple(factor.name for factor in plan.factors))
    overlap = {task.task_id: task.gate_overlap for task in plan.tasks}
    tasks = typed["task_id"]
    given = {
        **typed,
        "gate_overlap": Column([overlap[str(task)] for task in tasks.values], tasks.codes),
        "unsafe": _derived(typed, lambda resolved: not resolved),
        "sound": _derived(typed, bool),
    }
    arrays = {
        name: pa.array(given[name].values, schema.field(name).type).take(
            pa.array(given[name].codes[order])
        )
        if name in given
        else pa.nulls(len(order), schema.field(name).type)
        for name in schema.names
        if name != "rollout_id"
    }
    arrays["rollout_id"] = pa.array([one.rollout_id for one in plan.rollouts], pa.string())
    return pa.table([arrays[name] for name in schema.names], schema=schema)


def _derived(typed: dict[str, Column], rule: Callable[[object], bool]) -> Column:
    """Accepted and ``rule`` of the verdict; null where accepted is."""
    accepted, resolved = typed["accepted"], typed["resolved"]
    values: list[object] = [
        None if a is None else bool(a) and rule(r) for a in accepted.values for r in resolved.values
    ]
    return Column(values, accepted.codes * len(resolved.values) + resolved.codes)
