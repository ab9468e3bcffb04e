"""Exact bootstrap and seeded draws of 24 tasks x 2 endpoints against scipy's percentile bootstrap.

Run ``python tests/bench/bench_inference.py``. The same effects for all, 200,000 draws for both
ways of drawing, scipy at the fastest of three batch sizes; processor time, best of five. Bounds are
printed side by side, so that the comparison is of like with like.
"""

from collections.abc import Callable
from fractions import Fraction
from time import process_time

import numpy as np
from scipy.stats import bootstrap

from analysis.inference import exact_bounds, monte_carlo_bounds
from analysis.lattice import TaskEffects

DRAWS = 200_000
LEVEL = Fraction(19, 20)
BATCHES = (2_000, 20_000, 200_000)
REPEATS = 5


def endpoints() -> list[TaskEffects]:
    """Two endpoints of 24 tasks: effects on a grid of twelfths, a third of them zero."""
    rng = np.random.default_rng(5)
    drawn = rng.integers(-6, 7, size=(2, 24)) * (rng.random((2, 24)) < 0.67)
    return [TaskEffects(tuple(int(unit) for unit in row), 12) for row in drawn]


def scipy_interval(effects: TaskEffects, batch: int) -> tuple[float, float]:
    """95% percentile interval of the mean by scipy."""
    values = np.array(effects.units) / effects.denominator
    result = bootstrap(
        (values,), np.mean, n_resamples=DRAWS, method="percentile", random_state=5, batch=batch
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def best(work: Callable[[], object]) -> float:
    """Seconds of processor time, best of a few."""
    taken = []
    for _ in range(REPEATS):
        start = process_time()
        work()
        taken.append(process_time() - start)
    return min(taken)


def main() -> None:
    """Print the bounds and the ratios."""
    series = endpoints()
    for effects in series:
        exact, (sampled,) = (
            exact_bounds(effects, LEVEL),
            monte_carlo_bounds([effects], LEVEL, DRAWS, 5),
        )
        assert exact is not None
        pairs = {
            "exact": (exact.ci_low, exact.ci_high),
            "own draws": (sampled.ci_low, sampled.ci_high),
            "scipy": scipy_interval(effects, BATCHES[1]),
        }
        shown = (f"{name} [{float(a):+.4f}, {float(b):+.4f}]" for name, (a, b) in pairs.items())
        print("95% CI", "  ".join(shown))
    exact_s = best(lambda: [exact_bounds(effects, LEVEL) for effects in series])
    own_s = best(lambda: monte_carlo_bounds(series, LEVEL, DRAWS, seed=5))
    scipy_s = min(
        best(lambda batch=batch: [scipy_interval(effects, batch) for effects in series])  # type: ignore[misc]
        for batch in BATCHES
    )
    print(f"exact distribution: {1000 * exact_s:.2f} ms; scipy takes {scipy_s / exact_s:.0f} x")
    print(f"own draws: {1000 * own_s:.1f} ms, {own_s / scipy_s:.3f} x scipy")
    print(f"scipy.stats.bootstrap: {1000 * scipy_s:.1f} ms")


if __name__ == "__main__":
    main()
