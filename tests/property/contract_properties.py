"""What has to hold of every single transition, written without the machine's own guards."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.contract import events as ev
from orchestrator.contract.state import Phase, State
from tests.property.contract_moves import ANSWER_OF, BASE, DIAGNOSTIC, GATE, World, suite_of


@dataclass(frozen=True)
class Transition:
    world: World
    before: State
    event: ev.Event
    after: State
    commands: tuple[ev.Command, ...]


def genuine(t: Transition) -> bool:
    """Whether the event is the answer to what was asked, by its own fields."""
    event = t.event
    if type(event) is not ANSWER_OF.get(t.before.phase):
        return False
    report = event.envelope if isinstance(event, ev.DiagnosticReported) else event.report
    return (
        report.state_id == t.before.pending
        and report.suite_id == suite_of(t.before)
        and report.execution_id not in t.before.executions
    )


def passed(t: Transition) -> str | None:
    """The state that this transition's gate run passed, or None."""
    fits = isinstance(t.event, ev.GateReported) and genuine(t)
    if fits and t.event.report.outcome == "pass":  # type: ignore[union-attr]
        return t.event.report.state_id  # type: ignore[union-attr]
    return None


def checkpoint_moves_only_by_a_gate_pass_of_the_pending_state(t: Transition) -> bool:
    state_id = passed(t)
    if state_id is None:
        return t.after.checkpoint == t.before.checkpoint
    kept = t.after.checkpoint
    return kept is not None and kept.state_id == state_id == t.before.pending


def nothing_moves_on_evidence_of_something_else(t: Transition) -> bool:
    """A report that is no answer changes tallies only, and is asked for again."""
    if not isinstance(t.event, tuple(ANSWER_OF.values())) or genuine(t):
        return True
    same = replace(t.after, counts=t.before.counts, rules=t.before.rules) == t.before
    return same and len(t.commands) == 2 and t.commands[-1] == _asked(t.before)


def a_proposal_is_retained_only_by_its_own_gate_run(t: Transition) -> bool:
    if t.after.retained == t.before.retained:
        return True
    fits = isinstance(t.event, ev.GateReported) and genuine(t)
    return fits and t.after.retained == (*t.before.retained, t.before.pending)


def with_admission_a_rejected_proposal_is_rolled_back(t: Transition) -> bool:
    if not (isinstance(t.event, ev.GateReported) and genuine(t)):
        return True
    kept = passed(t) is not None or not t.before.policy.admission
    wanted = t.event.report.state_id if kept else t.before.current
    return t.after.current == wanted


def with_binding_no_edit_rests_on_another_states_evidence(t: Transition) -> bool:
    shown = t.before.delivered
    stale = shown is not None and shown.state_id != t.before.current
    if not (isinstance(t.event, ev.EditProposed) and t.before.policy.binding and stale):
        return True
    idle = t.after.phase is Phase.READY and t.after.retained == t.before.retained
    return idle and t.after.counts.revisions == t.before.counts.revisions


def with_binding_no_evidence_of_another_state_is_shown(t: Transition) -> bool:
    shown = [c.envelope for c in t.commands if isinstance(c, ev.Answer) and c.envelope]
    if not t.before.policy.binding:
        return True
    return all(e.state_id == t.after.current and e.suite_id == DIAGNOSTIC for e in shown)


def stale_evidence_is_of_the_previous_retained_state(t: Transition) -> bool:
    """Never a rejected proposal's; before the first retained revision it is the base's."""
    policy = t.before.policy
    if not isinstance(t.event, ev.TestRequested) or policy.binding or policy.evidence == "current":
        return True
    answer = t.commands[0]
    assert isinstance(answer, ev.Answer) and answer.envelope is not None
    retained = t.before.retained
    return answer.envelope.state_id == (retained[-2] if len(retained) > 1 else retained[-1])


def with_certification_acceptance_is_freshly_certified_and_never_of_the_base(
    t: Transition,
) -> bool:
    end = t.after.end
    if end is None or not end.accepted or not t.before.policy.certification:
        return True
    fits = isinstance(t.event, ev.CertificationReported) and genuine(t)
    if not fits or t.event.report.outcome != "pass":  # type: ignore[union-attr]
        return False
    gates = [report.outcome for report in t.before.gate if report.state_id == end.state_id]
    return end.state_id == t.event.report.state_id != BASE and gates[-1:] == ["pass"]  # type: ignore[union-attr]


def without_certification_acceptance_is_an_explicit_submission(t: Transition) -> bool:
    end = t.after.end
    if end is None or not end.accepted or t.before.policy.certification:
        return True
    submitted = isinstance(t.event, ev.SubmitRequested) and end.via == "submission"
    return submitted and end.state_id == t.before.current


def abstention_accepts_nothing(t: Transition) -> bool:
    escalated = isinstance(t.event, ev.EscalateRequested)
    return not escalated or (t.after.end is not None and not t.after.end.accepted)


def budgets_are_never_overdrawn(t: Transition) -> bool:
    """Tallies only grow, one action an event, and none beyond its budget."""
    before, after = vars(t.before.counts), vars(t.after.counts)
    grown = all(after[name] >= before[name] >= 0 for name in before)
    allowance, counts = t.world.allowance, t.after.counts
    if not grown or counts.actions > t.before.counts.actions + 1 or allowance is None:
        return grown and counts.actions <= t.before.counts.actions + 1
    return (
        counts.actions <= allowance.budgets.actions
        and counts.revisions <= allowance.revision_cap
        and counts.visible_tests <= allowance.budgets.visible_tests
    )


def every_request_is_of_the_pending_state(t: Transition) -> bool:
    runs = (ev.RunDiagnostic, ev.RunGate, ev.RunCertification)
    asked = [command for command in t.commands if isinstance(command, runs)]
    if t.after.phase not in ANSWER_OF:
        return not asked and t.after.pending is None
    return asked == [_asked(t.after)]


def _asked(state: State) -> ev.Command:
    assert state.pending is not None
    if state.phase is Phase.OBSERVING:
        return ev.RunDiagnostic(state.pending, DIAGNOSTIC)
    run = ev.RunGate if state.phase is Phase.GATING else ev.RunCertification
    return run(state.pending, GATE)


PROPERTIES: tuple[Callable[[Transition], bool], ...] = (
    checkpoint_moves_only_by_a_gate_pass_of_the_pending_state,
    nothing_moves_on_evidence_of_something_else,
    a_proposal_is_retained_only_by_its_own_gate_run,
    with_admission_a_rejected_proposal_is_rolled_back,
    with_binding_no_edit_rests_on_another_states_evidence,
    with_binding_no_evidence_of_another_state_is_shown,
    stale_evidence_is_of_the_previous_retained_state,
    with_certification_acceptance_is_freshly_certified_and_never_of_the_base,
    without_certification_acceptance_is_an_explicit_submission,
    abstention_accepts_nothing,
    budgets_are_never_overdrawn,
    every_request_is_of_the_pending_state,
)
"""Checked on every transition; that every path ends is checked on the whole graph."""
