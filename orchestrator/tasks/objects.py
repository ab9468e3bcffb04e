"""Proves of an agent's mirror that it is one commit and nothing else, byte by byte.

Whatever git could keep beside the commit's objects (packs, alternates, reflogs, packed references,
stash, notes, replacements, grafts, worktrees, hooks, settings that run or point elsewhere, resolved
conflicts in the index) is named; so is every file that a mirror of ours does not have.
"""

import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import ObjectType

from orchestrator.repo.files import Files
from orchestrator.repo.mirror import CONFIG, IDENTITY, commit_id_of
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import sha256_hex
from orchestrator.tasks.compartments import AGENT_BRANCH
from orchestrator.tasks.findings import Leak
from orchestrator.tasks.leaks import Secrets
from orchestrator.tasks.probe.matching import lines

MIRROR: Final = "agent mirror"
Objects = dict[str, tuple[int, bytes]]
"""Object id -> (type, content)."""

MESSAGE: Final = "Import"
"""Message of the one commit."""

ONE_COMMIT, LAYOUT, SETTINGS, INDEX = (
    "one-commit", "repository-layout", "repository-settings", "repository-index",
)  # fmt: skip

KNOWN: Final = re.compile(
    r"HEAD|config|index|objects|objects/[0-9a-f]{2}(/[0-9a-f]{38})?|refs|refs/heads|refs/heads/"
    + re.escape(AGENT_BRANCH)
)
"""Every path that a mirror of one commit has."""

FOREIGN: Final = (
    (r"packed-refs", ONE_COMMIT, "packed references"),
    (r"refs/stash|logs/refs/stash", ONE_COMMIT, "a stash"),
    (r"refs/notes/.*", ONE_COMMIT, "notes"),
    (r"refs/replace/.*", ONE_COMMIT, "a replacement of an object"),
    (r"refs/.*", ONE_COMMIT, "a second reference"),
    (r"logs(/.*)?", ONE_COMMIT, "a reflog"),
    (r"shallow", ONE_COMMIT, "a cut history"),
    (r"info/grafts", ONE_COMMIT, "a grafted history"),
    (r"[A-Z_]*HEAD", ONE_COMMIT, "a second head"),
    (r"objects/info/(http-)?alternates", ONE_COMMIT, "objects that lie elsewhere"),
    (r"objects/pack(/.*)?", LAYOUT, "packed objects"),
    (r"worktrees(/.*)?", LAYOUT, "another working tree"),
    (r"modules(/.*)?", LAYOUT, "another repository"),
    (r".*\.bundle", LAYOUT, "a bundle of objects"),
    (r"commondir|gitdir", LAYOUT, "another repository"),
    (r"config\.worktree", SETTINGS, "settings of its own"),
    (r"hooks(/.*)?", SETTINGS, "hooks"),
    (r"info/attributes", SETTINGS, "attributes (filters)"),
)
"""Pattern -> rule, what it is. Whatever matches none of them breaks ``repository-layout``."""


@dataclass(frozen=True)
class Repository:
    """An agent's mirror as it lies on disk, and the base tree that it must hold."""

    path: Path
    base: Files

    @cached_property
    def commit(self) -> str:
        """The commit id that the base tree demands."""
        return commit_id_of(self.base, MESSAGE)

    @cached_property
    def objects(self) -> Objects:
        """Every object of the database, loose, packed or borrowed."""
        return objects_of(self.path)

    @cached_property
    def entries(self) -> dict[str, int]:
        """Relative path -> mode of everything in the directory."""
        found: dict[str, int] = {}
        for top, folders, names in os.walk(self.path):
            for name in (*folders, *names):
                path = Path(top, name)
                found[path.relative_to(self.path).as_posix()] = path.lstat().st_mode
        return dict(sorted(found.items()))


def objects_of(repository: Path) -> Objects:
    """Every object of a repository's database. IntegrityError where one cannot be read."""
    try:
        database = pygit2.Odb(str(repository / "objects"))
        return {str(oid): database.read(oid) for oid in database}
    except (KeyError, ValueError, OSError, pygit2.GitError) as error:
        raise IntegrityError(str(repository), f"its objects cannot be read ({error})") from None


# ------------------------------------------------------------------------------- one commit


def one_commit(repository: Repository) -> Iterator[Leak]:
    """The commit is the expected one, of no history, and nothing lies beside what it needs."""
    objects = repository.objects
    head = _text(repository.path / "refs" / "heads" / AGENT_BRANCH)
    if head != f"{repository.commit}\n":
        yield ONE_COMMIT, MIRROR, f"its branch is at {head.strip()!r}, not {repository.commit}"
    if _text(repository.path / "HEAD") != f"ref: refs/heads/{AGENT_BRANCH}\n":
        yield ONE_COMMIT, MIRROR, f"HEAD is not {AGENT_BRANCH}"
    for oid in sorted(set(objects) - set(reachable(objects, repository.commit))):
        yield ONE_COMMIT, MIRROR, f"object {oid} belongs to no file of the base tree"
    for oid, (kind, data) in sorted(objects.items()):
        if kind == ObjectType.COMMIT:
            yield from _commit(oid, data)


