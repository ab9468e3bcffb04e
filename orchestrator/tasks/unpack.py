"""Reads a source archive (tar or zip) as :data:`~orchestrator.repo.files.Files`, top folder off.

Archives come from strangers: nothing is written to disk, sizes and counts are bounded, and an entry
that climbs out, points out or is no plain file is refused (BadInput names archive and entry).
"""

import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from orchestrator.repo.files import EXECUTABLE, REGULAR, SYMLINK, Files, check_files
from orchestrator.spec.errors import BadInput, IntegrityError

UNPACKED_BYTES = 256 << 20
ENTRIES = 20_000


def unpack(archive: Path) -> Files:
    """Every file of the archive below its one top folder; directories are implied by the files."""
    reader = _zip_entries if zipfile.is_zipfile(archive) else _tar_entries
    files: Files = {}
    total = 0
    try:
        for number, (name, mode, data) in enumerate(reader(archive)):
            total += len(data)
            if number >= ENTRIES or total > UNPACKED_BYTES:
                raise _refused(archive, name, "the archive unpacks to too many or too large files")
            files[_checked(archive, name)] = (mode, data)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        raise _refused(archive, "", f"cannot be read ({error})") from None
    stripped = _without_top(archive, files)
    _check_links(archive, stripped)
    try:
        check_files(stripped)
    except IntegrityError as error:
        raise _refused(archive, error.subject, error.detail) from None
    return dict(sorted(stripped.items(), key=lambda item: item[0].encode()))


def _refused(archive: Path, entry: str, problem: str) -> BadInput:
    return BadInput(str(archive), entry, problem, "Use another source release.")


Entry = tuple[str, int, bytes]


def _tar_entries(archive: Path) -> Iterator[Entry]:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if member.isdir():
                continue
            if member.issym():
                yield member.name, SYMLINK, member.linkname.encode("utf-8", "surrogateescape")
            elif member.isreg() or member.islnk():
                yield member.name, _mode(member.mode), _content(archive, tar, member)
            else:
                raise _refused(archive, member.name, "is a device or FIFO")


def _content(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Bytes of a file, or of the earlier member that a hard link names."""
    try:
        if member.size > UNPACKED_BYTES:
            raise _refused(archive, member.name, "is too large")
        stream = tar.extractfile(member)
    except KeyError:
        stream = None
    if stream is None:
        raise _refused(archive, member.name, "is a link to nothing in the archive")
    return stream.read()


def _zip_entries(archive: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(archive) as bundle:
        for info in bundle.infolist():
            if info.is_dir():
                continue
            if info.file_size > UNPACKED_BYTES:
                raise _refused(archive, info.filename, "is too large")
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFLNK):
                raise _refused(archive, info.filename, "is a device or FIFO")
            with bundle.open(info) as stream:
                data = stream.read(info.file_size + 1)
            link = kind == stat.S_IFLNK
            yield info.filename, SYMLINK if link else _mode(info.external_attr >> 16), data


def _mode(bits: int) -> int:
    return EXECUTABLE if bits & stat.S_IXUSR else REGULAR


def _checked(archive: Path, name: str) -> str:
    """The entry's name without a leading ``./``; refused where it is absolute or climbs."""
    normal = posixpath.normpath(name)
    if name.startswith("/") or "\\" in name or normal.startswith(".."):
        raise _refused(archive, name, "the path leaves the archive")
    return normal


def _without_top(archive: Path, files: Files) -> Files:
    tops = {path.partition("/")[0] for path in files}
    if len(tops) != 1 or any("/" not in path for path in files):
        raise _refused(archive, "", "does not have exactly one top folder, as a source release has")
    return {path.partition("/")[2]: file for path, file in files.items()}


def _check_links(archive: Path, files: Files) -> None:
    """Every symlink must stay inside the tree (its target need not exist)."""
    for path, (mode, target) in files.items():
        if mode != SYMLINK:
            continue
        text = target.decode("utf-8", "surrogateescape")
        landing = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
        if text.startswith("/") or landing == ".." or landing.startswith("../"):
            raise _refused(archive, path, "the link points out of the archive")
