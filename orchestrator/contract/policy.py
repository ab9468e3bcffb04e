"""The policy of one rollout: evidence condition, switches B, A, C, and what they are bound to."""

from dataclasses import asdict, dataclass
from typing import Literal

from orchestrator.spec.identity import digest_json


@dataclass(frozen=True)
class Policy:
    """One arm, resolved for one task (protocol §1 "Contract components").

    ``gate_suite_id`` is also the completion suite; it is never an adjudication suite, or unsafe
    completion would be impossible by construction.
    """

    evidence: Literal["current", "stale"]
    binding: bool
    admission: bool
    certification: bool
    base_state_id: str
    diagnostic_suite_id: str
    gate_suite_id: str

    @property
    def digest(self) -> str:
        """Identity of the policy: a receipt under another policy is another receipt."""
        return digest_json(asdict(self))
