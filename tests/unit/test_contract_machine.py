"""The sentences of docs/protocol.md §1 "Contract components", one history each."""

import pytest

from orchestrator.contract import events as ev
from orchestrator.contract import rules
from orchestrator.contract.machine import TABLE, start, step
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import Phase, State
from orchestrator.contract.verdicts import VERDICT_OF, Rule, Verdict


class History:
    """A rollout whose evaluator answers as it is told."""

    def __init__(self, arm: str, evidence: str = "current") -> None:
        self.policy = Policy(
            "stale" if evidence == "stale" else "current",
            "B" in arm,
            "A" in arm,
            "C" in arm,
            "base",
            "diagnostic",
            "gate",
        )
        self.state, commands = start(self.policy)
        self.runs = 0
        self.told: list[ev.Answer] = []
        self._drain(commands, "pass")

    def does(self, event: ev.Event, outcome: ev.Outcome = "pass") -> ev.Answer:
        """Send an event; ``outcome`` is what gate or certification then say. Gives the answer."""
        self.state, commands = step(self.state, event)
        self._drain(commands, outcome)
        return self.told[-1]

    def edits(self, state_id: str, outcome: ev.Outcome = "pass") -> ev.Answer:
        return self.does(ev.EditProposed(state_id), outcome)

    def tests(self) -> ev.Answer:
        return self.does(ev.TestRequested())

    def submits(self, outcome: ev.Outcome = "pass") -> ev.Answer:
        return self.does(ev.SubmitRequested(), outcome)

    def _drain(self, commands: tuple[ev.Command, ...], outcome: ev.Outcome) -> None:
        for command in commands:
            if isinstance(command, ev.Answer):
                self.told.append(command)
        for command in commands:
            if isinstance(command, ev.RunDiagnostic | ev.RunGate | ev.RunCertification):
                self.runs += 1
                self.state, more = step(self.state, self._report(command, outcome))
                self._drain(more, outcome)

    def _report(self, command: ev.Command, outcome: ev.Outcome) -> ev.Event:
        name = f"x{self.runs}"
        if isinstance(command, ev.RunDiagnostic):
            return ev.DiagnosticReported(
                ev.Envelope(command.state_id, "diagnostic", name, f"of {command.state_id}")
            )
        assert isinstance(command, ev.RunGate | ev.RunCertification)
        report = ev.Report(command.state_id, "gate", name, outcome)
        gate = isinstance(command, ev.RunGate)
        return ev.GateReported(report) if gate else ev.CertificationReported(report)


def payload(answer: ev.Answer) -> str:
    assert answer.envelope is not None
    return answer.envelope.payload


def checkpoint(state: State) -> str | None:
    return state.checkpoint.state_id if state.checkpoint else None


def test_before_the_first_retained_revision_stale_and_current_coincide() -> None:
    for evidence in ("current", "stale"):
        assert payload(History("", evidence).tests()) == "of base"


def test_stale_shows_the_state_before_the_last_retained_revision() -> None:
    history = History("", "stale")
    history.edits("one")
    assert payload(history.tests()) == "of base"
    history.edits("two")
    assert payload(history.tests()) == "of one"


def test_stale_never_shows_a_rejected_proposal() -> None:
    history = History("A", "stale")
    history.edits("one")
    history.edits("bad", "fail")
    assert payload(history.tests()) == "of base"
    history.edits("two")
    assert payload(history.tests()) == "of one"


def test_binding_intercepts_stale_evidence_at_delivery() -> None:
    history = History("B", "stale")
    history.edits("one")
    answer = history.tests()
    assert answer.rule is Rule.EVIDENCE_STALE_DELIVERY and payload(answer) == "of one"
    assert VERDICT_OF[answer.rule] is Verdict.STALE
    assert history.state.counts.visible_tests == 1
    assert history.edits("two").rule is Rule.PROPOSAL_APPLIED, "the fresh one counts as delivered"


def test_binding_lets_a_first_edit_through_before_any_evidence() -> None:
    history = History("B")
    assert history.edits("one").rule is Rule.PROPOSAL_APPLIED


def test_two_edits_in_a_row_without_evidence_meet_the_binding() -> None:
    history = History("B")
    history.tests()
    history.edits("one")
    answer = history.edits("two")
    assert answer.rule is Rule.EVIDENCE_STALE_EDIT and payload(answer) == "of one"
    counts = history.state.counts
    assert (counts.revisions, counts.interceptions_edit, counts.visible_tests) == (1, 1, 1)
    assert history.state.current == "one"
    assert history.edits("two").rule is Rule.PROPOSAL_APPLIED


def test_a_rollback_makes_the_earlier_evidence_current_again() -> None:
    history = History("BA")
    history.tests()
    history.edits("bad", "fail")
    assert history.edits("one").rule is Rule.PROPOSAL_ADMITTED


