"""Exact inference for the mean of T task effects that are whole numbers of one unit.

The bootstrap distribution of the mean of T independent draws from T effects is the T-th convolution
power of the effects' counts; the sign-flip distribution is a product of two-term polynomials. Both
are computed in integers: polynomials are packed into one Python integer (Kronecker substitution),
so that a power or a product is one big-integer operation and a bound of zero is exactly zero.
"""

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil, gcd

MAX_BITS = 8_000_000
"""Largest packed polynomial (about 0.5 s); beyond it only Monte Carlo is reported."""

EXACT_FLOATS = 2**53
"""Sums of units below this are exact in double precision, so that Monte Carlo sees ties as ties."""


@dataclass(frozen=True)
class TaskEffects:
    """Effects of T >= 1 tasks: ``units[i] / denominator`` is a difference of probabilities."""

    units: tuple[int, ...]
    denominator: int

    @property
    def mean(self) -> Fraction:
        """Task-equal effect."""
        return Fraction(sum(self.units), len(self.units) * self.denominator)

    @property
    def nonzero(self) -> int:
        """Tasks with an effect other than zero: those that inform a sign flip."""
        return sum(unit != 0 for unit in self.units)

    def of_sum(self, units: int) -> Fraction:
        """The mean that a sum of T effects, in units, stands for."""
        return Fraction(units, len(self.units) * self.denominator)


@dataclass(frozen=True)
class ExactMean:
    """Distribution of the sum of T resampled effects: sums first, first + step, ...

    ``cumulative[k]``: number of the ``T**T`` equally likely resamples with at most the k-th sum.
    """

    effects: TaskEffects
    first: int
    step: int
    cumulative: tuple[int, ...]

    def quantile(self, probability: Fraction) -> Fraction:
        """min{x : F(x) >= p} of the mean (the definition called *inverted_cdf*), exactly."""
        needed = max(1, ceil(probability * self.cumulative[-1]))
        return self.effects.of_sum(self.first + self.step * bisect_left(self.cumulative, needed))

    def cdf(self, value: Fraction) -> Fraction:
        """F(x): share of resamples whose mean is at most ``value``."""
        total = value * len(self.effects.units) * self.effects.denominator
        below = (total - self.first) // self.step
        if below < 0:
            return Fraction(0)
        index = min(int(below), len(self.cumulative) - 1)
        return Fraction(self.cumulative[index], self.cumulative[-1])


@dataclass(frozen=True)
class SignFlips:
    """``count`` of ``patterns`` sign patterns over the nonzero tasks are at least as extreme."""

    count: int
    patterns: int

    @property
    def p(self) -> Fraction:
        """Exact two-sided p-value."""
        return Fraction(self.count, self.patterns)


def exact_mean(effects: TaskEffects) -> ExactMean | None:
    """Exact bootstrap distribution of the mean; None where the lattice exceeds ``MAX_BITS``.

    >>> exact_mean(TaskEffects((0, 1), 1)).quantile(Fraction(1, 2))
    Fraction(1, 2)
    """
    tasks = len(effects.units)
    low = min(effects.units)
    step = gcd(*(unit - low for unit in effects.units)) or 1
    places = [(unit - low) // step for unit in effects.units]
    width = ((tasks**tasks).bit_length() + 7) // 8
    length = tasks * max(places) + 1
    if width * 8 * length > MAX_BITS:
        return None
    packed: int = sum(1 << (8 * width * place) for place in places) ** tasks
    counts = _unpack(packed, width, length)
    return ExactMean(effects, tasks * low, step, tuple(accumulate(counts)))


def exact_sign_flips(effects: TaskEffects) -> SignFlips | None:
    """Two-sided sign-flip test of the mean, exactly; None where the lattice exceeds ``MAX_BITS``.

    With A = sum |u| and P the sum of the terms that get a plus, the flipped sum is 2P - A, so that
    |sum| >= |observed| holds in two equal tails of the subset sums P.

    >>> exact_sign_flips(TaskEffects((8, 4, 4, 2, 0), 12)).p
    Fraction(1, 8)
    """
    sizes = [abs(unit) for unit in effects.units if unit]
    patterns = 2 ** len(sizes)
    observed = abs(sum(effects.units))
    if observed == 0:
        return SignFlips(patterns, patterns)
    step = gcd(*sizes)
    total = sum(sizes) // step
    width = (len(sizes) + 8) // 8
    if width * 8 * (total + 1) > MAX_BITS:
        return None
    packed = 1
    for size in sizes:
        packed += packed << (8 * width * (size // step))
    tail = (total + observed // step) // 2
    return SignFlips(2 * sum(_unpack(packed, width, total + 1)[tail:]), patterns)


def _unpack(packed: int, width: int, length: int) -> list[int]:
    """Coefficients of a packed polynomial: ``length`` slots of ``width`` bytes, lowest first."""
    data = packed.to_bytes(width * length, "little")
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]
