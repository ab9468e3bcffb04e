"""A rollout whose process is killed within a side effect, for the tests of its journal."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.loop import RolloutPorts, run_rollout
from orchestrator.agent.shell import ShellResult
from orchestrator.agent.workspace import Files
from orchestrator.repo.patch import make_patch
from orchestrator.spec.ports import SuiteRequest, SuiteVerdict
from orchestrator.store.writer import journal_for
from tests.unit.agent_support import (
    FIX,
    SHELL,
    SUBMIT,
    TEST,
    FakeShell,
    FakeVerifier,
    ScriptedCoder,
    setup_of,
)

SCRIPT = [TEST, FIX, SHELL, TEST, SUBMIT]
ANNOUNCED_BY = ("policy", "edit", "gate", "looked", "submit")
"""Kind of the event before each side effect of the script: base diagnostic, gate, diagnostic of the
proposal, shell command, certification."""


@dataclass
class Fuse:
    """Kills this process at the ``left``-th side effect, before it has any effect."""

    left: int

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FusedVerifier(FakeVerifier):
    """An evaluator that never answers the request at which its fuse ends."""

    fuse: Fuse

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        self.fuse.burn()
        return super().run(request)


class FusedShell(FakeShell):
    """A shell of the same kind."""

    fuse: Fuse

    def run(self, files: Files, command: str) -> ShellResult:
        self.fuse.burn()
        return super().run(files, command)


def killed_at(journal: str, number: int) -> None:
    """Run the script with a durable journal until its ``number``-th side effect begins."""
    verifier, shell = FusedVerifier(), FusedShell()
    verifier.fuse = shell.fuse = Fuse(number)
    ports = RolloutPorts(
        ScriptedCoder(SCRIPT), verifier, shell, journal_for(Path(journal)), make_patch
    )
    run_rollout(setup_of("BAC"), ports)