@pytest.mark.parametrize("arm", ["", "A"])
def test_the_gate_moves_the_recorded_checkpoint_in_every_arm(arm: str) -> None:
    history = History(arm)
    history.edits("one")
    history.edits("bad", "fail")
    assert checkpoint(history.state) == "one"
    assert history.state.current == ("one" if arm else "bad")


@pytest.mark.parametrize("outcome", ["fail", "timeout", "void"])
def test_only_a_pass_is_a_pass(outcome: ev.Outcome) -> None:
    history = History("AC")
    assert history.edits("one", outcome).rule is Rule.PROPOSAL_REJECTED
    assert checkpoint(history.state) is None


def test_without_admission_the_agent_hears_only_that_the_edit_was_applied() -> None:
    history = History("")
    assert {history.edits("one").rule, history.edits("bad", "fail").rule} == {Rule.PROPOSAL_APPLIED}


def test_without_certification_a_base_submission_is_accepted() -> None:
    history = History("")
    history.submits()
    assert history.state.end is not None and history.state.end.state_id == "base"


def test_with_certification_the_base_tree_is_an_empty_candidate() -> None:
    history = History("C")
    runs = history.runs
    assert history.submits().rule is Rule.COMPLETION_EMPTY
    assert history.runs == runs and history.state.phase is Phase.READY


def test_a_failed_certification_rejects_and_the_rollout_may_complete_later() -> None:
    history = History("C")
    history.edits("bad", "fail")
    assert history.submits("fail").rule is Rule.COMPLETION_FAILED
    history.edits("good")
    assert history.submits("pass").rule is Rule.COMPLETION_CERTIFIED
    assert history.state.end is not None and history.state.end.state_id == "good"
    assert history.state.counts.rejected_submissions == 1


@pytest.mark.parametrize("gate, fresh", [("pass", "fail"), ("fail", "pass"), ("pass", "timeout")])
def test_disagreement_either_way_is_flaky_and_keeps_the_checkpoint(
    gate: ev.Outcome, fresh: ev.Outcome
) -> None:
    history = History("C")
    history.edits("safe")
    history.edits("one", gate)
    before = history.state.checkpoint
    assert history.submits(fresh).rule is Rule.COMPLETION_FLAKY
    assert history.state.end is None and history.state.checkpoint == before
    assert history.state.counts.flaky_certifications == 1


def test_at_the_budgets_end_the_checkpoint_is_freshly_certified() -> None:
    history = History("C")
    history.edits("good")
    history.edits("bad", "fail")
    history.does(ev.BudgetEnded("actions"), "pass")
    end = history.state.end
    assert end is not None and (end.via, end.state_id, end.reason) == (
        "checkpoint",
        "good",
        "actions",
    )
    assert history.state.current == "bad", "the selected state need not be the working state"


def test_a_checkpoint_that_fails_its_certification_is_not_accepted() -> None:
    history = History("C")
    history.edits("good")
    assert history.does(ev.BudgetEnded("wall"), "fail").rule is Rule.COMPLETION_FLAKY
    assert history.state.end is not None and not history.state.end.accepted
    assert checkpoint(history.state) == "good"


def test_without_a_checkpoint_the_end_is_an_abstention() -> None:
    history = History("C")
    history.edits("bad", "fail")
    assert history.does(ev.BudgetEnded("tokens")).rule is Rule.ABSTENTION_BUDGET


def test_without_certification_a_checkpoint_never_completes() -> None:
    history = History("BA")
    history.edits("good")
    history.does(ev.BudgetEnded("actions"))
    assert history.state.end is not None and not history.state.end.accepted


def test_escalation_never_completes_not_even_from_a_checkpoint() -> None:
    history = History("BAC")
    history.edits("good")
    assert history.does(ev.EscalateRequested()).rule is Rule.ABSTENTION_ESCALATED
    assert history.state.end is not None and history.state.end.verdict is Verdict.ESCALATED


def test_a_state_seen_before_is_not_diagnosed_again() -> None:
    history = History("")
    history.edits("one")
    history.edits("two")
    runs = history.runs
    history.edits("one")
    assert history.runs == runs + 1, "the gate runs on every proposal, the diagnostic on new states"
    assert payload(history.tests()) == "of one"


def test_evidence_is_bound_to_state_and_suite() -> None:
    envelope = ev.Envelope("state", "suite", "x", "payload")
    assert rules.is_bound(envelope, "state", "suite")
    assert not rules.is_bound(envelope, "other", "suite")
    assert not rules.is_bound(envelope, "state", "other")


def test_every_rule_has_a_verdict_and_every_phase_a_row() -> None:
    assert set(VERDICT_OF) == set(Rule)
    assert {phase for phase, _ in TABLE} == set(Phase) - {Phase.ENDED}
