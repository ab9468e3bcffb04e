"""Outcome tables from elsewhere: the same answer from CSV and Parquet, and no guessing."""

import csv
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.decision import analyze
from analysis.errors import AnalysisError
from analysis.external import from_rows, read_outcomes
from analysis.plan import parse_plan
from tests.unit.analysis_support import (
    CONTRACT,
    Row,
    analysed,
    counted,
    plan_dict,
    rows,
    small_plan,
)

PLAN = plan_dict({"revision_cap": ["1", "3"], "contract": ["OFF", "ON"]}, [CONTRACT], [1, 2])
EVENTS: list[Row] = [
    {"task": "a", "revision_cap": "3", "contract": "ON", "seed": 1, "sound": True},
    {"task": "b", "revision_cap": "1", "contract": "OFF", "seed": 2, "sound": False},
]


def table() -> list[Row]:
    return rows(PLAN, {"a": "p", "b": "q"}, EVENTS)


def write_csv(path: Path, given: list[Row]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, given[0])
        writer.writeheader()
        writer.writerows({k: int(v) if v is True else v for k, v in row.items()} for row in given)
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
    (edit(0, project="q"), "project", "two projects"),
    (edit(0, stack="other"), "stack", "holds stacks"),
    (edit(0, accepted=None), "accepted, row 1", "accepted is None"),
    (edit(0, accepted=float("nan")), "accepted, row 1", "NaN"),
    (edit(0, resolved=float("nan")), "resolved, row 1", "NaN"),
    (edit(0, accepted="yes"), "accepted, row 1", "true/false"),
    (edit(0, accepted=2), "accepted, row 1", "true/false"),
    (edit(0, accepted=1.0), "accepted, row 1", "true/false"),
    (edit(0, accepted=True), "resolved, row 1", "resolved is null"),
    (edit(0, task_id=None), "task_id, row 1", "null"),
    (edit(0, task_id=7), "task_id, row 1", "expected text"),
    (edit(0, contract=0.5), "contract, row 1", "expected text"),
    (everywhere(settled_as="lost"), "settled_as, row 1", "unknown word"),
    (everywhere(settled_as="infrastructure"), "accepted, row 1", "accepted is False"),
    (everywhere(invalid_actions=-1), "invalid_actions, row 1", "whole number"),
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
    with pytest.raises(AnalysisError, match="not the planned"):
        from_rows([row | {"stack": "other"} for row in given], plan)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("t.xlsx", "", "neither"),
        ("t.csv", "a,a\n1,2\n", "repeats"),
        ("t.csv", "a,b\n1\n", "1 values for 2"),
        ("t.csv", "", "no rows"),
        ("t.parquet", "not parquet", "(?i)parquet file"),
    ],
)
def test_an_unreadable_table_is_named(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(AnalysisError, match=problem) as caught:
        read_outcomes(path, parse_plan(PLAN))
    assert caught.value.file == str(path)
    with pytest.raises(AnalysisError):
        read_outcomes(tmp_path / f"absent-{name}", parse_plan(PLAN))


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
