"""Counts the lines that a fix really changes. Pure.

Lines added plus lines removed, as git's diff finds them, except that line ends, trailing blanks and
blocks that only moved do not count, and a file that was reformatted as a whole is counted on its
syntax instead of its layout.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator

import pygit2
from pygit2.enums import DiffOption

DIFF_OPTIONS = DiffOption.FORCE_TEXT | DiffOption.IGNORE_WHITESPACE_EOL

MOVED_LINES = 3
"""Shortest block of lines, none of them blank, whose move is recognised: ``return None`` alone
stands anywhere."""

REFORMATTED_SHARE = 0.5
"""A file most of whose old and new lines changed (and that existed before) was reformatted, unless
its syntax says otherwise."""

Sides = tuple[list[list[str]], list[list[str]]]
"""Runs of consecutive removed lines, and of added ones."""


def changed_lines(files: Iterable[tuple[bytes, bytes]]) -> int:
    """Changed lines of a patch, given as (old, new) content per file; moves between files count as
    moves.

    >>> changed_lines([(b"a\\nb\\n", b"a\\r\\nB  \\r\\n")])
    2
    """
    removed: list[list[str]] = []
    added: list[list[str]] = []
    for old, new in files:
        gone, come = _sides(old, new)
        removed += gone
        added += come
    total = sum(map(len, removed)) + sum(map(len, added))
    return total - 2 * _moved(removed, added)


def _sides(old: bytes, new: bytes) -> Sides:
    plain = _diff(old, new)
    size = len(old.splitlines()) + len(new.splitlines())
    if not old or not new or _size(plain) <= REFORMATTED_SHARE * size:
        return plain
    before, after = _normal(old), _normal(new)
    if before is None or after is None:
        return plain
    return min(plain, _diff(before, after), key=_size)


def _size(sides: Sides) -> int:
    return sum(len(run) for side in sides for run in side)


def _normal(source: bytes) -> bytes | None:
    """The module written from its syntax tree, or None where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes of the code that is counted
            return ast.unparse(ast.parse(source)).encode("utf-8", "surrogatepass")
    except (SyntaxError, ValueError, RecursionError):
        return None


def _diff(old: bytes, new: bytes) -> Sides:
    patch = pygit2.Patch.create_from(old, new, flag=DIFF_OPTIONS)
    lines = [(line.origin, line.raw_content) for hunk in patch.hunks for line in hunk.lines]
    return list(_runs(lines, "-")), list(_runs(lines, "+"))


def _runs(lines: list[tuple[str, bytes]], origin: str) -> Iterator[list[str]]:
    run: list[str] = []
    for kind, content in lines:
        if kind == origin:
            run.append(content.decode("utf-8", "replace").rstrip())
        elif run:
            yield run
            run = []
    if run:
        yield run


def _moved(removed: list[list[str]], added: list[list[str]]) -> int:
    """Lines in blocks that vanish in one place and appear, unchanged, in another; greedy."""
    places: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for number, run in enumerate(added):
        for start in range(len(run) - MOVED_LINES + 1):
            places.setdefault(tuple(run[start : start + MOVED_LINES]), []).append((number, start))
    used: set[tuple[int, int]] = set()
    return sum(_moved_from(run, added, places, used) for run in removed)


def _moved_from(
    run: list[str],
    added: list[list[str]],
    places: dict[tuple[str, ...], list[tuple[int, int]]],
    used: set[tuple[int, int]],
) -> int:
    moved = start = 0
    while start + MOVED_LINES <= len(run):
        block = tuple(run[start : start + MOVED_LINES])
        candidates = places.get(block, []) if all(block) else []
        lengths = {place: _length(run, start, added, place, used) for place in candidates}
        best = max(lengths, key=lambda place: lengths[place], default=None)
        if best is None or lengths[best] < MOVED_LINES:
            start += 1
            continue
        number, first = best
        used |= {(number, first + offset) for offset in range(lengths[best])}
        moved += lengths[best]
        start += lengths[best]
    return moved


def _length(
    run: list[str],
    start: int,
    added: list[list[str]],
    place: tuple[int, int],
    used: set[tuple[int, int]],
) -> int:
    """How many lines from ``start`` on are the same from ``place`` on and not yet taken."""
    number, first = place
    length = 0
    while (
        start + length < len(run)
        and first + length < len(added[number])
        and run[start + length] == added[number][first + length]
        and (number, first + length) not in used
    ):
        length += 1
    return length
