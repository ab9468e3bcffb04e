"""Durable file operations: whole or absent, never torn, on a POSIX file system.

Every function returns only after the data and the directory entry are on the disk. A full or
failing disk is an InfrastructureFault (boundary ``disk``) that leaves nothing half-written behind
and touches nothing that was written before.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.spec.errors import InfrastructureFault

DISK_FAULTS: dict[int, str] = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit was reached",
    errno.EIO: "the device reported an input/output error",
    errno.EROFS: "the file system is read-only",
}
"""Error numbers that blame the disk; any other OSError is a mistake of the caller and stays one."""


@contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """Turn the errors of :data:`DISK_FAULTS` into an InfrastructureFault that names ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FAULTS:
            raise
        raise InfrastructureFault(
            "disk",
            f"{DISK_FAULTS[error.errno]} while writing {path}; what was committed before is "
            "intact: free space and run again",
        ) from error


def fsync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_new(path: Path, data: bytes) -> None:
    """Create ``path`` with ``data`` and fsync it, but not its directory; removed again on failure.

    Not atomic for a reader of ``path``: meant for scratch names. Raises FileExistsError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _scratch_name(directory: Path) -> Path:
    # No suffix that a reader's glob could match (*.json, *.parquet, *.patch).
    return directory / f".{secrets.token_hex(8)}.tmp"


@contextmanager
def _scratch_file(path: Path, data: bytes, scratch: Path | None) -> Iterator[Path]:
    """A durable file with ``data`` under a scratch name that is gone afterwards."""
    temporary = _scratch_name(scratch or path.parent)
    with disk_faults(path):
        write_new(temporary, data)
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes, scratch: Path | None = None) -> None:
    """Create or replace ``path``: a reader sees the old content or the new, whole.

    ``scratch`` is a directory of the same file system for the temporary file; default, that of
    ``path``.
    """
    with _scratch_file(path, data, scratch) as temporary:
        temporary.replace(path)
        fsync_directory(path.parent)


def write_exclusive(path: Path, data: bytes, scratch: Path | None = None) -> None:
    """Create ``path`` whole, or raise FileExistsError and change nothing (link semantics)."""
    with _scratch_file(path, data, scratch) as temporary:
        path.hardlink_to(temporary)
        fsync_directory(path.parent)


def write_addressed(files: Mapping[Path, bytes], scratch: Path) -> None:
    """Write content-addressed files; those that exist are left alone.

    Parent directories are made. One fsync per new file and one per directory that gained an entry.
    """
    touched: set[Path] = set()
    for path, data in files.items():
        if path.exists():
            continue
        with disk_faults(path):
            if not path.parent.exists():
                path.parent.mkdir(parents=True)
                touched.add(path.parent.parent)
        with _scratch_file(path, data, scratch) as temporary:
            temporary.replace(path)
        touched.add(path.parent)
    for directory in touched:
        with disk_faults(directory):
            fsync_directory(directory)


def write_directory(path: Path, files: Mapping[str, bytes], scratch: Path) -> None:
    """Create directory ``path`` with ``files`` (name -> content) by one rename.

    Built under ``scratch`` (same file system), so a reader of ``path.parent`` sees all files or no
    directory. Raises FileExistsError if ``path`` exists.
    """
    temporary = _scratch_name(scratch)
    with disk_faults(path):
        try:
            temporary.mkdir()
            for name, data in files.items():
                write_new(temporary / name, data)
            fsync_directory(temporary)
            _rename_new(temporary, path)
        except BaseException:
            remove_tree(temporary)
            raise
        fsync_directory(path.parent)


def _rename_new(source: Path, target: Path) -> None:
    # rename(2) would replace an *empty* directory, so that case is refused beforehand.
    if target.exists():
        raise FileExistsError(errno.EEXIST, "exists", str(target))
    try:
        source.rename(target)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(errno.EEXIST, "exists", str(target)) from None
        raise


def append_durable(path: Path, line: bytes) -> None:
    """Append one line (with or without its final newline) and wait until it is on the disk.

    One appender per file. What a failed append may have written is cut off again. Raises
    ValueError for a newline within the line: it would be read back as two.
    """
    line = line.removesuffix(b"\n")
    if b"\n" in line:
        raise ValueError("a line to append contains a newline")
    created = not path.exists()
    with disk_faults(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _append(descriptor, line + b"\n")
        finally:
            os.close(descriptor)
        if created:
            fsync_directory(path.parent)


def _append(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    try:
        _write_all(descriptor, data)
        os.fdatasync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def read_lines(path: Path) -> list[bytes]:
    """Complete lines of an append-only file, without newlines; a torn last line is left out.

    A file that does not exist has no lines.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data.split(b"\n")[:-1]


def remove_tree(path: Path) -> None:
    """Remove a file or a directory with everything in it; absent is fine, links aren't followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
