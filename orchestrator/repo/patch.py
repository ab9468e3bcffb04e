"""Proposals as git-format patches: made deterministically, applied strictly.

A patch names full blob ids; applying verifies the preimage and the postimage by them, so a patch
fits its base exactly or is refused. Renames are written as delete and create; contents with a NUL
byte travel as ``GIT binary patch`` literals; a change of type is a delete followed by a create.
"""

import base64
import re
import stat
import zlib
from collections.abc import Iterator

import pygit2
from pygit2.enums import DiffOption

from orchestrator.repo.files import REGULAR, Files, apply_delta, check_files, delta_between
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.ports import Delta

File = tuple[int, bytes]
NO_ID = "0" * 40
NO_NEWLINE = b"\\ No newline at end of file"
BINARY_LINE = 52
"""Raw bytes per line of a binary patch (git's own format)."""


# ------------------------------------------------------------------------------- making


def make_patch(base: Files, delta: Delta) -> bytes:
    """The change from ``base`` to ``base`` + ``delta`` as one git patch, paths in byte order."""
    other = apply_delta(base, delta)
    sections: list[bytes] = []
    for path in sorted(delta, key=str.encode):
        old, new = base.get(path), other.get(path)
        if old and new and stat.S_IFMT(old[0]) != stat.S_IFMT(new[0]):
            sections += [_section(path, old, None), _section(path, None, new)]
        elif old != new:
            sections.append(_section(path, old, new))
    return b"".join(sections)


def _section(path: str, old: File | None, new: File | None) -> bytes:
    a, b = _quoted("a/" + path), _quoted("b/" + path)
    lines = [b"diff --git %s %s" % (a, b), *_mode_lines(old, new)]
    before, after = (old[1] if old else b""), (new[1] if new else b"")
    if before != after or not (old and new):
        mode = b" %o" % old[0] if old and new and old[0] == new[0] else b""
        ids = (_blob_id(old) + ".." + _blob_id(new)).encode()
        lines.append(b"index " + ids + mode)
    head = b"\n".join(lines) + b"\n"
    if before == after:
        return head
    if b"\0" in before or b"\0" in after:
        return head + b"GIT binary patch\n" + _literal(after) + _literal(before)
    names = _named(a, old, b"---"), _named(b, new, b"+++")
    return head + b"".join(names) + _hunks(before, after)


def _mode_lines(old: File | None, new: File | None) -> list[bytes]:
    if old is None and new is not None:
        return [b"new file mode %o" % new[0]]
    if new is None and old is not None:
        return [b"deleted file mode %o" % old[0]]
    if old and new and old[0] != new[0]:
        return [b"old mode %o" % old[0], b"new mode %o" % new[0]]
    return []


def _named(name: bytes, file: File | None, marker: bytes) -> bytes:
    if file is None:
        return marker + b" /dev/null\n"
    # A tab ends an unquoted name with spaces, as git writes it.
    return marker + b" " + name + (b"\t" if b" " in name and name[:1] != b'"' else b"") + b"\n"


def _hunks(before: bytes, after: bytes) -> bytes:
    patch = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT, context_lines=3)
    data = patch.data
    return data[data.index(b"@@ -") :]


def _blob_id(file: File | None) -> str:
    return str(pygit2.hash(file[1])) if file else NO_ID


def _literal(data: bytes) -> bytes:
    packed = zlib.compress(data, 9)
    lines = [b"literal %d\n" % len(data)]
    for start in range(0, len(packed), BINARY_LINE):
        chunk = packed[start : start + BINARY_LINE]
        letter = len(chunk) + (64 if len(chunk) <= 26 else 70)  # A-Z = 1-26, a-z = 27-52
        padded = chunk + b"\0" * (-len(chunk) % 4)
        lines.append(bytes([letter]) + base64.b85encode(padded) + b"\n")
    return b"".join(lines) + b"\n"


_ESCAPES = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}
_UNESCAPES = {letter: bytes([code]) for code, letter in _ESCAPES.items()}


def _quoted(path: str) -> bytes:
    raw = path.encode()
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in raw):
        return raw
    out = (
        b"\\" + _ESCAPES[byte]
        if byte in _ESCAPES
        else bytes([byte])
        if 32 <= byte < 127
        else b"\\%03o" % byte
        for byte in raw
    )
    return b'"' + b"".join(out) + b'"'


