"""Directories that a hostile command may write: walked, measured and emptied, whatever is in them.

Devices, FIFOs, names that are not UTF-8, closed modes, folders deeper than a path can be long: none
of them stops the walk, and nothing that a command left there is opened or followed.
"""

import itertools
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

DEEPEST = 3000
"""Folders whose path is longer (bytes) are named and counted, not looked into; PATH_MAX is 4096."""
ENTRY_BYTES = 4096
"""What an entry costs at least, so that empty files are not free."""


def too_deep(path: str) -> bool:
    """Whether :func:`walk` leaves this folder closed."""
    return len(os.fsencode(path)) > DEEPEST


def walk(directory: Path, *, open_up: bool = False) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every entry below ``directory``, folders too, with its relative path; links are not followed.

    What disappears meanwhile is passed over. PermissionError for a closed folder, unless
    ``open_up`` changes its mode (only where nothing inside is running any more).
    """
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = _entries(directory / prefix, open_up)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            path = prefix + entry.name
            yield path, entry
            if entry.is_dir(follow_symlinks=False) and not too_deep(path):
                waiting.append(path + "/")


def _entries(folder: Path, open_up: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        if not open_up:
            raise
    folder.chmod(stat.S_IRWXU)
    return _entries(folder, open_up=False)


def used(directory: Path, enough: int) -> int:
    """Bytes of disk below ``directory``, at least 4096 for each entry; stops beyond ``enough``.

    A folder that cannot be looked into counts as more than enough.
    """
    total = 0
    try:
        for path, entry in walk(directory):
            total += _cost(entry)
            if total > enough or (too_deep(path) and entry.is_dir(follow_symlinks=False)):
                return enough + 1
    except PermissionError:
        return enough + 1
    return total


def _cost(entry: os.DirEntry[str]) -> int:
    try:
        return max(ENTRY_BYTES, entry.stat(follow_symlinks=False).st_blocks * 512)
    except FileNotFoundError:
        return 0


class Quota:
    """Says when a command has added more than ``allowed`` bytes to its writable directories."""

    def __init__(self, directories: Sequence[Path], allowed: int) -> None:
        self._bounds = [(path, used(path, 1 << 62) + allowed) for path in directories]

    def exceeded(self) -> bool:
        """Looks at the disk; stops counting at the bound."""
        return any(used(path, bound) > bound for path, bound in self._bounds)


def empty(directory: Path) -> None:
    """Remove everything below ``directory``, however deep, whatever its modes.

    Folders are first renamed to the top, so that no path is ever long and nothing recurses. For
    directories in which nothing is running any more.
    """
    token, numbers = secrets.token_hex(8), itertools.count()
    waiting = [directory]
    while waiting:
        folder = waiting.pop()
        folder.chmod(stat.S_IRWXU)
        for entry in _entries(folder, open_up=False):
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink()
                continue
            aside = directory / f".{token}-{next(numbers)}"
            Path(entry.path).chmod(stat.S_IRWXU)
            Path(entry.path).rename(aside)
            waiting.append(aside)
        if folder != directory:
            folder.rmdir()
