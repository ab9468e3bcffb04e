"""Which rollout runs next, and what becomes of an attempt: events in, commands out; no Ray.

The dispatch order is the lock's. A rollout is owed until it settles; attributed infrastructure
faults and unknown losses are owed again, at most ``max_attempts`` times, then the row settles
without an outcome (protocol §1 "what is infrastructure"). The rule is blind to arm and outcome.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class AttemptOutcome(StrEnum):
    """How an attempt ended. Only ``SETTLED`` carries an outcome of the agent."""

    SETTLED = "settled"
    INFRASTRUCTURE = "infrastructure"
    UNKNOWN = "unknown"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Rule:
    """One row of the resume rule."""

    counts: bool
    """The attempt's record settles the row as the agent's outcome."""
    owed_again: bool
    settles_as: str
    """``settled_as`` of the row when no attempts are left."""


RULES: dict[AttemptOutcome, Rule] = {
    AttemptOutcome.SETTLED: Rule(counts=True, owed_again=False, settles_as="agent"),
    AttemptOutcome.INFRASTRUCTURE: Rule(False, owed_again=True, settles_as="infrastructure"),
    AttemptOutcome.UNKNOWN: Rule(False, owed_again=True, settles_as="unknown"),
    # The driver itself died: says nothing about the rollout, so it uses up no attempt.
    AttemptOutcome.ABANDONED: Rule(False, owed_again=True, settles_as="unknown"),
}


@dataclass(frozen=True)
class Start:
    """Command: begin an attempt of this rollout."""

    rollout_id: str


@dataclass(frozen=True)
class Settle:
    """Command: attempts are used up; write the row as ``settled_as`` with a null outcome."""

    rollout_id: str
    settled_as: str


@dataclass(frozen=True)
class PlannerState:
    """Everything the planner knows. ``failed`` counts attempts that used up a try."""

    queue: tuple[str, ...]
    running: frozenset[str] = frozenset()
    failed: dict[str, int] = field(default_factory=dict)
    slots: int = 1
    max_attempts: int = 3
    draining: bool = False

    @property
    def done(self) -> bool:
        """Nothing runs and nothing more will be started."""
        return not self.running and (self.draining or not self.queue)


def plan(
    owed: Iterable[str],
    failed: Mapping[str, Sequence[AttemptOutcome]],
    slots: int,
    max_attempts: int,
) -> tuple[PlannerState, list[Settle]]:
    """Initial state from the owed rollouts in dispatch order and the tries already used up.

    ``failed``: how each used-up try of a rollout ended, in order. A rollout whose tries were used
    up before a restart, but whose row was not written, settles now, as it would have then.
    """
    rollouts = list(owed)
    queue = [name for name in rollouts if len(failed.get(name, ())) < max_attempts]
    spent = [name for name in rollouts if len(failed.get(name, ())) >= max_attempts]
    counts = {name: len(tries) for name, tries in failed.items()}
    state = PlannerState(tuple(queue), frozenset(), counts, slots, max_attempts)
    return state, [Settle(name, RULES[failed[name][-1]].settles_as) for name in spent]


def dispatch(state: PlannerState) -> tuple[PlannerState, list[Start]]:
    """Fill free slots from the front of the queue."""
    free = 0 if state.draining else max(0, state.slots - len(state.running))
    starting = state.queue[:free]
    after = replace(state, queue=state.queue[free:], running=state.running | frozenset(starting))
    return after, [Start(rollout_id) for rollout_id in starting]


def ended(
    state: PlannerState, rollout_id: str, outcome: AttemptOutcome
) -> tuple[PlannerState, list[Settle]]:
    """An attempt ended. Raises ValueError for a rollout that is not running."""
    if rollout_id not in state.running:
        raise ValueError(f"{rollout_id} is not running")
    rule = RULES[outcome]
    after = replace(state, running=state.running - {rollout_id})
    if not rule.owed_again:
        return after, []
    tries = state.failed.get(rollout_id, 0) + (outcome is not AttemptOutcome.ABANDONED)
    after = replace(after, failed={**state.failed, rollout_id: tries})
    if tries >= state.max_attempts:
        return after, [Settle(rollout_id, rule.settles_as)]
    return replace(after, queue=(*after.queue, rollout_id)), []


def drain(state: PlannerState) -> PlannerState:
    """Start nothing more (cancelled, disk low); what runs may end."""
    return replace(state, draining=True)
