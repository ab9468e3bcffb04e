"""Exact inference against brute force, Monte Carlo against exact, and rules that always hold."""

from fractions import Fraction
from itertools import product
from math import sqrt
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.decision import analyze
from analysis.estimands import cell_weights, endpoint_cube, task_effects
from analysis.external import from_rows
from analysis.inference import (
    exact_bounds,
    monte_carlo_bounds,
    monte_carlo_p_values,
    non_inferior,
    superior,
)
from analysis.lattice import TaskEffects, exact_mean, exact_sign_flips
from analysis.plan import parse_plan
from tests.unit.analysis_support import CONTRACT, Row, analysed, plan_dict, rows

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
FEW = settings(max_examples=15, deadline=None, derandomize=True)
LEVEL = Fraction(19, 20)
PROBABILITIES = [Fraction(n, 40) for n in (0, 1, 2, 13, 20, 38, 39, 40)]
DRAWS = 20_000


def effects(low: int, high: int) -> st.SearchStrategy[TaskEffects]:
    units = st.lists(st.integers(-12, 12), min_size=low, max_size=high).map(tuple)
    return st.builds(TaskEffects, units, st.integers(1, 12))


@QUICK
@given(effects(1, 5))
def test_exact_quantiles_are_those_of_all_resamples(one: TaskEffects) -> None:
    tasks = len(one.units)
    means = sorted(one.of_sum(sum(picks)) for picks in product(one.units, repeat=tasks))
    exact = exact_mean(one)
    assert exact is not None
    for p in PROBABILITIES:
        smallest = next(
            x for at, x in enumerate(means, 1) if Fraction(at, len(means)) >= p
        )  # min{x : F(x) >= p}: the first place at which the share of resamples reaches p
        assert exact.quantile(p) == smallest
    for x in set(means):
        assert exact.cdf(x) == Fraction(sum(mean <= x for mean in means), len(means))


@QUICK
@given(effects(1, 10))
def test_sign_flip_program_is_brute_force(one: TaskEffects) -> None:
    observed = abs(sum(one.units))
    signs = list(product((-1, 1), repeat=len(one.units)))
    extreme = sum(
        abs(sum(s * u for s, u in zip(pattern, one.units, strict=True))) >= observed
        for pattern in signs
    )
    flips = exact_sign_flips(one)
    assert flips is not None
    assert flips.p == Fraction(extreme, len(signs))
    assert flips.patterns == 2**one.nonzero


@FEW
@given(effects(3, 12))
def test_monte_carlo_bounds_agree_with_exact_within_error(one: TaskEffects) -> None:
    exact = exact_mean(one)
    assert exact is not None
    (sampled,) = monte_carlo_bounds([one], LEVEL, DRAWS, seed=3)
    half_unit = one.of_sum(1) / 2
    for p, x in (
        (Fraction(1, 40), sampled.ci_low),
        (Fraction(39, 40), sampled.ci_high),
        (Fraction(1, 20), sampled.lower),
        (Fraction(19, 20), sampled.upper),
    ):
        error = 5 * sqrt(p * (1 - p) / DRAWS)
        assert exact.cdf(x) >= p - error
        assert exact.cdf(x - half_unit) <= p + error


@FEW
@given(effects(2, 12))
def test_monte_carlo_sign_flips_agree_with_exact_within_error(one: TaskEffects) -> None:
    flips = exact_sign_flips(one)
    (sampled,) = monte_carlo_p_values([one], DRAWS, seed=3)
    assert flips is not None
    p = float(flips.p)
    assert abs(float(sampled) - p) <= 5 * sqrt(p * (1 - p) / DRAWS) + 2 / DRAWS


@QUICK
@given(effects(1, 12), st.integers(1, 5))
def test_bounds_do_not_depend_on_how_the_unit_is_written(one: TaskEffects, factor: int) -> None:
    finer = TaskEffects(tuple(unit * factor for unit in one.units), one.denominator * factor)
    assert exact_bounds(one, LEVEL) == exact_bounds(finer, LEVEL)
    mirrored = TaskEffects(tuple(-unit for unit in one.units), one.denominator)
    assert exact_sign_flips(mirrored) == exact_sign_flips(one)


@QUICK
@given(effects(1, 12))
def test_superiority_needs_a_bound_beyond_zero(one: TaskEffects) -> None:
    bounds = exact_bounds(one, LEVEL)
    assert bounds is not None
    shares = sum(unit < 0 for unit in one.units) / len(one.units)
    if superior(bounds.upper, Fraction(0)):
        # a draw of tasks without any negative effect must be rarer than 5%
        assert (1 - shares) ** len(one.units) <= 1 - LEVEL
    assert not superior(Fraction(0), Fraction(0))
    assert not non_inferior(Fraction(-1, 20), Fraction(-1, 20))


