"""Finds lines, hunks and whole files in bytes by their SHA-256. Pure.

A line counts in its normal form: at least 20 characters, without surrounding space and without the
marks of a patch, quotation or comment in front. Text in which line ends are escaped (a patch inside
JSON) is looked at unescaped too.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

TELLING_CHARS = 20
"""Shorter lines occur anywhere (``return None``) and prove nothing."""
LINE = re.compile(rb"[^\s+>|#*-][^\n]{%d,}[^\s]" % (TELLING_CHARS - 2))
LONG_LINE = 400
"""A line of more bytes that has escaped line ends is taken for text inside a string."""
ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


class Needle(NamedTuple):
    """At least ``least`` of these lines, all within ``window`` telling lines (0: anywhere)."""

    digests: tuple[str, ...]
    least: int
    window: int


def lines(data: bytes) -> list[bytes]:
    """Telling lines of ``data`` in normal form, in their order."""
    found: list[bytes] = LINE.findall(data)
    return found


def streams(data: bytes) -> Iterator[list[bytes]]:
    """The telling lines of ``data``, and of what its long lines hold in escaped form."""
    found = lines(data)
    yield found
    for line in found:
        if len(line) > LONG_LINE and b"\\n" in line:
            yield lines(ESCAPE.sub(lambda match: PLAIN.get(match[1], match[1]), line))


def digest(line: bytes) -> str:
    """How a line is named: SHA-256 of its normal form."""
    return hashlib.sha256(line).hexdigest()


def check(line: bytes) -> int:
    """A cheap first look at a line, so that few of them have to be hashed."""
    return zlib.crc32(line)


class Matcher:
    """Which of the needles lie in a piece of data. ``checks``: :func:`check` of every line."""

    def __init__(self, needles: Sequence[Needle], checks: Sequence[int]) -> None:
        self._needles = needles
        self._checks: frozenset[int] = frozenset(checks)
        self._by_digest: dict[str, list[int]] = {}
        for number, needle in enumerate(needles):
            for name in needle.digests:
                self._by_digest.setdefault(name, []).append(number)

    def find(self, data: bytes) -> list[int]:
        """Numbers of the needles in ``data``, sorted."""
        return sorted({number for stream in streams(data) for number in self.find_lines(stream)})

    def find_lines(self, stream: Sequence[bytes]) -> Iterator[int]:
        """Numbers of the needles in a sequence of lines that have their normal form already."""
        if self._checks.isdisjoint(map(zlib.crc32, stream)):
            return
        places: dict[int, list[tuple[int, str]]] = {}
        for at, line in enumerate(stream):
            if check(line) in self._checks:
                name = digest(line)
                for number in self._by_digest.get(name, ()):
                    places.setdefault(number, []).append((at, name))
        for number, found in places.items():
            needle = self._needles[number]
            if most_within(found, needle.window) >= needle.least:
                yield number


def most_within(found: Sequence[tuple[int, str]], window: int) -> int:
    """The largest number of different names within ``window`` places (0: anywhere).

    ``found``: (place, name) in order of places.
    """
    if not window:
        return len({name for _, name in found})
    most = first = 0
    inside: dict[str, int] = {}
    for at, name in found:
        inside[name] = inside.get(name, 0) + 1
        while found[first][0] <= at - window:
            old = found[first][1]
            inside[old] -= 1
            if not inside[old]:
                del inside[old]
            first += 1
        most = max(most, len(inside))
    return most
