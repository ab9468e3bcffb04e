"""What a case saw, as claims: about verdict, state, evidence and receipt, all four of them."""

from collections.abc import Mapping
from dataclasses import dataclass

Claims = Mapping[str, bool]


@dataclass(frozen=True)
class Observation:
    """Claim -> whether it holds. A case holds where every claim of every aspect does."""

    verdict: Claims
    state: Claims
    evidence: Claims
    receipt: Claims

    @property
    def broken(self) -> tuple[str, ...]:
        """The claims that do not hold, each with its aspect."""
        aspects = {
            "verdict": self.verdict,
            "state": self.state,
            "evidence": self.evidence,
            "receipt": self.receipt,
        }
        return tuple(
            f"{aspect}: {claim}"
            for aspect, claims in aspects.items()
            for claim, holds in claims.items()
            if not holds
        )
