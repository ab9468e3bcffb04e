"""Verdicts and the rules that give them: stable ids that answers, ledgers and receipts quote.

One table maps each rule to its verdict; nothing else in the project decides what a rule means.
"""

from enum import StrEnum


class Verdict(StrEnum):
    """What the broker says of an action, of evidence or of a whole rollout."""

    ADMITTED = "ADMITTED"
    REJECTED = "REJECTED"
    STALE = "STALE"
    ABSTAINED = "ABSTAINED"
    ESCALATED = "ESCALATED"


class Rule(StrEnum):
    """Why. The values are stable ids: renaming one breaks stored receipts."""

    ACTION_MALFORMED = "action.malformed"
    ACTION_REFUSED = "action.refused"
    EVIDENCE_DELIVERED = "evidence.delivered"
    EVIDENCE_STALE_DELIVERY = "evidence.stale-at-delivery"
    EVIDENCE_STALE_EDIT = "evidence.stale-at-edit"
    EVIDENCE_MISADDRESSED = "evidence.misaddressed"
    EVIDENCE_REPLAYED = "evidence.replayed"
    PROPOSAL_APPLIED = "proposal.applied"
    PROPOSAL_ADMITTED = "proposal.admitted"
    PROPOSAL_REJECTED = "proposal.rejected"
    COMPLETION_UNCHECKED = "completion.unchecked"
    COMPLETION_CERTIFIED = "completion.certified"
    COMPLETION_EMPTY = "completion.empty-candidate"
    COMPLETION_FAILED = "completion.failed"
    COMPLETION_FLAKY = "completion.flaky"
    ABSTENTION_ESCALATED = "abstention.escalated"
    ABSTENTION_BUDGET = "abstention.budget-ended"


VERDICT_OF: dict[Rule, Verdict] = {
    Rule.ACTION_MALFORMED: Verdict.ABSTAINED,
    Rule.ACTION_REFUSED: Verdict.REJECTED,
    Rule.EVIDENCE_DELIVERED: Verdict.ADMITTED,
    Rule.EVIDENCE_STALE_DELIVERY: Verdict.STALE,
    Rule.EVIDENCE_STALE_EDIT: Verdict.STALE,
    Rule.EVIDENCE_MISADDRESSED: Verdict.STALE,
    Rule.EVIDENCE_REPLAYED: Verdict.STALE,
    Rule.PROPOSAL_APPLIED: Verdict.ABSTAINED,
    Rule.PROPOSAL_ADMITTED: Verdict.ADMITTED,
    Rule.PROPOSAL_REJECTED: Verdict.REJECTED,
    Rule.COMPLETION_UNCHECKED: Verdict.ADMITTED,
    Rule.COMPLETION_CERTIFIED: Verdict.ADMITTED,
    Rule.COMPLETION_EMPTY: Verdict.REJECTED,
    Rule.COMPLETION_FAILED: Verdict.REJECTED,
    Rule.COMPLETION_FLAKY: Verdict.REJECTED,
    Rule.ABSTENTION_ESCALATED: Verdict.ESCALATED,
    Rule.ABSTENTION_BUDGET: Verdict.ABSTAINED,
}
"""With A = 0 the broker takes no stand on a proposal towards the agent: applied, not admitted."""
