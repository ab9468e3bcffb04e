"""The rules of the simulation against the analysis itself, SciPy and brute force."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta
from scipy.stats import t as student

from analysis.batch import RULES, Limits, Series, claims_less, claims_more, coverage, limits
from analysis.calibrated import bounded_lower, calibrated_bounds, weighted_below
from analysis.inference import Bounds, exact_bounds, zero_event_bound
from analysis.lattice import TaskEffects

QUICK = settings(max_examples=40, deadline=None, derandomize=True)
FEW = settings(max_examples=12, deadline=None, derandomize=True)
LEVEL = Fraction(19, 20)
SCALE = 6
NAMES = ("ci_low", "ci_high", "lower", "upper")


@st.composite
def studies(draw: st.DrawFn, least: int = 2) -> Series:
    """A few studies with equal numbers of tasks; five and ten tasks make quantiles tie."""
    tasks = draw(st.one_of(st.sampled_from([5, 10]), st.integers(least, 12)))
    effects = st.one_of(st.integers(-SCALE, SCALE), st.sampled_from([0, 0, 0, 1, -6]))
    row = st.lists(effects, min_size=tasks, max_size=tasks)
    rows = draw(st.lists(row, min_size=1, max_size=4))
    return Series(np.array(rows, dtype=np.int64), SCALE, (-SCALE, SCALE))


def effects_of(series: Series, row: int) -> TaskEffects:
    return TaskEffects(tuple(int(unit) for unit in series.units[row]), series.denominator)


def of_row(found: Limits, row: int) -> dict[str, float]:
    return {name: float(getattr(found, name)[row]) for name in NAMES}


@QUICK
@given(studies(), st.sampled_from([LEVEL, Fraction(9, 10), Fraction(4, 5)]))
def test_percentile_bounds_are_those_of_the_analysis(series: Series, level: Fraction) -> None:
    found = limits(series, "percentile", level)
    for row in range(len(series.units)):
        exact = exact_bounds(effects_of(series, row), level)
        assert exact is not None
        wanted = {name: float(getattr(exact, name)) for name in NAMES}
        assert of_row(found, row) == wanted


@QUICK
@given(studies(), st.sampled_from(RULES), st.integers(-72, 72))
def test_claims_and_coverage_follow_from_the_bounds(series: Series, rule: str, at: int) -> None:
    """Also where a bound is exactly the threshold: strict for claims, ends belong to intervals."""
    value = Fraction(at, SCALE * series.tasks)
    found, held = limits(series, rule, LEVEL), coverage(series, rule, value, LEVEL)
    less, more = (claim(series, rule, value, LEVEL) for claim in (claims_less, claims_more))
    for row in range(len(series.units)):
        bound = of_row(found, row)
        if rule == "bounded" and min(abs(x - value) for x in bound.values()) < 1e-5:
            continue  # its limits are found by halving; its claims are not
        assert less[row] == (bound["upper"] < float(value))
        assert more[row] == (bound["lower"] > float(value))
        assert held.lower[row] == (bound["lower"] <= float(value))
        assert held.upper[row] == (bound["upper"] >= float(value))
        assert held.interval[row] == (bound["ci_low"] <= float(value) <= bound["ci_high"])


@QUICK
@given(studies())
def test_student_bounds_are_scipys_within_the_support(series: Series) -> None:
    found = limits(series, "student", LEVEL)
    for row, units in enumerate(series.units / SCALE):
        bound = of_row(found, row)
        if len(set(units)) == 1:
            assert (bound["lower"], bound["upper"]) == (-1.0, 1.0), "no spread, no claim"
            continue
        error = units.std(ddof=1) / np.sqrt(len(units))
        low, high = student.interval(0.95, len(units) - 1, loc=units.mean(), scale=error)
        assert np.isclose(bound["ci_low"], max(low, -1.0))
        assert np.isclose(bound["ci_high"], min(high, 1.0))


@QUICK
@given(st.integers(1, 30), st.data())
def test_bounded_is_the_exact_binomial_bound_for_two_valued_effects(
    tasks: int, data: st.DataObject
) -> None:
    events = data.draw(st.integers(0, tasks))
    units = [1] * events + [0] * (tasks - events)
    found = calibrated_bounds(units, 1, LEVEL, support=(0, 1))
    upper = 1.0 if events == tasks else float(beta.ppf(0.95, events + 1, tasks - events))
    lower = 0.0 if events == 0 else float(beta.ppf(0.05, events, tasks - events + 1))
    assert abs(float(found.upper) - upper) < 3e-6
    assert abs(float(found.lower) - lower) < 3e-6


def test_no_effect_at_all_leaves_what_no_event_leaves() -> None:
    found = calibrated_bounds([0] * 24, SCALE, LEVEL)
    assert abs(float(found.upper) - zero_event_bound(24)) < 2e-6
    assert abs(float(found.lower) + zero_event_bound(24)) < 2e-6


@FEW
@given(studies(), st.integers(-5, 5))
def test_bounded_is_a_quantile_of_random_weights(series: Series, at: int) -> None:
    draws = 20_000
    rng = np.random.default_rng(5)
    weights = rng.dirichlet(np.ones(series.tasks + 1), draws)
    exact = weighted_below(series.units.astype(float), float(at), -SCALE)
    for row, units in enumerate(series.units):
        sampled = (weights @ np.array([-SCALE, *units]) <= at).mean()
        assert abs(exact[row] - sampled) < 5 * 0.5 / np.sqrt(draws)


@QUICK
@given(studies())
def test_bounded_bounds_hold_the_mean_and_are_rounded_outwards(series: Series) -> None:
    for row, units in enumerate(series.units):
        effects = effects_of(series, row)
        found = calibrated_bounds(effects.units, SCALE, LEVEL)
        assert (
            -1 <= found.ci_low <= found.lower <= effects.mean <= found.upper <= found.ci_high <= 1
        )
        finer = bounded_lower(units[None, :].astype(float), np.array([0.05]), -SCALE, SCALE)
        assert float(found.lower) <= finer[0] / SCALE
        mirrored = calibrated_bounds([-unit for unit in effects.units], SCALE, LEVEL)
        assert mirrored == Bounds(-found.ci_high, -found.ci_low, -found.upper, -found.lower)


@QUICK
@given(st.integers(-SCALE, SCALE), st.integers(1, 3))
def test_one_task_supports_no_claim(effect: int, rows: int) -> None:
    series = Series(np.full((rows, 1), effect), SCALE, (-SCALE, SCALE))
    for rule in RULES:
        assert not claims_less(series, rule, Fraction(1), LEVEL).any()
        assert not claims_more(series, rule, Fraction(-1), LEVEL).any()
