"""Adoption modes: what becomes of an action, given the verdict on it, as one table.

A mode never changes a verdict, only whether the action that it is about may go on. ``shadow``
watches, ``warn`` lets everything pass but records who was overridden, ``enforce`` blocks.
"""

from enum import StrEnum

from orchestrator.contract.verdicts import Verdict


class Mode(StrEnum):
    """How far a project lets the contract reach; the values stand in manifests and receipts."""

    SHADOW = "shadow"
    WARN = "warn"
    ENFORCE = "enforce"


class Disposition(StrEnum):
    """What is done about an action: stable ids that ledgers and receipts quote."""

    ALLOWED = "allowed"
    OVERRIDDEN = "allowed-with-recorded-override"
    OBSERVED = "observed"
    BLOCKED = "blocked"

    @property
    def goes_on(self) -> bool:
        """Whether the action takes its course."""
        return self is not Disposition.BLOCKED


DISPOSITION: dict[tuple[Verdict, Mode], Disposition] = {
    (Verdict.ADMITTED, Mode.SHADOW): Disposition.OBSERVED,
    (Verdict.REJECTED, Mode.SHADOW): Disposition.OBSERVED,
    (Verdict.STALE, Mode.SHADOW): Disposition.OBSERVED,
    (Verdict.ABSTAINED, Mode.SHADOW): Disposition.OBSERVED,
    (Verdict.ESCALATED, Mode.SHADOW): Disposition.OBSERVED,
    (Verdict.ADMITTED, Mode.WARN): Disposition.ALLOWED,
    (Verdict.REJECTED, Mode.WARN): Disposition.OVERRIDDEN,
    (Verdict.STALE, Mode.WARN): Disposition.OVERRIDDEN,
    (Verdict.ABSTAINED, Mode.WARN): Disposition.OVERRIDDEN,
    (Verdict.ESCALATED, Mode.WARN): Disposition.OVERRIDDEN,
    (Verdict.ADMITTED, Mode.ENFORCE): Disposition.ALLOWED,
    (Verdict.REJECTED, Mode.ENFORCE): Disposition.BLOCKED,
    (Verdict.STALE, Mode.ENFORCE): Disposition.BLOCKED,
    (Verdict.ABSTAINED, Mode.ENFORCE): Disposition.BLOCKED,
    (Verdict.ESCALATED, Mode.ENFORCE): Disposition.BLOCKED,
}
"""Verdict x mode. Every cell is listed; a verdict without a row is a defect of this table."""


def disposition(verdict: Verdict, mode: Mode) -> Disposition:
    """The cell of the table."""
    return DISPOSITION[verdict, mode]
