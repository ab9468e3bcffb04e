"""Exact bootstrap of 24 tasks x 2 endpoints against scipy's percentile bootstrap: prints the ratio.

Run ``python tests/bench/bench_inference.py``. One run each, 200,000 draws for scipy, the same
effects; the bounds are printed side by side, so that the comparison is of like with like.
"""

from fractions import Fraction
from time import perf_counter

import numpy as np
from scipy.stats import bootstrap

from analysis.inference import exact_bounds, monte_carlo_bounds
from analysis.lattice import TaskEffects

DRAWS = 200_000
LEVEL = Fraction(19, 20)


def endpoints() -> list[TaskEffects]:
    """Two endpoints of 24 tasks: effects on a grid of twelfths, a third of them zero."""
    rng = np.random.default_rng(5)
    drawn = rng.integers(-6, 7, size=(2, 24)) * (rng.random((2, 24)) < 0.67)
    return [TaskEffects(tuple(int(unit) for unit in row), 12) for row in drawn]


def main() -> None:
    """Time the three ways and print them."""
    series = endpoints()
    start = perf_counter()
    exact = [exact_bounds(effects, LEVEL) for effects in series]
    seconds = {"exact": perf_counter() - start}
    start = perf_counter()
    monte_carlo_bounds(series, LEVEL, DRAWS, seed=5)
    seconds["own draws"] = perf_counter() - start
    start = perf_counter()
    intervals = [scipy_interval(effects) for effects in series]
    seconds["scipy.stats.bootstrap"] = perf_counter() - start
    for bounds, (low, high) in zip(exact, intervals, strict=True):
        assert bounds is not None
        print(
            f"95% CI exact [{float(bounds.ci_low):+.4f}, {float(bounds.ci_high):+.4f}]  "
            f"scipy [{low:+.4f}, {high:+.4f}]"
        )
    for name, taken in seconds.items():
        print(f"{name}: {1000 * taken:.1f} ms, {taken / seconds['exact']:.0f} x exact")


def scipy_interval(effects: TaskEffects) -> tuple[float, float]:
    """95% percentile interval of the mean by scipy."""
    values = np.array(effects.units) / effects.denominator
    result = bootstrap(
        (values,), np.mean, n_resamples=DRAWS, method="percentile", random_state=5, batch=20_000
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


if __name__ == "__main__":
    main()
