"""Splits the change of one file into hunks and leaves one of them out at a time. Pure."""

import difflib
from collections.abc import Iterator


def without_each_hunk(before: bytes, after: bytes) -> Iterator[bytes]:
    """``after`` with one of its hunks undone, for each hunk in order of lines.

    Nothing where there is one hunk only: undoing it would give ``before``.
    """
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [opcode for opcode in opcodes if opcode[0] != "equal"]
    if len(changed) < 2:
        return
    for _, i1, i2, j1, j2 in changed:
        yield b"".join([*new[:j1], *old[i1:i2], *new[j2:]])
