"""Published numbers, reproduced from reconstructed event tables through the public entry.

``golden.json`` holds nonzero rows; every other rollout of the design counts as not accepted. Points
are percentage points; exact values are fractions and must be equal, not close.
"""

import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analysis.inference import holm, zero_event_bound
from analysis.lattice import TaskEffects, exact_mean, exact_sign_flips
from analysis.results import Analysis, EffectResult
from tests.unit.analysis_support import CONTRACT, Row, analysed, counted, plan_dict, rows

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text())
STUDIES, CLOSED = GOLDEN["studies"], {case["name"]: case for case in GOLDEN["closed_form"]}
PUBLISHED_DRAWS = {"bootstrap_draws": 200_000, "sign_flip_draws": 100_000, "seed": 11}
STACKS = [name for name, study in STUDIES.items() if study["kind"] == "stack"]
COMPONENTS = {"B": "binding", "A": "admission", "C": "certification"}


@cache
def stack(name: str) -> Analysis:
    design = STUDIES[name]["design"]
    plan = plan_dict(
        {"evidence": design["evidence"], "contract": design["contract"]},
        [CONTRACT],
        design["seeds"],
        inference=PUBLISHED_DRAWS,
    )
    return analysed(plan, rows(plan, design["project_of_task"], STUDIES[name]["events"]))


@cache
def ablation() -> Analysis:
    study = STUDIES["ablation"]
    effects = [
        {"name": name, "kind": "contrast", "factor": name, "low": "OFF", "high": "ON"}
        for name in COMPONENTS.values()
    ]
    family = {
        "name": "main",
        "effects": list(COMPONENTS.values()),
        "endpoints": ["unsafe", "sound"],
    }
    factors = dict.fromkeys(COMPONENTS.values(), ("OFF", "ON"))
    design = study["design"]
    plan = plan_dict(factors, effects, design["seeds"], [family], inference=PUBLISHED_DRAWS)
    events = [
        event | {name: ("OFF", "ON")[event[short]] for short, name in COMPONENTS.items()}
        for event in study["events"]
    ]
    return analysed(plan, rows(plan, design["project_of_task"], events))


@cache
def common_state() -> Analysis:
    """Harm from correct starts: an accepted, unresolved end state; each task its own project."""
    study = STUDIES["common_state_14b_stale_minus_current"]
    levels = ("current_trace", "stale_trace")
    effect = {"name": "stale", "kind": "contrast", "factor": "evidence"}
    effect |= {"low": levels[0], "high": levels[1]}
    draws = PUBLISHED_DRAWS | {"bootstrap_draws": 10_000}
    plan = plan_dict({"evidence": levels}, [effect], study["design"]["seeds"], inference=draws)
    events = [event | {"sound": False} for event in study["events"] if event["harm"]]
    return analysed(plan, rows(plan, {task: task for task in study["design"]["tasks"]}, events))


def statistic(result: EffectResult, name: str, analysis: Analysis) -> float | bool:
    """A figure of one effect under the name that the golden file gives it; points or a p-value."""
    bounds, without = result.least.bounds, result.leave_one_project_out.values()
    family = [row for family in analysis.families for row in family.rows]
    adjusted = [
        row.p_holm
        for row in family
        if (row.effect, row.endpoint) == (result.effect, result.endpoint)
    ]
    figures: dict[str, Any] = {
        "effect": 100 * float(result.least.effect),
        "ci95_lo": 100 * float(bounds.ci_low),
        "ci95_hi": 100 * float(bounds.ci_high),
        "lower_one_sided_95": 100 * float(bounds.lower),
        "upper_one_sided_95": 100 * float(bounds.upper),
        "signflip_p": float(result.least.p),
        "n_nonzero_tasks": result.least.nonzero_tasks,
        "lopo_all_nonpositive": all(high <= 0 for _, high in without),
        "lopo_all_positive": all(low > 0 for low, _ in without),
        "holm_p": adjusted[0] if adjusted else None,
    }
    found: float | bool = figures[name]
    return found


def check_expected(expected: list[Row], analysis: Analysis, effect: str | None) -> int:
    """Compare every expected figure; returns how many were compared."""
    verdict = analysis.decision.verdict
    words = {
        "decision.unsafe_superiority": verdict.superiority,
        "decision.sound_noninferiority": verdict.non_inferiority,
        "decision.joint": verdict.joint,
    }
    for case in expected:
        *names, name = case["key"].split(".")
        if case["key"] in words:
            assert words[case["key"]] is case["value"], case
            continue
        pair = (effect, *names) if effect else tuple(names)
        value = statistic(analysis.effect(*pair), name, analysis)
        assert abs(value - case["value"]) <= case["tol"] + 1e-12, (case, value)
    return len(expected)


