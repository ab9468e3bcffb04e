"""Writes the ``edit`` action that turns one set of files into another.

Changes are applied in order, deletions first (a file may make room for a directory); a ``find``
occurs exactly once in its file at that moment, so an exact-match editor reproduces the target byte
for byte. File modes are never changed.
"""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher

MAX_HUNKS = 30
"""Changes per file; an action may not hold any number of them."""

Change = dict[str, str | bool]
"""``{path, find, replace}``, ``{path, create}`` or ``{path, delete: true}``."""


def edit_script(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[Change]:
    """Changes that turn ``before`` into ``after``; empty where they are equal.

    Content has to be UTF-8. An empty file that gains content is deleted and created again, since
    nothing in it could be found.
    """
    changes: list[Change] = []
    for path in sorted({*before, *after}, key=lambda p: (p in after, p.encode())):
        changes.extend(_file_changes(path, before.get(path), after.get(path)))
    return changes


def _file_changes(path: str, old: bytes | None, new: bytes | None) -> list[Change]:
    if old == new:
        return []
    if new is None:
        return [{"path": path, "delete": True}]
    if old is None:
        return [{"path": path, "create": new.decode()}]
    if not old:
        return [{"path": path, "delete": True}, {"path": path, "create": new.decode()}]
    return [
        {"path": path, "find": find, "replace": replace}
        for find, replace in replacements(old.decode(), new.decode())
    ]


def replacements(old: str, new: str) -> Iterator[tuple[str, str]]:
    """(find, replace) pairs, last hunk of the file first; ``old`` must not be empty.

    Working upwards keeps the line numbers of the hunks that are still to come.
    """
    now, target = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for start, end, target_start, target_end in reversed(_hunks(now, target)):
        low, high = _unique_window(now, start, end)
        wanted = now[low:start] + target[target_start:target_end] + now[end:high]
        yield "".join(now[low:high]), "".join(wanted)
        now[start:end] = target[target_start:target_end]


def _hunks(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Line ranges that differ, in order; very many of them become one range that spans them all."""
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    hunks = [(a, b, c, d) for tag, a, b, c, d in codes if tag != "equal"]
    if len(hunks) <= MAX_HUNKS:
        return hunks
    return [(hunks[0][0], hunks[-1][1], hunks[0][2], hunks[-1][3])]


def _unique_window(lines: list[str], low: int, high: int) -> tuple[int, int]:
    """Grow [low, high) line by line on both sides until its text occurs once."""
    text = "".join(lines)
    while not occurs_once(text, "".join(lines[low:high])):
        low, high = max(low - 1, 0), min(high + 1, len(lines))
    return low, high


def occurs_once(text: str, part: str) -> bool:
    """Whether non-empty ``part`` starts at exactly one place of ``text``, overlaps counted."""
    first = text.find(part)
    return part != "" and first >= 0 and text.rfind(part) == first
