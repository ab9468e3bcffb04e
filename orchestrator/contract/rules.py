"""The predicates that admit: one function per guard, pure, each a line or a table.

``machine`` decides *when* a guard is asked, this module *what* it says. The conformance cases and
the negative controls of the property tests switch these off one at a time.
"""

from orchestrator.contract.events import Envelope, Report
from orchestrator.contract.policy import Policy
from orchestrator.contract.verdicts import Rule


def is_bound(envelope: Envelope, state_id: str, suite_id: str) -> bool:
    """B: evidence may be used only for the state and the suite it is of (paper §6)."""
    return envelope.state_id == state_id and envelope.suite_id == suite_id


def answers(report: Envelope | Report, state_id: str | None, suite_id: str) -> bool:
    """A report counts only where it is of the state and the suite that were asked for."""
    return report.state_id == state_id and report.suite_id == suite_id


def is_fresh(execution_id: str, seen: frozenset[str]) -> bool:
    """An execution is reported once; evidence that comes twice is a replay."""
    return execution_id not in seen


def retains(policy: Policy, passed: bool) -> bool:
    """A: a rejected proposal is rolled back; without A every proposal stays."""
    return passed or not policy.admission


def moves_checkpoint(passed: bool) -> bool:
    """In every arm the recorded checkpoint moves by a gate pass and by nothing else."""
    return passed


def is_empty(policy: Policy, state_id: str) -> bool:
    """C: the base tree is no candidate."""
    return state_id == policy.base_state_id


CERTIFICATION: dict[tuple[bool, bool], Rule] = {
    # (earlier gate verdict, fresh run)
    (True, True): Rule.COMPLETION_CERTIFIED,
    (True, False): Rule.COMPLETION_FLAKY,
    (False, True): Rule.COMPLETION_FLAKY,
    (False, False): Rule.COMPLETION_FAILED,
}


def certify(earlier: bool, fresh: bool) -> Rule:
    """C: certified where gate and fresh run both pass; disagreement either way is flaky."""
    return CERTIFICATION[earlier, fresh]
