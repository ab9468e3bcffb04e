"""Fresh directories for one use, and the hard reset that makes a used one fresh again.

A worktree is a plain directory of copied contents (no ``.git``, no links into anything shared), so
whatever code does inside can never reach the mirror. It is removed at the end, whatever it became.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.repo.files import (
    SYMLINK,
    Files,
    apply_delta,
    check_files,
    disk_faults,
    folders_of,
    make_directory,
    write_directory,
    write_file,
)
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.ports import Delta

NO_CHANGES: Delta = {}


@contextmanager
def worktree(
    files: Files, scratch: Path, *, delta: Delta = NO_CHANGES, uid: int | None = None
) -> Iterator[Path]:
    """A fresh directory under ``scratch`` that holds ``files`` with ``delta`` made; then removed.

    Its name carries this process's id, so that a reaper can tell what a dead process left. With
    ``uid`` everything in it belongs to uid:uid.
    """
    wanted = apply_delta(files, delta) if delta else files
    scratch.mkdir(parents=True, exist_ok=True)
    with disk_faults():
        directory = Path(tempfile.mkdtemp(prefix=f"factorial-{os.getpid()}-", dir=scratch))
    try:
        write_directory(wanted, directory, uid=uid)
        yield directory
    finally:
        remove(directory)


def remove(path: Path) -> None:
    """Delete a file or a whole directory, also one whose modes forbid it; absent is fine."""
    if _is_folder(path):
        shutil.rmtree(path, onerror=_open_up_and_retry)
    else:
        path.unlink(missing_ok=True)
    if os.path.lexists(path):
        raise InfrastructureFault("node", f"cannot remove {path}")


def _open_up_and_retry(_: Callable[..., object], name: str, __: object) -> None:
    """rmtree met a directory it may not read or change: open it and its parent, then go on."""
    path = Path(name)
    for place in (path.parent, path):
        if _is_folder(place):
            place.chmod(stat.S_IRWXU)
    if _is_folder(path):
        for child in path.iterdir():
            remove(child)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def reset(directory: Path, files: Files) -> tuple[str, ...]:
    """Hard reset and clean: make ``directory`` hold exactly ``files``, contents and modes.

    Everything else goes, ignored files, empty directories and ``.git`` included. What is rewritten
    belongs to the directory's owner. Returns, sorted, each path that was residue, changed or
    missing (a foreign directory is named once, with a trailing slash).
    """
    check_files(files)
    if not _is_folder(directory):
        raise InfrastructureFault("node", f"worktree {directory} is gone")
    owner = directory.stat().st_uid
    folders = folders_of(files)
    with disk_faults():
        kept: set[str] = set()
        touched = set(_clean(directory, "", files, folders, kept))
        for folder in sorted(folders - kept):
            make_directory(str(directory / folder), owner)
        for path in files.keys() - kept:
            mode, data = files[path]
            write_file(str(directory / path), mode, data, owner)
            touched.add(path)
    return tuple(sorted(touched))


def _clean(
    directory: Path, prefix: str, files: Files, folders: set[str], kept: set[str]
) -> Iterator[str]:
    """Remove what is not as wanted and yield its name; note in ``kept`` what may stay."""
    (directory / prefix).chmod(0o755)
    with os.scandir(directory / prefix) as scan:
        entries = list(scan)
    for entry in entries:
        path = prefix + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and path in folders:
            kept.add(path)
            yield from _clean(directory, path + "/", files, folders, kept)
        elif path in files and _is_as_wanted(entry, *files[path]):
            kept.add(path)
        else:
            remove(Path(entry.path))
            yield _printable(path + "/" if is_folder else path)


def _is_as_wanted(entry: os.DirEntry[str], mode: int, data: bytes) -> bool:
    status = entry.stat(follow_symlinks=False)
    if mode == SYMLINK:
        return stat.S_ISLNK(status.st_mode) and os.fsencode(Path(entry.path).readlink()) == data
    return (
        stat.S_ISREG(status.st_mode)
        and stat.S_IMODE(status.st_mode) == mode & 0o777
        and status.st_nlink == 1  # a hard link would let a write elsewhere change this file
        and status.st_size == len(data)
        and Path(entry.path).read_bytes() == data
    )


def _printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
