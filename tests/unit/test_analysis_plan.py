"""A plan is taken whole or refused with file, field and remedy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import AnalysisError
from analysis.plan import parse_plan, read_plan
from tests.unit.analysis_support import CONTRACT, small_plan

Change = Callable[[dict[str, Any]], None]


def put(*path: Any, value: Any) -> Change:
    def change(plan: dict[str, Any]) -> None:
        place: Any = plan
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def drop(key: str) -> Change:
    return lambda plan: plan.pop(key)


def same_number(plan: dict[str, Any]) -> None:
    """Two names of one cap: a line cannot be fitted on them."""
    plan["factors"].append({"name": "cap", "levels": ["1", "01"]})
    line = {"name": "depth", "kind": "linear", "factor": "cap", "low": "1", "high": "01"}
    plan["effects"].append(line)


LINEAR = {**CONTRACT, "kind": "linear"}
PAIR = {"name": "pair", "kind": "interaction", "of": ["contract", "contract"]}
NOWHERE = {"name": "pair", "kind": "interaction", "of": ["contract", "nothing"]}
FAMILY = {"name": "main", "effects": ["contract"], "endpoints": ["unsafe"]}
BAD: list[tuple[Change, str, str]] = [
    (drop("title"), "title", "missing"),
    (put("extra", value=1), "extra", "unknown key"),
    (put("schema", value="factorial/plan@2"), "schema", "is not"),
    (put("simulated", value=1), "simulated", "true or false"),
    (put("seeds", value=[1, 1]), "seeds", "distinct"),
    (put("seeds", value=[True]), "seeds", "whole numbers"),
    (put("factors", value=[]), "factors", "no factor"),
    (put("factors", 0, "name", value="accepted"), "factors", "cannot be a factor"),
    (put("factors", 0, "name", value='x"; DROP'), "factors", "cannot be a factor"),
    (put("factors", 0, "levels", value=["ON", "ON"]), "factors", "repeat"),
    (put("constants", "contract", value="ON"), "factors", "twice"),
    (put("constants", "evidence", value=3), "constants.evidence", "string"),
    (put("effects", value=[]), "decision.effect", "no effect"),
    (put("effects", value=[CONTRACT, CONTRACT]), "effects", "twice"),
    (put("effects", 0, "kind", value="ratio"), "effects[0].kind", "unknown kind"),
    (put("effects", 0, "factor", value="mood"), "effects", "unknown factor"),
    (put("effects", 0, "high", value="OFF"), "effects", "same level"),
    (put("effects", 0, "high", value="MAYBE"), "effects", "no level"),
    (put("effects", value=[LINEAR]), "effects", "no number"),
    (put("effects", value=[CONTRACT, PAIR]), "effects", "one factor"),
    (same_number, "effects", "same number"),
    (
        put("families", value=[{**FAMILY, "effects": ["contract"] * 2}]),
        "families[0].effects",
        "twice",
    ),
    (
        put("families", value=[{**FAMILY, "endpoints": ["sound"] * 2}]),
        "families[0].endpoints",
        "twice",
    ),
    (put("effects", value=[CONTRACT, NOWHERE]), "effects", "two main effects"),
    (put("decision", "effect", value="other"), "decision.effect", "no effect"),
    (put("decision", "level", value=1.0), "decision.level", "between"),
    (put("decision", "level", value="0.95"), "decision.level", "number"),
    (put("decision", "floor", value=5), "decision.floor", "from 0 to 1"),
    (
        put("families", value=[{**FAMILY, "endpoints": ["good"]}]),
        "families[0].endpoints",
        "unknown",
    ),
    (put("families", value=[{**FAMILY, "effects": ["other"]}]), "families.main", "no effect"),
    (put("families", value=[{**FAMILY, "effects": []}]), "families[0].effects", "needs"),
    (put("families", value=[FAMILY, FAMILY]), "families", "twice"),
    (put("inference", "seed", value=-1), "inference.seed", "at least 0"),
    (put("inference", "bootstrap_draws", value=10**9), "inference.bootstrap_draws", "more than"),
    (put("tasks", 0, "gate_overlap", value="no"), "tasks[0].gate_overlap", "true or false"),
    (put("tasks", 1, "task_id", value="t1"), "tasks", "twice"),
    (put("rollouts", 0, value=7), "rollouts[0]", "object"),
    (put("rollouts", 1, "rollout_id", value="t1-OFF"), "rollouts", "appears twice"),
    (put("rollouts", 0, "project", value="p9"), "rollouts", "foreign"),
    (put("rollouts", 0, "stack", value="other"), "rollouts", "foreign"),
    (put("rollouts", 0, "seed", value=6), "rollouts", "outside the design"),
    (put("rollouts", 0, "levels", value={}), "rollouts", "every factor"),
    (put("rollouts", 0, "levels", value={"contract": "ON"}), "rollouts", "is twice"),
    (lambda plan: plan["rollouts"].pop(), "rollouts", "1 missing"),
    (drop("rollouts"), "rollouts", "missing"),
]


@pytest.mark.parametrize(("change", "field", "problem"), BAD)
def test_a_broken_plan_is_refused_by_field(change: Change, field: str, problem: str) -> None:
    plan = json.loads(json.dumps(small_plan()))
    change(plan)
    with pytest.raises(AnalysisError) as caught:
        parse_plan(plan, "plan.json")
    error = caught.value
    assert (error.file, error.field) == ("plan.json", field)
    assert problem in error.problem
    assert error.remedy.endswith(".")


def test_a_whole_plan_is_taken() -> None:
    plan = parse_plan(small_plan())
    assert not plan.open
    assert plan.cells() == ({"contract": "OFF"}, {"contract": "ON"})
    assert [rollout.rollout_id for rollout in plan.rollouts] == [
        *("t1-OFF", "t1-ON", "t2-OFF", "t2-ON")
    ]
    assert plan.rule.sound_above * 20 == -1


@pytest.mark.parametrize("text", ["[1, 2]", "{", "\udcff"])
def test_an_unreadable_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(AnalysisError) as caught:
        read_plan(path)
    assert caught.value.file == str(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="no such file"):
        read_plan(tmp_path / "plan.json")
