"""The receipt: what was decided, on what evidence, at what coverage, and what remains uncovered.

A pure function of the final contract state and the ledger's head, in canonical JSON with its own
digest; :func:`receipt_follows` derives it again from the ledger alone, so that a fabricated or
edited receipt has no authority.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict

from orchestrator.contract import codec
from orchestrator.contract.ledger import Head, read
from orchestrator.contract.machine import ContractViolation, start, step
from orchestrator.contract.state import End, State
from orchestrator.contract.verdicts import Rule
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json, sha256_hex

SCHEMA = "factorial/receipt@1"

LAYERS: dict[str, str] = {
    "L0": "state and evidence integrity",
    "L1": "the project's own checks",
    "L2": "domain acceptance",
    "L3": "protected environment",
}
"""Coverage layers; L2 and L3 are beyond a contract that knows one gate suite."""

RISKS: dict[str, str] = {
    "risk.suite-incomplete": "A pass of the gate suite is not a proof of correctness.",
    "risk.same-process": "Candidate code ran in the interpreter of the tests that judged it.",
    "risk.domain-uncovered": "No domain acceptance check (L2) was run.",
    "risk.environment-uncovered": "No protected environment (L3) was used.",
    "risk.unchecked-completion": "The completion was accepted without a certification.",
    "risk.gate-failed": "The accepted state failed the gate.",
    "risk.empty-candidate": "The accepted state is the base tree.",
    "risk.unbound-evidence": "Evidence of another state may have been shown as current.",
    "risk.flaky": "A certification disagreed with the gate's earlier verdict.",
}
"""Residual risk sentences by stable id."""


def build(state: State, head: Head) -> bytes:
    """Canonical JSON of the receipt of an ended rollout; ValueError where it has not ended."""
    if state.end is None:
        raise ValueError("a receipt is issued only for an ended rollout")
    body: dict[str, object] = {
        "schema": SCHEMA,
        "verdict": state.end.verdict,
        "rule": state.end.rule,
        "rules": sorted(state.rules),
        "end_reason": state.end.reason,
        "accepted_state_id": state.end.state_id,
        "accepted_via": state.end.via,
        "base_state_id": state.policy.base_state_id,
        "final_state_id": state.current,
        "checkpoint": asdict(state.checkpoint) if state.checkpoint else None,
        "policy_sha256": state.policy.digest,
        "evidence": _evidence(state),
        "coverage": _coverage(state),
        "residual_risks": _risks(state, state.end),
        "delivery": asdict(state.counts),
        "ledger": asdict(head),
    }
    return canonical_json({**body, "receipt_sha256": digest_json(body)})


def receipt_follows(lines: Iterable[bytes], receipt: bytes) -> None:
    """Raise IntegrityError unless the receipt is what replaying the ledger gives."""
    _check_own_digest(receipt)
    state, head = replay(lines)
    if state.end is None:
        raise IntegrityError("ledger", "does not reach the end of a rollout")
    if build(state, head) != receipt:
        raise IntegrityError("receipt", "does not follow from the ledger")


def replay(lines: Iterable[bytes]) -> tuple[State, Head]:
    """The contract state that a ledger's events lead to. Raises IntegrityError."""
    checked, head = read(lines)
    state, _ = start(codec.decode_policy(checked[0]))
    for number, line in enumerate(checked[1:], start=2):
        try:
            state, _ = step(state, codec.decode(line))
        except ContractViolation as violation:
            raise IntegrityError(f"ledger line {number}", str(violation)) from None
    return state, head


def _check_own_digest(receipt: bytes) -> None:
    try:
        body = json.loads(receipt)
        claimed = body.pop("receipt_sha256")
        genuine = digest_json(body) == claimed
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise IntegrityError("receipt", "is not a receipt") from None
    if not genuine:
        raise IntegrityError("receipt", "does not match its own digest")


def _evidence(state: State) -> dict[str, object]:
    """Identities of all evidence; payloads by digest."""
    return {
        "diagnostics": [
            {
                "state_id": envelope.state_id,
                "suite_id": envelope.suite_id,
                "execution_id": envelope.execution_id,
                "payload_sha256": sha256_hex(envelope.payload.encode()),
            }
            for envelope in state.evidence
        ],
        "gate": [asdict(report) for report in state.gate],
        "certifications": [asdict(report) for report in state.certifications],
    }


def _coverage(state: State) -> dict[str, object]:
    """Which layers cover the accepted state, or the working state where none was accepted."""
    assert state.end is not None
    subject = state.end.state_id or state.current
    checks = {
        "gate": any(report.state_id == subject for report in state.gate),
        "certification": any(report.state_id == subject for report in state.certifications),
    }
    by = {"L0": ["identity", "ledger"], "L1": [name for name, ran in checks.items() if ran]}
    return {
        "subject_state_id": subject,
        "layers": {
            layer: {"meaning": meaning, "covered": bool(by.get(layer)), "by": by.get(layer, [])}
            for layer, meaning in LAYERS.items()
        },
    }


def _risks(state: State, end: End) -> list[str]:
    policy, accepted = state.policy, end.state_id
    empty = accepted == policy.base_state_id
    present = {
        "risk.suite-incomplete": accepted is not None,
        "risk.same-process": bool(state.gate or state.evidence),
        "risk.domain-uncovered": True,
        "risk.environment-uncovered": True,
        "risk.unchecked-completion": end.rule is Rule.COMPLETION_UNCHECKED,
        "risk.gate-failed": accepted is not None and not empty and not state.gate_passed(accepted),
        "risk.empty-candidate": empty,
        "risk.unbound-evidence": not policy.binding and policy.evidence == "stale",
        "risk.flaky": state.counts.flaky_certifications > 0,
    }
    return [risk for risk in RISKS if present[risk]]
