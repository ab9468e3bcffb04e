"""The decision rules applied to many studies at once: percentile, and its two alternatives.

Comes in: task effects of R studies x T tasks in one unit. Goes out: per study whether each claim is
made, whether bounds cover a true effect, and how wide intervals are. The percentile rule is the
exact bootstrap of :mod:`analysis.inference`, by fast Fourier transform instead of big integers; a
quantile that rounding could move is computed again in integers, so that both always agree.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from analysis.calibrated import bounded_lower, student_bound, weighted_below
from analysis.errors import AnalysisError
from analysis.lattice import TaskEffects, exact_mean
from analysis.simulate import Units

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
RULES = ("percentile", "student", "bounded")
"""The preregistered rule first."""
DOUBT = 1e-9
"""A cumulative probability this near to a quantile's is decided in integers."""
CELLS = 2_000_000
"""Cells of one transform; also how fine a lattice may be."""
LEAST_CLUSTERS = 2
"""As in :mod:`analysis.decision`: fewer tasks support no claim."""


@dataclass(frozen=True)
class Series:
    """Task effects of many studies on one endpoint. ``support``: least and greatest, in units."""

    units: Units
    denominator: int
    support: tuple[int, int]

    @property
    def tasks(self) -> int:
        """Tasks of each study."""
        return int(self.units.shape[1])

    def distinct(self) -> tuple["Series", NDArray[np.intp]]:
        """The distinct multisets of effects, and for every study which one it has."""
        ordered = np.sort(self.units, axis=1)
        rows, back = np.unique(ordered, axis=0, return_inverse=True)
        return Series(rows, self.denominator, self.support), back.reshape(-1)


@dataclass(frozen=True)
class Limits:
    """Bounds of many studies as differences of rates: two-sided interval and one-sided bounds."""

    ci_low: Floats
    ci_high: Floats
    lower: Floats
    upper: Floats

    @property
    def width(self) -> Floats:
        """Width of the two-sided interval."""
        return self.ci_high - self.ci_low


@dataclass(frozen=True)
class Covered:
    """Per study, whether interval and one-sided bounds hold the true effect."""

    interval: Flags
    lower: Flags
    upper: Flags


def claims_less(series: Series, rule: str, below: Fraction, level: Fraction) -> Flags:
    """Superiority, per study: is the one-sided upper bound below the threshold? Strictly."""
    return _claims(series, rule, level, below)


def claims_more(series: Series, rule: str, above: Fraction, level: Fraction) -> Flags:
    """Non-inferiority, per study: is the one-sided lower bound above the threshold? Strictly."""
    return _claims(series, rule, 1 - level, above)


def coverage(series: Series, rule: str, truth: Fraction, level: Fraction) -> Covered:
    """Per study: does the true effect lie within the bounds? Ends belong to them."""
    rows, back = series.distinct()
    half = (1 - level) / 2
    low, high, lower, upper = (
        ~_BEYOND[rule](rows, p, truth)[back] for p in (half, 1 - half, 1 - level, level)
    )
    return Covered(low & high, lower, upper)


def limits(series: Series, rule: str, level: Fraction) -> Limits:
    """The bounds themselves, per study."""
    rows, back = series.distinct()
    half = (1 - level) / 2
    probabilities = (half, 1 - half, 1 - level, level)
    low, high, lower, upper = (_LIMIT[rule](rows, p)[back] for p in probabilities)
    return Limits(low, high, lower, upper)


