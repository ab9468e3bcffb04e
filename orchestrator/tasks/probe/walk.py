"""Walks a file system and says where a request's secrets lie: one JSON question, one JSON answer.

Reads every regular file below the roots once, with what is packed in it and what it was compiled
to; on request also the environment, command line and maps of every process it can see, and what can
be imported. Follows no link, opens nothing but regular files, imports nothing that it finds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.tasks.probe.bytecode import Unmarshaller, news
from orchestrator.tasks.probe.containers import parts
from orchestrator.tasks.probe.matching import Matcher, Needle

CHUNK = 32 << 20
MOST_HITS = 2_000
OWN, FOREIGN, SYSTEM = "own", "foreign", "system"
PROCESS_FILES = ("environ", "cmdline", "mountinfo", "maps")
INSTALLED = re.compile(r"(.+?)-[^-]+(?:-py[\d.]+)?\.(?:dist|egg)-info$")

if TYPE_CHECKING:
    Hit = tuple[str, int, str]
    """Kind (``line``, ``file``, ``code``, ``name``, ``module``, ``place``, ``unread``), number in
    the request's list of that kind, where."""
    Found = tuple[str, os.stat_result]


class Request(NamedTuple):
    """What to look for and where.

    ``kinds``: path prefix -> ``own`` (needles of ``own``), ``foreign`` (needles of ``foreign``) or
    ``system`` (the same; read unless the fingerprint of all system files is among ``known``; where
    ``read_system`` is false, only files of a wanted size are). ``files``: (size, SHA-256).
    ``codes``: fingerprints of code. ``checks``: of every line of every needle.
    """

    roots: list[str]
    kinds: dict[str, str]
    closed: list[str]
    own: list[Needle]
    foreign: list[Needle]
    checks: list[int]
    files: list[tuple[int, str]]
    codes: list[str]
    names: list[str]
    modules: list[str]
    places: list[str]
    process: bool
    read_system: bool
    known: list[str]
    seconds: float


