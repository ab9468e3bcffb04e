"""A git mirror as frozen evidence: one parentless commit per branch, nothing else inside.

The same content gives the same commit ids and the same objects everywhere. Objects are read and
written through the object database alone, so opening a mirror runs and trusts none of its
configuration, whoever owns it. Mirrors may share their objects' disk space through a pool, of which
nothing can be seen from a mirror.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, ObjectType

from orchestrator.repo.files import MODES, Files, check_files, disk_faults, tree_of
from orchestrator.repo.pool import share
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import Tree

IDENTITY = "factorial <factorial@localhost> 946684800 +0000"
"""Author and committer of every mirror commit: no person, 2000-01-01T00:00:00Z."""

# Without `bare` git decides by the directory's name, so the mirror also works as a `.git`.
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tlogallrefupdates = false\n"
DIRECTORY_MODE = 0o040000


class Mirror:
    """A mirror made by :meth:`create`. Holds a path and a cache, so it can be sent to a worker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cache: dict[str, Files] = {}

    def __reduce__(self) -> tuple[type["Mirror"], tuple[Path]]:
        return type(self), (self.path,)

    @classmethod
    def create(
        cls,
        path: Path,
        branches: Mapping[str, Files],
        message: str,
        pool: Path | None = None,
    ) -> "Mirror":
        """Build a mirror at ``path``, which appears complete or not at all.

        HEAD names ``main``, or the first branch where there is no ``main``; an index of that branch
        lies in the mirror. With ``pool``, a folder on the same file system, equal objects of all
        mirrors of that pool are one file (see ``repo.pool``). BadInput where ``path`` exists or a
        branch name is not valid.
        """
        _check_request(path, branches)
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk_faults():
            building = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            try:
                _build(building, branches, message)
                if pool is not None:
                    share(building / "objects", pool)
                building.chmod(0o755)
                building.rename(path)
            except BaseException:
                shutil.rmtree(building, ignore_errors=True)
                raise
        return cls(path)

    def commit_id(self, branch: str) -> str:
        """Hexadecimal commit id of a branch; IntegrityError where there is no such branch."""
        try:
            return (self.path / "refs" / "heads" / branch).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise IntegrityError(str(self.path), f"no branch {branch!r}") from None

    def files(self, branch: str) -> Files:
        """Contents of a branch; each call gives its own dict over shared contents."""
        commit = self.commit_id(branch)
        if commit not in self._cache:
            self._cache[commit] = self._read(commit)
        return dict(self._cache[commit])

    def tree(self, branch: str) -> Tree:
        """Identity of a branch's contents."""
        return tree_of(self.files(branch))

    def _read(self, commit: str) -> Files:
        database = pygit2.Odb(str(self.path / "objects"))
        header = _object(self.path, database, commit, ObjectType.COMMIT).split(b"\n", 1)[0]
        files = dict(_walk(self.path, database, header.removeprefix(b"tree ").decode(), ""))
        check_files(files)
        return files


def _check_request(path: Path, branches: Mapping[str, Files]) -> None:
    if os.path.lexists(path):
        raise BadInput(str(path), "", "already exists", "Remove it or choose another place.")
    if not branches:
        raise BadInput(str(path), "branches", "no branch is given", "Give at least one.")
    for branch, files in branches.items():
        if not pygit2.reference_is_valid_name(f"refs/heads/{branch}"):
            raise BadInput(str(path), branch, "not a valid branch name", "Rename the branch.")
        check_files(files)


def _build(building: Path, branches: Mapping[str, Files], message: str) -> None:
    head = "main" if "main" in branches else next(iter(branches))
    (building / "objects").mkdir()
    (building / "refs" / "heads").mkdir(parents=True)
    (building / "HEAD").write_text(f"ref: refs/heads/{head}\n")
    (building / "config").write_text(CONFIG)
    database = pygit2.Odb(str(building / "objects"))
    for branch, files in branches.items():
        blobs = {
            path: (mode, database.write(ObjectType.BLOB, data))
            for path, (mode, data) in files.items()
        }
        tree = _write_tree(database.write, _nested(blobs))
        if branch == head:
            _write_index(building / "index", blobs)
        commit = database.write(ObjectType.COMMIT, _commit_text(tree, message))
        reference = building / "refs" / "heads" / branch
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(f"{commit}\n")


