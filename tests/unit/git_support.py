"""Small real git repositories, made with pygit2 in the test: histories, worktrees, packs, traps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import FileMode, ObjectType

from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.manifest import validate
from orchestrator.spec.task import Task

Content = str | bytes | tuple[int, bytes | str]
"""A file's text, its bytes, or its mode with bytes (a submodule's commit id as text)."""

STATEMENT = "The sum of nothing should be zero, it is one."
PATHS_BUGGY: dict[str, Content] = {
    "pyproject.toml": '[project]\nname = "adder"\nversion = "1.2"\n',
    "src/adder/__init__.py": "def total(values):\n    return sum(values) or 1\n",
    "tests/test_adder.py": "def test_old():\n    assert True\n",
}
FIX: dict[str, Content] = {
    "src/adder/__init__.py": "def total(values):\n    return sum(values)\n",
    "tests/test_adder.py": (
        "from adder import total\n\n\ndef test_nothing():\n    assert total([]) == 0\n"
    ),
}


@dataclass(frozen=True)
class Repo:
    """A repository and the raw writing of objects into it; no reference is needed or made."""

    repository: pygit2.Repository

    @classmethod
    def create(cls, path: Path, bare: bool = False) -> "Repo":
        return cls(pygit2.init_repository(str(path), bare=bare))

    @property
    def git_directory(self) -> Path:
        return Path(self.repository.path)

    def tree(self, files: Mapping[str, Content]) -> pygit2.Oid:
        nested: dict[str, dict[str, Content]] = {}
        builder = self.repository.TreeBuilder()
        for path, content in files.items():
            top, _, rest = path.partition("/")
            if rest:
                nested.setdefault(top, {})[rest] = content
            else:
                mode, data = content if isinstance(content, tuple) else (FileMode.BLOB, content)
                builder.insert(path, self._entry(mode, data), mode)
        for name, below in nested.items():
            builder.insert(name, self.tree(below), FileMode.TREE)
        return builder.write()

    def _entry(self, mode: int, data: bytes | str) -> pygit2.Oid:
        if mode == FileMode.COMMIT:
            return pygit2.Oid(hex=str(data))
        return self.repository.create_blob(data.encode() if isinstance(data, str) else data)

    def commit(self, files: Mapping[str, Content], *parents: str) -> str:
        return self.commit_tree(self.tree(files), *parents)

    def commit_tree(self, tree: pygit2.Oid, *parents: str) -> str:
        above = "".join(f"parent {parent}\n" for parent in parents)
        who = "A <a@example.org> 1000000000 +0000"
        text = f"tree {tree}\n{above}author {who}\ncommitter {who}\n\nChange\n"
        return self.write(ObjectType.COMMIT, text.encode())

    def write(self, kind: ObjectType, data: bytes) -> str:
        return str(self.repository.odb.write(kind, data))

    def branch(self, name: str, commit: str) -> None:
        self.repository.references.create(f"refs/heads/{name}", commit, force=True)

    def pair(
        self, buggy: Mapping[str, Content] = PATHS_BUGGY, fix: Mapping[str, Content] = FIX
    ) -> tuple[str, str]:
        """A commit and its child."""
        parent = self.commit(buggy)
        return parent, self.commit({**buggy, **fix}, parent)


def pinned(path: Path, data: bytes) -> dict[str, str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"path": path.name, "sha256": sha256_hex(data)}


def git_task(repository: Path | str, buggy: str, fixed: str, **more: object) -> Task:
    source = {"kind": "git", "name": "adder", "url": str(repository)}
    return task_of({**source, "buggy": buggy, "fixed": fixed, **more})


def task_of(source: Mapping[str, object]) -> Task:
    entry = {
        "id": "adder-1",
        "project": "adder",
        "source": source,
        "environment": {"python": "3.11", "requirements": "env.txt"},
        "problem_statement": STATEMENT,
    }
    return validate(entry, Task, "tasks.yaml")


def texts(files: Mapping[str, tuple[int, bytes]]) -> dict[str, str]:
    return {path: data.decode() for path, (_, data) in files.items()}


def plain(files: Mapping[str, Content]) -> dict[str, Content]:
    return dict(sorted(files.items(), key=lambda item: item[0].encode()))


def chain(repo: Repo, trees: Sequence[Mapping[str, Content]]) -> list[str]:
    """One commit after the other."""
    commits: list[str] = []
    for files in trees:
        commits.append(repo.commit(files, *commits[-1:]))
    return commits
