"""The transaction: ``step(state, event) -> (state, commands)``, and the table that says it all.

A report that does not answer what was asked, or that was reported before, is refused and asked for
again; an event that the table does not list raises :class:`ContractViolation`. Nothing here
performs I/O, reads a clock or draws a number.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.contract import rules
from orchestrator.contract.events import (
    Answer,
    BudgetEnded,
    CertificationReported,
    Command,
    DiagnosticReported,
    EditProposed,
    Envelope,
    EscalateRequested,
    Event,
    GateReported,
    Looked,
    Malformed,
    Refused,
    Report,
    Restore,
    Retain,
    RunCertification,
    RunDiagnostic,
    RunGate,
    SubmitRequested,
    TestRequested,
)
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import Checkpoint, End, Phase, State
from orchestrator.contract.verdicts import Rule

Step = tuple[State, tuple[Command, ...]]


@dataclass
class ContractViolation(Exception):
    """The driver sent an event that has no place in this phase: a defect of the driver."""

    phase: Phase
    event: str

    def __str__(self) -> str:
        return f"{self.event} is not an event of phase {self.phase}"


def start(policy: Policy) -> Step:
    """The contract before the first action: the base tree awaits its diagnostic."""
    state = State(policy, Phase.OBSERVING, (policy.base_state_id,), policy.base_state_id)
    return state, (_request(state),)


def step(state: State, event: Event) -> Step:
    """One transition of the table. Raises ContractViolation where the table has no such entry."""
    handler = TABLE.get((state.phase, type(event)))
    if handler is None:
        raise ContractViolation(state.phase, type(event).__name__)
    report = _report_of(event)
    if report is not None and (refusal := _refusal(state, report)) is not None:
        refused = _fired(_counted(state, refused_reports=1), refusal)
        return refused, (Answer(refusal), _request(state))
    return handler(state, event)


# --------------------------------------------------------------------------------- actions


def _malformed(state: State, _: Malformed) -> Step:
    counted = _counted(state, actions=1, invalid_actions=1)
    return _fired(counted, Rule.ACTION_MALFORMED), (Answer(Rule.ACTION_MALFORMED),)


def _refused(state: State, _: Event) -> Step:
    counted = _counted(state, actions=1, refused_actions=1)
    return _fired(counted, Rule.ACTION_REFUSED), (Answer(Rule.ACTION_REFUSED),)


def _looked(state: State, _: Looked) -> Step:
    return _counted(state, actions=1), ()


def _tested(state: State, _: TestRequested) -> Step:
    """Evidence is delivered either way; with B = 1 never that of another state."""
    counted = _counted(state, actions=1, visible_tests=1)
    stale = state.policy.evidence == "stale"
    shown = _evidence(state, state.previous if stale else state.current)
    if state.policy.binding and not _bound(state, shown):
        intercepted = _counted(counted, interceptions_delivery=1)
        return _delivered(intercepted, Rule.EVIDENCE_STALE_DELIVERY, _fresh(state), tested=True)
    return _delivered(counted, Rule.EVIDENCE_DELIVERED, shown, tested=True)


def _edited(state: State, event: EditProposed) -> Step:
    """A proposal goes to the gate, unless it is none or rests on another state's evidence."""
    if event.state_id == state.current:
        return _refused(state, event)
    counted = _counted(state, actions=1)
    if state.policy.binding and state.delivered and not _bound(state, state.delivered):
        intercepted = _counted(counted, interceptions_edit=1)
        return _delivered(intercepted, Rule.EVIDENCE_STALE_EDIT, _fresh(state), tested=False)
    return _await(_counted(counted, revisions=1), Phase.GATING, event.state_id)


def _submitted(state: State, _: SubmitRequested) -> Step:
    counted = _counted(state, actions=1, submissions=1)
    if not state.policy.certification:
        return _ended(
            counted, End(Rule.COMPLETION_UNCHECKED, "submitted", "submission", state.current)
        )
    if rules.is_empty(state.policy, state.current):
        return _submission_rejected(counted, Rule.COMPLETION_EMPTY)
    return _await(counted, Phase.CERTIFYING_SUBMISSION, state.current)


def _escalated(state: State, _: EscalateRequested) -> Step:
    return _ended(_counted(state, actions=1), End(Rule.ABSTENTION_ESCALATED, "escalated"))


def _budget_ended(state: State, event: BudgetEnded) -> Step:
    """Only C = 1 may complete from a checkpoint, and only after a fresh certification of it."""
    if not state.policy.certification or state.checkpoint is None:
        return _ended(state, End(Rule.ABSTENTION_BUDGET, event.reason))
    if rules.is_empty(state.policy, state.checkpoint.state_id):
        return _ended(state, End(Rule.COMPLETION_EMPTY, event.reason))
    ending = replace(state, budget=event.reason)
    return _await(ending, Phase.CERTIFYING_CHECKPOINT, state.checkpoint.state_id)


# --------------------------------------------------------------------------------- reports


def _observed(state: State, event: DiagnosticReported) -> Step:
    evidence = (*state.evidence, event.envelope)
    return replace(state, evidence=evidence, phase=Phase.READY, pending=None), ()


