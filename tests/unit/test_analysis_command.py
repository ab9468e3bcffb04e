"""``factorial analyze`` on tables from elsewhere: a bad one is an error, never a number."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from jsonschema import Draft202012Validator

from analysis.schema import decision_schema
from orchestrator.cli.decision import SCHEMA_OF_MANY
from tests.unit.cli_support import REPOSITORY, Command

Row = dict[str, Any]
Change = Callable[[list[Row]], object]
QUICKSTART = REPOSITORY / "manifests" / "studies" / "quickstart.yaml"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The quickstart's design with fewer draws."""
    data = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    data["inference"] |= {"bootstrap_draws": 1000, "sign_flip_draws": 1000}
    path = tmp_path_factory.mktemp("study") / "quickstart.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


def table() -> list[Row]:
    """Three tasks of two projects x four cells x the one seed; all accepted, half sound."""
    return [
        {"task_id": task, "project": project, "stack": "mine", "seed": 1}
        | {"evidence": evidence, "contract": contract}
        | {"accepted": True, "resolved": contract == "ON"}
        for task, project in (("t1", "p1"), ("t2", "p1"), ("t3", "p2"))
        for evidence in ("current", "stale")
        for contract in ("OFF", "ON")
    ]


def write_csv(path: Path, rows: list[Row]) -> str:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0] if rows else ["task_id"])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


BAD: list[tuple[Change, str, str]] = [
    (lambda t: t.pop(), "no row for task_id t3", "No rollout may be dropped"),
    (lambda t: t.append(t[0]), "doubles task_id t1", "One row per rollout"),
    (lambda t: t[1].update(contract="MAYBE"), "contract, row 2", "Known: OFF, ON"),
    (lambda t: t[1].update(seed=2), "seed 2 is not in the plan", "Known: 1"),
    (lambda t: t[1].update(project="p9"), "project", "in two projects"),
    (lambda t: t[1].update(stack="other"), "stack", "separately"),
    (lambda t: t[1].update(resolved=None), "resolved, row 2", "never assumed wrong"),
    (lambda t: t[1].update(accepted=None), "accepted, row 2", "infrastructure or unknown"),
    (lambda t: t[1].update(accepted="nan"), "accepted, row 2", "true/false"),
    (lambda t: t[1].update(seed="first"), "seed, row 2", "whole number"),
    (lambda t: t[1].update(task_id=None), "task_id, row 2", "Give a value"),
    (lambda t: [r.pop("resolved") for r in t], "resolved: the column is missing", "Needed:"),
    (lambda t: [r.update(mood=1) for r in t], "mood: unknown column", "Drop it"),
    (lambda t: t.clear(), "no rows", "one row per rollout"),
]


@pytest.mark.parametrize(("change", "where", "remedy"), BAD)
def test_a_bad_table_is_refused_by_place_and_remedy(
    command: Command, study: str, tmp_path: Path, change: Change, where: str, remedy: str
) -> None:
    rows = table()
    change(rows)
    path = write_csv(tmp_path / "table.csv", rows)
    said = command.refused("analyze", "--outcomes", path, "--study", study, "--json")
    assert "table.csv" in said and where in said and remedy in said, said


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("accepted", [float("nan")] + [1.0] * 11, "accepted"),
        ("seed", [1.5] + [1.0] * 11, "seed"),
        ("resolved", ["perhaps"] + ["true"] * 11, "resolved"),
        ("task_id", [7] * 12, "task_id"),
    ],
)
def test_wrong_types_in_parquet_are_refused(
    command: Command, study: str, tmp_path: Path, column: str, values: list[Any], words: str
) -> None:
    whole = pa.Table.from_pylist(table())
    place = whole.column_names.index(column)
    pq.write_table(whole.set_column(place, column, pa.array(values)), tmp_path / "t.parquet")
    said = command.refused("analyze", "--outcomes", str(tmp_path / "t.parquet"), "--study", study)
    assert "t.parquet" in said and words in said


def test_a_good_table_gives_a_valid_decision(command: Command, study: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "it's a [table].csv", table())
    done = command("analyze", "--outcomes", path, "--study", study, "--json")
    assert done.code == 0 and done.err == ""
    data = json.loads(done.out)
    Draft202012Validator(decision_schema()).validate(data)
    assert data["decision"]["verdict"]["joint"] is True
    shown = command("analyze", "--outcomes", path, "--study", study)
    assert "Decision on contract" in shown.out.splitlines()[3]


def test_two_tables_are_decided_one_by_one(command: Command, study: str, tmp_path: Path) -> None:
    worse = [row | {"resolved": False} for row in table()]
    paths = [write_csv(tmp_path / "a.csv", table()), write_csv(tmp_path / "b.csv", worse)]
    options = [word for path in paths for word in ("--outcomes", path)]
    done = command("analyze", *options, "--study", study, "--json")
    data = json.loads(done.out)
    assert data["schema"] == SCHEMA_OF_MANY
    verdicts = {d["source"]: d["decision"]["decision"]["verdict"] for d in data["decisions"]}
    assert {name: one["joint"] for name, one in verdicts.items()} == {"a.csv": True, "b.csv": False}
    assert {d["decision"]["coverage"]["planned"] for d in data["decisions"]} == {12}
    shown = command("analyze", *options, "--study", study).out
    assert [line for line in shown.splitlines() if line.startswith("=====")] == [
        *("===== a.csv", "===== b.csv")
    ]
    assert "twice" in command.refused(
        "analyze", "--outcomes", paths[0], "--outcomes", paths[0], "--study", study
    )
