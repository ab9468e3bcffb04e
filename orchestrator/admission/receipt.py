"""The receipt of a session: what was decided, on what evidence, covering what, at what cost.

A pure function of the two ledgers, so that :func:`verify` derives it again and an edited or made-up
receipt has no authority; :func:`deliver` hands out a tree only on one that holds.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.admission import rules
from orchestrator.admission.journal import lines_of
from orchestrator.admission.objects import ObjectStore
from orchestrator.admission.records import Closed, Decided, Opened, Ran, decode
from orchestrator.contract import receipt as contract_receipt
from orchestrator.contract.events import Envelope, Report
from orchestrator.contract.ledger import Head
from orchestrator.contract.modes import Disposition, Mode
from orchestrator.contract.state import State
from orchestrator.contract.verdicts import Rule, Verdict
from orchestrator.repo.files import write_directory
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json, sha256_hex

SCHEMA = "factorial/admission-receipt@1"
CONTRACT_LEDGER, CONTRACT_RECEIPT = "ledger.jsonl", "receipt.json"
LEDGER, RECEIPT = "admission.jsonl", "admission-receipt.json"


@dataclass(frozen=True)
class Account:
    """Everything that a receipt is made of."""

    opened: Opened
    ran: tuple[Ran, ...]
    decided: tuple[Decided, ...]
    closed: Closed
    head: Head
    state: State
    contract_head: Head

    @property
    def accepted(self) -> str | None:
        """The state that the contract accepted."""
        return self.state.end.state_id if self.state.end else None

    @property
    def used(self) -> tuple[Ran, ...]:
        """The executions that the contract took for evidence."""
        return tuple(ran for ran, taken in self._taken() if taken)

    @property
    def refused(self) -> tuple[Ran, ...]:
        """What was presented as evidence and refused."""
        return tuple(ran for ran, taken in self._taken() if not taken)

    def _taken(self) -> Iterator[tuple[Ran, bool]]:
        """Each execution, and whether it is the first to answer as the contract heard it."""
        state = self.state
        reports = map(_addressed, (*state.gate, *state.certifications))
        heard = {*map(_addressed, state.evidence), *reports}
        for ran in self.ran:
            yield ran, _addressed(ran) in heard
            heard.discard(_addressed(ran))

    @property
    def overrides(self) -> tuple[Decided, ...]:
        """Decisions that the mode let pass against the verdict."""
        return tuple(d for d in self.decided if d.disposition is Disposition.OVERRIDDEN)

    @property
    def delivered(self) -> str | None:
        """The tree that may leave: what was accepted, or a completion that ``warn`` let pass."""
        if self.opened.mode is Mode.SHADOW:
            return None
        completions = [d.state_id for d in self.overrides if d.action == "complete"]
        return self.accepted or (completions[-1] if completions else None)


def build(lines: Sequence[bytes], contract_lines: Sequence[bytes]) -> bytes:
    """Canonical JSON of the receipt of a closed session. IntegrityError for ledgers at odds."""
    account = _account(lines, contract_lines)
    end = account.state.end
    assert end is not None  # _account refuses other ledgers
    last = account.decided[-1]
    body: dict[str, object] = {
        "schema": SCHEMA,
        "project": account.opened.project,
        "session_id": account.opened.session_id,
        "mode": account.opened.mode,
        "verdict": last.verdict,
        "rule": last.rule,
        "disposition": last.disposition,
        "rules": sorted({*account.state.rules, *(d.rule for d in account.decided)}),
        "base_state_id": account.opened.base_state_id,
        "accepted_state_id": account.accepted,
        "accepted_via": end.via,
        "delivered_state_id": account.delivered,
        "checkpoint": asdict(account.state.checkpoint) if account.state.checkpoint else None,
        "identities": asdict(account.opened.identities),
        "evidence": [asdict(ran) for ran in account.used],
        "refused_evidence": [asdict(ran) for ran in account.refused],
        "freshness": _freshness(account),
        "coverage": _coverage(account),
        "residual_risks": list(_risks(account)),
        "overrides": [asdict(decided) for decided in account.overrides],
        "delivery": _delivery(account),
        "contract": {
            "receipt_sha256": account.closed.contract_receipt_sha256,
            "ledger": asdict(account.contract_head),
        },
        "ledger": asdict(account.head),
    }
    return canonical_json({**body, "receipt_sha256": digest_json(body)})


def verify(root: Path) -> Account:
    """Derive both receipts of a session again; IntegrityError unless they are what is there."""
    lines, contract_lines = lines_of(root / LEDGER), lines_of(root / CONTRACT_LEDGER)
    own = _read(root / CONTRACT_RECEIPT)
    contract_receipt.receipt_follows(contract_lines, own)
    account = _account(lines, contract_lines)
    if account.closed.contract_receipt_sha256 != sha256_hex(own):
        raise IntegrityError("admission ledger", "closes with another receipt of the contract")
    if build(lines, contract_lines) != _read(root / RECEIPT):
        raise IntegrityError("admission receipt", "does not follow from the ledgers")
    return account


def authority(root: Path) -> str | None:
    """The state id that may leave, on the word of a receipt that holds, or None."""
    return verify(root).delivered


def deliver(root: Path, destination: Path) -> str:
    """Write the tree that the receipt allows to leave into ``destination`` (absent or empty).

    Returns its state id. IntegrityError where the receipt does not hold or delivers nothing.
    """
    delivered = authority(root)
    if delivered is None:
        raise IntegrityError("admission receipt", "gives no authority: it delivers nothing")
    write_directory(ObjectStore(root / "objects").get(delivered), destination)
    return delivered


# --------------------------------------------------------------------------------- the parts


def _account(lines: Sequence[bytes], contract_lines: Sequence[bytes]) -> Account:
    records, head = decode(lines)
    opened, closed = records[0], records[-1]
    assert isinstance(opened, Opened) and isinstance(closed, Closed)  # decode refuses others
    state, contract_head = contract_receipt.replay(contract_lines)
    account = Account(
        opened,
        tuple(record for record in records if isinstance(record, Ran)),
        tuple(record for record in records if isinstance(record, Decided)),
        closed,
        head,
        state,
        contract_head,
    )
    _check(account)
    return account


def _check(account: Account) -> None:
    """The two ledgers tell one story: same base and suites, every report is of an execution."""
    state, opened = account.state, account.opened
    if state.end is None or not account.decided:
        raise IntegrityError("ledger", "does not reach the end of a session")
    bound = (opened.base_state_id, opened.identities.diagnostic_suite, opened.identities.gate_suite)
    policy = state.policy
    if bound != (policy.base_state_id, policy.diagnostic_suite_id, policy.gate_suite_id):
        raise IntegrityError("admission ledger", "is of another policy than the contract's")
    told = {(*_addressed(ran), ran.outcome) for ran in account.ran}
    reports = (*state.gate, *state.certifications)
    shown = {_addressed(ran) for ran in account.ran}
    unknown = [r for r in reports if (*_addressed(r), r.outcome) not in told]
    if unknown or not {_addressed(envelope) for envelope in state.evidence} <= shown:
        raise IntegrityError("ledger", "has evidence of which no execution is recorded")


def _addressed(evidence: Envelope | Report | Ran) -> tuple[str, str, str]:
    return evidence.state_id, evidence.suite_id, evidence.execution_id


def _freshness(account: Account) -> dict[str, object]:
    """The certification behind an acceptance, beside the gate's execution that came before it."""
    subject = account.accepted
    gates = [r.execution_id for r in account.state.gate if r.state_id == subject]
    runs = [r.execution_id for r in account.state.certifications if r.state_id == subject]
    certified = runs[-1] if runs else None
    return {
        "gate_execution_id": gates[-1] if gates else None,
        "certification_execution_id": certified,
        "fresh": certified is not None and certified not in gates,
    }