def _gated(state: State, event: GateReported) -> Step:
    """The rule of a proposal: the gate's bit moves the checkpoint, A decides about the tree."""
    report, before = event.report, state.current
    passed = report.passed
    judged = replace(state, gate=(*state.gate, report), phase=Phase.READY, pending=None)
    if rules.moves_checkpoint(passed):
        judged = replace(judged, checkpoint=Checkpoint(report.state_id, report.execution_id))
    judged = _counted(judged, gate_passes=int(passed), gate_rejections=int(not passed))
    answer = _proposal_rule(state.policy, passed)
    if rules.retains(state.policy, passed):
        judged = replace(judged, retained=(*state.retained, report.state_id))
        commands: tuple[Command, ...] = (Retain(report.state_id), Answer(answer))
    else:
        judged = _counted(judged, rollbacks=1)
        commands = (Restore(before), Answer(answer))
    judged = _fired(judged, answer)
    if state.envelope_of(report.state_id) is not None:
        return judged, commands
    observing, requests = _await(judged, Phase.OBSERVING, report.state_id)
    return observing, (*commands, *requests)


def _submission_certified(state: State, event: CertificationReported) -> Step:
    certified, rule = _certification(state, event.report)
    if rule is Rule.COMPLETION_CERTIFIED:
        return _ended(certified, End(rule, "submitted", "submission", event.report.state_id))
    return _submission_rejected(certified, rule)


def _checkpoint_certified(state: State, event: CertificationReported) -> Step:
    certified, rule = _certification(state, event.report)
    assert state.budget is not None  # set where this phase is entered
    if rule is Rule.COMPLETION_CERTIFIED:
        return _ended(certified, End(rule, state.budget, "checkpoint", event.report.state_id))
    return _ended(certified, End(rule, state.budget))


# --------------------------------------------------------------------------------- the table

Handler = Callable[[State, Any], Step]

TABLE: dict[tuple[Phase, type[Event]], Handler] = {
    (Phase.OBSERVING, DiagnosticReported): _observed,
    (Phase.READY, Malformed): _malformed,
    (Phase.READY, Refused): _refused,
    (Phase.READY, Looked): _looked,
    (Phase.READY, TestRequested): _tested,
    (Phase.READY, EditProposed): _edited,
    (Phase.READY, SubmitRequested): _submitted,
    (Phase.READY, EscalateRequested): _escalated,
    (Phase.READY, BudgetEnded): _budget_ended,
    (Phase.GATING, GateReported): _gated,
    (Phase.CERTIFYING_SUBMISSION, CertificationReported): _submission_certified,
    (Phase.CERTIFYING_CHECKPOINT, CertificationReported): _checkpoint_certified,
}
"""States x events. What is not listed is a defect of the driver; ENDED lists nothing."""

# --------------------------------------------------------------------------------- parts


def _request(state: State) -> Command:
    """The run that the phase waits for."""
    assert state.pending is not None  # every phase that requests a run names its state
    if state.phase is Phase.OBSERVING:
        return RunDiagnostic(state.pending, state.policy.diagnostic_suite_id)
    run = RunGate if state.phase is Phase.GATING else RunCertification
    return run(state.pending, state.policy.gate_suite_id)


def _await(state: State, phase: Phase, state_id: str) -> Step:
    waiting = replace(state, phase=phase, pending=state_id)
    return waiting, (_request(waiting),)


def _report_of(event: Event) -> Envelope | Report | None:
    if isinstance(event, DiagnosticReported):
        return event.envelope
    return event.report if isinstance(event, GateReported | CertificationReported) else None


def _refusal(state: State, report: Envelope | Report) -> Rule | None:
    """Why a report is not the answer to the pending request, or None where it is."""
    policy = state.policy
    observing = state.phase is Phase.OBSERVING
    suite_id = policy.diagnostic_suite_id if observing else policy.gate_suite_id
    if not rules.answers(report, state.pending, suite_id):
        return Rule.EVIDENCE_MISADDRESSED
    if not rules.is_fresh(report.execution_id, state.executions):
        return Rule.EVIDENCE_REPLAYED
    return None


def _bound(state: State, envelope: Envelope) -> bool:
    return rules.is_bound(envelope, state.current, state.policy.diagnostic_suite_id)


def _evidence(state: State, state_id: str) -> Envelope:
    envelope = state.envelope_of(state_id)
    assert envelope is not None  # READY is reached only after every retained state was observed
    return envelope


def _fresh(state: State) -> Envelope:
    return _evidence(state, state.current)


def _delivered(state: State, rule: Rule, envelope: Envelope, *, tested: bool) -> Step:
    hits = int(tested and envelope.deadline_hit)
    shown = replace(_counted(state, test_deadline_hits=hits), delivered=envelope)
    return _fired(shown, rule), (Answer(rule, envelope),)


def _proposal_rule(policy: Policy, passed: bool) -> Rule:
    if not policy.admission:
        return Rule.PROPOSAL_APPLIED
    return Rule.PROPOSAL_ADMITTED if passed else Rule.PROPOSAL_REJECTED


def _certification(state: State, report: Report) -> tuple[State, Rule]:
    """The verdict of one fresh run, recorded."""
    rule = rules.certify(state.gate_passed(report.state_id), report.passed)
    recorded = replace(state, certifications=(*state.certifications, report), pending=None)
    flaky = int(rule is Rule.COMPLETION_FLAKY)
    return _counted(recorded, certifications=1, flaky_certifications=flaky), rule


def _submission_rejected(state: State, rule: Rule) -> Step:
    rejected = _counted(replace(state, phase=Phase.READY), rejected_submissions=1)
    return _fired(rejected, rule), (Answer(rule),)


def _ended(state: State, end: End) -> Step:
    ended = replace(state, phase=Phase.ENDED, pending=None, end=end)
    return _fired(ended, end.rule), (Answer(end.rule),)


def _counted(state: State, **more: int) -> State:
    counts = {name: getattr(state.counts, name) + number for name, number in more.items()}
    return replace(state, counts=replace(state.counts, **counts))


def _fired(state: State, rule: Rule) -> State:
    return state if rule in state.rules else replace(state, rules=(*state.rules, rule))
