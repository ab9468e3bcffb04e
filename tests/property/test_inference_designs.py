"""Exact against Monte Carlo on random small designs, and what no relabelling may change."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.inference import (
    Bounds,
    estimate,
    exact_bounds,
    monte_carlo_bounds,
    monte_carlo_p_values,
)
from analysis.lattice import ExactMean, TaskEffects, exact_mean, exact_sign_flips
from analysis.plan import Inference
from tests.unit.analysis_support import CONTRACT, Row, analysed, plan_dict, rows

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
FEW = settings(max_examples=15, deadline=None, derandomize=True)
LEVEL = Fraction(19, 20)
DRAWS = 20_000
NAMES = {"ci_low": Fraction(1, 40), "ci_high": Fraction(39, 40)}
NAMES |= {"lower": Fraction(1, 20), "upper": Fraction(19, 20)}


def random_design(number: int) -> TaskEffects:
    """A small study: its number of tasks, seeds and the sparsity of its effects differ."""
    rng = np.random.default_rng([2026, number])
    tasks, seeds = int(rng.integers(2, 25)), int(rng.integers(1, 7))
    units = rng.integers(-seeds, seeds + 1, size=tasks) * (rng.random(tasks) < rng.random())
    return TaskEffects(tuple(int(unit) for unit in units), seeds)


def distribution(one: TaskEffects) -> ExactMean:
    """The exact distribution, which every design here has."""
    exact = exact_mean(one)
    assert exact is not None
    return exact


@pytest.mark.parametrize("number", range(100))
def test_monte_carlo_agrees_with_exact_within_its_error(number: int) -> None:
    """Five standard errors of the share of draws: F(bound) >= p - e and F(below it) <= p + e."""
    one = random_design(number)
    exact, (sampled,) = distribution(one), monte_carlo_bounds([one], LEVEL, DRAWS, seed=number)
    for name, p in NAMES.items():
        error = 5 * sqrt(p * (1 - p) / DRAWS)
        bound: Fraction = getattr(sampled, name)
        assert exact.cdf(bound) >= p - error
        assert exact.cdf(bound - one.of_sum(1) / 2) <= p + error
    flips, (share,) = exact_sign_flips(one), monte_carlo_p_values([one], DRAWS, seed=number)
    assert flips is not None
    error = 5 * sqrt(float(flips.p * (1 - flips.p)) / DRAWS) + 2 / DRAWS
    assert abs(float(share - flips.p)) <= error


@pytest.mark.parametrize("tasks", range(1, 7))
def test_whole_distribution_is_that_of_all_resamples(tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    one = TaskEffects(tuple(int(u) for u in rng.integers(-9, 10, size=tasks)), 3)
    counts = Counter(sum(picks) for picks in product(one.units, repeat=tasks))
    exact = distribution(one)
    below = 0
    for total in sorted(counts):
        assert exact.cdf(one.of_sum(total) - Fraction(1, 10**6)) == Fraction(below, tasks**tasks)
        below += counts[total]
        assert exact.cdf(one.of_sum(total)) == Fraction(below, tasks**tasks)
    assert exact.cumulative[-1] == below == tasks**tasks


@pytest.mark.parametrize("tasks", range(1, 17))
def test_sign_flip_program_is_brute_force_up_to_sixteen_tasks(tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    units = rng.integers(-12, 13, size=tasks)
    signs = 1 - 2 * ((np.arange(2**tasks)[:, None] >> np.arange(tasks)) & 1)
    extreme = int((np.abs(signs @ units) >= abs(units.sum())).sum())
    flips = exact_sign_flips(TaskEffects(tuple(int(unit) for unit in units), 12))
    assert flips is not None
    assert flips.p == Fraction(extreme, 2**tasks)


effects = st.builds(
    TaskEffects, st.lists(st.integers(-12, 12), min_size=1, max_size=12).map(tuple), st.just(12)
)


@QUICK
@given(effects, st.data())
def test_a_quantile_at_an_atom_is_the_atom(one: TaskEffects, data: st.DataObject) -> None:
    """min{x : F(x) >= p}: at p = F(x) it is x, and the least bit above is the next atom."""
    exact = distribution(one)
    total = exact.cumulative[-1]
    atoms = [
        at for at, n in enumerate(exact.cumulative) if n > (exact.cumulative[at - 1] * (at > 0))
    ]
    place = data.draw(st.integers(0, len(atoms) - 1))
    atom = one.of_sum(exact.first + exact.step * atoms[place])
    share = Fraction(exact.cumulative[atoms[place]], total)
    assert exact.cdf(atom) == share
    assert exact.quantile(share) == atom
    if place + 1 < len(atoms):
        following = one.of_sum(exact.first + exact.step * atoms[place + 1])
        assert exact.quantile(share + Fraction(1, 10**6 * total)) == following


def test_quantile_where_the_distribution_hits_the_level_exactly() -> None:
    """Two tasks, effects 0 and 1: F is 1/4, 3/4, 1, with atoms that floats would tie by chance."""
    exact = distribution(TaskEffects((0, 1), 1))
    assert [exact.quantile(Fraction(n, 4)) for n in (0, 1, 2, 3, 4)] == [
        *(Fraction(0), Fraction(0), Fraction(1, 2), Fraction(1, 2), Fraction(1)),
    ]
    assert exact.quantile(Fraction(1, 4) + Fraction(1, 10**30)) == Fraction(1, 2)


@QUICK
@given(st.lists(st.integers(-12, 0), min_size=4, max_size=24), st.integers(1, 50))
def test_a_bound_of_zero_is_exactly_zero(units: list[int], denominator: int) -> None:
    """With three of four tasks at zero, more than 5% of the resamples are zero in every task."""
    sparse = [unit if at % 4 == 0 and at < 8 else 0 for at, unit in enumerate(units)]
    one = TaskEffects(tuple(sparse), denominator)
    bounds = exact_bounds(one, LEVEL)
    share = Fraction(sum(unit == 0 for unit in sparse), len(sparse)) ** len(sparse)
    assert bounds is not None
    if share > Fraction(1, 20):
        assert bounds.upper == 0
        assert str(bounds.upper) == "0"


@QUICK
@given(effects, st.randoms(use_true_random=False))
def test_the_order_of_tasks_changes_nothing_exact(one: TaskEffects, random: Random) -> None:
    shuffled = list(one.units)
    random.shuffle(shuffled)
    other = TaskEffects(tuple(shuffled), one.denominator)
    assert exact_bounds(other, LEVEL) == exact_bounds(one, LEVEL)
    assert exact_sign_flips(other) == exact_sign_flips(one)


@QUICK
@given(effects)
def test_the_sign_mirrors_the_distribution(one: TaskEffects) -> None:
    mirrored = distribution(TaskEffects(tuple(-unit for unit in one.units), one.denominator))
    exact = distribution(one)
    for at, count in enumerate(exact.cumulative):
        x = one.of_sum(exact.first + exact.step * at)
        above = 1 - exact.cdf(x) if count < exact.cumulative[-1] else Fraction(0)
        assert mirrored.cdf(-x - one.of_sum(1) / 2) == above


@QUICK
@given(effects, st.integers(1, 9), st.integers(1, 9))
def test_bounds_scale_with_the_effects(one: TaskEffects, up: int, down: int) -> None:
    scaled = TaskEffects(tuple(unit * up for unit in one.units), one.denominator * down)
    before, after = exact_bounds(one, LEVEL), exact_bounds(scaled, LEVEL)
    assert before is not None and after is not None
    for name in Bounds.__dataclass_fields__:
        assert getattr(after, name) == getattr(before, name) * Fraction(up, down)
    assert exact_sign_flips(scaled) == exact_sign_flips(one)


@QUICK
@given(effects)
def test_bounds_are_the_quantiles_that_they_are_named_after(one: TaskEffects) -> None:
    """Two-sided at 2.5% and 97.5%, one-sided at 5% and 95%, and nested."""
    exact, bounds = distribution(one), exact_bounds(one, LEVEL)
    assert bounds is not None
    for name, p in NAMES.items():
        assert getattr(bounds, name) == exact.quantile(p)
    assert bounds.ci_low <= bounds.lower <= bounds.upper <= bounds.ci_high


@FEW
@given(st.lists(st.lists(st.integers(-6, 6), min_size=5, max_size=5), min_size=2, max_size=5))
def test_company_and_order_of_effects_change_no_draw(table: list[list[int]]) -> None:
    series = [TaskEffects(tuple(units), 6) for units in table]
    inference = Inference(bootstrap_draws=2000, sign_flip_draws=2000, seed=4)
    together = estimate(series, LEVEL, inference)
    assert estimate(series[::-1], LEVEL, inference) == together[::-1]
    assert [estimate([one], LEVEL, inference)[0] for one in series] == together


@pytest.mark.parametrize("tasks", [1, 2, 7, 11, 13, 24, 130])
def test_draws_made_of_blocks_follow_the_exact_distribution(tasks: int) -> None:
    """Whole blocks, blocks with a rest, blocks of one task: ten quantiles within their error."""
    rng = np.random.default_rng(tasks)
    one = TaskEffects(tuple(int(u) for u in rng.integers(-9, 10, size=tasks)), 1)
    exact = distribution(one)
    for p in (Fraction(n, 40) for n in range(1, 20, 2)):
        (sampled,) = monte_carlo_bounds([one], 1 - 2 * p, DRAWS, seed=3)
        assert exact.cdf(sampled.ci_low) >= p - 5 * sqrt(p / DRAWS)
        assert exact.cdf(sampled.ci_low - one.of_sum(1) / 2) <= p + 5 * sqrt(p / DRAWS)


FACTORS = {"evidence": ["current", "stale"], "contract": ["OFF", "ON"]}
outcome = st.sampled_from([None, None, True, False])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Row, list[Row]]:
    """A small study of four tasks with random outcomes."""
    plan = plan_dict(FACTORS, [CONTRACT], [1, 2])
    table = rows(plan, {f"t{at}": f"p{at % 2}" for at in range(4)}, [])
    found = draw(st.lists(outcome, min_size=len(table), max_size=len(table)))
    return plan, [
        row | {"accepted": value is not None, "resolved": value}
        for row, value in zip(table, found, strict=True)
    ]


@FEW
@given(tables())
def test_names_of_tasks_and_projects_carry_nothing(study: tuple[Row, list[Row]]) -> None:
    """Names that sort the other way round: every figure stays, exact and sampled by exact rule."""
    plan, table = study
    renamed = [
        row | {"task_id": f"x{9 - int(row['task_id'][1])}", "project": f"q-{row['project']}"}
        for row in table
    ]
    before, after = analysed(plan, table), analysed(plan, renamed)
    for one, other in zip(before.effects, after.effects, strict=True):
        assert (one.least.effect, one.least.exact) == (other.least.effect, other.least.exact)
        assert one.least.exact_p == other.least.exact_p
        assert one.project_equal == other.project_equal
        left_out = {f"q-{name}": value for name, value in one.leave_one_project_out.items()}
        assert left_out == other.leave_one_project_out


@FEW
@given(tables())
def test_swapping_the_levels_of_a_contrast_turns_its_sign(study: tuple[Row, list[Row]]) -> None:
    plan, table = study
    swap = {"OFF": "ON", "ON": "OFF"}
    swapped = [row | {"contract": swap[row["contract"]]} for row in table]
    before, after = analysed(plan, table), analysed(plan, swapped)
    for one, other in zip(before.effects, after.effects, strict=True):
        assert other.least.effect == -one.least.effect
        assert other.least.exact_p == one.least.exact_p


@FEW
@given(tables(), st.permutations([1, 2]))
def test_seeds_of_a_task_are_exchangeable(study: tuple[Row, list[Row]], order: list[int]) -> None:
    plan, table = study
    moved = [row | {"seed": order[row["seed"] - 1]} for row in table]
    assert analysed(plan, moved).effects == analysed(plan, table).effects
