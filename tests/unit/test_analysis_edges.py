"""Matrices at the edge of what can be decided: one task, one project, ties at a bound, gaps."""

import re
from fractions import Fraction

import pytest

from analysis.errors import AnalysisError
from analysis.results import Analysis
from tests.unit.analysis_support import CONTRACT, Row, analysed, counted, plan_dict, rows


def unsafe(units: list[int], seeds: int) -> Analysis:
    """Task effects of ``units / seeds`` on *unsafe*."""
    plan, table = counted(units, seeds)
    return analysed(plan, [r | {"resolved": False if r["accepted"] else None} for r in table])


def test_one_task_supports_no_claim() -> None:
    """Resampling one task gives that task: the bound is below zero, but it has no width."""
    alone, pair = unsafe([-2], 2).decision, unsafe([-2, -2], 2).decision
    assert alone.verdict.unsafe_upper == pair.verdict.unsafe_upper == -1
    words = (alone.verdict.superiority, alone.verdict.non_inferiority, alone.verdict.joint)
    assert words == (False, False, False)
    assert not alone.monte_carlo.joint and alone.monte_carlo_agrees
    assert pair.verdict.joint


def test_a_stratum_of_one_task_supports_no_claim() -> None:
    plan, table = counted([-2, -2, -2], 2)
    taken = [r | {"resolved": False if r["accepted"] else None} for r in table]
    flagged = [r | {"gate_overlap": r["task_id"] == "t00"} for r in taken]
    named = {one.name: one for one in analysed(plan, flagged).sensitivities}
    assert named["tasks without gate overlap"].verdict.superiority
    assert not named["tasks with gate overlap"].verdict.superiority


def test_one_project_leaves_nothing_to_leave_out() -> None:
    plan, table = counted([1, 0, -1, 1], 1)
    found = analysed(plan, [r | {"project": "only"} for r in table]).effect("contract", "sound")
    assert found.leave_one_project_out == {}
    assert found.project_equal == (Fraction(1, 4), Fraction(1, 4))


@pytest.mark.parametrize(("margin", "held"), [(-0.05, False), (-0.0500001, True)])
def test_a_lower_bound_of_exactly_the_margin_is_no_non_inferiority(
    margin: float, held: bool
) -> None:
    plan, table = counted([-1] * 4, 20)
    plan["decision"] = plan["decision"] | {"sound_above": margin}
    verdict = analysed(plan, table).decision.verdict
    assert (verdict.sound_lower, verdict.non_inferiority) == (Fraction(-1, 20), held)


def test_negative_zero_is_zero() -> None:
    plan, table = counted([0] * 3, 2)
    plan["decision"] = plan["decision"] | {"unsafe_below": -0.0}
    found = analysed(plan, table)
    assert not found.decision.verdict.superiority
    assert not re.search(r"-0(\.0+)?[^.\d]", found.to_json())


def test_nothing_settled_decides_nothing() -> None:
    plan, table = counted([1, 1, 0], 2)
    lost: Row = {"accepted": None, "resolved": None, "settled_as": "infrastructure"}
    found = analysed(plan, [r | lost for r in table])
    bounds = found.decision.verdict.unsafe_upper, found.decision.verdict.sound_lower
    assert bounds == (1, -1) and not found.decision.verdict.joint
    assert found.decision.baseline_sound == (0, 1)
    assert found.effect("contract", "sound").p is None


def test_a_task_with_fewer_seeds_is_refused() -> None:
    plan, table = counted([1, 0], 2)
    with pytest.raises(AnalysisError, match="No rollout may be dropped"):
        analysed(plan, table[:-1])


def test_rollouts_cannot_pass_for_tasks() -> None:
    """A table that calls every rollout a task of its own has no task with all cells."""
    plan, table = counted([1, 0], 2)
    pooled = [r | {"task_id": f"{r['task_id']}-{at}"} for at, r in enumerate(table)]
    with pytest.raises(AnalysisError, match="no row for"):
        analysed(plan, pooled)


def test_depth_and_its_interaction_with_unequal_steps() -> None:
    """One task, sound with the contract at caps 5 and 8 only: slopes by hand, times seven.

    Caps 1, 3, 5, 8 have mean 17/4 and sum of squares 107/4, so that y = (0, 0, 1, 1) has the
    slope (3/4 + 15/4) / (107/4) = 18/107 and a fitted change of 126/107.
    """
    effects = [
        CONTRACT,
        {"name": "depth", "kind": "linear", "factor": "cap", "low": "1", "high": "8"},
        {"name": "both", "kind": "interaction", "of": ["depth", "contract"]},
    ]
    plan = plan_dict({"cap": ["1", "3", "5", "8"], "contract": ["OFF", "ON"]}, effects)
    events = [
        {"task": "t", "seed": 1, "cap": cap, "contract": "ON", "sound": True} for cap in (5, 8)
    ]
    found = analysed(plan, rows(plan, {"t": "p"}, events))
    values = {name: found.effect(name, "sound").least.effect for name in ("depth", "both")}
    assert values == {"depth": Fraction(63, 107), "both": Fraction(126, 107)}
    assert found.effect("contract", "sound").least.effect == Fraction(1, 2)


def test_a_stratum_is_a_property_of_the_task() -> None:
    plan, table = counted([1, 0], 2)
    mixed = [r | {"gate_overlap": at == 0} for at, r in enumerate(table)]
    with pytest.raises(AnalysisError, match="both ways"):
        analysed(plan, mixed)
