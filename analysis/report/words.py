"""Figures as a reader sees them: points, percents, p-values, levels. Nothing is computed here.

A point is 100 times a difference of probabilities. Two decimals for points, one for percents, four
for p-values; the minus sign is a minus sign.
"""

import re
from collections import Counter
from fractions import Fraction

from analysis import wording
from analysis.plan import Interaction, Levels, Plan
from analysis.report.blocks import NOT_REPORTED
from analysis.results import Range
from analysis.wording import percent as level
from analysis.wording import share as percent
from analysis.wording import share_spread as percent_range

__all__ = ["level", "percent", "percent_range"]
MINUS = "−"
SWITCH = {"OFF", "ON"}
ENDPOINT_WORDS = {
    "unsafe": "Unsafe completions",
    "sound": "Sound completions",
    "accepted": "Accepted completions",
    "discovered": "Rollouts that discovered a fix",
}


def points(value: Fraction) -> str:
    """A difference in points with its sign: ``−2.78``; exactly nothing is ``0.00``."""
    return typeset(wording.points(value))


def point_range(values: Range) -> str:
    """One value, or least to greatest where outcomes miss."""
    return typeset(wording.spread(values))


def interval(low: Fraction, high: Fraction) -> str:
    """``[−8.33, 0.00]``."""
    return typeset(wording.interval(low, high))


def bound(value: Fraction) -> str:
    """A bound in a sentence: zero is said to be exact, because a strict rule hangs on it."""
    return typeset(wording.bound(value))


def limit(value: Fraction) -> str:
    """A preregistered limit in a sentence: ``−5 points``."""
    return "0" if value == 0 else typeset(f"{100 * float(value):+g} points")


def typeset(text: str) -> str:
    """Minus signs for the hyphens that stand before a number."""
    return re.sub(r"(?<!\w)-(?=\d)", MINUS, text)


def p_value(value: Fraction | float | None) -> str:
    """Four decimals; undecided where outcomes miss."""
    if value is None:
        return "undecided"
    return "<0.0001" if 0 < float(value) < 0.00005 else f"{float(value):.4f}"


def share(count: int, of: int) -> str:
    """``7/72 (9.7%)``; ``0/0`` has no share."""
    return f"{count:,}/{of:,} ({percent(Fraction(count, of))})" if of else f"{count}/{of}"


def whole(value: float | None) -> str:
    """A count with thousands separators."""
    return NOT_REPORTED if value is None else f"{value:,.0f}"


def yes(word: bool | None) -> str:
    """A verdict in one word with its sign, so that colour is never needed."""
    return "undecided" if word is None else ("✓ yes" if word else "✗ no")


def plural(count: int, one: str, many: str = "") -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def effect_words(plan: Plan, name: str) -> str:
    """``contract (ON − OFF)``; an interaction keeps its name."""
    effect = plan.effect(name)
    if isinstance(effect, Interaction):
        return f"{name} (interaction of {effect.of[0]} and {effect.of[1]})"
    fitted = ", fitted" if effect.kind == "linear" else ""
    return f"{name} ({effect.high} {MINUS} {effect.low}{fitted})"


def cell_lines(plan: Plan, levels: Levels) -> tuple[str, ...]:
    """One line per factor, named wherever its level alone would not say it.

    Of several switches only those that are ON are named: ``binding, admission ON``.
    """
    if len(plan.factors) > 1 and all(set(one.levels) == SWITCH for one in plan.factors):
        return _switched_on([name for name, word in levels.items() if word == "ON"], len(levels))
    seen = Counter(word for factor in plan.factors for word in factor.levels)
    alone = all(seen[word] == 1 and not word[:1].isdigit() for word in levels.values())
    return tuple(word if alone else f"{name} {word}" for name, word in levels.items())


def _switched_on(names: list[str], switches: int) -> tuple[str, ...]:
    if len(names) in (0, switches):
        return ("all ON" if names else "all OFF",)
    return (*(f"{name}," for name in names[:-1]), f"{names[-1]} ON")


def cell_label(plan: Plan, levels: Levels) -> str:
    """The same on one line: ``current / OFF``; no levels are all rollouts."""
    lines = cell_lines(plan, levels) if levels else ("all cells",)
    return " / ".join(lines).replace(", / ", ", ")


def cell_order(plan: Plan) -> str:
    """What the parts of a cell's label are."""
    return " / ".join(factor.name for factor in plan.factors)
