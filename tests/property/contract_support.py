"""Drives the contract for its property tests and checks, after every step, what must hold.

The invariants are written against the recorded steps alone, never with the machine's own guards.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from orchestrator.contract import events as ev
from orchestrator.contract.machine import start, step
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import Phase, State
from orchestrator.contract.verdicts import VERDICT_OF, Rule, Verdict

BASE = "s0"
DIAGNOSTIC, GATE = "suite-diagnostic", "suite-gate"
REPORTS = (ev.DiagnosticReported, ev.GateReported, ev.CertificationReported)


@dataclass(frozen=True)
class Transition:
    before: State
    event: ev.Event
    after: State
    commands: tuple[ev.Command, ...]


Trace = tuple[Transition, ...]

ARMS = tuple(
    Policy(evidence, b, a, c, BASE, DIAGNOSTIC, GATE)  # type: ignore[arg-type]
    for evidence, b, a, c in product(("current", "stale"), *[(False, True)] * 3)
)

# ------------------------------------------------------------------------- driving


@dataclass(frozen=True)
class Move:
    """An agent's event and what the evaluator then says of it (gate or certification)."""

    event: ev.Event
    outcome: ev.Outcome = "pass"


def answer(state: State, outcome: ev.Outcome, number: int) -> ev.Event:
    """The evaluator's honest report to the pending request."""
    assert state.pending is not None
    if state.phase is Phase.OBSERVING:
        payload = f"payload of {state.pending}"
        return ev.DiagnosticReported(
            ev.Envelope(state.pending, DIAGNOSTIC, f"x{number}", payload, outcome == "timeout")
        )
    report = ev.Report(state.pending, GATE, f"x{number}", outcome)
    return (
        ev.GateReported(report) if state.phase is Phase.GATING else ev.CertificationReported(report)
    )


def forgeries(state: State, number: int) -> Iterator[ev.Event]:
    """Reports that are not the answer: another state, another suite, an execution told before."""
    honest = answer(state, "pass", number)
    for changes in (
        {"state_id": "elsewhere"},
        {"suite_id": "another-suite"},
        {"execution_id": next(iter(sorted(state.executions)), None)},
    ):
        if None in changes.values():
            continue
        if isinstance(honest, ev.DiagnosticReported):
            yield ev.DiagnosticReported(replace(honest.envelope, **changes))
        elif isinstance(honest, ev.GateReported):
            yield ev.GateReported(replace(honest.report, **changes))
        elif isinstance(honest, ev.CertificationReported):
            yield ev.CertificationReported(replace(honest.report, **changes))


def advance(trace: Trace, state: State, event: ev.Event) -> tuple[Trace, State]:
    after, commands = step(state, event)
    transition = Transition(state, event, after, commands)
    check(trace, transition)
    return (*trace, transition), after


def settle(trace: Trace, state: State, outcome: ev.Outcome) -> tuple[Trace, State]:
    """Answer requests until an action may come, each after forgeries that must bounce."""
    while state.pending is not None:
        for forged in forgeries(state, len(trace)):
            trace, state = advance(trace, state, forged)
        trace, state = advance(trace, state, answer(state, outcome, len(trace)))
    return trace, state


def begin(policy: Policy) -> tuple[Trace, State]:
    state, commands = start(policy)
    assert commands == (ev.RunDiagnostic(BASE, DIAGNOSTIC),)
    return settle((), state, "pass")


def play(trace: Trace, state: State, move: Move) -> tuple[Trace, State]:
    trace, state = advance(trace, state, move.event)
    return settle(trace, state, move.outcome)


# ------------------------------------------------------------------------- invariants

Invariant = Callable[[Trace, Transition], None]


def genuine(t: Transition) -> bool:
    """Whether a report answers the request that was pending, by its own fields."""
    if isinstance(t.event, ev.DiagnosticReported):
        report: ev.Envelope | ev.Report = t.event.envelope
        suite = DIAGNOSTIC
    else:
        assert isinstance(t.event, ev.GateReported | ev.CertificationReported)
        report, suite = t.event.report, GATE
    return (
        report.state_id == t.before.pending
        and report.suite_id == suite
        and report.execution_id not in t.before.executions
    )