class Scan:
    """One walk. ``hits`` grows while it goes on."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.hits: dict[Hit, None] = {}
        self.read = {OWN: 0, FOREIGN: 0, SYSTEM: 0}
        self._deadline = time.monotonic() + request.seconds
        self._matchers = {
            OWN: Matcher(request.own, request.checks),
            FOREIGN: Matcher(request.foreign, request.checks),
        }
        self._matchers[SYSTEM] = self._matchers[FOREIGN]
        self._sizes = {size for size, _ in request.files}
        self._files = {name: number for number, (_, name) in enumerate(request.files)}
        self._codes = {name: number for number, name in enumerate(request.codes)}
        self._prefixes = sorted(request.kinds, key=len, reverse=True)
        self._unmarshaller = Unmarshaller(frozenset(request.codes), frozenset(request.checks))
        self.system = ""
        self.finished = True

    def run(self) -> None:
        """Everything that the request asks for, until its time is over."""
        found = [entry for root in self.request.roots for entry in self._walk(root)]
        system = [entry for entry in found if self._kind(entry[0]) == SYSTEM]
        self.system = fingerprint(system)
        whole = self.request.read_system and self.system not in self.request.known
        sizes = not self.request.read_system
        for path, status in self._once(found):
            if time.monotonic() > self._deadline:
                self.finished = False
                break
            kind = self._kind(path)
            if kind != SYSTEM or whole or (sizes and status.st_size in self._sizes):
                self._look_into(path, kind, status.st_size)
        if self.request.process:
            self._processes()
            self._imports()
        self._unmarshaller.close()

    def _hit(self, kind: str, number: int, where: str) -> None:
        if len(self.hits) < MOST_HITS:
            self.hits[kind, number, where] = None

    # ----------------------------------------------------------------------- files

    def _walk(self, root: str) -> Iterator[Found]:
        waiting = [root]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as scan:
                    entries = sorted(scan, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if entry.path not in self.request.closed:
                        waiting.append(entry.path)
                        self._installed(entry)
                elif stat.S_ISREG(status.st_mode):
                    yield entry.path, status
                    self._installed(entry)

    def _installed(self, entry: os.DirEntry[str]) -> None:
        match = INSTALLED.match(entry.name)
        if match and self._kind(entry.path) != OWN:
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            if name in self.request.names:
                self._hit("name", self.request.names.index(name), entry.path)

    def _kind(self, path: str) -> str:
        for prefix in self._prefixes:
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return self.request.kinds[prefix]
        return FOREIGN

    def _once(self, found: list[Found]) -> Iterator[Found]:
        seen = set()
        for path, status in found:
            key = status.st_dev, status.st_ino, self._kind(path)
            if key not in seen:
                seen.add(key)
                yield path, status

    def _look_into(self, path: str, kind: str, size: int) -> None:
        try:
            with open(path, "rb", 0) as raw:  # noqa: PTH123
                if size > CHUNK:
                    self._look_through(path, raw, kind)
                    stream: io.IOBase = raw
                    raw.seek(0)
                else:
                    data = raw.read()
                    self.look(path, data, kind)
                    stream = io.BytesIO(data)
                self.read[kind] += 1
                assert isinstance(stream, (io.BytesIO, io.FileIO))
                for member, content in parts(path, stream):
                    self._look_at_member(path + "!" + member, content, kind)
        except OSError:
            return  # what cannot be read here cannot be read by the agent either

    def _look_at_member(self, where: str, content: bytes | None, kind: str) -> None:
        if content is None:
            self._hit("unread", 0, where)
        else:
            self.look(where, content, kind)

    def _look_through(self, path: str, raw: io.FileIO, kind: str) -> None:
        """A large file in pieces that overlap by a line; hunks across a border are not seen."""
        digest, rest = hashlib.sha256(), b""
        while True:
            piece = raw.read(CHUNK)
            if not piece:
                break
            digest.update(piece)
            self.look(path, rest + piece, kind)
            rest = piece[-4096:].rpartition(b"\n")[2]
        number = self._files.get(digest.hexdigest())
        if number is not None:
            self._hit("file", number, path)

    def look(self, where: str, data: bytes, kind: str) -> None:
        """One piece of data as a whole file, as lines and, where it is that, as bytecode."""
        if len(data) in self._sizes:
            number = self._files.get(hashlib.sha256(data).hexdigest())
            if number is not None:
                self._hit("file", number, where)
        matcher = self._matchers[kind]
        self._lines(matcher.find(data), where, kind)
        if where.endswith((".pyc", ".pyo")):
            self._bytecode(matcher, where, data, kind)

    def _lines(self, numbers: list[int], where: str, kind: str) -> None:
        for number in numbers:
            self._hit("line" if kind == OWN else "hunk", number, where)

    def _bytecode(self, matcher: Matcher, where: str, data: bytes, kind: str) -> None:
        reading = self._unmarshaller.read(data)
        if reading is None:
            self._hit("unread", 0, where)
            return
        names, constants = reading
        for name in names:
            self._hit("code", self._codes[name], where)
        self._lines(sorted(set(matcher.find_lines(constants))), where, kind)

    # ----------------------------------------------------------------------- processes

    def _processes(self) -> None:
        for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
            for name in PROCESS_FILES:
                where = f"/proc/{pid}/{name}"
                try:
                    with open(where, "rb") as stream:  # noqa: PTH123
                        self._process(where, stream.read())
                except OSError:
                    continue

    def _process(self, where: str, data: bytes) -> None:
        self.look(where, data.replace(b"\0", b"\n"), OWN)
        for number, place in enumerate(self.request.places):
            if os.fsencode(place) in data:
                self._hit("place", number, where)

    def _imports(self) -> None:
        """Top modules that are found without the agent's own tree and /tmp on the path."""
        own = tuple(prefix for prefix, kind in self.request.kinds.items() if kind == OWN)
        sys.path = [entry for entry in sys.path if entry and not entry.startswith(own)]
        standard = getattr(sys, "stdlib_module_names", frozenset(sys.builtin_module_names))
        for number, name in enumerate(self.request.modules):
            if name not in standard and importlib.util.find_spec(name) is not None:
                self._hit("module", number, "sys.path")


def fingerprint(found: list[Found]) -> str:
    """SHA-256 over path, device, inode, size and times of files: the same names the same bytes."""
    digest = hashlib.sha256()
    for path, status in sorted(found):
        facts = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        digest.update(repr((path, facts)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def scanned(request: Request) -> dict[str, object]:
    """What a walk found: ``hits``, files read by kind, the fingerprint of the system files."""
    scan = Scan(request)
    scan.run()
    return {
        "finished": scan.finished,
        "hits": list(scan.hits),
        "read": scan.read,
        "system": scan.system,
    }


def compiled(sources: dict[str, list[str]]) -> dict[str, object]:
    """Path -> fingerprints and constant lines that only the second of two texts compiles to.

    Bytes travel as Latin-1: a module says itself how it is encoded.
    """
    pairs = {path: tuple(text.encode("latin-1") for text in pair) for path, pair in sources.items()}
    readings = news({path: (old, new) for path, (old, new) in pairs.items()})
    return {
        path: [names, [line.decode("latin-1") for line in constants]]
        for path, (names, constants) in readings.items()
    }


def main(kind: str, question: dict[str, Any]) -> None:
    """Answer ``compile`` or ``scan`` with one line of ASCII on standard output."""
    if kind == "compile":
        said = compiled(question)
    else:
        request = Request(**question)
        own, foreign = ([Needle(*each) for each in some] for some in (request.own, request.foreign))
        files = [(size, name) for size, name in request.files]
        said = scanned(request._replace(own=own, foreign=foreign, files=files))
    sys.stdout.write(json.dumps(said) + "\n")
