"""Outcome tables from elsewhere: the same answer from CSV and Parquet, and no guessing."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.decision import analyze
from analysis.errors import AnalysisError
from analysis.external import from_rows, read_outcomes
from analysis.plan import parse_plan
from analysis.rates import rates
from tests.unit.analysis_support import (
    CONTRACT,
    Row,
    analysed,
    counted,
    plan_dict,
    rows,
    small_plan,
)

LEVELS = {"low": "b", "high": "a/b"}
PLAN = plan_dict({"revision_cap": ["1", "3"], "contract": ["OFF", "ON"]}, [CONTRACT], [1, 2])
EVENTS: list[Row] = [
    {"task": "a", "revision_cap": "3", "contract": "ON", "seed": 1, "sound": True},
    {"task": "b", "revision_cap": "1", "contract": "OFF", "seed": 2, "sound": False},
]


def table() -> list[Row]:
    return rows(PLAN, {"a": "p", "b": "q"}, EVENTS)


def csv_text(given: list[Row]) -> str:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, given[0])
    writer.writeheader()
    writer.writerows({k: int(v) if v is True else v for k, v in row.items()} for row in given)
    return stream.getvalue()


def write_csv(path: Path, given: list[Row]) -> Path:
    path.write_bytes(csv_text(given).encode())
    return path


def write_parquet(path: Path, given: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(given), path)
    return path


def test_csv_parquet_and_memory_give_one_answer(tmp_path: Path) -> None:
    plan = parse_plan(PLAN)
    stored = [row | {"revision_cap": int(row["revision_cap"])} for row in table()]
    files = [
        write_csv(tmp_path / "t.csv", stored),
        write_parquet(tmp_path / "t.parquet", stored),
    ]
    answers = {analyze(*read_outcomes(path, plan)).to_json() for path in files}
    assert answers == {analysed(PLAN, table()).to_json()}


def test_costs_are_reported_where_the_table_has_them_and_only_there(tmp_path: Path) -> None:
    costs = [{"actions": 10 + at, "tokens": 1000, "charged_seconds": "2.5"} for at in range(16)]
    given = [row | cost for row, cost in zip(table(), costs, strict=True)]
    plan, outcomes = read_outcomes(write_csv(tmp_path / "t.csv", given), parse_plan(PLAN))
    found = {rate.estimand: rate for rate in rates(plan, outcomes) if not rate.levels}
    assert found["actions_per_sound"].rollout_pooled == sum(range(10, 26))
    assert found["tokens_per_sound"].rollout_pooled == 16_000
    assert "certification" not in found
    (seconds,) = (one for one in rates(plan, outcomes, volatile=True) if not one.levels)
    assert (seconds.estimand, seconds.rollout_pooled) == ("seconds_per_sound", 40.0)
    bare = read_outcomes(write_csv(tmp_path / "bare.csv", table()), parse_plan(PLAN))
    assert not any("per_sound" in rate.estimand for rate in rates(*bare))


def test_an_open_plan_is_completed_and_a_whole_one_is_kept() -> None:
    plan, _ = from_rows(table(), parse_plan(PLAN))
    assert (plan.stack, len(plan.tasks), len(plan.rollouts)) == ("coder", 2, 16)
    whole = parse_plan(small_plan())
    given = rows(small_plan(), {"t1": "p1", "t2": "p2"}, [])
    kept, outcomes = from_rows(given, whole)
    assert kept is whole
    assert [row["gate_overlap"] for row in outcomes.rows()] == [False, False, True, True]


def edit(at: int, **values: object) -> Callable[[list[Row]], None]:
    return lambda given: given[at].update(values)


def everywhere(**values: object) -> Callable[[list[Row]], object]:
    return lambda given: [row.update(values) for row in given]


def without(column: str) -> Callable[[list[Row]], object]:
    return lambda given: [row.pop(column) for row in given]


BAD: list[tuple[Callable[[list[Row]], object], str, str]] = [
    (lambda given: given.clear(), "", "no rows"),
    (lambda given: given.pop(), "", "no row for"),
    (lambda given: given.append(dict(given[0])), "row 17", "doubles"),
    (without("resolved"), "resolved", "missing"),
    (without("contract"), "contract", "missing"),
    (everywhere(score=1), "score", "unknown column"),
    (edit(0, contract="MAYBE"), "contract, row 1", "unknown level"),
    (edit(0, seed=9), "seed, row 1", "not in the plan"),
    (edit(0, seed=1.0), "seed, row 1", "whole number"),
    (edit(0, seed="one"), "seed, row 1", "whole number"),
    (edit(0, project="q"), "project, row 2", "two projects"),
    (edit(0, gate_overlap=True), "gate_overlap, row 2", "flagged both ways"),
    (edit(0, stack="other"), "stack", "holds stacks"),
    (edit(0, accepted=None), "accepted, row 1", "accepted is None"),
    (edit(0, accepted=float("nan")), "accepted, row 1", "NaN"),
    (edit(0, resolved=float("nan")), "resolved, row 1", "NaN"),
    (edit(0, accepted="yes"), "accepted, row 1", "true/false"),
    (edit(0, accepted=2), "accepted, row 1", "true/false"),
    (edit(0, accepted=1.0), "accepted, row 1", "true/false"),
    (edit(0, accepted="true"), "accepted, row 1", "true/false"),
    (edit(0, seed="1"), "seed, row 1", "whole number"),
    (edit(0, seed=-1), "seed, row 1", "whole number"),
    (edit(0, seed=True), "seed, row 1", "whole number"),
    (edit(0, seed=2**63), "seed, row 1", "too large"),
    (edit(0, seed=10**5000), "seed, row 1", "too large"),
    (edit(0, seed=float("inf")), "seed, row 1", "whole number"),
    (edit(0, seed=[1]), "seed, row 1", "whole number"),
    (edit(0, task_id=" "), "task_id, row 1", "blank"),
    (edit(0, project=b"p"), "project, row 1", "expected text"),
    (edit(5, accepted=True), "resolved, row 6", "resolved is null"),
    (edit(0, accepted=True), "resolved, row 1", "resolved is null"),
    (edit(0, task_id=None), "task_id, row 1", "null"),
    (edit(0, task_id=7), "task_id, row 1", "expected text"),
    (edit(0, contract=0.5), "contract, row 1", "expected text"),
    (everywhere(settled_as="lost"), "settled_as, row 1", "unknown word"),
    (everywhere(settled_as="infrastructure"), "accepted, row 1", "accepted is False"),
    (everywhere(invalid_actions=-1), "invalid_actions, row 1", "whole number"),
    (everywhere(tokens=1.5), "tokens, row 1", "whole number"),
    (everywhere(charged_seconds=-0.5), "charged_seconds, row 1", "at least 0"),
    (everywhere(charged_seconds=float("inf")), "charged_seconds, row 1", "at least 0"),
    (everywhere(charged_seconds=float("nan")), "charged_seconds, row 1", "NaN"),
    (everywhere(charged_seconds=True), "charged_seconds, row 1", "at least 0"),
    (everywhere(charged_seconds="2.5"), "charged_seconds, row 1", "at least 0"),
    (
        edit(3, settled_as="unknown", accepted=None, resolved=False),
        *("resolved, row 4", "resolved is False where settled_as is unknown"),
    ),
    (
        edit(0, settled_as="unknown", accepted=None, resolved=None, discovered=True),
        *("discovered, row 1", "discovered is True where settled_as is unknown"),
    ),
]


@pytest.mark.parametrize(("change", "field", "problem"), BAD)
def test_a_broken_table_is_refused_by_row_and_column(
    change: Callable[[list[Row]], object], field: str, problem: str
) -> None:
    given = table()
    change(given)
    with pytest.raises(AnalysisError) as caught:
        from_rows(given, parse_plan(PLAN), "t.csv")
    assert (caught.value.file, caught.value.field) == ("t.csv", field)
    assert problem in caught.value.problem


def test_a_whole_plan_refuses_foreign_rows() -> None:
    plan = parse_plan(small_plan())
    given = rows(small_plan(), {"t1": "p1", "t2": "p2", "t3": "p3"}, [])
    with pytest.raises(AnalysisError, match="unplanned row"):
        from_rows(given, plan)
    given = rows(small_plan(), {"t1": "p1", "t2": "p2"}, [])
    with pytest.raises(AnalysisError, match="the planned one is coder"):
        from_rows([row | {"stack": "other"} for row in given], plan)
    with pytest.raises(AnalysisError, match="'p9' is not the planned 'p1' of t1") as caught:
        from_rows([row | {"project": row["project"].replace("1", "9")} for row in given], plan)
    assert caught.value.field == "project, row 1"


def test_the_first_bad_row_is_named_whatever_its_column() -> None:
    given = table()
    given[4]["accepted"] = "maybe"
    given[2]["seed"] = -3
    given[2]["stack"] = 7
    with pytest.raises(AnalysisError) as caught:
        from_rows(given, parse_plan(PLAN))
    assert caught.value.field == "stack, row 3"


GOOD = csv_text(table()).encode()
HEADER = GOOD.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("t.xlsx", b"", "neither"),
        ("t.csv", b"a,a\n1,2\n", "repeats"),
        ("t.csv", b"a,b\n1\n", "1 values for 2"),
        ("t.csv", b"", "no rows"),
        ("t.csv", HEADER + b"\r\n", "no rows"),
        ("t.csv", GOOD + b"\r\n", "0 values for"),
        ("t.csv", GOOD.replace(b",", b";"), "the column is missing"),
        ("t.csv", GOOD.replace(b"coder", b"cod\xe9r"), "not readable CSV"),
        ("t.csv", GOOD.decode().encode("utf-16"), "not readable CSV"),
        ("t.csv", GOOD.replace(b"coder", b'"coder', 1), "not readable CSV|values for"),
        ("t.csv", GOOD.replace(b"coder,1,", b"coder,1_0,", 1), "whole number"),
        ("t.csv", GOOD.replace(b"coder,1,", b"coder,1.0,", 1), "whole number"),
        ("t.csv", GOOD.replace(b"coder,1,", b"coder,-1,", 1), "whole number"),
        ("t.csv", GOOD.replace(b"coder,1,", b"coder,%s," % (b"9" * 19), 1), "too large"),
        ("t.csv", GOOD.replace(b"coder,1,", b"coder,%s," % (b"9" * 5000), 1), "whole number"),
        ("t.csv", GOOD.replace(b",False,", b",nan,", 1), "true/false"),
        ("t.csv", GOOD.replace(b",False,", b",2,", 1), "true/false"),
        ("t.csv", GOOD.replace(b",False,", b",,", 1), "accepted is None"),
        ("t.csv", GOOD.replace(b"a,p,", b",p,", 1), "is null"),
        ("t.csv", GOOD.replace(b"a,p,", b"\x00,p,", 1), "not readable CSV|no row|null"),
        ("t.parquet", b"not parquet", "(?i)parquet file"),
        ("t.parquet", b"", "(?i)parquet file"),
    ],
)
def test_an_unreadable_table_is_named(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(AnalysisError, match=problem) as caught:
        read_outcomes(path, parse_plan(PLAN))
    assert caught.value.file == str(path)
    assert caught.value.remedy
    with pytest.raises(AnalysisError):
        read_outcomes(tmp_path / f"absent-{name}", parse_plan(PLAN))


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\r\n", b"\n"),
        GOOD.replace(b"\r\n", b"\r"),
        GOOD.replace(b"False", b"0"),
        GOOD.replace(b"False", b"FALSE"),
        GOOD.replace(b"coder", b'"coder"'),
        GOOD.rstrip(b"\r\n"),
    ],
    ids=["BOM", "LF", "CR", "zero", "capitals", "quotes", "no final newline"],
)
def test_how_a_csv_is_written_does_not_matter(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    found = analyze(*read_outcomes(tmp_path / "t.csv", parse_plan(PLAN)))
    assert found.to_json() == analysed(PLAN, table()).to_json()


def stored(**columns: pa.Array) -> pa.Table:
    """The table as Arrow, with some columns replaced."""
    given = pa.Table.from_pylist(table())
    for name, column in columns.items():
        if name in given.column_names:
            given = given.drop_columns([name])
        given = given.append_column(name, column)
    return given


ROWS = len(table())
REFUSED: list[tuple[pa.Table, str, str]] = [
    (stored(accepted=pa.array(["false"] * ROWS)), "accepted, row 1", "true/false"),
    (stored(accepted=pa.array([0.0] * ROWS)), "accepted, row 1", "true/false"),
    (stored(accepted=pa.array([float("nan")] * ROWS)), "accepted, row 1", "NaN"),
    (stored(seed=pa.array([1.0, 2.0] * (ROWS // 2))), "seed, row 1", "whole number"),
    (stored(seed=pa.array([2**64 - 1] * ROWS, pa.uint64())), "seed, row 1", "too large"),
    (stored(seed=pa.array([1] * ROWS).cast(pa.decimal128(20))), "seed", "has type decimal"),
    (stored(seed=pa.array([1] * ROWS, pa.timestamp("ns"))), "seed", "has type timestamp"),
    (stored(resolved=pa.array([[True]] * ROWS)), "resolved", "has type list"),
    (stored(project=pa.array([b"p"] * ROWS)), "project", "has type binary"),
    (stored(contract=pa.array([0.5] * ROWS)), "contract, row 1", "expected text"),
    (stored(resolved=pa.nulls(ROWS), accepted=pa.nulls(ROWS)), "accepted, row 1", "accepted is"),
    (stored(__index_level_0__=pa.array(range(ROWS))), "__index_level_0__", "unknown column"),
    (stored().slice(0, 0), "", "no rows"),
    (stored().slice(0, 7), "", "no row for"),
    (pa.concat_tables([stored(), stored()]), f"row {ROWS + 1}", "doubles"),
]


@pytest.mark.parametrize(("given", "field", "problem"), REFUSED)
def test_a_parquet_column_of_another_type_is_refused(
    tmp_path: Path, given: pa.Table, field: str, problem: str
) -> None:
    pq.write_table(given, tmp_path / "t.parquet")
    with pytest.raises(AnalysisError) as caught:
        read_outcomes(tmp_path / "t.parquet", parse_plan(PLAN))
    assert (caught.value.file, caught.value.field) == (str(tmp_path / "t.parquet"), field)
    assert problem in caught.value.problem


def test_a_parquet_column_named_twice_is_refused(tmp_path: Path) -> None:
    given = stored()
    names = [*given.column_names, "seed"]
    twice = pa.Table.from_arrays([*given.columns, given["seed"]], names=names)
    pq.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(AnalysisError, match="repeats"):
        read_outcomes(tmp_path / "t.parquet", parse_plan(PLAN))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    bad = pa.array([b"\xff"] * ROWS).view(pa.string())
    pq.write_table(stored(project=bad), tmp_path / "t.parquet")
    with pytest.raises(AnalysisError, match="UTF-8"):
        read_outcomes(tmp_path / "t.parquet", parse_plan(PLAN))


def test_how_parquet_stores_a_value_does_not_matter(tmp_path: Path) -> None:
    given = stored(
        seed=pa.array([row["seed"] for row in table()], pa.int8()),
        project=pa.array([row["project"] for row in table()]).dictionary_encode(),
        task_id=pa.array([row["task_id"] for row in table()], pa.large_string()),
        accepted=pa.array([int(row["accepted"]) for row in table()], pa.uint8()),
        settled_as=pa.nulls(ROWS),
    )
    pq.write_table(given, tmp_path / "[t]*.parquet", row_group_size=3)
    found = analyze(*read_outcomes(tmp_path / "[t]*.parquet", parse_plan(PLAN)))
    assert found.to_json() == analysed(PLAN, table()).to_json()


def test_slashes_in_names_keep_rollouts_apart() -> None:
    odd = plan_dict({"revision_cap": ["1", "1/a"], "contract": ["b", "a/b"]}, [CONTRACT | LEVELS])
    plan, outcomes = from_rows(rows(odd, {"t": "p", "t/1": "p"}, []), parse_plan(odd))
    assert len(set(outcomes.table["rollout_id"].to_pylist())) == len(plan.rollouts) == 8


def test_empty_submissions_are_a_sensitivity_that_keeps_the_denominator() -> None:
    plan, given = counted([-1, -1, -1, -1, -1, -1], seeds=1)
    unsafe = [
        row | {"resolved": False if row["accepted"] else None, "empty_submission": row["accepted"]}
        for row in given
    ]
    analysis = analysed(plan, unsafe)
    (one,) = analysis.sensitivities
    assert (one.changed_rollouts, one.tasks) == (6, 6)
    assert analysis.decision.verdict.superiority
    assert not one.verdict.superiority
    assert one.unsafe.least.effect == 0
    assert analysed(plan, given).sensitivities == ()


def test_missing_outcomes_are_set_against_both_claims() -> None:
    plan, given = counted([0] * 8, seeds=1)
    lost = {"accepted": None, "resolved": None, "settled_as": "unknown"}
    holed = [
        row | lost if row["task_id"] == "t00" else row | {"settled_as": "agent"} for row in given
    ]
    analysis = analysed(plan, holed)
    decision = analysis.decision
    assert decision.worst_case
    assert analysis.coverage.owed == {"infrastructure": 0, "unknown": 2}
    assert decision.verdict.unsafe_upper > 0 > decision.verdict.sound_lower
    assert not decision.verdict.non_inferiority
    assert analysed(plan, given).decision.verdict.non_inferiority
    result = analysis.effect("contract", "unsafe")
    assert (result.p, result.missing) == (None, 2)


def test_a_family_is_undecided_where_outcomes_miss() -> None:
    family = {"name": "main", "effects": ["contract"], "endpoints": ["unsafe", "sound"]}
    plan, given = counted([1, 0, 0], seeds=1, families=[family])
    assert analysed(plan, given).families[0].rows[1].significant is False
    given = [row | {"settled_as": None} for row in given]
    given[0] |= {"accepted": None, "resolved": None, "settled_as": "infrastructure"}
    rows_ = analysed(plan, given).families[0].rows
    assert [(row.p_holm, row.significant) for row in rows_] == [(None, None)] * 2


def test_a_family_needs_its_endpoint() -> None:
    family = {"name": "main", "effects": ["contract"], "endpoints": ["discovered"]}
    plan, given = counted([1, 0, 0], seeds=1, families=[family])
    with pytest.raises(AnalysisError, match="discovered"):
        analysed(plan, given)
    reported = [row | {"discovered": True} for row in given]
    assert analysed(plan, reported).families[0].rows[0].p == 1
