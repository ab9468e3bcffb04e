"""What can be sent to the contract: by the agent, its driver, an honest evaluator and a forger.

With budgets the driver's part is the agent room's own :class:`Allowance`, used as its loop does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

from orchestrator.agent.budgets import Allowance, Meter
from orchestrator.contract import events as ev
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import Phase, State

BASE, DIAGNOSTIC, GATE = "base", "suite-diagnostic", "suite-gate"
OUTCOMES: tuple[ev.Outcome, ...] = ("pass", "fail", "timeout", "void")
REASONS: tuple[ev.EndReason, ...] = ("actions", "wall", "tokens")
UNSPENT = Meter()

POLICIES = tuple(
    Policy(evidence, b, a, c, BASE, DIAGNOSTIC, GATE)  # type: ignore[arg-type]
    for evidence, b, a, c in product(("current", "stale"), *[(False, True)] * 3)
)

Origin = Literal["agent", "driver", "evaluator", "forger"]
Move = tuple[Origin, ev.Event]


@dataclass(frozen=True)
class World:
    """One arm, the base tree and ``trees`` others; ``allowance`` None = no budgets."""

    policy: Policy
    trees: int = 3
    allowance: Allowance | None = None

    @cached_property
    def states(self) -> tuple[str, ...]:
        return (BASE, *(f"s{number}" for number in range(1, self.trees + 1)))


def moves(world: World, state: State) -> Iterator[Move]:
    """Everything that agent, driver, evaluator and a forger of reports can send."""
    if state.phase is Phase.READY:
        yield from _ready(world, state)
    elif state.phase is not Phase.ENDED:
        yield from (("evaluator", report) for report in honest(state))
        yield from (("forger", report) for report in forged(world, state))


def _ready(world: World, state: State) -> Iterator[Move]:
    """The loop's order: a spent budget ends it, else the agent acts, refused where it can't pay."""
    allowance = world.allowance
    if allowance and (spent := allowance.exhausted(state.counts, UNSPENT)):
        yield "driver", ev.BudgetEnded(spent)
        return
    for reason in REASONS:
        if reason != "actions" or allowance is None:
            yield "driver", ev.BudgetEnded(reason)
    for kind, event in _actions(world):
        refusal = allowance.refusal(kind, state.counts, UNSPENT) if allowance else None
        yield "agent", ev.Refused(kind, refusal.rule) if refusal else event


def _actions(world: World) -> Iterator[tuple[str, ev.Event]]:
    yield "invalid", ev.Malformed("reply.not-json")
    yield "edit", ev.Refused("edit", "edit.no-op")
    yield "view", ev.Looked("view")
    yield "shell", ev.Looked("shell")
    yield "test", ev.TestRequested()
    yield "submit", ev.SubmitRequested()
    yield "escalate", ev.EscalateRequested()
    yield from (("edit", ev.EditProposed(state_id)) for state_id in world.states)


def honest(state: State) -> Iterator[ev.Event]:
    """The answers to the pending request, each outcome once."""
    number = len(state.evidence) + len(state.gate) + len(state.certifications)
    yield from _reports(state, state.pending or "", f"x{number}", suite_of(state))


def forged(world: World, state: State) -> Iterator[ev.Event]:
    """Answers of another state or suite, or with an execution that was reported before."""
    known = sorted(state.executions)
    for state_id in (*world.states, "elsewhere"):
        if state_id != state.pending:
            yield from _reports(state, state_id, "forged", suite_of(state))
    for suite_id in ("another-suite", DIAGNOSTIC, GATE):
        if suite_id != suite_of(state):
            yield from _reports(state, state.pending or "", "forged", suite_id)
    for execution_id in {*known[:1], *known[-1:]}:
        yield from _reports(state, state.pending or "", execution_id, suite_of(state))


def suite_of(state: State) -> str:
    """The suite that a report is awaited of."""
    return DIAGNOSTIC if state.phase is Phase.OBSERVING else GATE


def _reports(state: State, state_id: str, execution_id: str, suite_id: str) -> Iterator[ev.Event]:
    if state.phase is Phase.OBSERVING:
        for late in (False, True):
            envelope = ev.Envelope(state_id, suite_id, execution_id, f"of {state_id}", late)
            yield ev.DiagnosticReported(envelope)
        return
    gating = state.phase is Phase.GATING
    for outcome in OUTCOMES:
        report = ev.Report(state_id, suite_id, execution_id, outcome)
        yield ev.GateReported(report) if gating else ev.CertificationReported(report)


ANSWER_OF: dict[Phase, type[ev.Event]] = {
    Phase.OBSERVING: ev.DiagnosticReported,
    Phase.GATING: ev.GateReported,
    Phase.CERTIFYING_SUBMISSION: ev.CertificationReported,
    Phase.CERTIFYING_CHECKPOINT: ev.CertificationReported,
}
REPORT = ev.Report("s1", GATE, "stray", "pass")
ONE_OF_EACH: tuple[ev.Event, ...] = (
    ev.Malformed("reply.not-json"),
    ev.Refused("edit", "edit.no-op"),
    ev.Looked("search"),
    ev.TestRequested(),
    ev.EditProposed("s1"),
    ev.SubmitRequested(),
    ev.EscalateRequested(),
    ev.BudgetEnded("wall"),
    ev.DiagnosticReported(ev.Envelope("s1", DIAGNOSTIC, "stray", "")),
    ev.GateReported(REPORT),
    ev.CertificationReported(REPORT),
)


def misplaced(state: State) -> Iterator[ev.Event]:
    """Events that have no place in this phase; at the end that is every event."""
    for event in ONE_OF_EACH:
        report = isinstance(event, tuple(ANSWER_OF.values()))
        if state.phase is Phase.READY:
            placed = not report
        else:
            placed = type(event) is ANSWER_OF.get(state.phase)
        if not placed:
            yield event
