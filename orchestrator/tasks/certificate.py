"""The certificate of a built task: what was looked for and where, as a value with one digest.

The same built task has the same certificate on any machine and path: it holds counts, digests and
relative names, no times and no places. The lock names it by its SHA-256.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from orchestrator.spec.identity import canonical_json, sha256_hex
from orchestrator.spec.manifest import Frozen
from orchestrator.spec.task import Sha256, Slug
from orchestrator.tasks.findings import Finding


class Check(Frozen):
    """One rule: counts and digests of what was looked at, and what broke it (none: proved)."""

    rule: Slug
    scanned: dict[str, int | str]
    findings: tuple[str, ...] = Field(strict=False)


class Certificate(Frozen):
    """What an audit proved of one built task."""

    schema_: Literal["factorial/certificate@1"] = Field(alias="schema")
    task_id: Slug
    agent_commit: str
    environment_id: Slug
    secrets: Sha256
    checks: tuple[Check, ...] = Field(strict=False)

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON."""
        return sha256_hex(canonical_json(self.model_dump(mode="json", by_alias=True)))

    @property
    def findings(self) -> tuple[str, ...]:
        """What broke a rule, in the order of the rules; empty where everything is proved."""
        return tuple(f"{check.rule}: {text}" for check in self.checks for text in check.findings)


def read_certificate(path: Path) -> Certificate | None:
    """A stored certificate, or None where there is none or it is damaged."""
    try:
        return Certificate.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def differences(stored: Certificate | None, found: Certificate) -> list[Finding]:
    """Where a stored certificate is not the one that the built task deserves now."""
    rule, where = "certificate", "gold compartment"
    if stored is None:
        return [Finding(found.task_id, rule, where, "is missing or damaged; build the task again")]
    old, new = _flat(stored), _flat(found)
    return [
        Finding(found.task_id, rule, where, f"{name} is {new.get(name)}, not {old.get(name)}")
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _flat(certificate: Certificate) -> dict[str, object]:
    facts: dict[str, object] = certificate.model_dump(mode="json", exclude={"checks"})
    for check in certificate.checks:
        facts[f"{check.rule}: findings"] = len(check.findings)
        facts |= {f"{check.rule}: {name}": value for name, value in check.scanned.items()}
    return facts
