"""The receipt: what was decided, on what evidence, at what coverage, and what remains uncovered.

A pure function of the final contract state and the ledger's head, in canonical JSON with its own
digest; :func:`receipt_follows` derives it again from the ledger alone, so that a fabricated or
edited receipt has no authority.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal

from orchestrator.contract import codec
from orchestrator.contract.ledger import Head, read
from orchestrator.contract.machine import ContractViolation, start, step
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import End, State
from orchestrator.contract.verdicts import Rule
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json, sha256_hex

SCHEMA = "factorial/receipt@2"

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
    "risk.terminal-only": "Only the last candidate was judged; nothing before it could be kept.",
    "risk.unbound-context": "No lock, rollout or verifier is named: the receipt fits any of them.",
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
        "identities": identities(state.policy),
        "evidence": _evidence(state),
        "freshness": _freshness(state, state.end),
        "coverage": _coverage(state, state.end),
        "residual_risks": _risks(state, state.end),
        "delivery": _delivery(state, state.end),
        "ledger": asdict(head),
    }
    return canonical_json({**body, "receipt_sha256": digest_json(body)})


def receipt_follows(lines: Iterable[bytes], receipt: bytes) -> None:
    """Raise IntegrityError unless the receipt is what replaying the ledger gives."""
    opened(receipt)
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


def opened(receipt: bytes) -> dict[str, Any]:
    """What a receipt says. Raises IntegrityError unless it is one and matches its own digest."""
    try:
        said = json.loads(receipt)
        body = {name: value for name, value in said.items() if name != "receipt_sha256"}
        genuine = digest_json(body) == said["receipt_sha256"]
        schema = said["schema"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise IntegrityError("receipt", "is not a receipt") from None
    if not genuine:
        raise IntegrityError("receipt", "does not match its own digest")
    if schema != SCHEMA:
        raise IntegrityError("receipt", f"is {schema}, this version reads {SCHEMA}")
    return dict(said)


def identities(policy: Policy) -> dict[str, object]:
    """What the receipt is bound to, from the policy alone (docs/contract.md "Identities")."""
    return {
        "policy_sha256": policy.digest,
        "diagnostic_suite_id": policy.diagnostic_suite_id,
        "gate_suite_id": policy.gate_suite_id,
        "completion_suite_id": policy.gate_suite_id,
        "verifier_id": policy.verifier_id,
        "context": asdict(policy.context) if policy.context else None,
        "context_sha256": policy.context.digest if policy.context else None,
    }


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


def _freshness(state: State, end: End) -> dict[str, object]:
    """Which executions speak for the subject, and whether its completion had one of its own.

    ``fresh``: the accepted state was certified by an execution that is no other evidence's.
    """
    subject = _subject(state, end)
    gate = [report.execution_id for report in state.gate if report.state_id == subject]
    certified = [r.execution_id for r in state.certifications if r.state_id == subject and r.passed]
    others = {report.execution_id for report in state.gate}
    others |= {envelope.execution_id for envelope in state.evidence}
    return {
        "gate_execution_id": gate[-1] if gate else None,
        "certification_execution_id": certified[-1] if certified else None,
        "fresh": end.accepted and bool(certified) and certified[-1] not in others,
    }


def _subject(state: State, end: End) -> str:
    """The accepted state, or the working state where none was accepted."""
    return end.state_id or state.current


def _coverage(state: State, end: End) -> dict[str, object]:
    """Which layers cover the subject, and which candidates were judged at all."""
    subject = _subject(state, end)
    checks = {
        "gate": any(report.state_id == subject for report in state.gate),
        "certification": any(report.state_id == subject for report in state.certifications),
    }
    by = {"L0": ["identity", "ledger"], "L1": [name for name, ran in checks.items() if ran]}
    return {
        "subject_state_id": subject,
        "observed": _observed(state, subject),
        "layers": {
            layer: {"meaning": meaning, "covered": bool(by.get(layer)), "by": by.get(layer, [])}
            for layer, meaning in LAYERS.items()
        },
    }


def _observed(state: State, subject: str) -> Literal["nothing", "terminal-only", "candidates"]:
    """Whether an earlier candidate could have been kept: none where only the last was judged."""
    judged = {report.state_id for report in state.gate}
    if not judged:
        return "nothing"
    return "terminal-only" if judged == {subject} else "candidates"


def _delivery(state: State, end: End) -> dict[str, int]:
    """Delivery impact: every tally of the contract, and what they amount to.

    ``recoveries``: completions from the checkpoint instead of by a submission.
    """
    counts = state.counts
    return {
        **asdict(counts),
        "candidates_evaluated": counts.gate_passes + counts.gate_rejections,
        "candidates_rejected": counts.gate_rejections,
        "checkpoints": counts.gate_passes,
        "recoveries": int(end.via == "checkpoint"),
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
        "risk.terminal-only": _observed(state, _subject(state, end)) == "terminal-only",
        "risk.unbound-context": policy.context is None or policy.verifier_id is None,
    }
    return [risk for risk in RISKS if present[risk]]
