"""Simulated studies obey what was assumed, and are decided exactly as real ones are."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.assumptions import Assumptions, layout_of, population_of
from analysis.batch import Series, claims_less, claims_more
from analysis.external import from_rows
from analysis.plan import Plan, parse_plan
from analysis.power import study_power
from analysis.simulate import (
    SOUND,
    UNSAFE,
    Codes,
    Kind,
    Layout,
    Population,
    Rates,
    baseline_rates,
    draw,
    task_units,
)
from tests.unit.analysis_support import CONTRACT, Row, analysed, plan_dict, rows

FEW = settings(max_examples=12, deadline=None, derandomize=True)
CELLS = {"evidence": ["current", "stale"], "contract": ["OFF", "ON"]}
tenths = st.integers(0, 5).map(lambda n: n / 10)


@st.composite
def populations(draw: st.DrawFn) -> Population:
    """One or two kinds of tasks in two arms."""
    kinds = draw(st.integers(1, 2))
    arms = [tuple(Rates(draw(tenths), draw(tenths)) for _ in range(2)) for _ in range(kinds)]
    return Population(
        tuple(Kind(1 / kinds, pair) for pair in arms),
        concentration=draw(st.sampled_from([None, 0.2, 1.0, 5.0])),
        project_share=draw(st.sampled_from([0.0, 0.5])),
        shared_luck=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )


def trial(tasks: int, seeds: int = 2, **changes: Any) -> tuple[Row, Plan]:
    """Plan as JSON data (open) and, completed with tasks of three projects, parsed."""
    open_plan = plan_dict(CELLS, [CONTRACT], range(seeds), **changes)
    projects = {f"t{at:02}": f"p{at % 3}" for at in range(tasks)}
    plan, _ = from_rows(rows(open_plan, projects, []), parse_plan(open_plan))
    return open_plan, plan


def as_table(codes: Codes, plan: Plan) -> list[Row]:
    """Outcome table of one simulated study."""
    table = []
    places = {tuple(cell.values()): at for at, cell in enumerate(plan.cells())}
    tasks = {task.task_id: at for at, task in enumerate(plan.tasks)}
    for rollout in plan.rollouts:
        cell = places[tuple(rollout.levels.values())]
        code = codes[tasks[rollout.task_id], cell, plan.seeds.index(rollout.seed)]
        row = {name: getattr(rollout, name) for name in ("task_id", "project", "stack", "seed")}
        accepted, sound = bool(code), bool(code == SOUND) if code else None
        table.append(row | rollout.levels | {"accepted": accepted, "resolved": sound})
    return table


def series_of(codes: Codes, layout: Layout, endpoint: int) -> Series:
    return Series(task_units(codes, layout, endpoint), layout.denominator, layout.support)


@FEW
@given(populations(), st.integers(0, 1000))
def test_rates_converge_to_what_is_assumed(population: Population, seed: int) -> None:
    layout, studies = layout_of(trial(12)[1]), 400
    codes = draw(population, layout, studies, np.random.default_rng(seed))
    for cell, arm in enumerate(layout.arm_of_cell):
        mean = population.mean(arm)
        for endpoint, rate in ((UNSAFE, mean.unsafe), (SOUND, mean.sound)):
            by_study = (codes[:, :, cell] == endpoint).mean(axis=(1, 2))
            error = by_study.std() / np.sqrt(studies)
            assert abs(by_study.mean() - rate) < 5 * error + 1e-3
    off = baseline_rates(codes, layout)
    assert np.allclose(off, (codes[:, :, [0, 2]] == SOUND).mean(axis=(1, 2, 3)))


def test_the_intraclass_correlation_is_the_assumed_one() -> None:
    arms = (Rates(0.3, 0.4), Rates(0.3, 0.4))
    layout = layout_of(trial(12)[1])
    for icc in (0.1, 0.5, 0.9):
        population = Population((Kind(1.0, arms),), concentration=1 / icc - 1)
        codes = draw(population, layout, 2000, np.random.default_rng(3))
        one, other = (codes[:, :, 0, seed].ravel() == UNSAFE for seed in (0, 1))
        assert abs(np.corrcoef(one, other)[0, 1] - icc) < 0.03


def test_arms_with_equal_rates_and_shared_luck_do_not_differ() -> None:
    arms = (Rates(0.3, 0.4), Rates(0.3, 0.4))
    layout = layout_of(trial(6)[1])
    for luck, differ in ((1.0, False), (0.0, True)):
        codes = draw(
            Population((Kind(1.0, arms),), 1.0, 0.2, luck), layout, 50, np.random.default_rng(1)
        )
        assert task_units(codes, layout, UNSAFE).any() == differ


@FEW
@given(populations(), st.integers(2, 6), st.integers(0, 1000))
def test_a_simulated_study_is_decided_as_the_analysis_decides(
    population: Population, tasks: int, seed: int
) -> None:
    open_plan, plan = trial(tasks)
    layout = layout_of(plan)
    codes = draw(population, layout, 2, np.random.default_rng(seed))
    unsafe, sound = (series_of(codes, layout, endpoint) for endpoint in (UNSAFE, SOUND))
    rule = plan.rule
    superiority = claims_less(unsafe, "percentile", rule.unsafe_below, rule.level)
    above = claims_more(sound, "percentile", rule.sound_above, rule.level)
    for at, study in enumerate(codes):
        decision = analysed(open_plan, as_table(study, plan)).decision
        assert decision.verdict.superiority == superiority[at]
        assert decision.verdict.non_inferiority == above[at]
        assert decision.baseline_sound[0] == Fraction(
            int((study[:, [0, 2]] == SOUND).sum()), study[:, [0, 2]].size
        )


def test_another_threshold_gives_another_decision() -> None:
    """Negative control of the comparison above: it does not hold for just any rule."""
    open_plan, plan = trial(6)
    layout = layout_of(plan)
    arms = (Rates(0.5, 0.3), Rates(0.1, 0.3))
    codes = draw(Population((Kind(1.0, arms),), None), layout, 6, np.random.default_rng(2))
    unsafe = series_of(codes, layout, UNSAFE)
    found = claims_less(unsafe, "percentile", Fraction(0), plan.rule.level)
    stricter = claims_less(unsafe, "percentile", Fraction(-3, 10), plan.rule.level)
    assert (found != stricter).any()
    strict_plan = open_plan | {"decision": open_plan["decision"] | {"unsafe_below": -0.3}}
    for at, study in enumerate(codes):
        verdict = analysed(strict_plan, as_table(study, plan)).decision.verdict
        assert verdict.superiority == stricter[at]


BASE = Assumptions(Fraction(3, 10), Fraction(3, 10), Fraction(3, 10), Fraction(3, 10))


def test_power_grows_with_the_effect_and_is_the_error_at_none() -> None:
    plan = trial(10)[1]
    found = []
    for points in (0, 5, 10, 20, 30):
        assumed = BASE.with_effects(unsafe=Fraction(-points, 100))
        found.append(study_power(plan, assumed, 200, seed=4))
    shares = [one.claims["percentile"].superiority.value for one in found]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[-1] > 0.6
    for one in found:
        for rule, errors in one.errors.items():
            assert errors.superiority == found[0].claims[rule].superiority


def test_non_inferiority_gets_likelier_as_sound_completion_grows() -> None:
    plan = trial(10)[1]
    shares = []
    for points in (-20, -5, 0, 20):
        assumed = BASE.with_effects(sound=Fraction(points, 100))
        claims = study_power(plan, assumed, 200, seed=4).claims["percentile"]
        shares.append(claims.non_inferiority.value)
        assert claims.joint.value <= min(claims.superiority.value, claims.non_inferiority.value)
    assert shares == sorted(shares)
    assert shares[0] < 0.05
    assert shares[-1] > 0.5


DEPTH = {"revision_cap": ["1", "3", "5", "8"], "contract": ["OFF", "ON"]}
DEPTH_EFFECTS: list[Row] = [
    {"name": "depth", "kind": "linear", "factor": "revision_cap", "low": "1", "high": "8"},
    CONTRACT,
    {"name": "both", "kind": "interaction", "of": ["contract", "depth"]},
]


def test_every_kind_of_effect_is_planted_as_it_is_estimated() -> None:
    assumed = replace(BASE, unsafe_treated=Fraction(1, 10), sound_treated=Fraction(4, 10))
    for name in ("depth", "contract", "both"):
        open_plan = plan_dict(DEPTH, DEPTH_EFFECTS, [1, 2])
        open_plan["decision"] = open_plan["decision"] | {"effect": name}
        plan, _ = from_rows(rows(open_plan, {"a": "p", "b": "q"}, []), parse_plan(open_plan))
        layout, population = layout_of(plan), population_of(plan, assumed)
        means = [population.mean(arm) for arm in range(len(population.kinds[0].arms))]
        assert np.isclose(layout.effect([mean.unsafe for mean in means]), -0.2)
        assert np.isclose(layout.effect([mean.sound for mean in means]), 0.1)
        codes = draw(population, layout, 300, np.random.default_rng(1))
        observed = task_units(codes, layout, UNSAFE).mean() / layout.denominator
        assert abs(observed + 0.2) < 0.04
        low, high = layout.support
        units = task_units(codes, layout, UNSAFE)
        assert low <= units.min() <= units.max() <= high
