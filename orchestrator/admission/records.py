"""The lines of an admission ledger as values, and back: what a receipt is derived from.

The transaction's own events stand in the contract's ledger beside it; here is what the project's
commands did, what was decided about each action of the agent, and what the mode made of it.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from orchestrator.admission.identities import Identities
from orchestrator.admission.rules import Boundary, GateResult, Purpose
from orchestrator.contract.events import Outcome
from orchestrator.contract.ledger import Data, Head, read
from orchestrator.contract.modes import Disposition, Mode
from orchestrator.contract.verdicts import Verdict
from orchestrator.spec.errors import IntegrityError


@dataclass(frozen=True)
class Opened:
    """The first line: whose session it is and what it is bound to."""

    session_id: str
    project: str
    mode: Mode
    base_state_id: str
    identities: Identities


@dataclass(frozen=True)
class Ran:
    """One execution, as the verifier stated it."""

    purpose: Purpose
    state_id: str
    suite_id: str
    execution_id: str
    outcome: Outcome
    results: tuple[GateResult, ...]


@dataclass(frozen=True)
class Decided:
    """One action of the agent and what became of it, before it is carried out."""

    action: str
    boundary: Boundary
    state_id: str | None
    rule: str
    verdict: Verdict
    disposition: Disposition


@dataclass(frozen=True)
class AgentEnded:
    """How a process of the agent ended."""

    exit_class: str
    exit_code: int | None


@dataclass(frozen=True)
class Closed:
    """The last line: the receipt of the transaction that this session drove."""

    contract_receipt_sha256: str


Record = Opened | Ran | Decided | AgentEnded | Closed

KIND_OF: dict[type[Any], str] = {
    Opened: "opened",
    Ran: "execution",
    Decided: "decision",
    AgentEnded: "agent",
    Closed: "closed",
}
_ADAPTERS: dict[str, TypeAdapter[Any]] = {k: TypeAdapter(t) for t, k in KIND_OF.items()}


def encode(record: Record) -> tuple[str, Data]:
    """Kind and data of a ledger line."""
    return KIND_OF[type(record)], asdict(record)


def decode(lines: Iterable[bytes]) -> tuple[tuple[Record, ...], Head]:
    """The records of a checked chain. IntegrityError where a line is none of ours."""
    checked, head = read(lines)
    records: list[Record] = []
    for number, line in enumerate(checked, start=1):
        adapter = _ADAPTERS.get(line.kind)
        if adapter is None:
            raise IntegrityError(f"admission ledger line {number}", f"unknown kind {line.kind!r}")
        try:
            records.append(adapter.validate_python(line.data))
        except ValidationError:
            raise IntegrityError(f"admission ledger line {number}", "is malformed") from None
    if not isinstance(records[0], Opened) or not isinstance(records[-1], Closed):
        raise IntegrityError("admission ledger", "is not that of a closed session")
    return tuple(records), head
