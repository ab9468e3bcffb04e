"""Events and policies as ledger data and back; decoding accepts exactly what encoding writes."""

from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from orchestrator.contract import events
from orchestrator.contract.events import Event
from orchestrator.contract.ledger import Data, Line
from orchestrator.contract.policy import Policy
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json

POLICY = "policy"

KIND_OF: dict[type[Event], str] = {
    events.Malformed: "malformed",
    events.Refused: "refused",
    events.Looked: "looked",
    events.TestRequested: "test",
    events.EditProposed: "edit",
    events.SubmitRequested: "submit",
    events.EscalateRequested: "escalate",
    events.BudgetEnded: "budget",
    events.DiagnosticReported: "diagnostic",
    events.GateReported: "gate",
    events.CertificationReported: "certification",
}
"""The kinds of ledger lines after the first, which has kind ``policy``."""

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    POLICY: TypeAdapter(Policy),
    **{kind: TypeAdapter(event) for event, kind in KIND_OF.items()},
}


def encode(event: Event) -> tuple[str, Data]:
    """Kind and data of an event."""
    return KIND_OF[type(event)], asdict(event)


def encode_policy(policy: Policy) -> tuple[str, Data]:
    """Kind and data of the first line."""
    return POLICY, asdict(policy)


def decode_policy(line: Line) -> Policy:
    """The policy of the first line, or IntegrityError."""
    policy = _decode(line)
    if not isinstance(policy, Policy):
        raise IntegrityError("ledger line 1", "is not the policy")
    return policy


def decode(line: Line) -> Event:
    """The event of a later line, or IntegrityError."""
    event = _decode(line)
    if isinstance(event, Policy):
        raise IntegrityError("ledger", "states a policy twice")
    return event  # type: ignore[no-any-return]  # the adapters of KIND_OF give events


def _decode(line: Line) -> Any:
    adapter = _ADAPTERS.get(line.kind)
    if adapter is None:
        raise IntegrityError("ledger", f"unknown kind {line.kind!r}")
    wanted = canonical_json(line.data)
    try:
        value = adapter.validate_json(wanted, strict=True)
    except ValidationError as error:
        raise IntegrityError(
            "ledger", f"malformed {line.kind}: {error.errors()[0]['msg']}"
        ) from None
    if canonical_json(asdict(value)) != wanted:
        raise IntegrityError("ledger", f"malformed {line.kind}: unknown keys")
    return value
