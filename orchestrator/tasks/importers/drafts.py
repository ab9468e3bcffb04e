"""What an importer makes of one row or folder: a draft of a task, or a refusal with its reason."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.spec.errors import BadInput

REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
LONGEST_PROBLEM = 300


@dataclass(frozen=True)
class Refusal:
    """Why one row is not imported: ``row`` is its number or name, the rest as in BadInput."""

    row: str
    field: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.row}: {self.field}" if self.field else self.row
        return f"{where}: {self.problem}. {self.remedy}"


@dataclass(frozen=True)
class Draft:
    """A task before its files are written and its environment is pinned.

    ``source``: the manifest's ``source`` but for what ``files`` adds: field -> (file name, bytes).
    ``requirements``: what the row itself brings; ``keys``: names under which a folder of
    requirements files may have one for it, the most specific first.
    """

    row: str
    task_id: str
    project: str
    python: str
    source: Mapping[str, object]
    statement: str
    files: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    requirements: Path | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """What a person asks of an import, whatever it imports from.

    ``out``: the manifest. ``requirements``: a file for all tasks, or a folder with one per
    :attr:`Draft.keys`. ``lock``: those files are lists to be locked. ``mirrors``: folder of local
    clones. ``only``: patterns of task ids. ``keep_going``: import the rest where a row is refused.
    ``replace``: overwrite a manifest that says something else.
    """

    out: Path
    python: str | None = None
    requirements: Path | None = None
    lock: bool = False
    mirrors: Path | None = None
    only: tuple[str, ...] = ()
    keep_going: bool = False
    replace: bool = False

    def wants(self, task_id: str) -> bool:
        return not self.only or any(fnmatchcase(task_id, pattern) for pattern in self.only)


def refusal(row: str, error: BadInput) -> Refusal:
    """A row's mistake, with what was given cut short: rows hold whole patches."""
    problem = error.problem
    if len(problem) > LONGEST_PROBLEM:
        problem = problem[:LONGEST_PROBLEM] + "..."
    return Refusal(row, error.field, problem, error.remedy)


def unique(drafts: Iterable[Draft | Refusal]) -> Iterator[Draft | Refusal]:
    """The same, with every draft whose id was there before refused."""
    seen: set[str] = set()
    for draft in drafts:
        if isinstance(draft, Draft) and draft.task_id in seen:
            yield Refusal(draft.row, "", f"a second row is called {draft.task_id}", "Remove one.")
        else:
            if isinstance(draft, Draft):
                seen.add(draft.task_id)
            yield draft


def repository_url(repo: str, template: str, request: Request, row: str) -> str:
    """``url`` of a source: a clone among the mirrors, or the template with ``{repo}`` filled in.

    Mirrors are looked for as ``owner/name``, ``owner__name`` or ``name``, with or without
    ``.git``. BadInput where there is a folder of mirrors that has none.
    """
    if request.mirrors is None:
        return template.replace("{repo}", repo)
    stems = (repo, repo.replace("/", "__"), repo.rpartition("/")[2])
    places = (request.mirrors / f"{stem}{end}" for stem in stems for end in ("", ".git"))
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        problem = f"{request.mirrors} has no clone of {repo}"
        raise BadInput(row, "repo", problem, f"Clone it to {request.mirrors / repo}.")
    return os.path.relpath(found.resolve(), request.out.parent.resolve())
