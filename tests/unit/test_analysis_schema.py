"""decision.json follows its published schema; every figure says what it is; the pages match."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from analysis import columns, operating
from analysis.data import read_root
from analysis.decision import analyze
from analysis.errors import AnalysisError
from analysis.outcomes import COLUMNS
from analysis.plan import parse_plan
from analysis.results import Analysis
from analysis.schema import FILE, decision_schema, generate
from analysis.views import ATTEMPTS
from orchestrator.store.schemas import ATTEMPT
from tests.unit.analysis_support import Root, Row, analysed, counted, small_plan

PAGE = Path(__file__).parents[2] / "docs" / "columns.md"
FAMILY = {"name": "main", "effects": ["contract"], "endpoints": ["unsafe", "sound"]}


def valid(result: Analysis) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(result.to_json())
    Draft202012Validator(decision_schema()).validate(data)
    return data


def test_the_schema_is_the_one_of_the_types_and_is_a_schema() -> None:
    assert FILE.read_text(encoding="utf-8") == generate.render(), (
        "run `python -m analysis.schema.generate > analysis/schema/decision.schema.json`"
    )
    Draft202012Validator.check_schema(decision_schema())


def test_decisions_of_every_kind_are_valid(tmp_path: Path) -> None:
    plan = parse_plan(small_plan())
    of_run = valid(analyze(plan, read_root(Root().write(tmp_path), plan)))
    assert of_run["transitions"] and of_run["rates"] and of_run["zero_events"]
    plan_, table = counted([1, 0, -1], 2, families=[FAMILY])
    assert valid(analysed(plan_, table))["families"][0]["rows"][0]["p"]["value"] == 1
    lost: Row = {"accepted": None, "resolved": None, "settled_as": "infrastructure"}
    nothing = valid(analysed(plan_, [row | lost for row in table]))
    assert nothing["families"][0]["rows"][0]["p"] is None
    one_task = valid(analysed(*counted([1], 2)))
    assert one_task["decision"]["least_tasks"] == 2


@pytest.mark.parametrize("key", ["decision", "operating", "seed"])
def test_a_decision_that_lacks_something_is_not_valid(key: str) -> None:
    data = valid(analysed(*counted([1, 0, -1], 2)))
    del data[key]
    with pytest.raises(ValidationError):
        Draft202012Validator(decision_schema()).validate(data)


def test_every_figure_says_estimand_method_tasks_draws_and_seed() -> None:
    data = valid(analysed(*counted([1, 0, -1], 2, families=[FAMILY])))
    drawn = [*data["effects"], data["decision"]]
    for one in drawn:
        figure = one["figure"]
        assert (figure["tasks"], figure["draws"], figure["seed"]) == (3, 2000, 7)
        assert figure["estimand"].startswith("task-equal mean at contract ON minus mean at OFF")
        assert "exact task-cluster percentile bootstrap" in figure["method"]
    assert data["families"][0]["figure"]["sign_flips"] == 2000
    undrawn = [data["calibrated"], *data["paired"], *data["zero_events"]]
    assert len(undrawn) >= 3
    for one in undrawn:
        assert one["figure"]["tasks"] == 3 and one["figure"]["seed"] is None
        assert one["figure"]["estimand"] and one["figure"]["method"]
    assert {rate["estimand"] for rate in data["rates"]} == set(data["estimands"])


def test_the_nearest_case_stands_beside_every_decision() -> None:
    near = valid(analysed(*counted([1, 0, -1, 0] * 6, 3)))["operating"]
    assert near["tasks"] == 24 and near["studies"] > 0
    assert 0 <= near["percentile"]["joint_error"] <= 1


@pytest.mark.parametrize("content", [None, "{", '{"schema": "other"}', "{}"])
def test_no_decision_is_shown_without_the_published_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    file = tmp_path / "operating.json"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(operating, "FILE", file)
    operating.load_published.cache_clear()
    try:
        with pytest.raises(AnalysisError, match="operating characteristics cannot be read"):
            analysed(*counted([1, 0], 1)).to_json()
    finally:
        operating.load_published.cache_clear()


def test_the_column_dictionary_has_not_drifted() -> None:
    assert PAGE.read_text(encoding="utf-8") == columns.render(), (
        "run `python -m analysis.columns > docs/columns.md`"
    )
    assert set(columns.MEANINGS) == set(COLUMNS)


def test_attempts_have_the_columns_that_the_store_documents() -> None:
    assert ATTEMPTS.names == [column.name for column in ATTEMPT]
    assert ATTEMPTS.types == [column.type for column in ATTEMPT]