def quantile_sums(series: Series, probabilities: tuple[Fraction, ...]) -> Units:
    """Quantiles of the exact bootstrap sum, in units: R x probabilities; min{x : F(x) >= p}.

    Raises ``AnalysisError`` where the effects lie on too fine a lattice.
    """
    units = series.units
    low = int(units.min())
    step = int(np.gcd.reduce(units.ravel() - low)) or 1
    places = (units - low) // step
    length = series.tasks * int(places.max()) + 1
    if length > CELLS:
        problem = "the effect's unit is too fine to simulate its exact bootstrap"
        raise AnalysisError("plan", "effects", problem, "Use rounder levels.")
    size = max(1, CELLS // length)
    parts = [
        _quantiles(places[start : start + size], length, probabilities)
        for start in range(0, len(units), size)
    ]
    found = [np.concatenate(column) for column in zip(*parts, strict=True)]
    sums = low * series.tasks + step * found[0]
    for row in np.flatnonzero(found[1]):
        sums[row] = _in_integers(series, int(row), probabilities)
    return sums


def _claims(series: Series, rule: str, p: Fraction, at: Fraction) -> Flags:
    if series.tasks < LEAST_CLUSTERS:
        return np.zeros(len(series.units), dtype=np.bool_)
    rows, back = series.distinct()
    return _BEYOND[rule](rows, p, at)[back]


# Bounds are named by their probability p: lower bounds where p < 1/2, upper bounds where p > 1/2.
# Beyond: a lower bound above, or an upper bound below, the value.


def _percentile_limit(rows: Series, p: Fraction) -> Floats:
    return quantile_sums(rows, (p,))[:, 0] / (rows.denominator * rows.tasks)


def _percentile_beyond(rows: Series, p: Fraction, at: Fraction) -> Flags:
    sums = quantile_sums(rows, (p,))[:, 0] * at.denominator
    value = at.numerator * rows.denominator * rows.tasks
    return np.asarray(sums > value if 2 * p < 1 else sums < value)


def _student_limit(rows: Series, p: Fraction) -> Floats:
    units = rows.units.astype(np.float64)
    return student_bound(units, *rows.support, float(p)) / rows.denominator


def _student_beyond(rows: Series, p: Fraction, at: Fraction) -> Flags:
    bound = _student_limit(rows, p)
    return np.asarray(bound > float(at) if 2 * p < 1 else bound < float(at))


def _mirrored(rows: Series, p: Fraction) -> tuple[Floats, int, tuple[int, int], float]:
    """Effects, sign, support and error with which an upper bound becomes a lower one."""
    units, (low, high) = rows.units.astype(np.float64), rows.support
    if 2 * p < 1:
        return units, 1, (low, high), float(p)
    return -units, -1, (-high, -low), float(1 - p)


def _bounded_limit(rows: Series, p: Fraction) -> Floats:
    units, sign, support, error = _mirrored(rows, p)
    bound = bounded_lower(units, np.full(len(units), error), *support)
    return np.asarray(sign * bound / rows.denominator)


def _bounded_beyond(rows: Series, p: Fraction, at: Fraction) -> Flags:
    units, sign, support, error = _mirrored(rows, p)
    return weighted_below(units, float(sign * at * rows.denominator), support[0]) < error


_LIMIT = {"percentile": _percentile_limit, "student": _student_limit, "bounded": _bounded_limit}
_BEYOND = {"percentile": _percentile_beyond, "student": _student_beyond, "bounded": _bounded_beyond}


def _quantiles(
    places: Units, length: int, probabilities: tuple[Fraction, ...]
) -> tuple[NDArray[np.int64], Flags]:
    """Places of the quantiles, and for every row whether rounding could move one of them."""
    rows, tasks = places.shape
    width = int(places.max()) + 1
    flat = (places + np.arange(rows)[:, None] * width).ravel()
    mass = np.bincount(flat, minlength=rows * width).reshape(rows, width) / tasks
    spectrum = _power(np.fft.rfft(mass, n=length, axis=1), tasks)
    cumulative = np.cumsum(np.fft.irfft(spectrum, n=length, axis=1), axis=1)
    found = np.empty((rows, len(probabilities)), dtype=np.int64)
    doubtful = np.zeros(rows, dtype=np.bool_)
    for at, probability in enumerate(probabilities):
        p = float(probability)
        found[:, at] = (cumulative >= p).argmax(axis=1)
        doubtful |= (np.abs(cumulative - p) < DOUBT).any(axis=1)
    return found, doubtful


def _power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Power by squaring: several times faster than the complex power function."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return result


def _in_integers(series: Series, row: int, probabilities: tuple[Fraction, ...]) -> list[int]:
    """Quantiles of one study by the exact lattice."""
    effects = TaskEffects(tuple(int(unit) for unit in series.units[row]), series.denominator)
    exact = exact_mean(effects)
    if exact is None:
        raise AnalysisError(
            "plan", "effects", "the effect's unit is too fine", "Use rounder levels."
        )
    scale = series.denominator * series.tasks
    return [int(exact.quantile(probability) * scale) for probability in probabilities]
