"""The shell as the agent's loop knows it; what runs the command stands elsewhere."""

from dataclasses import dataclass
from typing import Protocol

from orchestrator.agent.workspace import Files


@dataclass(frozen=True)
class ShellResult:
    """What one command left. ``exit_code`` is None where a limit ended it; ``seconds`` is charged.

    ``writes`` are the paths that the command tried to change on its discarded overlay;
    ``started_python`` says whether it may have executed project code (declared limit).
    """

    output: bytes
    exit_code: int | None
    timed_out: bool
    writes: tuple[str, ...]
    started_python: bool
    seconds: float


class Shell(Protocol):
    """Runs one command on an overlay of ``files`` that is thrown away afterwards.

    Raises InfrastructureFault (boundary ``engine``) where the sandbox itself fails, never for what
    the command does.
    """

    def run(self, files: Files, command: str) -> ShellResult: ...
