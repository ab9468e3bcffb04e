"""Opens what a file can hold in packed form, one level deep: archives, compressed files, git.

Bounded: a member of more than 64 MiB, or more than 1 GiB in all, is not unpacked but named. What is
damaged is not what it seems to be and yields nothing.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    Part = tuple[str, bytes | None]
    """Name of a member ("" for the content of a compressed file), content; None: too large."""

MEMBER_BYTES = 64 << 20
TOTAL_BYTES = 1 << 30
ZIP = b"PK\x03\x04"
ZIP_NAMES = (".zip", ".whl", ".egg", ".pyz", ".jar")
TAR_MAGIC, TAR_PLACE = b"ustar", 257
PACK = b"PACK"
ZLIB = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
DAMAGED = (
    EOFError, KeyError, IndexError, NotImplementedError, OSError, RuntimeError, ValueError,
    lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def parts(name: str, stream: BinaryIO) -> Iterator[Part]:
    """What is packed in a seekable stream; nothing where it is no container (or a damaged one)."""
    head = stream.read(TAR_PLACE + 8)
    stream.seek(0)
    opened = _opener(name, head)
    if opened is None:
        return
    left = TOTAL_BYTES
    try:
        for member, data in opened(stream):
            left -= len(data or b"")
            if left < 0:
                yield member, None
                return
            yield member, data
    except DAMAGED:
        return


def _opener(name: str, head: bytes) -> Callable[[BinaryIO], Iterator[Part]] | None:
    if head[:4] == ZIP or name.endswith(ZIP_NAMES):
        return _zip
    if head[TAR_PLACE : TAR_PLACE + 5] == TAR_MAGIC:
        return _tar
    for magic, opener in (
        (b"\x1f\x8b", _gzip), (b"BZh", _bzip2), (b"\xfd7zXZ", _xz), (PACK, pack),
    ):  # fmt: skip
        if head.startswith(magic):
            return opener
    return _zlib if head[:2] in ZLIB else None


def _zip(stream: BinaryIO) -> Iterator[Part]:
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            if member.file_size > MEMBER_BYTES:
                yield member.filename, None
                continue
            try:
                yield member.filename, archive.read(member)
            except DAMAGED:
                continue


def _tar(stream: BinaryIO) -> Iterator[Part]:
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            if not member.isreg():
                continue
            content = archive.extractfile(member) if member.size <= MEMBER_BYTES else None
            yield member.name, content.read() if content else None


def _gzip(stream: BinaryIO) -> Iterator[Part]:
    with gzip.GzipFile(fileobj=stream) as inflated:
        yield from _inflated(inflated)


def _bzip2(stream: BinaryIO) -> Iterator[Part]:
    with bz2.BZ2File(stream) as inflated:
        yield from _inflated(inflated)


def _xz(stream: BinaryIO) -> Iterator[Part]:
    with lzma.LZMAFile(stream) as inflated:
        yield from _inflated(inflated)


def _inflated(stream: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile) -> Iterator[Part]:
    """The content of a compressed file; the members of a compressed tar count as one level."""
    data = stream.read(MEMBER_BYTES + 1)
    if data[TAR_PLACE : TAR_PLACE + 5] == TAR_MAGIC:
        if len(data) > MEMBER_BYTES:
            data += stream.read(TOTAL_BYTES)
        yield from _tar(io.BytesIO(data))
    else:
        yield "", data if len(data) <= MEMBER_BYTES else None


def _zlib(stream: BinaryIO) -> Iterator[Part]:
    """One zlib stream; of a loose git object the content without its header."""
    data = zlib.decompressobj().decompress(stream.read(MEMBER_BYTES), MEMBER_BYTES)
    kind, separator, content = data.partition(b"\0")
    is_object = separator and kind.split(b" ")[0] in (b"blob", b"tree", b"commit", b"tag")
    yield "", content if is_object else data


def pack(stream: BinaryIO) -> Iterator[Part]:
    """Every entry of a git pack (gitformat-pack) without its index; of a delta the new bytes."""
    data = stream.read(TOTAL_BYTES)
    count, at = int.from_bytes(data[8:12], "big"), 12
    for number in range(count):
        kind = data[at] >> 4 & 7
        at = _past_varint(data, at)
        if kind == 6:
            at = _past_varint(data, at)
        elif kind == 7:
            at += 20
        engine = zlib.decompressobj()
        content = engine.decompress(data[at:], MEMBER_BYTES)
        while engine.unconsumed_tail and not engine.eof:
            engine.decompress(engine.unconsumed_tail, MEMBER_BYTES)
        yield f"entry {number}", _inserted(content) if kind in (6, 7) else content
        at = len(data) - len(engine.unused_data)


def _past_varint(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _inserted(delta: bytes) -> bytes:
    """What a delta adds to its base; copied pieces are not followed."""
    at, found = _past_varint(delta, _past_varint(delta, 0)), []
    while at < len(delta):
        code = delta[at]
        at += 1
        if code & 0x80:
            at += bin(code & 0x7F).count("1")
        else:
            found.append(delta[at : at + code])
            at += code
    return b"\n".join(found)
