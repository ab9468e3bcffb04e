"""Named estimands, their weightings, and changes of paired tasks."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as reference

from analysis.data import read_root
from analysis.external import from_rows
from analysis.paired import Change, mcnemar, partners
from analysis.plan import parse_plan
from analysis.rates import ESTIMANDS, Rate, rates
from analysis.tallies import EDITS, MEASURES
from tests.unit.analysis_support import (
    CONTRACT,
    Root,
    Row,
    analysed,
    counted,
    plan_dict,
    proposal_row,
    rows,
    small_plan,
    verdict_row,
)

PLAN = parse_plan(small_plan())


def of_run(root: Path, volatile: bool = False) -> dict[tuple[str, str], Rate]:
    found = rates(PLAN, read_root(root, PLAN), volatile)
    return {(rate.estimand, rate.levels.get("contract", "all")): rate for rate in found}


def test_every_estimand_is_made_of_measures() -> None:
    known = {*MEASURES, *EDITS}
    assert {name for one in ESTIMANDS for name in (one.events, one.trials)} <= known
    assert len({one.name for one in ESTIMANDS}) == len(ESTIMANDS)


def test_rates_of_a_run(tmp_path: Path) -> None:
    run = Root()
    for row, actions in zip(run.rollouts, (10, 6, 2, 2), strict=True):
        row |= {"actions": actions, "visible_tests": 2, "tokens_prompt": 30, "tokens_completion": 5}
        row["charged_seconds"] = 1.5
    run.runs[2]["purpose"] = "certification"  # passed
    run.runs[3]["purpose"] = "certification"  # ended by its deadline
    found = of_run(run.write(tmp_path))
    expected = {
        ("unsafe", "all"): (2, 4),
        ("risk", "all"): (2, 3),
        ("discovery", "all"): (2, 4),
        ("current_correct", "ON"): (1, 2),
        ("admission", "all"): (2, 2),
        ("retention", "OFF"): (1, 1),
        ("certification", "OFF"): (1, 2),
        ("repair", "all"): (2, 2),
        ("harm", "all"): (2, 2),
        ("gate_false_pass", "OFF"): (1, 1),
        ("gate_false_pass", "ON"): (0, 1),
        ("gate_false_rejection", "all"): (0, 2),
        ("invalid_action", "OFF"): (2, 12),
        ("any_invalid_action", "OFF"): (1, 2),
        ("test_deadline", "OFF"): (1, 4),
        ("suite_deadline", "OFF"): (2, 4),
        ("actions_per_sound", "all"): (20, 1),
        ("tokens_per_sound", "all"): (140, 1),
    }
    counts = {key: (found[key].events, found[key].trials) for key in expected}
    assert counts == expected
    assert found["actions_per_sound", "ON"].task_equal == 8.0
    assert found["actions_per_sound", "OFF"].task_equal is None, (
        "no sound completion: no cost of one"
    )
    assert of_run(tmp_path, volatile=True)["seconds_per_sound", "all"].rollout_pooled == 6.0


def test_what_depends_on_the_clock_is_not_in_the_decision(tmp_path: Path) -> None:
    run = Root()
    root = run.write(tmp_path / "a")
    for row in run.rollouts:
        row["charged_seconds"] = 99.0
    from analysis.decision import analyze

    first, second = (
        analyze(PLAN, read_root(place, PLAN)) for place in (root, run.write(tmp_path / "b"))
    )
    assert first.timing != second.timing
    assert first.as_dict()["rates"] == second.as_dict()["rates"]
    assert "seconds_per_sound" not in first.to_json()


def test_task_equal_project_equal_and_pooled_are_three_things(tmp_path: Path) -> None:
    run = Root()
    wrong = [f"t2-try{number}" for number in (1, 2, 3)]
    for number, (before, after) in enumerate(zip(["t2-base", *wrong], wrong, strict=False), 1):
        run.proposals.append(proposal_row("t2-ON", number, before, after))
        run.evaluations.append(verdict_row("t2-ON", after, False))
    run.rollouts[3]["final_state_id"] = wrong[-1]
    rate = of_run(run.write(tmp_path))["repair", "all"]
    assert (rate.task_equal, rate.rollout_pooled, rate.tasks) == (0.5, 0.4, 2)


def test_project_equal_weighs_projects_alike() -> None:
    plan = plan_dict({"contract": ["OFF", "ON"]}, [CONTRACT])
    projects = {"t1": "p", "t2": "p", "t3": "p", "t4": "q"}
    events = [
        {"task": "t4", "seed": 1, "contract": level, "sound": True} for level in ("OFF", "ON")
    ]
    found = rates(*from_rows(rows(plan, projects, events), parse_plan(plan)))
    (sound,) = [rate for rate in found if rate.estimand == "sound" and not rate.levels]
    assert (sound.task_equal, sound.project_equal) == (0.25, 0.5)


def test_what_a_table_does_not_report_is_left_out_not_zero() -> None:
    plan, table = counted([1, 0], 1)
    names = {rate.estimand for rate in rates(*from_rows(table, parse_plan(plan)))}
    assert names == {"completion", "unsafe", "sound", "risk"}
    half = [row | {"escalated": None if at else True} for at, row in enumerate(table)]
    assert "escalation" not in {r.estimand for r in rates(*from_rows(half, parse_plan(plan)))}


def test_no_descriptive_rate_can_carry_an_interval_or_a_p_value() -> None:
    """Pooling rollouts as if independent has no field to put its result into."""
    assert set(Rate.__dataclass_fields__) == {
        *("estimand", "levels", "events", "trials", "tasks"),
        *("task_equal", "project_equal", "rollout_pooled"),
    }
    result = analysed(*counted([1, 0, -1, 1], 2)).effect("contract", "sound")
    assert isinstance(result.rollout_pooled, Fraction)


def test_the_pooled_effect_differs_only_where_outcomes_miss() -> None:
    plan, table = counted([2, 0, 0], 2)
    whole = analysed(plan, table).effect("contract", "sound")
    assert whole.rollout_pooled == whole.least.effect == Fraction(1, 3)
    lost: Row = {"accepted": None, "resolved": None, "settled_as": "infrastructure"}
    gone = [row | (lost if row["task_id"] == "t02" else {"settled_as": "agent"}) for row in table]
    some = analysed(plan, gone).effect("contract", "sound")
    assert some.rollout_pooled == Fraction(1, 2), "over the rollouts that settled"
    nothing = analysed(plan, [row | lost for row in table]).effect("contract", "sound")
    assert nothing.rollout_pooled is None


# --------------------------------------------------------------------------------------- McNemar


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_exact_test_of_statsmodels(newly_solved: int, regressed: int) -> None:
    expected = reference([[3, regressed], [newly_solved, 4]], exact=True).pvalue
    assert float(mcnemar(newly_solved, regressed)) == pytest.approx(expected, abs=1e-12)
    assert mcnemar(newly_solved, regressed) == mcnemar(regressed, newly_solved) <= 1


def test_a_task_is_solved_by_more_than_half_of_its_rollouts() -> None:
    plan, table = counted([2, 1, -2, 0], 2)  # of two rollouts: 2, 1, -2 and none sound
    (found,) = analysed(plan, table).paired
    assert found.tasks == Change(0, newly_solved=1, regressed=1, unsolved=2, undetermined=0)
    assert (found.newly_solved_tasks, found.regressed_tasks) == (("t00",), ("t02",))
    assert found.pairs == Change(0, newly_solved=3, regressed=2, unsolved=3, undetermined=0)
    assert (found.p, found.figure.tasks) == (1, 4)


def test_pairs_of_rollouts_never_get_a_p_value() -> None:
    """Many seeds of one task are one unit: p is that of one task, not of twenty pairs."""
    plan, table = counted([20, 0], 20)
    (found,) = analysed(plan, table).paired
    assert (found.pairs.newly_solved, found.tasks.newly_solved, found.p) == (20, 1, 1)


def test_a_task_that_missing_outcomes_could_decide_leaves_no_p_value() -> None:
    plan, table = counted([2, 0], 3)
    table = [row | {"settled_as": "agent"} for row in table]
    lost: Row = {"accepted": None, "resolved": None, "settled_as": "unknown"}
    harmless = [dict(row) for row in table]
    harmless[-1] |= lost  # one of three of the other task: at most one sound
    assert analysed(plan, harmless).paired[0].p == 1
    open_ = [row | (lost if row["task_id"] == "t01" and row["seed"] else {}) for row in table]
    (found,) = analysed(plan, open_).paired
    assert (found.p, found.tasks.undetermined) == (None, 1)


def test_partners_differ_in_the_factor_only() -> None:
    factors = {"evidence": ["current", "stale"], "contract": ["OFF", "ON"], "cap": ["1", "3"]}
    plan = parse_plan(plan_dict(factors, [CONTRACT]))
    cells = plan.cells()
    found = partners(plan, plan.main("contract"))
    assert len(found) == 4
    for low, high in found:
        assert cells[low] | {"contract": "ON"} == cells[high]


def test_a_fitted_change_has_no_pairs() -> None:
    line = {"name": "depth", "kind": "linear", "factor": "cap", "low": "1", "high": "3"}
    plan = plan_dict({"cap": ["1", "3"]}, [line])
    assert analysed(plan, rows(plan, {"t1": "p", "t2": "q"}, [])).paired == ()