def _commit(oid: str, data: bytes) -> Iterator[Leak]:
    header, _, message = data.partition(b"\n\n")
    fields = [line.partition(b" ") for line in header.split(b"\n")]
    if any(name == b"parent" for name, _, _ in fields):
        yield ONE_COMMIT, MIRROR, f"commit {oid} has a history"
    people = {name: value for name, _, value in fields if name != b"tree"}
    if people != {b"author": IDENTITY.encode(), b"committer": IDENTITY.encode()}:
        yield ONE_COMMIT, MIRROR, f"commit {oid} is not by {IDENTITY}"
    if message.count(b"\n") > 1:
        yield ONE_COMMIT, MIRROR, f"commit {oid} has a message of several lines"


def reachable(objects: Objects, commit: str) -> Iterator[str]:
    """Ids of a commit and everything it needs, with repetitions."""
    pending = [commit]
    while pending:
        oid = pending.pop()
        yield oid
        kind, data = objects.get(oid, (ObjectType.BLOB, b""))
        if kind == ObjectType.COMMIT:
            heads = (line.split(b" ") for line in data.split(b"\n\n")[0].split(b"\n"))
            pending += [h[1].decode() for h in heads if h[0] in (b"tree", b"parent")]
        elif kind == ObjectType.TREE:
            pending += _children(data)


def _children(tree: bytes) -> list[str]:
    found = []
    while tree:
        _, _, rest = tree.partition(b"\0")
        found.append(rest[:20].hex())
        tree = rest[20:]
    return found


# ------------------------------------------------------------------------------- the directory


def layout(repository: Repository) -> Iterator[Leak]:
    """Nothing lies in the directory but what a mirror has: files and folders, no links."""
    for path, mode in repository.entries.items():
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            yield LAYOUT, MIRROR, f"{path} is neither file nor folder"
        elif not KNOWN.fullmatch(path):
            rule, what = _foreign(path)
            yield rule, MIRROR, f"{path} {what}"


def _foreign(path: str) -> tuple[str, str]:
    for pattern, rule, what in FOREIGN:
        if re.fullmatch(pattern, path):
            return rule, f"holds {what}"
    return LAYOUT, "has no place in a mirror of one commit"


def settings(repository: Repository) -> Iterator[Leak]:
    """The configuration is the one that a mirror is made with: it runs nothing, names no place."""
    known = CONFIG.splitlines()
    rows = _text(repository.path / "config").splitlines()
    for row in rows:
        if row not in known:
            yield SETTINGS, MIRROR, f"config says {row.strip()[:80]!r}"
    for row in known:
        if row not in rows:
            yield SETTINGS, MIRROR, f"config does not say {row.strip()!r}"


def index(repository: Repository) -> Iterator[Leak]:
    """The index lists the base tree's files, each with its own blob, and nothing besides."""
    data = (repository.path / "index").read_bytes() if "index" in repository.entries else b""
    entries, rest = index_entries(data)
    wanted = {path: (mode, _blob_id(content)) for path, (mode, content) in repository.base.items()}
    for path in sorted(entries.keys() | wanted.keys()):
        if entries.get(path) != wanted.get(path):
            yield INDEX, MIRROR, f"entry {path!r} is not the base tree's"
    if rest:
        yield INDEX, MIRROR, f"holds {rest} bytes beside its entries (an extension)"


def index_entries(data: bytes) -> tuple[dict[str, tuple[int, str]], int]:
    """Entries of an index of version 2 (gitformat-index), and how many bytes follow them.

    What cannot be understood counts as bytes that follow.
    """
    if data[:8] != b"DIRC\0\0\0\2":
        return {}, len(data)
    (count,), at = struct.unpack(">I", data[8:12]), 12
    entries: dict[str, tuple[int, str]] = {}
    for _ in range(count):
        end = data.find(b"\0", at + 62)
        if end < 0:
            return entries, len(data) - at
        (mode,) = struct.unpack(">I", data[at + 24 : at + 28])
        name = data[at + 62 : end].decode("utf-8", "surrogateescape")
        if name in entries:  # stages of a conflict
            return entries, len(data) - at
        entries[name] = mode, data[at + 40 : at + 60].hex()
        at += (end - at) // 8 * 8 + 8
    return entries, max(0, len(data) - at - 20)


def _blob_id(content: bytes) -> str:
    return str(pygit2.hash(content))


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""


# ------------------------------------------------------------------------------- contents


def sealed_objects(repository: Repository, secrets: Secrets) -> Iterator[Leak]:
    """Fixed files and sealed tests among the objects, whole or by a single line of gold."""
    own = {secret.needle.digests[0]: secret for secret in secrets.own if secret.needle.least == 1}
    for oid, (_, data) in sorted(repository.objects.items()):
        found = secrets.files.get((len(data), sha256_hex(data)))
        if found:
            yield found[0], MIRROR, f"object {oid} is {found[1]}"
        hits = [own[name] for line in lines(data) if (name := sha256_hex(line)) in own]
        if hits:
            yield hits[0].rule, MIRROR, f"object {oid} has {hits[0].what} ({len(hits)} in all)"


def gold_objects(repository: Path, secrets: Secrets) -> Iterator[Leak]:
    """Whole gold files in the evaluator's mirror, which has no use for them."""
    for oid, (_, data) in sorted(objects_of(repository).items()):
        rule, what = secrets.files.get((len(data), sha256_hex(data)), ("", ""))
        if rule == "no-fixed-file":
            yield "no-gold-object", "evaluator mirror", f"object {oid} is {what}"
