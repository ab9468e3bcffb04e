"""The agent's shell: one command on an overlay of the working tree that is thrown away afterwards.

Implements :class:`orchestrator.agent.shell.Shell` over a sandbox. The command sees the working tree
at ``/workspace/repo`` with the agent mirror's git directory read-only; its writes are counted and
lost. No test runner and no task environment are mounted (protocol §1 "State and revision").
"""

import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.shell import ShellResult
from orchestrator.evaluator.canonical import without_clock
from orchestrator.repo.files import SYMLINK, Files
from orchestrator.repo.worktree import worktree
from orchestrator.sandbox.overlay import empty, too_deep, walk
from orchestrator.spec.ports import Command, ExitClass, Limits, Mount, Sandbox

REPOSITORY = "/workspace/repo"
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
MODIFIED = 946_684_800
"""Time stamp of every file the command finds (2000-01-01 UTC): equal trees list equally."""


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
            _set_times(overlay)
            started = time.time()
            try:
                done = self.sandbox.run(self._command(overlay, command))
                writes = changed_paths(files, overlay)
            finally:
                empty(overlay)
        return ShellResult(
            output=_canonical(done.stdout + done.stderr, started),
            exit_code=done.exit_code,
            timed_out=done.exit_class is ExitClass.TIMEOUT,
            writes=writes,
            started_python=PYTHON_RUN.search(command) is not None,
            seconds=done.wall_seconds,
        )

    def _command(self, overlay: Path, command: str) -> Command:
        return Command(
            argv=("/bin/bash", "-c", command),
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            mounts=(
                Mount(overlay, REPOSITORY, writable=True),
                Mount(self.git_directory, f"{REPOSITORY}/.git"),
            ),
            limits=self.limits,
        )


def _set_times(overlay: Path) -> None:
    for _, entry in walk(overlay):
        os.utime(entry.path, (MODIFIED, MODIFIED), follow_symlinks=False)
    os.utime(overlay, (MODIFIED, MODIFIED))


def _canonical(output: bytes, started: float) -> bytes:
    """Without the run's clock and our temporary names, so that equal histories read equally.

    Best effort: a command can still print what differs from run to run (a random number, a pid).
    """
    return without_clock(output.decode(errors="replace"), started).encode()


def changed_paths(files: Files, overlay: Path) -> tuple[str, ...]:
    """Paths that a command created, changed or removed on its overlay, sorted; control characters
    and bytes that are not UTF-8 are escaped. New empty directories are not counted.
    """
    seen: set[str] = set()
    changed: list[str] = []
    for path, entry in walk(overlay, open_up=True):
        if entry.is_dir(follow_symlinks=False) and not too_deep(path):
            continue
        if path in files:
            seen.add(path)
        if path not in files or not _is_same(entry, *files[path]):
            changed.append(_printable(path))
    return tuple(sorted([*changed, *(path for path in files if path not in seen)]))


def _is_same(entry: os.DirEntry[str], mode: int, data: bytes) -> bool:
    """Reads only what has the mode and size it should have."""
    status = entry.stat(follow_symlinks=False)
    if mode == SYMLINK:
        return stat.S_ISLNK(status.st_mode) and os.fsencode(Path(entry.path).readlink()) == data
    return (
        stat.S_ISREG(status.st_mode)
        and stat.S_IMODE(status.st_mode) == mode & 0o777
        and status.st_size == len(data)
        and Path(entry.path).read_bytes() == data
    )


def _printable(path: str) -> str:
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
