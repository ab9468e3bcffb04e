"""Bounds, p-values and decisions for task-equal effects; the task is the only unit of resampling.

Comes in: :class:`~analysis.lattice.TaskEffects`. Goes out: percentile bounds and sign-flip
p-values, exact and by seeded Monte Carlo side by side. Where the exact value exists it decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from analysis.lattice import EXACT_FLOATS, TaskEffects, exact_mean, exact_sign_flips
from analysis.plan import Inference

Floats = NDArray[np.float64]
CHUNK = 2_000
"""Draws at a time: small enough for the processor's cache (three times as fast as 20,000)."""
BOOTSTRAP_STREAM, SIGN_STREAM = 1, 2


@dataclass(frozen=True)
class Bounds:
    """Percentile bounds: two-sided interval and the two one-sided bounds, all at one level."""

    ci_low: Fraction
    ci_high: Fraction
    lower: Fraction
    upper: Fraction


@dataclass(frozen=True)
class Estimate:
    """One task-equal effect. ``exact`` is None only where the lattice is too large."""

    effect: Fraction
    exact: Bounds | None
    monte_carlo: Bounds
    exact_p: Fraction | None
    monte_carlo_p: Fraction
    nonzero_tasks: int

    @property
    def bounds(self) -> Bounds:
        """The bounds that decide."""
        return self.exact or self.monte_carlo

    @property
    def p(self) -> Fraction:
        """The sign-flip p-value that decides."""
        return self.monte_carlo_p if self.exact_p is None else self.exact_p


def estimate(
    series: Sequence[TaskEffects], level: Fraction, inference: Inference
) -> list[Estimate]:
    """Estimates of several effects over the same T tasks, in order.

    All effects share the same resampled tasks and the same flips (one seed, two streams), so that
    the order and the number of the effects change no value. Equal series are computed once.
    """
    distinct = list(dict.fromkeys(series))
    sampled = monte_carlo_bounds(distinct, level, inference.bootstrap_draws, inference.seed)
    flipped = monte_carlo_p_values(distinct, inference.sign_flip_draws, inference.seed)
    made: dict[TaskEffects, Estimate] = {}
    for effects, bounds, p_value in zip(distinct, sampled, flipped, strict=True):
        flips = exact_sign_flips(effects)
        made[effects] = Estimate(
            effect=effects.mean,
            exact=exact_bounds(effects, level),
            monte_carlo=bounds,
            exact_p=None if flips is None else flips.p,
            monte_carlo_p=p_value,
            nonzero_tasks=effects.nonzero,
        )
    return [made[effects] for effects in series]


def exact_bounds(effects: TaskEffects, level: Fraction) -> Bounds | None:
    """Percentile bounds of the exact bootstrap distribution, or None (see ``lattice.MAX_BITS``)."""
    exact = exact_mean(effects)
    return None if exact is None else Bounds(*(exact.quantile(p) for p in _probabilities(level)))


def monte_carlo_bounds(
    series: Sequence[TaskEffects], level: Fraction, draws: int, seed: int
) -> list[Bounds]:
    """Task-cluster percentile bootstrap, vectorised over draws and effects.

    Quantile: min{x : F(x) >= p} of the draws. Memory: draws x effects doubles.
    """
    if not series:
        return []
    units = _matrix(series)
    rng = np.random.default_rng([seed, BOOTSTRAP_STREAM])
    sums = np.concatenate([_resampled(rng, n, len(units)) @ units for n in _chunks(draws)])
    places = [max(1, ceil(p * draws)) - 1 for p in _probabilities(level)]
    ordered = np.partition(sums, sorted(set(places)), axis=0)
    return [
        Bounds(*(effects.of_sum(int(ordered[place, column])) for place in places))
        for column, effects in enumerate(series)
    ]


def monte_carlo_p_values(series: Sequence[TaskEffects], draws: int, seed: int) -> list[Fraction]:
    """Two-sided sign-flip p-values, (1 + extreme flips) / (1 + draws), vectorised.

    Counting the observed pattern keeps the test valid (Phipson and Smyth 2010).
    """
    if not series:
        return []
    units = _matrix(series)
    observed = np.abs(units.sum(axis=0))
    rng = np.random.default_rng([seed, SIGN_STREAM])
    extreme = np.zeros(len(series), dtype=np.int64)
    for size in _chunks(draws):
        signs = rng.integers(0, 2, size=(size, len(units)), dtype=np.int8) * 2.0 - 1.0
        extreme += (np.abs(signs @ units) >= observed).sum(axis=0)
    return [Fraction(1 + int(count), 1 + draws) for count in extreme]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values, in order (statsmodels)."""
    from statsmodels.stats.multitest import multipletests

    if not p_values:
        return []
    return [float(p) for p in multipletests(list(p_values), method="holm")[1]]


def superior(upper: Fraction, below: Fraction) -> bool:
    """Strict: an upper bound of exactly the threshold (0 against 0) is no superiority."""
    return upper < below


def non_inferior(lower: Fraction, above: Fraction) -> bool:
    """Strict: a lower bound of exactly the margin is no non-inferiority."""
    return lower > above


def zero_event_bound(tasks: int, level: float = 0.95) -> float:
    """One-sided upper bound of a rate after no event in ``tasks`` clusters: 1 - (1 - level)^(1/n).

    >>> round(zero_event_bound(30), 3)
    0.095
    """
    if tasks < 1:
        raise ValueError("at least one task cluster is needed")
    return float(1.0 - (1.0 - level) ** (1.0 / tasks))


def _probabilities(level: Fraction) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    half = (1 - level) / 2
    return half, 1 - half, 1 - level, level


def _matrix(series: Sequence[TaskEffects]) -> Floats:
    """Units as a T x K matrix of doubles; refuses units whose sums would not be exact."""
    for effects in series:
        if len(effects.units) * max(abs(unit) for unit in effects.units) >= EXACT_FLOATS:
            raise ValueError("effects have too fine a common unit for double precision")
    return np.array([effects.units for effects in series], dtype=np.float64).T


def _chunks(draws: int) -> Iterator[int]:
    for start in range(0, draws, CHUNK):
        yield min(CHUNK, draws - start)


def _resampled(rng: np.random.Generator, draws: int, tasks: int) -> Floats:
    """How often each task is drawn: draws x tasks."""
    picks = rng.integers(0, tasks, size=(draws, tasks), dtype=np.int32)
    picks += (np.arange(draws, dtype=np.int32) * tasks)[:, None]  # one range of places per draw
    counts = np.bincount(picks.ravel(), minlength=draws * tasks).reshape(draws, tasks)
    return counts.astype(np.float64)
