"""A tree with its contents as a value, and its way to and from a directory.

``Files`` maps a relative POSIX path to (git mode, content); a symlink's content is its target.
Writing never leaves the directory it was given: a path that is absolute, climbs, names ``.git`` or
passes through a file or symlink is refused before anything is written.
"""

# A Path for each of thousands of files would be half the cost of writing them.
# ruff: noqa: PTH101, PTH102, PTH115, PTH123, PTH211
import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.spec.errors import BadInput, InfrastructureFault, IntegrityError
from orchestrator.spec.identity import Entry, Tree, sha256_hex
from orchestrator.spec.ports import Delta, FileChange

Files = dict[str, tuple[int, bytes]]
"""Path -> (0o100644 | 0o100755 | 0o120000, content)."""

REGULAR, EXECUTABLE, SYMLINK = 0o100644, 0o100755, 0o120000
MODES = frozenset({REGULAR, EXECUTABLE, SYMLINK})
LONGEST_NAME = 255
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})


def tree_of(files: Files) -> Tree:
    """The identity side of ``files``: same paths and modes, SHA-256 in place of content."""
    return Tree({path: Entry(mode, sha256_hex(data)) for path, (mode, data) in files.items()})


def check_path(path: str) -> None:
    """IntegrityError unless ``path`` is relative, normal, UTF-8 and outside any ``.git``."""
    problem = _path_problem(path)
    if problem:
        raise IntegrityError(repr(path), problem)


def _path_problem(path: str) -> str | None:
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        return "path is not UTF-8"
    if b"\0" in raw:
        return "path contains a NUL byte"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return "path is absolute, climbs or is not normal"
        if part.lower() == ".git":
            return "path names git's own directory"
        if len(part.encode()) > LONGEST_NAME:
            return f"path has a name of more than {LONGEST_NAME} bytes"
    return None


def parents(path: str) -> Iterator[str]:
    """Every directory above ``path``, deepest first: ``a/b/c`` gives ``a/b``, ``a``."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def check_files(files: Files) -> None:
    """IntegrityError unless every path and mode is sound and no path passes through another."""
    for path, (mode, data) in files.items():
        check_path(path)
        if mode not in MODES:
            raise IntegrityError(repr(path), f"mode {mode:o} is not a file's")
        if mode == SYMLINK and (not data or b"\0" in data):
            raise IntegrityError(repr(path), "symlink without a valid target")
        for parent in parents(path):
            if parent in files:
                kind = "symlink" if files[parent][0] == SYMLINK else "file"
                raise IntegrityError(repr(path), f"path passes through the {kind} {parent!r}")


# ------------------------------------------------------------------------------- directories


def read_directory(directory: Path) -> Files:
    """Everything below ``directory`` but entries named ``.git``; empty directories are not kept.

    BadInput names the first entry that is no regular file, directory or symlink, or whose name is
    not UTF-8. Symlinks are read, never followed.
    """
    files: Files = {}
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(directory / prefix) as entries:
            for entry in entries:
                if entry.name.lower() == ".git":
                    continue
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path + "/")
                else:
                    files[path] = _read_entry(directory, path, entry)
    return dict(sorted(files.items(), key=lambda item: item[0].encode()))


def _read_entry(directory: Path, path: str, entry: os.DirEntry[str]) -> tuple[int, bytes]:
    problem = _path_problem(path)
    if problem:
        raise BadInput(str(directory), repr(path), problem, "Remove or rename it.")
    if entry.is_symlink():
        return SYMLINK, os.fsencode(os.readlink(entry.path))
    # O_NONBLOCK: opening a FIFO that appeared meanwhile must not hang.
    if not entry.is_file(follow_symlinks=False):
        raise _special(directory, path)
    descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _special(directory, path)
        return EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR, stream.read()


def _special(directory: Path, path: str) -> BadInput:
    return BadInput(str(directory), path, "is a device, FIFO or socket", "Remove it.")


@contextmanager
def disk_faults() -> Iterator[None]:
    """Turn a full or failing disk into InfrastructureFault (boundary ``disk``)."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_ERRORS:
            raise InfrastructureFault("disk", str(error)) from error
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write one file that appears whole, and durable, or not at all; replaces what is there."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_directory(files: Files, directory: Path, *, uid: int | None = None) -> None:
    """Create ``directory`` (absent or empty) with exactly ``files``.

    Modes are 0644 and 0755, 0755 for directories, whatever the umask.
    With ``uid`` every file, symlink and directory belongs to uid:uid (needs root, unless it is the
    caller's own). IntegrityError for paths that :func:`check_files` refuses or a directory that
    holds something already; InfrastructureFault (boundary ``disk``) when the disk is full.
    """
    check_files(files)
    with disk_faults():
        directory.mkdir(parents=True, exist_ok=True)
        with os.scandir(directory) as entries:
            if any(entries):
                raise IntegrityError(str(directory), "holds files already; it must be fresh")
        root = str(directory)
        _own_directory(root, uid)
        for folder in sorted(folders_of(files)):
            make_directory(f"{root}/{folder}", uid)
        for path, (mode, data) in files.items():
            write_file(f"{root}/{path}", mode, data, uid)


def folders_of(paths: Iterable[str]) -> set[str]:
    """Every directory that ``paths`` need."""
    found: set[str] = set()
    for path in paths:
        for parent in parents(path):
            if parent in found:
                break
            found.add(parent)
    return found


def make_directory(where: str, uid: int | None) -> None:
    """One new directory, mode 0755 whatever the umask."""
    os.mkdir(where, 0o700)
    _own_directory(where, uid)


def _own_directory(where: str, uid: int | None) -> None:
    os.chmod(where, 0o755)
    if uid is not None:
        os.chown(where, uid, uid)


def write_file(where: str, mode: int, data: bytes, uid: int | None) -> None:
    """One new file or symlink; never writes through or over anything that exists."""
    if mode == SYMLINK:
        os.symlink(data, os.fsencode(where))
        if uid is not None:
            os.chown(where, uid, uid, follow_symlinks=False)
        return
    descriptor = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if uid is not None:
            os.fchown(descriptor, uid, uid)
        os.fchmod(descriptor, mode & 0o777)
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------- deltas


def apply_delta(files: Files, delta: Delta) -> Files:
    """A new ``Files`` with every change made. Deleting an absent path is no error.

    IntegrityError where a change's content does not have the digest it claims, or where the result
    is not a tree.
    """
    merged = dict(files)
    for path, change in delta.items():
        if change is None:
            merged.pop(path, None)
        elif sha256_hex(change.content) != change.entry.sha256:
            raise IntegrityError(repr(path), "content does not match its digest")
        else:
            merged[path] = (change.entry.mode, change.content)
    check_files(merged)
    return merged


def delta_between(base: Files, other: Files) -> Delta:
    """The smallest delta with ``apply_delta(base, delta) == other``, in path order."""
    changed = (path for path in base.keys() | other.keys() if base.get(path) != other.get(path))
    return {path: _change(other.get(path)) for path in sorted(changed, key=str.encode)}


def _change(file: tuple[int, bytes] | None) -> FileChange | None:
    return file and FileChange(Entry(file[0], sha256_hex(file[1])), file[1])
