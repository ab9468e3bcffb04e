"""A damaged outcome table gives the same numbers or an error, never other numbers in silence.

What an analysis computes is a function of the completed plan and the outcome table, so these two
are compared. Only a change of an outcome may pass, and then the table holds that outcome.
"""

import csv
import io
import math
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.costs import COSTS, FLOAT
from analysis.errors import AnalysisError
from analysis.external import from_rows, read_outcomes
from analysis.outcomes import BEHAVIOUR, OUTCOMES, Outcomes
from analysis.plan import Plan, parse_plan
from tests.unit.analysis_support import CONTRACT, Row, plan_dict, rows

FUZZ = settings(max_examples=200, deadline=None, derandomize=True)
FACTORS = {"evidence": ["current", "stale"], "contract": ["OFF", "ON"]}
DESIGN = plan_dict(FACTORS, [CONTRACT], [1, 2])
PLAN = parse_plan(DESIGN)
PROJECTS = {"a": "p", "b": "q", "c": "q"}
EVENTS: list[Row] = [
    {"task": "a", "evidence": "stale", "contract": "ON", "seed": 1, "sound": True},
    {"task": "b", "evidence": "current", "contract": "OFF", "seed": 2, "sound": False},
    {"task": "c", "evidence": "stale", "contract": "OFF", "seed": 1, "sound": True},
]
MEASURED = {*OUTCOMES, *BEHAVIOUR, *COSTS}
"""Columns whose values are results: a change to another possible value is another result."""


def whole_table() -> list[Row]:
    """A valid table that uses most optional columns and has one row without an outcome."""
    given = rows(DESIGN, PROJECTS, EVENTS)
    more = {"gate_overlap": False, "settled_as": "agent", "discovered": False, "escalated": False}
    counts = [
        {"invalid_actions": at % 3, "actions": at, "charged_seconds": at / 4} for at in range(8)
    ]
    given = [row | more | counts[at % 8] for at, row in enumerate(given)]
    given[5] |= {"settled_as": "infrastructure", "accepted": None, "discovered": None}
    return given


COLUMNS = list(whole_table()[0])
JUNK: list[object] = [
    *(None, True, False, 0, 1, 2, -1, 3, 10**20, 0.0, 1.0, 0.5, math.nan, math.inf),
    *("", " ", "a", "b", "A", "p", "q", "coder", "ON", "on", "OFF", "stale", "current", "agent"),
    *("infrastructure", "unknown", "true", "False", "1", "01", "yes", "null", "NaN", "\x00", b"a"),
    *([], [1], {}),
]


def read(table: list[Row]) -> tuple[Plan, Outcomes] | None:
    """Plan and outcomes, or None where the table is refused with a complete error."""
    try:
        return from_rows(table, PLAN, "t")
    except AnalysisError as error:
        assert error.file == "t"
        assert error.problem and error.remedy
        return None


WHOLE = from_rows(whole_table(), PLAN, "t")


def same(found: tuple[Plan, Outcomes]) -> bool:
    return found[0] == WHOLE[0] and found[1].table.equals(WHOLE[1].table)


@FUZZ
@given(st.integers(0, len(whole_table()) - 1), st.sampled_from(COLUMNS), st.sampled_from(JUNK))
def test_one_changed_cell(at: int, column: str, value: object) -> None:
    table = whole_table()
    table[at][column] = value
    found = read(table)
    if found is None or same(found):
        return
    assert column in MEASURED
    kept = [name for name in WHOLE[1].table.column_names if name not in {"unsafe", "sound", column}]
    assert found[1].table.select(kept).equals(WHOLE[1].table.select(kept))
    kinds = (int, float) if COSTS.get(column) == FLOAT else int
    assert value is None or (isinstance(value, kinds) and 0 <= value < 2**63)


def drop(table: list[Row], random: Random) -> None:
    del table[random.randrange(len(table))]


def double(table: list[Row], random: Random) -> None:
    table.insert(random.randrange(len(table)), dict(random.choice(table)))


def foreign(table: list[Row], random: Random) -> None:
    table.append(random.choice(table) | {"task_id": "d"})


def lose_column(table: list[Row], random: Random) -> None:
    name = random.choice([*("task_id", "project", "stack", "seed", "accepted", "resolved")])
    for row in table:
        del row[name]


def rename(table: list[Row], random: Random) -> None:
    name = random.choice(COLUMNS)
    for row in table:
        row[name.upper()] = row.pop(name)


def extra(table: list[Row], random: Random) -> None:
    random.choice(table)["note"] = 1


def swap_projects(table: list[Row], random: Random) -> None:
    row = random.choice(table)
    row["project"] = {"p": "q", "q": "p"}[row["project"]]


BREAKS = [drop, double, foreign, lose_column, rename, extra, swap_projects]


@pytest.mark.parametrize("damage", BREAKS, ids=lambda damage: damage.__name__)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_a_damaged_structure_is_always_refused(damage: object, random: Random) -> None:
    table = whole_table()
    assert callable(damage)
    damage(table, random)
    assert read(table) is None


@FUZZ
@given(st.randoms(use_true_random=False))
def test_harmless_changes_change_nothing(random: Random) -> None:
    table = whole_table()
    random.shuffle(table)
    names = random.sample(COLUMNS, len(COLUMNS))
    found = read([{name: row[name] for name in names} for row in table])
    assert found is not None
    assert same(found)


def csv_of(table: list[Row]) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, table[0])
    writer.writeheader()
    writer.writerows(table)
    return stream.getvalue().encode()


TEXT = csv_of(whole_table())


def parsed(content: bytes) -> list[Row]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))


@FUZZ
@given(
    st.integers(0, len(TEXT) - 1),
    st.one_of(
        st.just(b""), st.binary(min_size=1, max_size=2), st.sampled_from([b",", b'"', b"\n"])
    ),
    st.booleans(),
)
def test_damaged_bytes_of_a_csv(at: int, put: bytes, replace: bool) -> None:
    content = TEXT[:at] + put + TEXT[at + replace :]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(content)
        try:
            found = read_outcomes(path, PLAN)
        except AnalysisError as error:
            assert error.file == str(path)
            return
    if not same(found):
        changed = {
            name
            for old, new in zip(parsed(TEXT), parsed(content), strict=True)
            for name in COLUMNS
            if old[name] != new[name]
        }
        assert changed and changed <= MEASURED


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_bytes_of_a_parquet_file_end_in_an_error_or_a_table(data: st.DataObject) -> None:
    """Without page checksums a flipped byte may reach a value; it never ends in a traceback."""
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(whole_table()), stream, compression="none")
    content = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        path.write_bytes(bytes(content))
        try:
            _, outcomes = read_outcomes(path, PLAN)
        except AnalysisError as error:
            assert error.file == str(path)
        else:
            assert outcomes.table.num_rows == len(whole_table())