def check_exact(exact: Row, result: EffectResult) -> None:
    """Effect, bounds, distribution function at them, and sign flips, as exact fractions."""
    estimate, unit = result.least, exact["unit_denominator"]
    assert estimate.effect == Fraction(exact["effect"]["exact"])
    assert estimate.exact is not None
    bounds = {
        "ci95_lo": estimate.exact.ci_low,
        "ci95_hi": estimate.exact.ci_high,
        "lower_one_sided_95": estimate.exact.lower,
        "upper_one_sided_95": estimate.exact.upper,
    }
    for name, value in bounds.items():
        assert value == Fraction(exact[name]["exact"]) == Fraction(exact[name]["units"], unit), name
    assert estimate.exact_p == Fraction(exact["signflip"]["count"], exact["signflip"]["two_pow_n"])
    assert estimate.nonzero_tasks == exact["n_nonzero_tasks"]


def check_distribution(exact: Row, tasks: int) -> None:
    """F at the published quantiles and just below them, from the table's own units."""
    units = exact["nonzero_effects_units"]
    padded = TaskEffects((*units, *[0] * (tasks - len(units))), exact["unit_denominator"] // tasks)
    mean = exact_mean(padded)
    assert mean is not None
    for name in ("ci95_lo", "ci95_hi", "lower_one_sided_95", "upper_one_sided_95"):
        at = Fraction(exact[name]["exact"])
        just_below = at - Fraction(1, 10 * exact["unit_denominator"])
        assert float(mean.cdf(at)) == pytest.approx(exact[name]["F_at"], abs=1e-12)
        assert float(mean.cdf(just_below)) == pytest.approx(exact[name]["F_below"], abs=1e-12)


@pytest.mark.parametrize("name", STACKS)
def test_stack_gives_every_published_and_derived_figure(name: str) -> None:
    study, analysis = STUDIES[name], stack(name)
    assert check_expected(study["expected"], analysis, "contract") == 30
    for endpoint, exact in study["exact"].items():
        result = analysis.effect("contract", endpoint)
        check_exact(exact, result)
        check_distribution(exact, len(study["design"]["tasks"]))
        without = {p: Fraction(v) for p, v in study["lopo_exact"][endpoint].items()}
        assert result.leave_one_project_out == {p: (v, v) for p, v in without.items()}
        assert result.project_equal[0] == Fraction(study["project_equal_exact"][endpoint])


@pytest.mark.parametrize("name", STACKS)
def test_stack_cells_hold_the_published_counts(name: str) -> None:
    counts = {
        "/".join(cell.levels.values()): [
            cell.endpoints[endpoint] for endpoint in ("accepted", "unsafe", "sound")
        ]
        for cell in stack(name).cells
    }
    assert counts == STUDIES[name]["published_cell_counts_accepted_unsafe_sound"]


@pytest.mark.parametrize("name", STACKS)
def test_published_draws_return_the_exact_atom_where_they_must(name: str) -> None:
    for endpoint, exact in STUDIES[name]["exact"].items():
        sampled = stack(name).effect("contract", endpoint).least.monte_carlo
        for key, value in (("ci95_lo", sampled.ci_low), ("upper_one_sided_95", sampled.upper)):
            assert exact[key]["p_mc200k_linear_returns_this_atom"] == 1.0
            assert value == Fraction(exact[key]["exact"])


def test_upper_bound_of_exactly_zero_is_no_superiority() -> None:
    decision = stack("stack_14b").decision
    assert decision.verdict.unsafe_upper == 0
    assert (decision.verdict.superiority, decision.verdict.non_inferiority) == (False, True)
    assert decision.floor_limited
    assert decision.baseline_sound == (Fraction(1, 144), Fraction(1, 144))


def test_ablation_gives_every_published_and_derived_figure() -> None:
    study, analysis = STUDIES["ablation"], ablation()
    assert check_expected(study["expected"], analysis, None) == 36
    for key, exact in study["exact"].items():
        short, endpoint = key.split(".")
        check_exact(exact, analysis.effect(COMPONENTS[short], endpoint))
        check_distribution(exact, len(study["design"]["tasks"]))


def test_ablation_holm_is_exact_where_the_paper_sampled() -> None:
    (family,) = ablation().families
    row = next(r for r in family.rows if (r.effect, r.endpoint) == ("certification", "sound"))
    assert len(family.rows) == 6
    assert row.p_holm == STUDIES["ablation"]["holm"]["exact_min"] == 0.75
    assert row.monte_carlo_p_holm == pytest.approx(
        STUDIES["ablation"]["holm"]["published"], abs=0.02
    )
    assert not any(member.significant for member in family.rows)


def test_common_state_contrast() -> None:
    study = STUDIES["common_state_14b_stale_minus_current"]
    result = common_state().effect("stale", "unsafe")
    holm_case = [case for case in study["expected"] if case["key"] == "exact_holm_p"]
    others = [case for case in study["expected"] if case not in holm_case]
    for case in others:
        value = statistic(result, case["key"], common_state())
        assert abs(value - case["value"]) <= case["tol"], (case, value)
    check_exact(study["exact"], result)
    check_distribution(study["exact"], len(study["design"]["tasks"]))
    # the other five of the family are not in the table: the smallest p is multiplied by six
    family = holm([float(result.least.p), *[1.0] * 5])
    assert abs(family[0] - holm_case[0]["value"]) <= holm_case[0]["tol"]


CONTRASTS = {
    "t3_7b_trace_minus_control_points": (27, 5, 8),
    "t3_14b_stale_minus_control_points": (27, 5, 17),
    "online_harm_points": (27, 5, -13),
    "online_sound_points": (27, 10, -8),
}
"""Closed form -> tasks, rollouts per task and arm, difference of counts."""


@pytest.mark.parametrize("name", CONTRASTS)
def test_closed_form_contrasts(name: str) -> None:
    tasks, seeds, difference = CONTRASTS[name]
    units = [0] * tasks
    for at in range(abs(difference)):
        units[at % tasks] += 1 if difference > 0 else -1
    result = analysed(*counted(units, seeds)).effect("contract", "sound")
    case = CLOSED[name]
    assert 100 * result.least.effect == Fraction(case["exact"])
    assert abs(100 * float(result.least.effect) - case["published"]) <= case["tol"]


RATES = {
    **dict.fromkeys(("traj_current_trace_rev1", "traj_current_trace_rev3"), (30, 5)),
    **dict.fromkeys(("traj_ever_rev3", "traj_binary_rev1", "traj_binary_lost"), (30, 5)),
    **dict.fromkeys(("traj_stale_trace_rev2", "traj_unavail_rev3"), (30, 5)),
    **dict.fromkeys(("t3_7b_binary", "t3_14b_unavail", "t3_14b_current_harm"), (27, 5)),
    **dict.fromkeys(("t5_visible_cov", "t5_visible_sound", "t5_q14_cov"), (30, 30)),
    **dict.fromkeys(("t5_q14_sound", "t5_exec_cov"), (30, 30)),
}
"""Closed form -> tasks, rollouts per task in the cell."""


@pytest.mark.parametrize("name", RATES)
def test_closed_form_rates(name: str) -> None:
    tasks, seeds = RATES[name]
    events = Fraction(CLOSED[name]["exact"]) * tasks * seeds
    assert events.denominator == 1
    units = [-(int(events) // tasks + (at < int(events) % tasks)) for at in range(tasks)]
    low, high = analysed(*counted(units, seeds)).decision.baseline_sound
    assert low == high == Fraction(CLOSED[name]["exact"])
    assert abs(float(low) - CLOSED[name]["published"]) <= CLOSED[name]["tol"]


def test_closed_form_counts() -> None:
    cells = stack("stack_14b").cells
    total = sum(cell.endpoints["accepted"] or 0 for cell in cells)
    assert total == CLOSED["accepted_totals_14b"]["value"]
    case = CLOSED["zero_event_bound_30_tasks"]
    assert zero_event_bound(30) == pytest.approx(case["exact"], abs=1e-15)


def test_closed_form_budget_ends() -> None:
    design = STUDIES["stack_14b"]["design"]
    plan = plan_dict(
        {"evidence": design["evidence"], "contract": design["contract"]},
        [CONTRACT],
        design["seeds"],
    )
    table = rows(plan, design["project_of_task"], STUDIES["stack_14b"]["events"])
    table = [row | {"actions_exhausted": at >= 12} for at, row in enumerate(table)]
    analysis = analysed(plan, table)
    ended = sum(cell.behaviour["actions_exhausted"] or 0 for cell in analysis.cells)
    rate = Fraction(ended, analysis.design.rollouts)
    assert rate == Fraction(CLOSED["budget_exhausted"]["exact"])


SIGN_FLIPS = GOLDEN["property_cases"]["signflip_exact"]


@pytest.mark.parametrize("case", SIGN_FLIPS, ids=lambda case: str(case["effects_units"])[:40])
def test_sign_flip_cases(case: Row) -> None:
    units, grid = case["effects_units"], case["grid"]
    flips = exact_sign_flips(TaskEffects(tuple(units) or (0,), grid))
    assert flips is not None
    assert (flips.count, flips.patterns) == (case["count"], case["two_pow_n"])
    if units and max(map(abs, units)) <= grid:
        estimate = analysed(*counted(units, grid)).effect("contract", "sound").least
        assert estimate.exact_p == Fraction(case["count"], case["two_pow_n"])
        assert float(estimate.p) == case["p"]


@pytest.mark.parametrize("case", GOLDEN["property_cases"]["holm"], ids=lambda case: str(case["p"]))
def test_holm_cases(case: Row) -> None:
    assert holm(case["p"]) == pytest.approx(case["holm"], abs=1e-12)
