"""Files that appear whole and are never overwritten."""

from pathlib import Path

from orchestrator.repo.files import disk_faults, write_whole


def write_once(path: Path, data: bytes) -> None:
    """Write, fsync, rename. A name that is there already is left as it is."""
    if path.exists():
        return
    with disk_faults():
        write_whole(path, data)
