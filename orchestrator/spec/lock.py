"""The lock: a resolved, hashed and enumerated study. Plain data; ``freeze`` makes it."""

from typing import Literal

from pydantic import Field

from orchestrator.spec.identity import digest_json
from orchestrator.spec.manifest import Frozen
from orchestrator.spec.study import Arm


class LockedTask(Frozen):
    """Identities of one task: what the agent sees, what judges it, what it runs on.

    ``source_id``: of the two endpoints; ``relation``: how they are related. ``eligibility_sha256``:
    of what every rule said; ``certificate_sha256``: of the audit that nothing sealed is reachable.
    """

    task_id: str
    project: str
    base_state_id: str
    agent_commit: str
    evaluator_commit: str
    suites: dict[str, str]
    gold_patch_sha256: str
    source_id: str
    relation: str
    eligibility_sha256: str
    certificate_sha256: str
    environment_id: str
    statement_sha256: str
    gate_overlap: bool
    variants_id: str | None


class PlannedRollout(Frozen):
    """One intention-to-treat rollout. ``order`` is its place in the dispatch order, from 0."""

    rollout_id: str
    task_id: str
    seed: int
    levels: dict[str, str]
    arm: Arm
    block: int
    order: int


class Lock(Frozen):
    """The experiment. ``lock_id`` is the digest of everything else in it."""

    schema_: Literal["factorial/lock@2"] = Field(alias="schema")
    study_path: str
    study: dict[str, object]
    stack: dict[str, object]
    simulated: bool
    sources: dict[str, str]
    prompts: dict[str, str]
    sandbox: dict[str, str]
    code: str
    tasks: tuple[LockedTask, ...] = Field(strict=False)
    rollouts: tuple[PlannedRollout, ...] = Field(strict=False)
    lock_id: str

    @property
    def verifier_id(self) -> str:
        """Identity of what carries suites out: the sandbox and our own code."""
        return digest_json({"code": self.code, "sandbox": self.sandbox})

    @staticmethod
    def digest(content: dict[str, object]) -> str:
        """Digest over every field but ``lock_id``."""
        return digest_json({k: v for k, v in content.items() if k != "lock_id"})
