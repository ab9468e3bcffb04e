"""Figures as people read them: points, shares, p-values, ranges, yes and no."""

from fractions import Fraction

from analysis.plan import Levels

Pair = tuple[Fraction, Fraction]


def points(value: Fraction) -> str:
    """100 x a difference of probabilities, signed."""
    return "0.00" if value == 0 else f"{100 * float(value):+.2f}"


def bound(value: Fraction) -> str:
    """A bound that decides: zero is said to be exact."""
    return "exactly 0" if value == 0 else f"{points(value)} points"


def interval(low: Fraction, high: Fraction) -> str:
    """[low, high] in points."""
    return f"[{points(low)}, {points(high)}]"


def spread(values: Pair) -> str:
    """One value, or "least to greatest" where missing outcomes leave it open."""
    low, high = values
    return points(low) if low == high else f"{points(low)} to {points(high)}"


def share(value: Fraction | float) -> str:
    """A probability in per cent."""
    return f"{100 * float(value):.1f}%"


def share_spread(values: Pair) -> str:
    """The same for a range."""
    low, high = values
    return share(low) if low == high else f"{share(low)} to {share(high)}"


def percent(level: Fraction) -> str:
    """A level, without needless digits."""
    return f"{100 * float(level):g}%"


def p_value(value: Fraction | float | None) -> str:
    """Four digits, or a power of ten below 0.0001; "-" where there is none."""
    if value is None:
        return "-"
    return f"{float(value):.4f}" if value >= 0.0001 else f"{float(value):.1e}"


def yes(word: bool) -> str:
    """yes | no."""
    return "yes" if word else "no"


def count(value: int | None) -> str:
    """A count; "-" where it is not reported."""
    return "-" if value is None else str(value)


def cell(levels: Levels) -> str:
    """A cell by its levels; "all" without any."""
    return "/".join(levels.values()) or "all"