def _coverage(account: Account) -> dict[str, object]:
    """Which layers cover the accepted state, or the working state where none was accepted."""
    by = _covering(account)
    return {
        "subject_state_id": account.accepted or account.state.current,
        "observation": _observation(account),
        "layers": {
            layer: {
                "meaning": contract_receipt.LAYERS[layer],
                "covered": bool(who),
                "by": list(who),
            }
            for layer, who in by.items()
        },
        "uncovered": [layer for layer, who in by.items() if not who],
    }


def _observation(account: Account) -> str:
    proposals = [d.boundary for d in account.decided if d.action == "propose"]
    return rules.observation(proposals)


def _covering(account: Account) -> dict[str, tuple[str, ...]]:
    subject = account.accepted or account.state.current
    results = [r for ran in account.used if ran.state_id == subject for r in ran.results]
    return rules.covered_layers(results)


def _risks(account: Account) -> tuple[str, ...]:
    by, accepted = _covering(account), account.accepted
    advisory = [
        result.outcome != "pass"
        for ran in account.used
        if ran.state_id == accepted
        for result in ran.results
        if not result.binding
    ]
    present = {
        "risk.suite-incomplete": accepted is not None,
        "risk.same-process": bool(account.state.gate),
        "risk.own-checks-uncovered": not by["L1"],
        "risk.domain-uncovered": not by["L2"],
        "risk.environment-uncovered": not by["L3"],
        "risk.advisory-failed": any(advisory),
        "risk.terminal-only": _observation(account) == "terminal-only",
        "risk.flaky": account.state.counts.flaky_certifications > 0,
        "risk.overridden": bool(account.overrides),
    }
    return rules.residual_risks(present)


def _delivery(account: Account) -> dict[str, object]:
    """What safety cost, and whether anything was delivered at all."""
    proposals = [d for d in account.decided if d.action == "propose"]
    verdicts = Counter(decided.verdict for decided in proposals)
    gated = [ran for ran in account.used if ran.purpose == "gate"]
    restored = [
        d
        for d in proposals
        if d.disposition is Disposition.BLOCKED and d.rule != Rule.EVIDENCE_STALE_EDIT
    ]
    return {
        "delivered": rules.is_delivery(account.accepted),
        "candidates": len(proposals),
        **{verdict.lower(): verdicts[verdict] for verdict in Verdict},
        "checkpoints": sum(1 for report in account.state.gate if report.passed),
        "recoveries": len(restored),
        "false_rejections": sum(rules.is_false_rejection(ran.results) for ran in gated),
        "certifications": account.state.counts.certifications,
        "flaky_certifications": account.state.counts.flaky_certifications,
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IntegrityError(str(path), f"cannot be read ({error.strerror})") from None
