"""Carries out a lock: starts the actors, feeds the planner with events, writes what settles.

The driver is the one writer of a root. It holds no rollout in memory longer than its commit takes;
killed at any moment, a new driver on the same root goes on with what is owed.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from orchestrator.cluster.actors import require_node
from orchestrator.cluster.planner import (
    AttemptOutcome,
    PlannerState,
    Settle,
    Start,
    dispatch,
    ended,
    plan,
)
from orchestrator.spec.errors import FactorialError, InfrastructureFault
from orchestrator.spec.lock import Lock, PlannedRollout
from orchestrator.spec.records import RolloutRecord
from orchestrator.spec.study import Study
from orchestrator.store.reading import failed_attempts, owed
from orchestrator.store.root import Root
from orchestrator.store.writer import Writer

POLL_SECONDS = 0.5
FETCH_SECONDS = 300.0
"""How long a finished record may take from its node."""
FREE_BYTES = 128 << 20
"""Below this much free space nothing is started: worktrees and records of a few rollouts."""


@dataclass(frozen=True)
class RolloutEnded:
    """Progress event: an attempt ended; ``settled_as`` is None where the rollout is owed again."""

    rollout_id: str
    attempt_id: str
    outcome: str
    settled_as: str | None
    reason: str


@dataclass(frozen=True)
class Running:
    """One attempt in flight."""

    planned: PlannedRollout
    attempt_id: str
    worker: int
    started: float


@dataclass
class Flight:
    """The driver's mutable side: Ray references in flight and free workers."""

    make_worker: Callable[[int], Any]
    workers: dict[int, Any] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    running: dict[Any, Running] = field(default_factory=dict)

    def take(self) -> int:
        slot = self.free.pop(0)
        if slot not in self.workers:
            self.workers[slot] = self.make_worker(slot)
        return slot

    def lose(self, slot: int) -> None:
        """Forget a dead or hung worker; its slot gets a new one when it is next needed."""
        worker = self.workers.pop(slot, None)
        if worker is not None:
            ray.kill(worker, no_restart=True)


def run_rollouts(
    lock: Lock,
    root: Root,
    writer: Writer,
    make_worker: Callable[[int], Any],
    slots: int,
    report: Callable[[RolloutEnded], None],
) -> None:
    """Settle every owed rollout of ``lock``; returns when none is owed.

    Raises InfrastructureFault (boundary ``disk``) where space runs out or a write fails, and any
    error that is not an attempt's own; attempts in flight are then owed again by the next driver.
    """
    study = Study.model_validate(lock.study)
    planned = {rollout.rollout_id: rollout for rollout in lock.rollouts}
    failed = failed_attempts(root)
    outcomes = {name: [AttemptOutcome(e.outcome) for e in ends] for name, ends in failed.items()}
    state, settles = plan(owed(lock, root), outcomes, slots, study.max_attempts)
    flight = Flight(make_worker, free=list(range(slots)))
    for settle in settles:
        _settle(writer, [settle], report, failed[settle.rollout_id][-1].reason)
    while not state.done:
        require_space(root)
        require_node()
        state, starts = dispatch(state)
        for start in starts:
            _start(start, planned, flight, writer, root)
        state = _collect(state, flight, writer, root, report, stall_seconds(study))


def stall_seconds(study: Study) -> float:
    """Longest an attempt may take: its charged clock, every suite it can cause, and queueing.

    Each revision causes a diagnostic and a gate run, each action at most one certification.
    """
    caps = [study.arm(cell).revision_cap for cell in study.cells()]
    suites = 2 * (max(caps) + 1) + study.budgets.actions + 1
    return study.budgets.wall_seconds + suites * study.sandbox.suite_seconds + 600.0


def require_space(root: Root) -> None:
    """Raise InfrastructureFault (boundary ``disk``) where ROOT's disk is nearly full.

    A full disk would else use up the attempts of every rollout, one after the other.
    """
    free = shutil.disk_usage(root.path).free
    if free < FREE_BYTES:
        raise InfrastructureFault(
            "disk",
            f"{free >> 20} MiB free for {root.path}, {FREE_BYTES >> 20} MiB are needed; what was "
            "committed is intact: free space and run again",
        )


def boundary_of(reason: str) -> str:
    """The faulty boundary, which stands before the colon of a fault's sentence."""
    return reason.partition(":")[0]


def _start(
    start: Start, planned: dict[str, PlannedRollout], flight: Flight, writer: Writer, root: Root
) -> None:
    rollout = planned[start.rollout_id]
    slot = flight.take()
    attempt_id = writer.begin_attempt(rollout.rollout_id, {"worker": slot})
    journal = root.journal_path(attempt_id)
    reference = flight.workers[slot].run.remote(rollout, attempt_id, str(journal))
    flight.running[reference] = Running(rollout, attempt_id, slot, time.monotonic())


def _collect(
    state: PlannerState,
    flight: Flight,
    writer: Writer,
    root: Root,
    report: Callable[[RolloutEnded], None],
    deadline: float,
) -> PlannerState:
    ready, _ = ray.wait(list(flight.running), num_returns=1, timeout=POLL_SECONDS)
    overdue = [
        reference
        for reference, running in flight.running.items()
        if reference not in ready and time.monotonic() - running.started > deadline
    ]
    for reference in [*ready, *overdue]:
        running = flight.running.pop(reference)
        outcome, reason = (
            _take_result(reference, running, flight, writer, root)
            if reference in ready
            else _give_up(running, flight, deadline)
        )
        flight.free.append(running.worker)
        writer.end_attempt(running.attempt_id, outcome, reason)
        rollout_id = running.planned.rollout_id
        state, settles = ended(state, rollout_id, outcome)
        _settle(writer, settles, report, reason)
        if not settles:
            settled_as = "agent" if outcome is AttemptOutcome.SETTLED else None
            report(RolloutEnded(rollout_id, running.attempt_id, outcome, settled_as, reason))
    return state


def _take_result(
    reference: Any, running: Running, flight: Flight, writer: Writer, root: Root
) -> tuple[AttemptOutcome, str]:
    """Commit the record of a finished attempt, or say whose fault its failure was.

    What says nothing of the rollout (a full disk, a dead Ray) is raised, and uses up no attempt.
    """
    try:
        record: RolloutRecord = ray.get(reference, timeout=FETCH_SECONDS)
    except RayTaskError as error:
        if isinstance(error.cause, InfrastructureFault):
            require_space(root)
            return AttemptOutcome.INFRASTRUCTURE, str(error.cause)
        if isinstance(error.cause, FactorialError):
            raise error.cause from None
        raise
    except RayError as error:
        require_node()
        flight.lose(running.worker)
        return AttemptOutcome.UNKNOWN, f"worker: died ({type(error).__name__})"
    writer.commit(record)
    return AttemptOutcome.SETTLED, ""


def _give_up(running: Running, flight: Flight, deadline: float) -> tuple[AttemptOutcome, str]:
    flight.lose(running.worker)
    return AttemptOutcome.UNKNOWN, f"worker: no result within {deadline:.0f} s"


def _settle(
    writer: Writer,
    settles: list[Settle],
    report: Callable[[RolloutEnded], None],
    reason: str,
) -> None:
    for settle in settles:
        writer.commit_without_outcome(settle.rollout_id, settle.settled_as, boundary_of(reason))
        report(RolloutEnded(settle.rollout_id, "", settle.settled_as, settle.settled_as, reason))
