"""Transition rates over proposals: how often an edit repairs, how often it harms.

alpha = P(next state resolves | the state the edit met does not); beta = P(next does not | it does);
q_t = share of rollouts whose working state resolves after t proposals, so that
q_{t+1} - q_t = (1 - q_t) alpha - q_t beta for edits that are kept ("Looping Is Not Reliability",
transition quantities). Rates are conditional on an edit having been made, hence descriptive.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import duckdb

from analysis.outcomes import SETTLED, Outcomes
from analysis.plan import Levels, Plan
from analysis.tallies import Tally, at_cell, tallies, total


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
class _Place:
    """Rollouts of one cell at their t-th proposal; ``last``: those for which it is the last."""

    cell: tuple[str, ...]
    t: int
    last: bool
    rollouts: int
    current: int
    ever: int


def transitions(
    plan: Plan, outcomes: Outcomes, found: list[Tally] | None = None
) -> tuple[Transitions, ...]:
    """Overall first, then one per cell; empty where the source has no proposals.

    ``found``: the source's tallies, where they are at hand.
    """
    if outcomes.proposals is None:
        return ()
    found = tallies(plan, outcomes) if found is None else found
    places = _places(plan, outcomes)
    return tuple(_summary(levels, found, places) for levels in ({}, *plan.cells()))


def _places(plan: Plan, outcomes: Outcomes) -> list[_Place]:
    """The working state after an edit is the new one where it was retained, else the one before."""
    factors = ", ".join(f'o."{factor.name}"' for factor in plan.factors)
    query = f"""
        WITH walked AS (
            SELECT rollout_id, proposal, CASE WHEN retained THEN after ELSE before END AS current,
                   bool_or(after) OVER (PARTITION BY rollout_id ORDER BY proposal) AS ever,
                   proposal = max(proposal) OVER (PARTITION BY rollout_id) AS last
            FROM proposals
        )
        SELECT {factors}, w.proposal, w.last, count(*), count(*) FILTER (w.current),
               count(*) FILTER (w.ever)
        FROM walked w JOIN outcomes o ON o.rollout_id = w.rollout_id
        WHERE o.settled_as = '{SETTLED}' GROUP BY ALL
        """
    with duckdb.connect() as con:
        con.register("outcomes", outcomes.table)
        con.register("proposals", outcomes.proposals)
        rows = con.execute(query).fetchall()
    width = len(plan.factors)
    return [_Place(row[:width], *row[width:]) for row in rows]


def _summary(levels: Levels, found: Sequence[Tally], places: Sequence[_Place]) -> Transitions:
    group = at_cell(found, levels)
    wanted = tuple(levels.values())
    mine = [place for place in places if not wanted or place.cell == wanted]
    last = max((place.t for place in mine), default=0)
    rollouts = int(total(group, "rollouts") or 0)
    return Transitions(
        levels=levels,
        alpha=_rate(group, "repairs", "wrong_before"),
        beta=_rate(group, "harms", "right_before"),
        steps=tuple(_step(mine, rollouts, t) for t in range(1, last + 1)),
    )


def _rate(group: Sequence[Tally], events: str, trials: str) -> Rate:
    by_task: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for tally in group:
        for place, measure in enumerate((events, trials)):
            by_task[tally.task_id][place] += int(tally.sums[measure] or 0)
    rates = [Fraction(some, all_) for some, all_ in by_task.values() if all_]
    return Rate(
        events=sum(some for some, _ in by_task.values()),
        trials=sum(all_ for _, all_ in by_task.values()),
        task_equal=sum(rates, Fraction(0)) / len(rates) if rates else None,
        tasks=len(rates),
    )


def _step(places: Sequence[_Place], rollouts: int, t: int) -> Step:
    """Rollouts that ended earlier count with their last state, those without an edit as wrong."""
    counted = [place for place in places if place.t == t or (place.last and place.t < t)]
    return Step(
        t=t,
        rollouts=rollouts,
        reached=sum(place.rollouts for place in counted if place.t == t),
        current=sum(place.current for place in counted),
        ever=sum(place.ever for place in counted),
    )
