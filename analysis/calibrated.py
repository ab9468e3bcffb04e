"""Two alternatives to the percentile rule, reported beside it and never deciding.

*Bounded*: the only assumption is that a task effect cannot leave its support. Gaffke (2005);
Learned-Miller and Thomas (2019), arXiv 1905.06208: resample task weights uniformly from the simplex
with one more task that has the worst possible effect. For two-valued effects it is the exact
binomial bound (no event in n tasks gives 1 - 0.05^(1/n)); beyond those its coverage is a
conjecture that no known example contradicts. *Student*: mean and t quantile; effects without any
spread say nothing about their spread, so that nothing but the support is claimed then.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from analysis.inference import Bounds

Floats = NDArray[np.float64]
GRAIN = 1_000_000
"""Bounds are rounded outwards to a multiple of 1 / GRAIN of the support's width."""
_HALVINGS = 21


def calibrated_bounds(
    units: Sequence[int],
    denominator: int,
    level: Fraction,
    support: tuple[int, int] | None = None,
) -> Bounds:
    """Bounded bounds of the mean of task effects ``units / denominator``.

    ``support``: least and greatest possible effect in units; -denominator and +denominator (a
    difference of two rates) where absent. Rounded outwards, hence never too narrow.

    >>> calibrated_bounds([0] * 24, 6, Fraction(19, 20)).lower
    Fraction(-117347, 1000000)
    """
    low, high = support or (-denominator, denominator)
    if not units or min(units) < low or max(units) > high:
        raise ValueError("effects have to lie within their support, and there has to be one")
    row = np.array([units, units], dtype=np.float64)
    errors = np.array([float((1 - level) / 2), float(1 - level)])
    below = bounded_lower(row, errors, low, high)
    above = -bounded_lower(-row, errors, -high, -low)
    down = [Fraction(floor(x / denominator * GRAIN), GRAIN) for x in below]
    up = [Fraction(ceil(x / denominator * GRAIN), GRAIN) for x in above]
    return Bounds(ci_low=down[0], ci_high=up[0], lower=down[1], upper=up[1])


def bounded_lower(units: Floats, error: Floats, low: int, high: int) -> Floats:
    """Lower bounds, in units, of R studies x T tasks by halving; ``error``: one per study.

    Of the last two halvings the lower end is returned: off by the support's width / 2^21, safely.
    """
    least = np.full(len(units), float(low))
    greatest = np.full(len(units), float(high))
    for _ in range(_HALVINGS):
        middle = (least + greatest) / 2
        claimed = weighted_below(units, middle, low) < error
        least = np.where(claimed, middle, least)
        greatest = np.where(claimed, greatest, middle)
    return least


def weighted_below(units: Floats, at: Floats | float, low: float) -> Floats:
    """P(weighted mean <= at) over uniform weights of the T effects and one more at ``low``.

    Weights uniform on the simplex are exponential variables over their sum, so this is the chance
    that the effects below ``at`` outweigh those above it: P(sum a_i E_i <= sum b_j F_j).
    """
    worst = np.full((len(units), 1), float(low))
    shifted = np.concatenate([worst, units], axis=1) - np.broadcast_to(at, len(units))[:, None]
    return _race(_packed(shifted), _packed(-shifted))


def student_bound(units: Floats, low: int, high: int, probability: float) -> Floats:
    """That quantile of Student's bounds, in units, of R studies x T tasks; within the support."""
    from scipy.special import stdtrit

    tasks = units.shape[1]
    nothing = np.full(len(units), float(low if probability < 0.5 else high))
    if tasks < 2:
        return nothing
    error = units.std(axis=1, ddof=1) / np.sqrt(tasks)
    bound = units.mean(axis=1) + stdtrit(tasks - 1, probability) * error
    flat = units.max(axis=1) == units.min(axis=1)
    return np.where(flat, nothing, np.clip(bound, low, high))


def _packed(values: Floats) -> Floats:
    """Positive values of each row, zeros after them, in as few columns as hold the fullest row."""
    positive = np.maximum(values, 0.0)
    columns = int((positive > 0).sum(axis=1).max(initial=0))
    return -np.sort(-positive, axis=1)[:, :columns]


def _race(above: Floats, below: Floats) -> Floats:
    """P(sum a_i E_i <= sum b_j F_j), E and F standard exponential, per row; zeros are padding.

    Run both sums side by side: of a_i E_i and b_j F_j the first ends before the second with
    probability b_j / (a_i + b_j), and what is left of the second is as good as new. All terms are
    positive, so that nothing cancels; states are visited by diagonals i + j.
    """
    rows, n, m = len(above), above.shape[1], below.shape[1]
    value = np.zeros((rows, n + 1))
    value[:, n] = 1.0
    for diagonal in range(n + m - 2, -1, -1):
        first, last = max(0, diagonal - m + 1), min(n - 1, diagonal)
        a = above[:, first : last + 1]
        b = below[:, diagonal - last : diagonal - first + 1][:, ::-1]
        total = a + b
        ends = np.divide(b, total, out=np.ones_like(total), where=total > 0)
        here = value[:, first : last + 1]
        value[:, first : last + 1] = here + ends * (value[:, first + 1 : last + 2] - here)
    return value[:, 0]
