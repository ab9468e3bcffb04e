"""The protocols at the seams: what the agent's loop and the evaluator know of the outside world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from orchestrator.spec.identity import Entry

# --------------------------------------------------------------------------------- sandbox


class ExitClass(StrEnum):
    """How a sandboxed command ended; ``ENGINE_FAULT`` is infrastructure, the rest its own doing."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    ENGINE_FAULT = "engine_fault"


@dataclass(frozen=True)
class Mount:
    """A host path shown inside the sandbox at ``target`` (absolute POSIX path)."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Limits:
    """Limits of one command. Seconds, bytes and counts; each one is enforced, none is advice."""

    wall_seconds: float = 120.0
    cpu_seconds: int = 120
    memory_bytes: int = 1 << 30
    processes: int = 128
    file_bytes: int = 64 << 20
    scratch_bytes: int = 256 << 20
    output_bytes: int = 1 << 20


@dataclass(frozen=True)
class Command:
    """One command for a sandbox. The environment is exactly ``env``; nothing is inherited."""

    argv: Sequence[str]
    cwd: str = "/tmp"
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    limits: Limits = field(default_factory=Limits)
    stdin: bytes = b""


@dataclass(frozen=True)
class Completed:
    """What a sandboxed command left. ``stdout``/``stderr`` are cut at ``output_bytes`` each."""

    exit_class: ExitClass
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    wall_seconds: float
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None


class Sandbox(Protocol):
    """Where untrusted commands run. Every backend passes ``orchestrator.sandbox.conformance``."""

    def run(self, command: Command) -> Completed:
        """Run one command in a fresh sandbox; no process of it survives the return.

        Never raises for what the command does; raises
        :class:`~orchestrator.spec.errors.InfrastructureFault` (boundary ``engine``) when the
        backend itself fails.
        """
        ...

    def identity(self) -> Mapping[str, str]:
        """What the lock records of this backend: name, version, enforced limits."""
        ...


# --------------------------------------------------------------------------------- coder


@dataclass(frozen=True)
class Message:
    """One chat message; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True)
class PrivilegedView:
    """What only a coder whose manifest says ``privileged: true`` is shown (simulated runs)."""

    state_id: str
    levels: Mapping[str, str]
    revisions_left: int
    delivered_for: str | None
    """State that was current when evidence was last delivered (stale or not), or None."""
    checkpoint_told: str | None
    """State id last reported to the agent as accepted (admission ON only), or None."""


@dataclass(frozen=True)
class CoderRequest:
    """One turn. ``request_seed`` follows protocol §1 "Seeds"; ``turn`` counts from 1."""

    rollout_id: str
    task_id: str
    seed: int
    turn: int
    request_seed: int
    messages: tuple[Message, ...]
    temperature: float
    top_p: float
    max_new_tokens: int
    deadline_seconds: float
    privileged: PrivilegedView | None = None


@dataclass(frozen=True)
class CoderReply:
    """The reply and its accounting. ``latency_seconds`` is charged to the rollout's wall clock.

    ``source``: ``model``, ``shared`` (met in the reply store), ``recorded`` or ``simulated``.
    ``tokens_served`` counts what a server really worked for (0 when shared or simulated).
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    tokens_served: int
    latency_seconds: float
    finish_reason: str
    source: str


class Coder(Protocol):
    """What proposes. Raises InfrastructureFault (boundary ``server``) for faults of its server."""

    def reply(self, request: CoderRequest) -> CoderReply: ...


# --------------------------------------------------------------------------------- verifier


class SuiteName(StrEnum):
    """The five frozen suites of a task (protocol §1 "Suites")."""

    DIAGNOSTIC = "diagnostic"
    GATE = "gate"
    FAIL_TO_PASS = "fail_to_pass"
    PASS_TO_PASS = "pass_to_pass"
    FULL = "full"


class Purpose(StrEnum):
    """Why a suite runs. ``CERTIFICATION`` never reads the verdict cache."""

    DIAGNOSTIC = "diagnostic"
    GATE = "gate"
    CERTIFICATION = "certification"
    REPLAY = "replay"
    AUDIT = "audit"


class SuiteOutcome(StrEnum):
    """Outcome of one suite run. Only ``PASS`` is a pass; ``TIMEOUT`` and ``VOID`` never are."""

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    VOID = "void"


@dataclass(frozen=True)
class FileChange:
    """A candidate's file relative to the task's base tree: content and mode, or None = deleted."""

    entry: Entry
    content: bytes


Delta = Mapping[str, FileChange | None]
"""A candidate as its difference from the base tree: path -> change, or None where deleted."""


@dataclass(frozen=True)
class SuiteRequest:
    """Run one frozen suite on base tree + ``delta``; ``state_id`` is the identity it must have."""

    task_id: str
    suite: SuiteName
    purpose: Purpose
    state_id: str
    delta: Delta
    execution_id: str
    wall_seconds: float


@dataclass(frozen=True)
class SuiteVerdict:
    """What one suite run showed. ``failed_ids`` and ``payload`` are empty for gate and
    certification: the gate says one bit (protocol §1), and nothing else may reach the agent.
    ``void_reason`` (a rule id, empty unless VOID) and ``flags`` (rule ids, of the candidate alone)
    are for the tables.
    """

    task_id: str
    suite: SuiteName
    suite_id: str
    state_id: str
    execution_id: str
    outcome: SuiteOutcome
    expected: int
    passed: int
    failed_ids: tuple[str, ...]
    payload: str
    duration_seconds: float
    cached: bool
    void_reason: str = ""
    flags: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome is SuiteOutcome.PASS


class Verifier(Protocol):
    """The evaluator as seen from the agent's side.

    Raises InfrastructureFault (boundary ``evaluator``) when a verdict cannot be had; never returns
    a guess.
    """

    def run(self, request: SuiteRequest) -> SuiteVerdict: ...

    def suite_id(self, task_id: str, suite: SuiteName) -> str:
        """Identity of a frozen suite: ids, files, command, environment and runner (``h_suite``)."""
        ...
