"""Newly solved and regressed tasks: McNemar's test, with the task as the unit.

A contrast is built from pairs only: rollouts of one task, stack and seed that differ in the
effect's factor and in nothing else. A task counts as solved at a level where more than half of its
rollouts there are sound (half is not solved); McNemar's exact test compares the tasks that changed.
The pairs of rollouts are counted beside it, descriptively: they are not independent and get no
p-value.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import comb

from analysis.estimands import MISSING, Cube
from analysis.figures import Figure, plain_figure
from analysis.plan import MainEffect, Plan

RULE = "a task is solved at a level where more than half of its rollouts there are sound"
METHOD = "McNemar, exact, two-sided, over tasks"


State = tuple[bool | None, bool | None]
"""Whether a task is solved at ``low`` and at ``high``; None where outcomes are missing."""


@dataclass(frozen=True)
class Change:
    """Units (tasks, or pairs of rollouts) by what they were at ``low`` and are at ``high``.

    ``undetermined``: units with too few outcomes to say.
    """

    solved: int
    newly_solved: int
    regressed: int
    unsolved: int
    undetermined: int


@dataclass(frozen=True)
class Paired:
    """One contrast. ``p`` is None where a task is undetermined; it is never of ``pairs``."""

    effect: str
    figure: Figure
    rule: str
    tasks: Change
    p: Fraction | None
    newly_solved_tasks: tuple[str, ...]
    regressed_tasks: tuple[str, ...]
    pairs: Change


def paired(plan: Plan, sound: Cube) -> tuple[Paired, ...]:
    """One result per contrast of the plan; fitted changes and interactions have no pairs."""
    contrasts = (effect for effect in plan.effects if isinstance(effect, MainEffect))
    return tuple(_paired(plan, sound, one) for one in contrasts if one.kind == "contrast")


def partners(plan: Plan, effect: MainEffect) -> tuple[tuple[int, int], ...]:
    """Cells (low, high) that differ in the effect's factor only, in plan order."""
    cells = plan.cells()
    place = {tuple(cell.values()): at for at, cell in enumerate(cells)}
    return tuple(
        (at, place[tuple((cell | {effect.factor: effect.high}).values())])
        for at, cell in enumerate(cells)
        if cell[effect.factor] == effect.low
    )


def mcnemar(newly_solved: int, regressed: int) -> Fraction:
    """Two-sided exact p-value: the binomial test of the discordant units at one half.

    Equal to ``statsmodels.stats.contingency_tables.mcnemar(table, exact=True)``, as a fraction.

    >>> mcnemar(1, 5)
    Fraction(7, 32)
    """
    discordant = newly_solved + regressed
    tail = sum(comb(discordant, k) for k in range(min(newly_solved, regressed) + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**discordant))


def _paired(plan: Plan, sound: Cube, effect: MainEffect) -> Paired:
    cells = partners(plan, effect)
    low, high = (sound[:, list(side), :] for side in zip(*cells, strict=True))
    names = [task.task_id for task in plan.tasks]
    states = [(_solved(a), _solved(b)) for a, b in zip(low, high, strict=True)]
    tasks = _change(states)
    return Paired(
        effect=effect.name,
        figure=plain_figure(
            f"tasks solved at one of {effect.factor} {effect.low} and {effect.high} only",
            METHOD,
            len(names),
        ),
        rule=RULE,
        tasks=tasks,
        p=None if tasks.undetermined else mcnemar(tasks.newly_solved, tasks.regressed),
        newly_solved_tasks=_named(names, states, (False, True)),
        regressed_tasks=_named(names, states, (True, False)),
        pairs=_pairs(low, high),
    )


def _solved(rollouts: Cube) -> bool | None:
    """Whether more than half are sound; None where the missing outcomes would decide it."""
    sound, missing = int((rollouts == 1).sum()), int((rollouts == MISSING).sum())
    if 2 * sound > rollouts.size:
        return True
    return None if 2 * (sound + missing) > rollouts.size else False


def _named(names: list[str], states: list[State], wanted: State) -> tuple[str, ...]:
    return tuple(name for name, state in zip(names, states, strict=True) if state == wanted)


def _change(states: list[State]) -> Change:
    known = [state for state in states if None not in state]
    kinds = ((True, True), (False, True), (True, False), (False, False))
    return _counted([known.count(kind) for kind in kinds], len(states))


def _pairs(low: Cube, high: Cube) -> Change:
    """The same over pairs of rollouts, all at once."""
    kinds = ((1, 1), (0, 1), (1, 0), (0, 0))
    counts = [int(((low == before) & (high == after)).sum()) for before, after in kinds]
    return _counted(counts, low.size)


def _counted(known: list[int], units: int) -> Change:
    solved, newly_solved, regressed, unsolved = known
    return Change(solved, newly_solved, regressed, unsolved, units - sum(known))
