"""The agent's shell: one command on an overlay of the working tree that is thrown away afterwards.

Implements :class:`orchestrator.agent.shell.Shell` over a sandbox. The command sees the working tree
at ``/work/repo`` with the agent mirror's git directory read-only; what it writes is counted and
lost. No test runner and no task environment are mounted (protocol §1 "State and revision").
"""

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.shell import ShellResult
from orchestrator.repo.files import Files, read_directory
from orchestrator.repo.worktree import worktree
from orchestrator.spec.ports import Command, ExitClass, Limits, Mount, Sandbox

REPOSITORY = "/work/repo"
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
PYTHON_RUN = re.compile(r"\b(python[\d.]*|pypy[\d.]*|pytest|pip)\b|\.py\b")
"""A command that may execute project code; read off its text, so an upper bound."""


@dataclass(frozen=True)
class SandboxShell:
    """``uid`` owns the overlay (None when the sandbox runs as the calling user)."""

    sandbox: Sandbox
    scratch: Path
    git_directory: Path
    limits: Limits
    uid: int | None

    def run(self, files: Files, command: str) -> ShellResult:
        """Run ``bash -c command``; deadlines and memory limits are the agent's own doing."""
        with worktree(files, self.scratch, uid=self.uid) as overlay:
            (overlay / ".git").mkdir()
            done = self.sandbox.run(
                Command(
                    argv=("/bin/bash", "-c", command),
                    cwd=REPOSITORY,
                    env=ENVIRONMENT,
                    mounts=(
                        Mount(overlay, REPOSITORY, writable=True),
                        Mount(self.git_directory, f"{REPOSITORY}/.git"),
                    ),
                    limits=self.limits,
                )
            )
            writes = changed_paths(files, overlay)
        return ShellResult(
            output=done.stdout + done.stderr,
            exit_code=done.exit_code,
            timed_out=done.exit_class is ExitClass.TIMEOUT,
            writes=writes,
            started_python=PYTHON_RUN.search(command) is not None,
            seconds=done.wall_seconds,
        )


def changed_paths(files: Files, overlay: Path) -> tuple[str, ...]:
    """Paths that a command created, changed or removed on its overlay, sorted."""
    after = read_directory(overlay)
    return tuple(sorted(p for p in {*files, *after} if files.get(p) != after.get(p)))