def retained_by(trace: Trace) -> list[str]:
    """The retained states as the protocol defines them, recomputed from the gate reports."""
    retained = [BASE]
    for t in trace:
        if isinstance(t.event, ev.GateReported) and genuine(t):
            passed = t.event.report.outcome == "pass"
            if passed or not t.before.policy.admission:
                retained.append(t.event.report.state_id)
    return retained


def forged_reports_change_nothing(_: Trace, t: Transition) -> None:
    if isinstance(t.event, REPORTS) and not genuine(t):
        assert without_tallies(t.after) == without_tallies(t.before)
        told, again = t.commands
        assert isinstance(told, ev.Answer) and VERDICT_OF[told.rule] is Verdict.STALE
        assert isinstance(again, ev.RunDiagnostic | ev.RunGate | ev.RunCertification)
        assert again.state_id == t.before.pending


def checkpoint_moves_by_a_gate_pass_only(_: Trace, t: Transition) -> None:
    passed = isinstance(t.event, ev.GateReported) and genuine(t) and t.event.report.passed
    if not passed:
        assert t.after.checkpoint == t.before.checkpoint
        return
    assert isinstance(t.event, ev.GateReported)
    assert t.after.checkpoint is not None
    assert t.after.checkpoint.state_id == t.event.report.state_id
    assert t.after.checkpoint.execution_id == t.event.report.execution_id


def working_state_follows_admission(trace: Trace, t: Transition) -> None:
    assert list(t.after.retained) == retained_by((*trace, t))
    if isinstance(t.event, ev.GateReported) and genuine(t):
        kept = t.event.report.passed or not t.before.policy.admission
        wanted = t.event.report.state_id if kept else t.before.current
        moved = ev.Retain(wanted) if kept else ev.Restore(wanted)
        assert t.after.current == wanted and moved in t.commands


def agent_learns_of_admission_only_with_a(_: Trace, t: Transition) -> None:
    told = {c.rule for c in t.commands if isinstance(c, ev.Answer)}
    judged = {Rule.PROPOSAL_ADMITTED, Rule.PROPOSAL_REJECTED}
    if isinstance(t.event, ev.GateReported) and genuine(t):
        rule = Rule.PROPOSAL_ADMITTED if t.event.report.passed else Rule.PROPOSAL_REJECTED
        assert told == ({rule} if t.before.policy.admission else {Rule.PROPOSAL_APPLIED})
    else:
        assert not told & judged


def no_edit_on_foreign_evidence(_: Trace, t: Transition) -> None:
    """With B = 1 a state-hash mismatch after delivery never lets an edit through."""
    delivered, policy = t.before.delivered, t.before.policy
    if not isinstance(t.event, ev.EditProposed) or t.event.state_id == t.before.current:
        return
    mismatch = delivered is not None and delivered.state_id != t.before.current
    if policy.binding and mismatch:
        (told,) = t.commands
        assert isinstance(told, ev.Answer) and told.rule is Rule.EVIDENCE_STALE_EDIT
        assert told.envelope is not None and told.envelope.state_id == t.before.current
        assert t.after.phase is Phase.READY and t.after.pending is None
        assert t.after.retained == t.before.retained
        assert t.after.counts.revisions == t.before.counts.revisions
        assert t.after.counts.interceptions_edit == t.before.counts.interceptions_edit + 1
    else:
        assert t.commands == (ev.RunGate(t.event.state_id, GATE),)
        assert t.after.counts.revisions == t.before.counts.revisions + 1


def evidence_shown_is_what_the_arm_says(trace: Trace, t: Transition) -> None:
    """Stale envelopes are exactly those of the previously retained state; B = 1 shows none."""
    if not isinstance(t.event, ev.TestRequested):
        return
    retained = retained_by(trace)
    previous = retained[-2] if len(retained) > 1 else retained[-1]
    stale = t.before.policy.evidence == "stale" and previous != retained[-1]
    intercepted = stale and t.before.policy.binding
    (told,) = t.commands
    assert isinstance(told, ev.Answer) and told.envelope is not None
    shown = previous if stale and not intercepted else retained[-1]
    assert told.envelope.state_id == shown
    assert told.envelope.payload == f"payload of {shown}"
    assert (told.rule is Rule.EVIDENCE_STALE_DELIVERY) == intercepted
    assert t.after.delivered == told.envelope
    assert t.after.counts.visible_tests == t.before.counts.visible_tests + 1
    gained = t.after.counts.interceptions_delivery - t.before.counts.interceptions_delivery
    assert gained == int(intercepted)