CELLS = {"revision_cap": ["1", "3", "5", "8"], "contract": ["OFF", "ON"]}
DEPTH: list[Row] = [
    {"name": "depth", "kind": "linear", "factor": "revision_cap", "low": "1", "high": "8"},
    CONTRACT,
    {"name": "both", "kind": "interaction", "of": ["contract", "depth"]},
]
outcome = st.sampled_from([None, None, True, False])


@st.composite
def depth_tables(draw: st.DrawFn, seeds: int = 2, tasks: int = 3) -> tuple[Row, list[Row]]:
    """A depth study with random outcomes: (accepted, resolved) per rollout."""
    plan = plan_dict(CELLS, DEPTH, range(seeds))
    table = rows(plan, {f"t{at}": f"p{at % 2}" for at in range(tasks)}, [])
    sound = draw(st.lists(outcome, min_size=len(table), max_size=len(table)))
    return plan, [
        row | {"accepted": value is not None, "resolved": value}
        for row, value in zip(table, sound, strict=True)
    ]


def fitted_change(table: list[Row], task: str, contract: set[str]) -> float:
    """Fitted cap-1 -> cap-8 change of sound completion by numpy's own least squares."""
    mine = [r for r in table if r["task_id"] == task and r["contract"] in contract]
    caps = np.array([float(row["revision_cap"]) for row in mine])
    sound = np.array([float(row["resolved"] is True) for row in mine])
    return float(np.polyfit(caps, sound, 1)[0] * 7)


@FEW
@given(depth_tables())
def test_linear_effect_is_the_least_squares_line_of_each_task(study: tuple[Row, list[Row]]) -> None:
    plan, table = study
    analysis = analysed(plan, table)
    tasks = sorted({row["task_id"] for row in table})
    slopes = [fitted_change(table, task, {"OFF", "ON"}) for task in tasks]
    apart = [
        fitted_change(table, task, {"ON"}) - fitted_change(table, task, {"OFF"}) for task in tasks
    ]
    assert abs(float(analysis.effect("depth", "sound").least.effect) - np.mean(slopes)) < 1e-9
    assert abs(float(analysis.effect("both", "sound").least.effect) - np.mean(apart)) < 1e-9


@FEW
@given(depth_tables(), st.randoms(use_true_random=False))
def test_order_of_rows_changes_nothing(study: tuple[Row, list[Row]], random: Random) -> None:
    plan, table = study
    shuffled = list(table)
    random.shuffle(shuffled)
    assert analysed(plan, table).to_json() == analysed(plan, shuffled).to_json()


@FEW
@given(depth_tables(), st.data())
def test_no_assignment_of_missing_outcomes_is_worse_than_the_worst_case(
    study: tuple[Row, list[Row]], data: st.DataObject
) -> None:
    plan, table = study
    lost = data.draw(st.sets(st.integers(0, len(table) - 1), min_size=1, max_size=5))
    gone = {"accepted": None, "resolved": None, "settled_as": "infrastructure"}
    holed = [row | gone if at in lost else row for at, row in enumerate(table)]
    result = analyze(*from_rows(holed, parse_plan(plan)))
    filled = {at: data.draw(outcome) for at in lost}
    whole = [
        row | {"accepted": filled[at] is not None, "resolved": filled[at]} if at in lost else row
        for at, row in enumerate(table)
    ]
    assert result.coverage.owed["infrastructure"] == len(lost)
    for one in analysed(plan, whole).effects:
        holed_one = result.effect(one.effect, one.endpoint)
        least, greatest = holed_one.least, holed_one.greatest
        assert least.effect <= one.least.effect <= greatest.effect
        assert least.bounds.lower <= one.least.bounds.lower
        assert greatest.bounds.upper >= one.least.bounds.upper
        assert (holed_one.p is None) == bool(holed_one.missing)


@FEW
@given(depth_tables())
def test_arms_that_end_alike_are_never_superior(study: tuple[Row, list[Row]]) -> None:
    plan, table = study
    plan |= {"decision": plan["decision"] | {"effect": "contract"}}
    off = {(r["task_id"], r["seed"], r["revision_cap"]): r for r in table if r["contract"] == "OFF"}
    same = [
        off[row["task_id"], row["seed"], row["revision_cap"]] | {"contract": row["contract"]}
        for row in table
    ]
    verdict = analysed(plan, same).decision.verdict
    assert verdict.unsafe_upper == 0
    assert not verdict.superiority
    assert not verdict.joint


@FEW
@given(depth_tables())
def test_sound_and_unsafe_effects_add_up_to_accepted(study: tuple[Row, list[Row]]) -> None:
    plan, outcomes = from_rows(study[1], parse_plan(study[0]))
    for name in ("depth", "contract", "both"):
        weights = cell_weights(plan, name)
        parts = {
            endpoint: task_effects(endpoint_cube(plan, outcomes, endpoint), weights).units
            for endpoint in ("accepted", "unsafe", "sound")
        }
        added = tuple(u + s for u, s in zip(parts["unsafe"], parts["sound"], strict=True))
        assert added == parts["accepted"]
