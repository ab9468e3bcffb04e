"""What one rollout may still spend: counts from the contract, charged seconds and tokens from here.

The wall clock is charged time (protocol §1 "Wall clock"): model latency, shell seconds, and for a
visible test the duration of the diagnostic execution shown. Gate, certification, queueing and
uncharged diagnostics cost nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orchestrator.agent.workspace import Refusal
from orchestrator.contract.events import EndReason
from orchestrator.contract.state import Counts
from orchestrator.spec.ports import CoderReply
from orchestrator.spec.study import Budgets


@dataclass(frozen=True)
class Left:
    """Counts that remain; equal histories have equal ones, so the agent may be told."""

    actions: int
    revisions: int
    tests: int


@dataclass(frozen=True)
class Meter:
    """Charged seconds and tokens so far; ``answered``: the seconds when the last reply was in."""

    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tokens_served: int = 0
    answered: float = 0.0

    def charged(self, seconds: float) -> "Meter":
        return replace(self, seconds=self.seconds + max(seconds, 0.0))

    def replied(self, reply: CoderReply) -> "Meter":
        """After one reply: its latency is charged, its tokens are counted."""
        seconds = self.seconds + max(reply.latency_seconds, 0.0)
        return Meter(
            seconds,
            self.prompt_tokens + reply.prompt_tokens,
            self.completion_tokens + reply.completion_tokens,
            self.tokens_served + reply.tokens_served,
            answered=seconds,
        )


@dataclass(frozen=True)
class Allowance:
    """The budgets of one rollout. ``revision_cap`` is the arm's; it overrides the study's."""

    budgets: Budgets
    revision_cap: int

    def left(self, counts: Counts) -> Left:
        """Counts that remain after what the contract has counted."""
        return Left(
            max(self.budgets.actions - counts.actions, 0),
            max(self.revision_cap - counts.revisions, 0),
            max(self.budgets.visible_tests - counts.visible_tests, 0),
        )

    def seconds_left(self, meter: Meter) -> float:
        """Charged seconds that remain, not below zero."""
        return max(self.budgets.wall_seconds - meter.seconds, 0.0)

    def tokens_left(self, meter: Meter) -> int | None:
        """Completion tokens that remain; None where they are not limited."""
        limit = self.budgets.completion_tokens
        return None if limit is None else max(limit - meter.completion_tokens, 0)

    def exhausted(self, counts: Counts, meter: Meter) -> EndReason | None:
        """Which budget is spent; None where the rollout may go on.

        The wall clock first where it kept the last reply from being carried out: a deadline that
        changed a rollout is always counted (protocol §1 "Wall clock"). Else the reproducible ones.
        """
        if meter.answered >= self.budgets.wall_seconds:
            return "wall"
        if self.left(counts).actions == 0:
            return "actions"
        if self.tokens_left(meter) == 0:
            return "tokens"
        return "wall" if self.seconds_left(meter) == 0 else None

    def refusal(self, kind: str, counts: Counts, meter: Meter) -> Refusal | None:
        """Why an action of this kind cannot be paid for, or None."""
        left = self.left(counts)
        if self.seconds_left(meter) == 0:
            return Refusal("budget.wall", "the time is up")
        if kind == "edit" and left.revisions == 0:
            return Refusal("budget.revisions", "no edits are left")
        if kind == "test" and left.tests == 0:
            return Refusal("budget.tests", "no tests are left")
        return None


class Stopwatch:
    """Elapsed time, and how much of it was spent waiting for somebody else (s)."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self._started = time.perf_counter()
        self._away = 0.0

    @contextmanager
    def away(self) -> Iterator[None]:
        """Time inside is the coder's, the sandbox's or the evaluator's."""
        left = time.perf_counter()
        try:
            yield
        finally:
            self._away += time.perf_counter() - left

    def read(self) -> tuple[float, float]:
        """(elapsed, own) seconds."""
        elapsed = time.perf_counter() - self._started
        return elapsed, max(elapsed - self._away, 0.0)
