"""Transition rates over proposals: how often an edit repairs, how often it harms.

alpha = P(next state resolves | the state the edit met does not); beta = P(next does not | it does);
q_t = share of rollouts whose working state resolves after t proposals, so that
q_{t+1} - q_t = (1 - q_t) alpha - q_t beta for edits that are kept ("Looping Is Not Reliability",
transition quantities). Rates are conditional on an edit having been made, hence descriptive.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from analysis.outcomes import SETTLED, Outcomes, Row
from analysis.plan import Levels, Plan


@dataclass(frozen=True)
class Rate:
    """``events`` of ``trials``, pooled; ``task_equal``: mean over the ``tasks`` with trials."""

    events: int
    trials: int
    task_equal: Fraction | None
    tasks: int

    @property
    def pooled(self) -> Fraction | None:
        """Pooled rate; None without a trial, never 0."""
        return Fraction(self.events, self.trials) if self.trials else None


@dataclass(frozen=True)
class Step:
    """After ``t`` proposals: rollouts whose working state resolves, and that ever had one.

    ``rollouts`` is the same at every t (a rollout without a t-th proposal keeps its last state), so
    that q_t is not conditioned on how long a rollout went on; ``reached`` made a t-th proposal.
    """

    t: int
    rollouts: int
    reached: int
    current: int
    ever: int


@dataclass(frozen=True)
class Transitions:
    """Of one cell, or of all (``levels`` empty)."""

    levels: Levels
    alpha: Rate
    beta: Rate
    steps: tuple[Step, ...]

    @property
    def threshold(self) -> Fraction | None:
        """alpha / (alpha + beta): another edit helps while fewer states than this are correct."""
        alpha, beta = self.alpha.pooled, self.beta.pooled
        if alpha is None or beta is None or alpha + beta == 0:
            return None
        return alpha / (alpha + beta)


@dataclass(frozen=True)
class _Sequence:
    task_id: str
    edits: tuple[Row, ...]


def transitions(plan: Plan, outcomes: Outcomes) -> tuple[Transitions, ...]:
    """Overall first, then one per cell; empty where the source has no proposals."""
    if outcomes.proposals is None:
        return ()
    edits: dict[str, list[Row]] = defaultdict(list)
    for row in outcomes.proposals.to_pylist():
        edits[row["rollout_id"]].append(row)
    groups: dict[tuple[str, ...], list[_Sequence]] = {(): []}
    groups |= {tuple(cell.values()): [] for cell in plan.cells()}
    for row in outcomes.rows():
        if row["settled_as"] == SETTLED:
            one = _Sequence(row["task_id"], tuple(edits[row["rollout_id"]]))
            groups[()].append(one)
            groups[tuple(row[factor.name] for factor in plan.factors)].append(one)
    names = [factor.name for factor in plan.factors]
    return tuple(
        _summary(dict(zip(names, key, strict=True)) if key else {}, group)
        for key, group in groups.items()
    )


def _summary(levels: Levels, group: list[_Sequence]) -> Transitions:
    last = max((len(one.edits) for one in group), default=0)
    return Transitions(
        levels=levels,
        alpha=_rate(group, before=False),
        beta=_rate(group, before=True),
        steps=tuple(_step(group, t) for t in range(1, last + 1)),
    )


def _rate(group: Iterable[_Sequence], before: bool) -> Rate:
    """Share of edits of states with ``before`` whose verdict changed."""
    by_task: dict[str, list[bool]] = defaultdict(list)
    for one in group:
        for edit in one.edits:
            if edit["before"] is before:
                by_task[one.task_id].append(edit["after"] is not before)
    rates = [Fraction(sum(changes), len(changes)) for changes in by_task.values()]
    return Rate(
        events=sum(sum(changes) for changes in by_task.values()),
        trials=sum(len(changes) for changes in by_task.values()),
        task_equal=sum(rates, Fraction(0)) / len(rates) if rates else None,
        tasks=len(rates),
    )


def _step(group: list[_Sequence], t: int) -> Step:
    return Step(
        t=t,
        rollouts=len(group),
        reached=sum(len(one.edits) >= t for one in group),
        current=sum(_working(one.edits[:t]) for one in group),
        ever=sum(any(edit["after"] for edit in one.edits[:t]) for one in group),
    )


def _working(edits: tuple[Row, ...]) -> bool:
    """Whether the working state resolves after these edits; without any it is the base tree."""
    if not edits:
        return False
    return bool(edits[-1]["after"] if edits[-1]["retained"] else edits[-1]["before"])