# ------------------------------------------------------------------------------- applying


def apply_patch(base: Files, patch: bytes) -> Delta:
    """The delta that ``patch`` makes of ``base``.

    IntegrityError where the patch is not well formed, does not fit exactly (no offset, no fuzz),
    renames or copies.
    """
    files = dict(base)
    reader = _Reader(patch)
    while not reader.done:
        _apply_section(files, reader)
    check_files(files)
    return delta_between(base, files)


class _Reader:
    """Lines of a patch, split at newlines only and read once."""

    def __init__(self, patch: bytes) -> None:
        if patch and not patch.endswith(b"\n"):
            raise IntegrityError("patch", "is cut off: its last line has no end")
        self._lines = patch.split(b"\n")[:-1]
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._lines)

    def peek(self) -> bytes:
        return b"" if self.done else self._lines[self._at]

    def take(self) -> bytes:
        if self.done:
            raise IntegrityError("patch", "is cut off")
        self._at += 1
        return self._lines[self._at - 1]

    def take_if(self, prefix: bytes) -> bytes | None:
        """The rest of the next line where it starts with ``prefix``."""
        if self.done or not self.peek().startswith(prefix):
            return None
        return self.take()[len(prefix) :]


def _apply_section(files: Files, reader: _Reader) -> None:
    path = _header_path(reader.take())
    old_mode, new_mode = reader.take_if(b"old mode "), reader.take_if(b"new mode ")
    created = reader.take_if(b"new file mode ")
    deleted = reader.take_if(b"deleted file mode ")
    index = reader.take_if(b"index ")
    old = files.get(path)
    if (created is not None) == (old is not None):
        raise IntegrityError(path, "is there already" if old else "is not in the base tree")
    before = old[1] if old else b""
    _expect_mode(path, old, old_mode if deleted is None else deleted)
    _expect_id(path, index, 0, old)
    after = _apply_body(path, before, reader)
    if deleted is not None:
        if after:
            raise IntegrityError(path, "is deleted, but the patch leaves contents")
        _expect_id(path, index, 1, None)
        del files[path]
        return
    given = created if created is not None else new_mode
    files[path] = (_octal(path, given) if given is not None else old[0] if old else REGULAR, after)
    _expect_id(path, index, 1, files[path])


def _expect_mode(path: str, old: File | None, mode: bytes | None) -> None:
    if mode is not None and old is not None and old[0] != _octal(path, mode):
        raise IntegrityError(path, f"has mode {old[0]:o}, the patch expects {mode.decode()}")


def _octal(path: str, mode: bytes) -> int:
    if not re.fullmatch(rb"[0-7]{6}", mode):
        raise IntegrityError(path, "patch has a malformed mode")
    return int(mode, 8)


def _expect_id(path: str, index: bytes | None, side: int, file: File | None) -> None:
    if index is None:
        return
    match = re.fullmatch(rb"([0-9a-f]{4,40})\.\.([0-9a-f]{4,40})(?: [0-7]{6})?", index)
    if match is None:
        raise IntegrityError(path, "patch has a malformed index line")
    if not _blob_id(file).startswith(match[side + 1].decode()):
        which = "result" if side else "base"
        raise IntegrityError(path, f"{which} does not have the blob id that the patch names")


def _apply_body(path: str, before: bytes, reader: _Reader) -> bytes:
    if reader.take_if(b"GIT binary patch") is not None:
        after = _read_binary(path, before, reader)
        if _read_binary(path, after, reader) != before:
            raise IntegrityError(path, "binary contents differ from what the patch expects")
        return after
    if reader.take_if(b"--- ") is None:
        return before
    if reader.take_if(b"+++ ") is None:
        raise IntegrityError(path, "patch has no +++ line")
    return _apply_hunks(path, before, reader)


