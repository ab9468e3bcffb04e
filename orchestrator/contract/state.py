"""The state of the contract: one frozen value that says everything the next step depends on."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from orchestrator.contract.events import EndReason, Envelope, Report
from orchestrator.contract.policy import Policy
from orchestrator.contract.verdicts import VERDICT_OF, Rule, Verdict


class Phase(StrEnum):
    """What the contract waits for."""

    OBSERVING = "observing"
    READY = "ready"
    GATING = "gating"
    CERTIFYING_SUBMISSION = "certifying-submission"
    CERTIFYING_CHECKPOINT = "certifying-checkpoint"
    ENDED = "ended"


@dataclass(frozen=True)
class Checkpoint:
    """The last state that passed the gate, and the execution that showed it."""

    state_id: str
    execution_id: str


@dataclass(frozen=True)
class Counts:
    """Tallies of one rollout; the names are columns of the rollout table."""

    actions: int = 0
    invalid_actions: int = 0
    refused_actions: int = 0
    revisions: int = 0
    visible_tests: int = 0
    test_deadline_hits: int = 0
    interceptions_delivery: int = 0
    interceptions_edit: int = 0
    gate_passes: int = 0
    gate_rejections: int = 0
    rollbacks: int = 0
    submissions: int = 0
    rejected_submissions: int = 0
    certifications: int = 0
    flaky_certifications: int = 0
    refused_reports: int = 0


@dataclass(frozen=True)
class End:
    """How the rollout ended. ``state_id`` and ``via`` are None where nothing was accepted."""

    rule: Rule
    reason: Literal["submitted", "escalated"] | EndReason
    via: Literal["submission", "checkpoint"] | None = None
    state_id: str | None = None

    @property
    def verdict(self) -> Verdict:
        return VERDICT_OF[self.rule]

    @property
    def accepted(self) -> bool:
        return self.state_id is not None


@dataclass(frozen=True)
class State:
    """Everything the contract knows.

    ``retained``: the base and each retained proposal, in order; the last one is the working state.
    ``pending``: the state id a report is awaited for. ``evidence``: one envelope per state seen.
    ``delivered``: the envelope last shown to the agent. ``gate`` and ``certifications``: every
    report, in order. ``rules``: the rules that fired, each once, in order of first use.
    """

    policy: Policy
    phase: Phase
    retained: tuple[str, ...]
    pending: str | None
    evidence: tuple[Envelope, ...] = ()
    delivered: Envelope | None = None
    checkpoint: Checkpoint | None = None
    gate: tuple[Report, ...] = ()
    certifications: tuple[Report, ...] = ()
    budget: EndReason | None = None
    rules: tuple[Rule, ...] = ()
    counts: Counts = field(default_factory=Counts)
    end: End | None = None

    @property
    def current(self) -> str:
        """State id of the working tree."""
        return self.retained[-1]

    @property
    def previous(self) -> str:
        """The retained state before the last retained revision; the base coincides with itself."""
        return self.retained[-2] if len(self.retained) > 1 else self.retained[-1]

    @property
    def executions(self) -> frozenset[str]:
        """Ids of all executions reported so far."""
        reports = (*self.gate, *self.certifications)
        return frozenset(e.execution_id for e in self.evidence) | frozenset(
            report.execution_id for report in reports
        )

    def envelope_of(self, state_id: str) -> Envelope | None:
        """The diagnostic evidence of a state, or None where the state was never seen."""
        return next((e for e in self.evidence if e.state_id == state_id), None)

    def gate_passed(self, state_id: str) -> bool:
        """The last gate verdict of a state; False where the gate never ran on it."""
        reports = [report for report in self.gate if report.state_id == state_id]
        return bool(reports) and reports[-1].passed
