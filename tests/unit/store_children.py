"""Processes that the store's tests kill, starve of disk space, or read beside."""

import json
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from orchestrator.spec.errors import InfrastructureFault
from orchestrator.store.integrity import validate_matrix
from orchestrator.store.reading import owed, settled
from orchestrator.store.root import Root
from orchestrator.store.writer import Writer
from tests.unit.store_support import (
    CHECKS,
    open_root,
    settle,
    small_lock,
)


def commit_what_is_owed(path: str, pipe: Connection) -> None:
    """Say ``ready``, then settle all that is owed, naming each rollout once it is committed."""
    root = Root.existing(Path(path))
    lock = root.lock()
    with root.writer():
        writer = Writer(root, lock)
        writer.close_abandoned()
        pipe.send("ready")
        for rollout_id in owed(lock, root):
            settle(writer, lock, rollout_id)
            pipe.send(rollout_id)
        pipe.send("done")
        pipe.recv()  # held until it is killed or released


def hold_writer(path: str, pipe: Connection) -> None:
    """Be the writer of a root until released."""
    with Root.existing(Path(path)).writer():
        pipe.send("ready")
        pipe.recv()


def run_into_full_disk(path: Path, limit_files: bool) -> dict[str, object]:
    """Settle rollouts until the disk is full, make room, settle the rest; what was seen.

    The disk is a small tmpfs, most of it taken by a ballast file; with ``limit_files``, files
    larger than a patch cannot be written instead.
    """
    lock = small_lock(tasks=4)
    root = open_root(path / "root", lock)
    ballast = path / "ballast"
    acknowledged: list[str] = []
    faults: list[str] = []
    with root.writer():
        writer = Writer(root, lock)
        if not limit_files:
            _fill(ballast, leave=160 << 10)
        for planned in lock.rollouts:
            if limit_files and len(acknowledged) == 5 and not faults:
                _limit_file_size(1000)
            try:
                settle(writer, lock, planned.rollout_id)
            except InfrastructureFault as fault:
                faults.append(fault.boundary)
                break
            acknowledged.append(planned.rollout_id)
        at_fault = sorted(settled(root))
        findings = validate_matrix(lock, root, CHECKS)
        damaged = [finding for finding in findings if "settled" not in finding]
        leftovers = [str(entry) for entry in root.scratch.iterdir()]
        _limit_file_size(resource.RLIM_INFINITY)
        ballast.unlink(missing_ok=True)
        writer.close_abandoned()
        for rollout_id in owed(lock, root):
            settle(writer, lock, rollout_id)
        after = validate_matrix(lock, root, CHECKS)
    return {
        "faults": faults,
        "acknowledged": sorted(acknowledged),
        "at_fault": at_fault,
        "planned": len(lock.rollouts),
        "damaged": damaged,
        "leftovers": leftovers,
        "after": after,
    }


def _fill(ballast: Path, leave: int) -> None:
    """Take all space but ``leave`` bytes."""
    with ballast.open("wb", buffering=0) as stream:
        try:
            while stream.write(b"\0" * 4096):
                pass
        except OSError:
            stream.truncate(stream.tell() - leave)


def _limit_file_size(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if hard == -1 else min(size, hard), hard))


if __name__ == "__main__":
    seen = run_into_full_disk(Path(sys.argv[1]), sys.argv[2] == "limit")
    sys.stdout.write(json.dumps(seen))