def without_tallies(state: State) -> State:
    empty = replace(start(state.policy)[0].counts)
    return replace(state, counts=empty, rules=())


def idle_actions_change_counters_only(_: Trace, t: Transition) -> None:
    noop = isinstance(t.event, ev.EditProposed) and t.event.state_id == t.before.current
    if isinstance(t.event, ev.Malformed | ev.Refused | ev.Looked) or noop:
        assert without_tallies(t.after) == without_tallies(t.before)
        changed = {
            name
            for name, value in vars(t.after.counts).items()
            if value != getattr(t.before.counts, name)
        }
        assert "actions" in changed
        assert changed <= {"actions", "invalid_actions", "refused_actions"}


def every_action_is_counted_once(_: Trace, t: Transition) -> None:
    ours = not isinstance(t.event, (*REPORTS, ev.BudgetEnded))
    assert t.after.counts.actions == t.before.counts.actions + int(ours)


def acceptance_follows_the_rule(trace: Trace, t: Transition) -> None:
    end = t.after.end
    if end is None or not end.accepted:
        return
    assert end.verdict is Verdict.ADMITTED
    if not t.before.policy.certification:
        assert isinstance(t.event, ev.SubmitRequested)
        assert (end.via, end.state_id, end.reason) == ("submission", t.before.current, "submitted")
        return
    assert isinstance(t.event, ev.CertificationReported) and genuine(t)
    assert t.event.report.outcome == "pass" and t.event.report.state_id == end.state_id != BASE
    gates = [
        g.event.report
        for g in trace
        if isinstance(g.event, ev.GateReported) and genuine(g)
        if g.event.report.state_id == end.state_id
    ]
    assert gates and gates[-1].outcome == "pass"
    checkpoint = t.before.checkpoint
    if end.via == "checkpoint":
        assert end.reason in ("actions", "wall", "tokens")
        assert checkpoint is not None and checkpoint.state_id == end.state_id
    else:
        assert end.reason == "submitted" and end.state_id == t.before.current


def abstention_never_completes(_: Trace, t: Transition) -> None:
    if isinstance(t.event, ev.EscalateRequested):
        assert t.after.end is not None and not t.after.end.accepted
        assert t.after.end.verdict is Verdict.ESCALATED
    if isinstance(t.event, ev.BudgetEnded) and not t.before.policy.certification:
        assert t.after.end is not None and not t.after.end.accepted


def base_tree_is_no_candidate(_: Trace, t: Transition) -> None:
    runs = [c for c in t.commands if isinstance(c, ev.RunCertification)]
    assert BASE not in {c.state_id for c in runs}
    if isinstance(t.event, ev.SubmitRequested) and t.before.policy.certification:
        assert bool(runs) == (t.before.current != BASE)
        rejected = t.after.counts.rejected_submissions - t.before.counts.rejected_submissions
        assert rejected == int(t.before.current == BASE)


def each_state_is_observed_once(_: Trace, t: Transition) -> None:
    seen = [envelope.state_id for envelope in t.after.evidence]
    assert len(seen) == len(set(seen))
    if t.after.phase is Phase.READY:
        assert set(t.after.retained) <= set(seen)
        assert {report.state_id for report in t.after.gate} <= set(seen)


def flaky_means_disagreement(_: Trace, t: Transition) -> None:
    gained = t.after.counts.flaky_certifications - t.before.counts.flaky_certifications
    if isinstance(t.event, ev.CertificationReported) and genuine(t):
        earlier = [g for g in t.before.gate if g.state_id == t.event.report.state_id][-1]
        assert gained == int(earlier.passed != t.event.report.passed)
    else:
        assert gained == 0


INVARIANTS: tuple[Invariant, ...] = (
    forged_reports_change_nothing,
    checkpoint_moves_by_a_gate_pass_only,
    working_state_follows_admission,
    agent_learns_of_admission_only_with_a,
    no_edit_on_foreign_evidence,
    evidence_shown_is_what_the_arm_says,
    idle_actions_change_counters_only,
    every_action_is_counted_once,
    acceptance_follows_the_rule,
    abstention_never_completes,
    base_tree_is_no_candidate,
    each_state_is_observed_once,
    flaky_means_disagreement,
)


def check(trace: Trace, transition: Transition) -> None:
    for invariant in INVARIANTS:
        invariant(trace, transition)
