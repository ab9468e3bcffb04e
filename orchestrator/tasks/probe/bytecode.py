"""Recognises compiled code: fingerprints of code objects, constants, and a safe way to read them.

A fingerprint covers instructions, constants and names, not file names and line numbers. Bytecode is
never run; it is unmarshalled in a child process, which damaged bytecode may kill.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import marshal
import os
import resource
import struct
import zlib
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING

from orchestrator.tasks.probe.matching import TELLING_CHARS, check, lines

HEADER = 16
TELLING_CODE, TELLING_WORDS = 24, 40
"""A code object with fewer bytes of instructions, or fewer characters of names and constants, is
equal to another by chance."""
CONSTANT = b"constant "
"""In front of a line of a string constant: lines of bytecode are no lines of source."""
CHILD_MEMORY = 2 << 30
if TYPE_CHECKING:
    Reading = tuple[list[str], list[bytes]]
    """Fingerprints of the telling code objects, lines of the string constants."""


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that lie in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def head(code: CodeType) -> str:
    """Beginning of a fingerprint: a cheap first look, so that few codes have to be hashed."""
    return f"{zlib.crc32(code.co_code):08x}"


def fingerprint(code: CodeType) -> str:
    """:func:`head`, then SHA-256 over what the code does: instructions, constants, names."""
    facts = (
        code.co_code, tuple(map(_constant, code.co_consts)), code.co_names, code.co_varnames,
        code.co_freevars, code.co_cellvars, code.co_argcount, code.co_kwonlyargcount,
        code.co_flags,
    )  # fmt: skip
    return head(code) + hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return fingerprint(value)
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    return value


def is_telling(code: CodeType) -> bool:
    """Whether a code object is long enough to prove something."""
    constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
    words = sum(map(len, code.co_names + code.co_varnames)) + len(repr(constants))
    return len(code.co_code) >= TELLING_CODE and words >= TELLING_WORDS


def read(code: CodeType) -> Reading:
    """Fingerprints of the telling code objects in ``code``, and the lines of its constants."""
    return [fingerprint(one) for one in codes_of(code) if is_telling(one)], constants(code)


def constants(code: CodeType) -> list[bytes]:
    """Telling lines of every string constant in ``code``, marked as such."""
    texts = (text for one in codes_of(code) for value in one.co_consts for text in _texts(value))
    return [CONSTANT + line for text in texts for line in lines(text)]


def _texts(value: object) -> Iterator[bytes]:
    if isinstance(value, (str, bytes)):
        if len(value) >= TELLING_CHARS:
            yield value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    elif isinstance(value, (tuple, frozenset)):
        for part in value:
            yield from _texts(part)


def compiled(text: bytes) -> Reading | None:
    """What the source of a module becomes at every level of optimisation; None: not this Python."""
    names, constants = [], []
    try:
        for level in (0, 1, 2):
            read_names, read_constants = read(compile(text, "m", "exec", 0, True, level))
            names += read_names
            constants += read_constants
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return names, list(dict.fromkeys(constants))


def news(sources: dict[str, tuple[bytes, bytes]]) -> dict[str, Reading]:
    """Path -> what only the second of two versions of a module compiles to."""
    found = {}
    before = [compiled(old) or ([], []) for old, _ in sources.values()]
    known_names = {name for names, _ in before for name in names}
    known_constants = {line for _, constants in before for line in constants}
    for path, (_, new) in sources.items():
        names, constants = compiled(new) or ([], [])
        found[path] = (
            sorted({name for name in names if name not in known_names}),
            [line for line in constants if line not in known_constants],
        )
    return found


def load(data: bytes) -> CodeType | None:
    """The code object of a ``.pyc`` of this interpreter's version, or None."""
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return None
    try:
        code = marshal.loads(data[HEADER:])
    except (ValueError, EOFError, TypeError, MemoryError, RecursionError, OverflowError):
        return None
    return code if isinstance(code, CodeType) else None


class Unmarshaller:
    """A child process that reads bytecode; where it dies of it, a new one takes its place.

    Knows what is looked for: fingerprints of code, first looks at lines of constants.
    """

    def __init__(self, codes: frozenset[str], checks: frozenset[int]) -> None:
        self._codes, self._checks = codes, checks
        self._heads = frozenset(name[:8] for name in codes)
        self._child: tuple[int, int, int] | None = None

    def read(self, data: bytes) -> Reading | None:
        """What of it is in a ``.pyc``, empty where it is none; None where reading it kills."""
        if data[:4] != importlib.util.MAGIC_NUMBER:
            return [], []
        pid, question, answer = self._child or self._start()
        self._child = pid, question, answer
        try:
            _send(question, data)
            names, found = json.loads(_receive(answer))
        except (EOFError, OSError, ValueError):
            self.close()
            return None
        return names, [line.encode("latin-1") for line in found]

    def _start(self) -> tuple[int, int, int]:
        theirs, ours = os.pipe()
        answer, say = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(ours)
                os.close(answer)
                self._serve(theirs, say)
            finally:
                os._exit(1)
        os.close(theirs)
        os.close(say)
        return pid, ours, answer

    def _serve(self, question: int, answer: int) -> None:
        limit = min(CHILD_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1] % (1 << 63))
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while True:
            try:
                data = _receive(question)
            except EOFError:
                os._exit(0)
            code = load(data)
            names, found = self._look(code) if code is not None else ([], [])
            reply = names, [line.decode("latin-1") for line in found]
            _send(answer, json.dumps(reply).encode())

    def _look(self, code: CodeType) -> Reading:
        suspects = (one for one in codes_of(code) if head(one) in self._heads)
        names = [name for name in map(fingerprint, suspects) if name in self._codes]
        return names, [line for line in constants(code) if check(line) in self._checks]

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            pid, question, answer = self._child
            self._child = None
            os.close(question)
            os.close(answer)
            os.waitpid(pid, 0)


def _send(descriptor: int, data: bytes) -> None:
    view = memoryview(struct.pack("=Q", len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def _receive(descriptor: int) -> bytes:
    (size,) = struct.unpack("=Q", _exactly(descriptor, 8))
    return _exactly(descriptor, size)


def _exactly(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = os.read(descriptor, min(1 << 20, size - len(data)))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)
