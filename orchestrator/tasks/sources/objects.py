"""Commits and trees of a git repository, read from its object database and nothing else.

The repository may be anyone's: its configuration, hooks, attributes, filters, submodules and refs
are neither run, followed nor trusted, and its owner does not matter. Objects are named by their
ids, which git's library verifies; alternates are followed, since they can only add such objects.
"""

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pygit2
from pygit2.enums import ObjectType

from orchestrator.repo.files import EXECUTABLE, REGULAR, SYMLINK
from orchestrator.repo.mirror import tree_entries
from orchestrator.spec.errors import BadInput

TREE, GITLINK = 0o040000, 0o160000
FILE_MODES = {REGULAR: REGULAR, 0o100664: REGULAR, EXECUTABLE: EXECUTABLE, SYMLINK: SYMLINK}
"""Mode in a tree -> mode of a file's value; 100664 is what early git wrote."""

TREE_BYTES = 256 << 20
ENTRIES = 50_000
PATH_BYTES = 4096
COMMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Commit:
    """A commit's id, the id of its tree and the ids of its parents."""

    id: str
    tree: str
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """Every file below a tree (path as raw bytes), and the paths of its submodules."""

    files: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    gitlinks: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Repository:
    """A repository's object database. ``shown`` and ``field`` name it in errors."""

    git_directory: Path
    shown: str
    field: str

    @cached_property
    def _database(self) -> pygit2.Odb:
        objects = self.git_directory / "objects"
        if not objects.is_dir():
            raise self._refused("is no git repository", "Give the path or URL of a repository.")
        return pygit2.Odb(str(objects))

    @property
    def shallow(self) -> bool:
        """Whether the history was cut off when the repository was cloned."""
        return (self.git_directory / "shallow").is_file()

    def has(self, oid: str) -> bool:
        """Whether an object is there."""
        return self._database.exists(oid)

    def full_id(self, prefix: str) -> str:
        """The id of the one commit that begins with ``prefix``; BadInput where it is not one."""
        try:
            kind, data = self._database.read(prefix)
        except (KeyError, ValueError, pygit2.GitError):
            kind, data = ObjectType.BLOB, b""
        if kind != ObjectType.COMMIT:
            problem = f"no single commit begins with {prefix}"
            raise self._refused(problem, "Correct the id, or write it out.")
        return hashlib.sha1(b"commit %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    def commit(self, oid: str) -> Commit:
        """BadInput where the commit is not there, is another kind of object or is damaged."""
        if not self.has(oid):
            raise self._missing(oid)
        headers = self._read(oid, ObjectType.COMMIT, COMMIT_BYTES).partition(b"\n\n")[0]
        lines = [line.split(b" ", 1) for line in headers.splitlines()]
        tree = [line[1].decode("ascii", "replace") for line in lines if line[0] == b"tree"]
        parents = [line[1].decode("ascii", "replace") for line in lines if line[0] == b"parent"]
        if len(tree) != 1:
            raise self._refused(f"commit {oid} has no tree", "Clone the repository again.")
        return Commit(oid, tree[0], tuple(parents))

    def files(self, commit: Commit, folder: str | None = None) -> Found:
        """What a commit holds below ``folder``, with paths relative to it."""
        tree = commit.tree
        for part in folder.split("/") if folder else ():
            entries = {name: (mode, oid) for mode, name, oid in self._entries(tree)}
            mode, tree = entries.get(part.encode(), (0, ""))
            if mode != TREE:
                raise self._refused(
                    f"commit {commit.id} has no folder {folder!r}", "Correct `path` of the source."
                )
        return self._walk(tree)

    def _walk(self, root: str) -> Found:
        """Breadth first, without recursion: depth, number and size are the stranger's choice."""
        found: dict[bytes, tuple[int, bytes]] = {}
        gitlinks: list[bytes] = []
        pending = deque([(root, b"")])
        visited, room = 0, TREE_BYTES
        while pending:
            tree, prefix = pending.popleft()
            for mode, name, oid in self._entries(tree):
                path, visited = prefix + name, visited + 1
                if visited > ENTRIES or len(path) > PATH_BYTES:
                    raise self._too_large()
                if mode == TREE:
                    pending.append((oid, path + b"/"))
                elif mode == GITLINK:
                    gitlinks.append(path)
                elif mode in FILE_MODES:
                    data = self._read(oid, ObjectType.BLOB, room)
                    room -= len(data)
                    found[path] = (FILE_MODES[mode], data)
                else:
                    raise self._refused(f"{path!r} has mode {mode:o}", "Choose another commit.")
        return Found(found, tuple(sorted(gitlinks)))

    def _entries(self, tree: str) -> Iterator[tuple[int, bytes, str]]:
        data = self._read(tree, ObjectType.TREE, TREE_BYTES)
        try:
            yield from tree_entries(data)
        except ValueError:
            raise self._damaged(tree) from None

    def _read(self, oid: str, wanted: ObjectType, most: int) -> bytes:
        """An object's content; its size is looked at before it is unpacked."""
        try:
            kind, size = self._database.read_header(oid)
            if kind != wanted:
                found = ObjectType(kind).name.lower()
                raise self._refused(
                    f"object {oid} is a {found}, not a {wanted.name.lower()}",
                    "Give the full id of a commit.",
                )
            if size > most:
                raise self._too_large()
            _, data = self._database.read(oid)
        except KeyError:
            raise self._missing(oid) from None
        except (ValueError, pygit2.GitError):
            raise self._damaged(oid) from None
        return data

    def _refused(self, problem: str, remedy: str) -> BadInput:
        return BadInput(self.shown, self.field, problem, remedy)

    def _missing(self, oid: str) -> BadInput:
        if self.shallow:
            return self._refused(
                f"object {oid} is missing: the repository is a shallow clone",
                "Fetch its history with `git fetch --unshallow`, or give the URL instead.",
            )
        return self._refused(
            f"object {oid} is missing",
            "Correct the id; if the clone is partial, fetch the commit with `git fetch`.",
        )

    def _damaged(self, oid: str) -> BadInput:
        return self._refused(f"object {oid} is damaged", "Clone the repository again.")

    def _too_large(self) -> BadInput:
        return self._refused(
            f"the tree has more than {ENTRIES} entries, more than {TREE_BYTES >> 20} MiB or a path "
            f"of more than {PATH_BYTES} bytes",
            "Choose a smaller project, or its folder with `path`.",
        )


# ------------------------------------------------------------------------------- on this machine


def local_repository(place: Path, shown: str, field: str) -> Repository:
    """The repository at ``place``: bare, with a ``.git`` folder, or a linked worktree.

    A worktree's ``.git`` file and its ``commondir`` are followed by name only; nothing is run.
    """
    directory = place
    if (place / ".git").is_dir():
        directory = place / ".git"
    elif (place / ".git").is_file():
        named = _first_line(place / ".git").removeprefix("gitdir:").strip()
        directory = place / named
    if (directory / "commondir").is_file():
        directory = directory / _first_line(directory / "commondir")
    if not (directory / "objects").is_dir():
        raise BadInput(
            shown,
            field,
            f"{place} is no git repository",
            "Give a URL, or a path relative to the manifest's folder.",
        )
    return Repository(directory, shown, field)


def _first_line(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(PATH_BYTES).partition(b"\n")[0].decode("utf-8", "surrogateescape")
