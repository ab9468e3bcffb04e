"""What goes into the contract (events) and what comes out (commands); plain frozen values.

Evidence travels as ``E = (h_code, h_suite, execution_id, payload)`` (paper §6). No value here holds
a time, so that two runs of one lock have the same events.
"""

from dataclasses import dataclass
from typing import Literal

from orchestrator.contract.verdicts import Rule

Outcome = Literal["pass", "fail", "timeout", "void"]
EndReason = Literal["actions", "wall", "tokens"]

# --------------------------------------------------------------------------------- evidence


@dataclass(frozen=True)
class Envelope:
    """Diagnostic evidence: of which state and suite, from which execution, and what it says."""

    state_id: str
    suite_id: str
    execution_id: str
    payload: str
    deadline_hit: bool = False


@dataclass(frozen=True)
class Report:
    """One run of the gate suite. Only ``pass`` is a pass; it says one bit and nothing else."""

    state_id: str
    suite_id: str
    execution_id: str
    outcome: Outcome

    @property
    def passed(self) -> bool:
        return self.outcome == "pass"


# --------------------------------------------------------------------------------- events


@dataclass(frozen=True)
class Malformed:
    """The reply was no valid action; ``rule`` is the parser's stable id."""

    rule: str


@dataclass(frozen=True)
class Refused:
    """A valid action was refused outside the contract (budget, path, no-op); costs the action."""

    action: str
    rule: str


@dataclass(frozen=True)
class Looked:
    """A search, view or shell action: nothing the contract guards has changed."""

    action: Literal["search", "view", "shell"]


@dataclass(frozen=True)
class TestRequested:
    """The agent asked for evidence."""

    __test__ = False


@dataclass(frozen=True)
class EditProposed:
    """A valid edit whose application to the working state gives ``state_id``."""

    state_id: str


@dataclass(frozen=True)
class SubmitRequested:
    """The agent declared completion of the working state."""


@dataclass(frozen=True)
class EscalateRequested:
    """The agent abstained."""


@dataclass(frozen=True)
class BudgetEnded:
    """A budget ran out between two actions."""

    reason: EndReason


@dataclass(frozen=True)
class DiagnosticReported:
    """Answer to :class:`RunDiagnostic`."""

    envelope: Envelope


@dataclass(frozen=True)
class GateReported:
    """Answer to :class:`RunGate`."""

    report: Report


@dataclass(frozen=True)
class CertificationReported:
    """Answer to :class:`RunCertification`."""

    report: Report


Event = (
    Malformed
    | Refused
    | Looked
    | TestRequested
    | EditProposed
    | SubmitRequested
    | EscalateRequested
    | BudgetEnded
    | DiagnosticReported
    | GateReported
    | CertificationReported
)

# --------------------------------------------------------------------------------- commands


@dataclass(frozen=True)
class RunDiagnostic:
    """Run the diagnostic suite on a state, uncharged."""

    state_id: str
    suite_id: str


@dataclass(frozen=True)
class RunGate:
    """Run the gate suite on a proposal; the verdict cache may answer."""

    state_id: str
    suite_id: str


@dataclass(frozen=True)
class RunCertification:
    """Run the completion suite afresh on the selected state; the verdict cache may not answer."""

    state_id: str
    suite_id: str


@dataclass(frozen=True)
class Retain:
    """The proposal stays: ``state_id`` is the working state from now on."""

    state_id: str


@dataclass(frozen=True)
class Restore:
    """The proposal goes: ``state_id``, the state before it, is the working state again."""

    state_id: str


@dataclass(frozen=True)
class Answer:
    """What the agent is told. ``envelope`` is the evidence that comes with it, if any.

    The agent learns no more of a rule than protocol §1 allows; the text is the agent room's.
    """

    rule: Rule
    envelope: Envelope | None = None


Command = RunDiagnostic | RunGate | RunCertification | Retain | Restore | Answer
