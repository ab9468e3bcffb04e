"""The layout of a run's directory, and who may write in it.

A root belongs to one lock for ever and has at most one writer at a time. This module makes the
directories, guards both rules and names paths; it reads or writes no results.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.spec.errors import BadInput, IntegrityError, LockMismatch
from orchestrator.spec.freeze import differences, lock_content
from orchestrator.spec.lock import Lock
from orchestrator.spec.manifest import validate
from orchestrator.store.files import disk_faults, remove_tree, write_exclusive

DIRECTORIES = (
    "amendments",
    "records",
    "attempts",
    "patches",
    "blobs",
    "replies",
    "evaluations",
    "tables",
    "analysis",
    "tmp",
)

_writing: dict[Path, int] = {}
"""Roots that this process may write -> its pid: a forked child inherits the dict, not the right."""


@dataclass(frozen=True)
class Root:
    """A run's directory, an absolute path. Make one with :meth:`open` or :meth:`existing`."""

    path: Path

    @classmethod
    def open(cls, path: Path, lock_bytes: bytes) -> "Root":
        """Create the root of a lock, or return to it.

        Raises LockMismatch (with every difference) if the root was made for other lock bytes, and
        BadInput if the directory holds something else.
        """
        root = cls(path.resolve())
        with disk_faults(root.path):
            root.path.mkdir(parents=True, exist_ok=True)
        if not root.lock_path.exists():
            _require_empty(root.path)
            write_exclusive(root.lock_path, lock_bytes)
        elif (stored := root.lock_path.read_bytes()) != lock_bytes:
            raise LockMismatch(str(root.lock_path), _lock_differences(stored, lock_bytes))
        with disk_faults(root.path):
            for name in DIRECTORIES:
                (root.path / name).mkdir(exist_ok=True)
        return root

    @classmethod
    def existing(cls, path: Path) -> "Root":
        """The root of an earlier run. Raises BadInput if there is none."""
        root = cls(path.resolve())
        if not root.lock_path.is_file():
            raise BadInput(
                str(path),
                "",
                "not the root of a run (no lock.json)",
                "Give the directory that was passed to `factorial run --root`.",
            )
        return root

    @property
    def lock_path(self) -> Path:
        return self.path / "lock.json"

    @property
    def records(self) -> Path:
        return self.path / "records"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    @property
    def replies(self) -> Path:
        return self.path / "replies"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def scratch(self) -> Path:
        """The writer's own temporary files, emptied when a writer starts.

        The rest of ROOT/tmp belongs to workers: one that outlived its driver may still write there.
        """
        return self.path / "tmp" / "commit"

    def record_path(self, rollout_id: str) -> Path:
        """Directory of a settled rollout."""
        return self.records / rollout_id

    def attempt_path(self, attempt_id: str) -> Path:
        """File that says an attempt began."""
        return self.attempts / f"{attempt_id}.json"

    def attempt_end_path(self, attempt_id: str) -> Path:
        """File that says how an attempt ended."""
        return self.attempts / f"{attempt_id}.end.json"

    def journal_path(self, attempt_id: str) -> Path:
        """Ledger of an attempt while it runs, one event per line."""
        return self.attempts / f"{attempt_id}.ledger.jsonl"

    def patch_path(self, sha256: str) -> Path:
        """A proposal as a patch against its task's base tree."""
        return self.path / "patches" / f"{sha256}.patch"

    def blob_path(self, sha256: str) -> Path:
        """An unbounded observation, sharded by the first two digits of its digest."""
        return self.path / "blobs" / sha256[:2] / sha256

    def evaluation_path(self, rollout_id: str) -> Path:
        """Replay verdicts of a rollout."""
        return self.evaluations / f"{rollout_id}.parquet"

    def lock(self) -> Lock:
        """The root's lock. Raises BadInput if unreadable, IntegrityError if it was edited."""
        try:
            data = json.loads(self.lock_path.read_bytes())
        except (OSError, ValueError) as error:
            raise BadInput(
                str(self.lock_path), "", f"not a lock ({error})", "Restore the file."
            ) from None
        lock = validate(data, Lock, str(self.lock_path))
        if Lock.digest(lock_content(lock)) != lock.lock_id:
            raise IntegrityError(str(self.lock_path), "lock_id is not the digest of the content")
        return lock

    @contextmanager
    def writer(self) -> Iterator[None]:
        """The right to write while in the ``with`` block; removes a killed writer's leftovers.

        Held by an flock, so it ends with the process, however that dies. Raises BadInput naming
        the process that holds it.
        """
        with disk_faults(self.path):
            descriptor = os.open(self.path / ".writer", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._acquire(descriptor)
            _writing[self.path] = os.getpid()
            try:
                remove_tree(self.scratch)
                yield
            finally:
                del _writing[self.path]
        finally:
            os.close(descriptor)

    def require_writer(self) -> None:
        """Raise IntegrityError unless this process is within :meth:`writer`."""
        if _writing.get(self.path) != os.getpid():
            raise IntegrityError(str(self.path), "written to without being its writer")

    def _acquire(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise BadInput(
                str(self.path),
                "",
                f"another run writes here (process {holder})",
                "Wait until it ends or stop it, then run again.",
            ) from None
        with disk_faults(self.path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _require_empty(path: Path) -> None:
    # A temporary file may be left of a start that was killed before lock.json had its name.
    found = sorted(entry.name for entry in path.iterdir() if entry.suffix != ".tmp")
    if found:
        raise BadInput(
            str(path),
            "",
            f"holds files but no lock.json (first: {found[0]})",
            "Give a new or empty directory.",
        )


def _lock_differences(stored: bytes, given: bytes) -> tuple[str, ...]:
    """Leaf-by-leaf where both are JSON objects; otherwise that the bytes differ."""
    try:
        frozen, present = json.loads(stored), json.loads(given)
    except ValueError:
        frozen = present = None
    found = (
        differences(frozen, present)
        if isinstance(frozen, dict) and isinstance(present, dict)
        else ()
    )
    return found or ("the bytes of the two locks differ",)
