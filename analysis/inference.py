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

Integers = NDArray[np.int64]
BOOTSTRAP_STREAM, SIGN_STREAM = 1, 2
TABLE = 2**14
"""Most entries of a table of block sums: 128 KiB, so that it stays in the processor's cache."""
BATCH = 10_000
"""Draws at a time."""
DRAW_SCHEME = "blocks@2"
"""Version of how seeded draws are made (:func:`_blocks`); another scheme gives other draws."""


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

    Quantile: min{x : F(x) >= p} of the draws. Memory: draws x effects integers of 8 bytes.
    """
    if not series:
        return []
    units = _matrix(series)
    tasks = units.shape[1]
    size, count, rest = _blocks(tasks, tasks)
    tables = [_sums(units, size)] * count + ([_sums(units, rest)] if rest else [])
    rng = np.random.default_rng([seed, BOOTSTRAP_STREAM])
    sums = np.concatenate(list(_drawn(rng, tables, draws)), axis=1)
    places = [max(1, ceil(p * draws)) - 1 for p in _probabilities(level)]
    sums.partition(sorted(set(places)), axis=1)
    return [
        Bounds(*(effects.of_sum(int(row[place])) for place in places))
        for row, effects in zip(sums, series, strict=True)
    ]


def monte_carlo_p_values(series: Sequence[TaskEffects], draws: int, seed: int) -> list[Fraction]:
    """Two-sided sign-flip p-values, (1 + extreme flips) / (1 + draws), vectorised.

    Counting the observed pattern keeps the test valid (Phipson and Smyth 2010).
    """
    if not series:
        return []
    units = _matrix(series)
    size, _, _ = _blocks(units.shape[1], 2)
    tables = [_flips(units[:, at : at + size]) for at in range(0, units.shape[1], size)]
    observed = np.abs(units.sum(axis=1, keepdims=True))
    rng = np.random.default_rng([seed, SIGN_STREAM])
    extreme = np.zeros(len(series), dtype=np.int64)
    for sums in _drawn(rng, tables, draws):
        extreme += (np.abs(sums) >= observed).sum(axis=1)
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


def _matrix(series: Sequence[TaskEffects]) -> Integers:
    """Units as a K x T matrix; refuses units whose sums could leave the machine's integers."""
    for effects in series:
        if len(effects.units) * max(abs(unit) for unit in effects.units) >= EXACT_FLOATS:
            raise ValueError("effects have too fine a common unit for machine integers")
    return np.array([effects.units for effects in series], dtype=np.int64)


def _blocks(tasks: int, choices: int) -> tuple[int, int, int]:
    """Size b of a block, number of whole blocks and size of the rest, for ``tasks`` places.

    A draw fills T places with one of ``choices`` each (a task, or a sign). One random number below
    choices^b fills b places at once, and a table of choices^b sums says what they add up to: the
    same distribution as T single choices, with a b-th of the random numbers and of the additions.
    """
    size = 1
    while size < tasks and choices ** (size + 1) <= TABLE:
        size += 1
    return size, tasks // size, tasks % size


def _sums(units: Integers, size: int) -> Integers:
    """Sums of every ordered choice of ``size`` tasks: K x T^size."""
    table = np.zeros((len(units), 1), dtype=np.int64)
    for _ in range(size):
        table = (table[:, :, None] + units[:, None, :]).reshape(len(units), -1)
    return table


def _flips(units: Integers) -> Integers:
    """Sums of a block's effects under every pattern of signs: K x 2^(tasks of the block)."""
    table = np.zeros((len(units), 1), dtype=np.int64)
    for unit in units.T[:, :, None]:
        table = np.concatenate([table + unit, table - unit], axis=1)
    return table


def _drawn(rng: np.random.Generator, tables: Sequence[Integers], draws: int) -> Iterator[Integers]:
    """Sums of ``draws`` draws in batches of K x n: per draw one random entry of each table."""
    for start in range(0, draws, BATCH):
        size = min(BATCH, draws - start)
        sums = np.zeros((len(tables[0]), size), dtype=np.int64)
        for table in tables:
            picks = rng.integers(0, table.shape[1], size=size)
            for at, values in enumerate(table):
                sums[at] += values.take(picks, mode="clip")  # never clips; skips a check
        yield sums