_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def _apply_hunks(path: str, before: bytes, reader: _Reader) -> bytes:
    source = _lines(before)
    result: list[bytes] = []
    at = 0
    while match := _HUNK.match(reader.peek()):
        reader.take()
        start, count = int(match[1]), int(match[2] or 1)
        first = start - 1 if count else start
        removed, added = _hunk_sides(path, reader, count, int(match[4] or 1))
        if first < at or source[first : first + count] != removed:
            raise IntegrityError(path, f"hunk at line {start} does not fit")
        result += [*source[at:first], *added]
        at = first + count
    return b"".join(result + source[at:])


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _hunk_sides(
    path: str, reader: _Reader, old_count: int, new_count: int
) -> tuple[list[bytes], list[bytes]]:
    removed: list[bytes] = []
    added: list[bytes] = []
    while len(removed) < old_count or len(added) < new_count or reader.peek()[:1] == b"\\":
        line = reader.take()
        if line == NO_NEWLINE:
            continue
        sides = {b" ": (removed, added), b"-": (removed,), b"+": (added,)}.get(line[:1])
        if sides is None:
            raise IntegrityError(path, "patch has a malformed hunk")
        text = line[1:] + (b"" if reader.peek() == NO_NEWLINE else b"\n")
        for side in sides:
            side.append(text)
    if (len(removed), len(added)) != (old_count, new_count):
        raise IntegrityError(path, "hunk has other line counts than its header")
    return removed, added


def _read_binary(path: str, source: bytes, reader: _Reader) -> bytes:
    """One half of a binary patch: contents as they are, or git's delta against ``source``."""
    kind, _, size = reader.take().partition(b" ")
    if kind not in (b"literal", b"delta") or not size.isdigit():
        raise IntegrityError(path, "binary patch is neither literal nor delta")
    packed = b"".join(_literal_lines(path, reader))
    try:
        data = zlib.decompress(packed)
        if len(data) != int(size):
            raise IntegrityError(path, "binary patch has another size than it says")
        return data if kind == b"literal" else _apply_binary_delta(path, source, data)
    except (zlib.error, IndexError):
        raise IntegrityError(path, "binary patch is damaged") from None


def _apply_binary_delta(path: str, source: bytes, delta: bytes) -> bytes:
    """Git's pack delta (gitformat-pack, "Deltified representation")."""
    source_size, at = _varint(delta, 0)
    result_size, at = _varint(delta, at)
    result = bytearray()
    while at < len(delta):
        code = delta[at]
        at += 1
        if code & 0x80:
            start, at = _flagged(delta, at, code & 0x0F, 4)
            size, at = _flagged(delta, at, code >> 4 & 0x07, 3)
            result += source[start : start + (size or 0x10000)]
        else:
            result += delta[at : at + code]
            at += code
    if source_size != len(source) or result_size != len(result):
        raise IntegrityError(path, "binary contents differ from what the patch expects")
    return bytes(result)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _flagged(data: bytes, at: int, present: int, width: int) -> tuple[int, int]:
    """A little-endian number of which only the bytes flagged in ``present`` are stored."""
    value = 0
    for place in range(width):
        if present >> place & 1:
            value |= data[at] << (8 * place)
            at += 1
    return value, at


def _literal_lines(path: str, reader: _Reader) -> Iterator[bytes]:
    while line := reader.take():
        length = line[0] - (64 if line[0] <= 90 else 70)
        try:
            chunk = base64.b85decode(line[1:])
        except ValueError:
            raise IntegrityError(path, "binary patch is damaged") from None
        if not 0 < length <= len(chunk):
            raise IntegrityError(path, "binary patch is damaged")
        yield chunk[:length]


def _header_path(line: bytes) -> str:
    rest = line.removeprefix(b"diff --git ")
    names = _header_names(rest) if rest != line else None
    if names is None or names[0][:2] != b"a/" or names[1] != b"b/" + names[0][2:]:
        raise IntegrityError("patch", f"expected `diff --git` of one path, found {line[:80]!r}")
    try:
        return names[0][2:].decode()
    except UnicodeDecodeError:
        raise IntegrityError("patch", "path is not UTF-8") from None


def _header_names(rest: bytes) -> tuple[bytes, bytes] | None:
    if rest[:1] == b'"':
        match = re.fullmatch(rb'"((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"', rest)
        return (_unquoted(match[1]), _unquoted(match[2])) if match else None
    half = len(rest) // 2  # one name, a space, the same name with b for a
    return (rest[:half], rest[half + 1 :]) if rest[half : half + 1] == b" " else None


def _unquoted(name: bytes) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 255]) if code.isdigit() else _UNESCAPES.get(code, code)

    return re.sub(rb"\\([0-7]{3}|.)", plain, name)
