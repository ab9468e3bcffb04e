"""The policy of one rollout: evidence condition, switches B, A, C, and what they are bound to."""

from dataclasses import asdict, dataclass
from typing import Literal

from orchestrator.spec.identity import digest_json


@dataclass(frozen=True)
class Context:
    """Whose rollout it is: a ledger or receipt of another lock, rollout or task has another one."""

    lock_id: str
    rollout_id: str
    task_id: str

    @property
    def digest(self) -> str:
        """Identity of the context."""
        return digest_json(asdict(self))


@dataclass(frozen=True)
class Policy:
    """One arm, resolved for one task (protocol §1 "Contract components").

    ``gate_suite_id`` is also the completion suite; it is never an adjudication suite, or unsafe
    completion would be impossible by construction. A suite's id covers its command and working
    directory; ``verifier_id`` says what carries suites out. Where verifier or context is None the
    receipt says that nothing binds it to one.
    """

    evidence: Literal["current", "stale"]
    binding: bool
    admission: bool
    certification: bool
    base_state_id: str
    diagnostic_suite_id: str
    gate_suite_id: str
    verifier_id: str | None = None
    context: Context | None = None

    @property
    def digest(self) -> str:
        """Identity of the rule, the context left out: equal for two rollouts judged alike."""
        return digest_json({k: v for k, v in asdict(self).items() if k != "context"})