def commit_id_of(files: Files, message: str) -> str:
    """The commit id that a branch with these files has in every mirror."""
    blobs = {path: (mode, pygit2.hash(data)) for path, (mode, data) in files.items()}
    tree = _write_tree(_object_id, _nested(blobs))
    return str(_object_id(ObjectType.COMMIT, _commit_text(tree, message)))


def _commit_text(tree: pygit2.Oid, message: str) -> bytes:
    text = f"tree {tree}\nauthor {IDENTITY}\ncommitter {IDENTITY}\n\n{message.rstrip()}\n"
    return text.encode()


def _object_id(kind: ObjectType, data: bytes) -> pygit2.Oid:
    header = f"{kind.name.lower()} {len(data)}\0".encode()
    digest = hashlib.sha1(header + data, usedforsecurity=False)
    return pygit2.Oid(hex=digest.hexdigest())


# ------------------------------------------------------------------------------- git objects

Blobs = dict[str, tuple[int, pygit2.Oid]]
Node = dict[str, "Node | tuple[int, pygit2.Oid]"]
Keep = Callable[[ObjectType, bytes], pygit2.Oid]
"""Takes an object, gives its id."""


def _nested(blobs: Blobs) -> Node:
    root: Node = {}
    for path, entry in blobs.items():
        *folders, name = path.split("/")
        node = root
        for folder in folders:
            child = node.setdefault(folder, {})
            assert isinstance(child, dict)  # check_files: no path passes through a file
            node = child
        node[name] = entry
    return root


def _write_tree(keep: Keep, node: Node) -> pygit2.Oid:
    """Git's tree object: entries ordered as if a directory's name ended in a slash."""
    lines: list[tuple[bytes, bytes]] = []
    for name, child in node.items():
        raw = name.encode()
        if isinstance(child, dict):
            mode, oid, key = DIRECTORY_MODE, _write_tree(keep, child), raw + b"/"
        else:
            (mode, oid), key = child, raw
        lines.append((key, b"%o %s\0%s" % (mode, raw, oid.raw)))
    return keep(ObjectType.TREE, b"".join(line for _, line in sorted(lines)))


def _write_index(where: Path, blobs: Blobs) -> None:
    index = pygit2.Index(str(where))
    for path in sorted(blobs, key=str.encode):
        mode, oid = blobs[path]
        index.add(pygit2.IndexEntry(path, oid, FileMode(mode)))
    index.write()


def _object(mirror: Path, database: pygit2.Odb, oid: str, kind: ObjectType) -> bytes:
    try:
        found, data = database.read(oid)
    except (KeyError, ValueError, pygit2.GitError):
        raise IntegrityError(str(mirror), f"object {oid} is missing or damaged") from None
    if found != kind:
        raise IntegrityError(str(mirror), f"object {oid} is not a {kind.name.lower()}")
    return data


def tree_entries(data: bytes) -> Iterator[tuple[int, bytes, str]]:
    """Mode, name and object id of each entry of a tree object. ValueError where it is damaged."""
    at = 0
    while at < len(data):
        end = data.find(b"\0", at)
        octal, _, name = data[at:end].partition(b" ")
        at = end + 21
        if end < 0 or at > len(data) or not name or not octal.isdigit():
            raise ValueError("no tree object")
        yield int(octal, 8), name, data[end + 1 : at].hex()


def _walk(
    mirror: Path, database: pygit2.Odb, tree: str, prefix: str
) -> Iterator[tuple[str, tuple[int, bytes]]]:
    data = _object(mirror, database, tree, ObjectType.TREE)
    try:
        entries = list(tree_entries(data))
    except ValueError:
        raise IntegrityError(str(mirror), f"object {tree} is missing or damaged") from None
    for mode, name, oid in entries:
        path = prefix + name.decode("utf-8", "surrogateescape")
        if mode == DIRECTORY_MODE:
            yield from _walk(mirror, database, oid, path + "/")
        elif mode in MODES:
            yield path, (mode, _object(mirror, database, oid, ObjectType.BLOB))
        else:
            raise IntegrityError(str(mirror), f"{path!r} has mode {mode:o} (a submodule?)")
