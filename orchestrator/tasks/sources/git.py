"""Endpoints from a commit and its one child in a git repository.

What the trees hold is taken as stored: symlinks are values, pointers of large files stay pointers,
submodules are left out. Whatever was left out or looks odd stands in the notes.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.repo.files import REGULAR, SYMLINK, Files, check_files
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import digest_json
from orchestrator.spec.task import GitSource, PatchSource
from orchestrator.tasks import eligibility
from orchestrator.tasks.sources.clones import is_remote, remote_repository
from orchestrator.tasks.sources.endpoints import Endpoints
from orchestrator.tasks.sources.expected import read_expected
from orchestrator.tasks.sources.objects import Commit, Found, Repository, local_repository
from orchestrator.tasks.sources.versions import static_version, version_module

RELATION = "parent and child"
NO_VERSION = "0"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
FILTER = re.compile(rb"\bfilter=([^\s]+)")
SHOWN_PATHS = 5
Notes = dict[str, str]


def read_commits(source: GitSource, task_id: str, manifest: Path) -> Endpoints:
    """Both commits' trees. Ineligible (``direct-parent``) unless they are parent and child."""
    repository = open_repository(source, task_id, manifest, (source.buggy, source.fixed))
    parent, child = repository.commit(source.buggy), repository.commit(source.fixed)
    check_parent(task_id, parent, child)
    buggy, notes = tree_values(repository.files(parent, source.path))
    fixed, later = tree_values(repository.files(child, source.path))
    return finished(
        source,
        buggy,
        fixed,
        relation=RELATION,
        source_id=digest_json(["git", source.buggy, source.fixed, source.path]),
        notes={**later, **notes},
        manifest=manifest,
        field=f"tasks.{task_id}.source",
    )


def open_repository(
    source: GitSource | PatchSource, task_id: str, manifest: Path, commits: tuple[str, ...]
) -> Repository:
    """The repository that a source names, on this machine or as a clone in the cache."""
    field = f"tasks.{task_id}.source.url"
    if is_remote(source.url):
        return remote_repository(source.url, commits, str(manifest), field)
    home, _, below = source.url.partition("/")
    place = Path.home() / below if home == "~" else manifest.parent / source.url
    return local_repository(place, str(manifest), field)


def check_parent(task_id: str, parent: Commit, child: Commit) -> None:
    """Ineligible unless ``parent`` is the only parent of ``child``."""
    if child.parents == (parent.id,):
        return
    if not child.parents:
        detail = f"the fixed commit {child.id} has no parent"
    elif len(child.parents) > 1:
        detail = f"the fixed commit {child.id} is a merge of {', '.join(child.parents)}"
    else:
        detail = f"the parent of {child.id} is {child.parents[0]}, not {parent.id}"
    raise eligibility.Ineligible(task_id, "direct-parent", detail)


def finished(
    source: GitSource | PatchSource,
    buggy: Files,
    fixed: Files,
    *,
    relation: str,
    source_id: str,
    notes: Mapping[str, str],
    manifest: Path,
    field: str,
) -> Endpoints:
    """Endpoints of two trees: version and the build's version module added, paths checked."""
    stated = static_version(buggy, source.name)
    version = stated or source.version or NO_VERSION
    made = version_module(buggy, version)
    added = {"generated": _list(made)} if made else {}
    origin = "the tree" if stated else "the manifest" if source.version else "nowhere"
    ends = {**made, **buggy}, {**made, **fixed}
    for files in ends:
        try:
            check_files(files)
        except IntegrityError as error:
            raise BadInput(
                str(manifest), field, f"a path of the repository is refused: {error}", OTHER
            ) from None
    return Endpoints(
        buggy=_ordered(ends[0]),
        fixed=_ordered(ends[1]),
        name=source.name,
        version=version,
        source_id=source_id,
        relation=relation,
        notes={**notes, **added, "version": f"from {origin}"},
        expected=read_expected(source, manifest, field),
    )


OTHER = "Choose another commit."


def _ordered(files: Files) -> Files:
    return dict(sorted(files.items(), key=lambda item: item[0].encode()))


# ------------------------------------------------------------------------------- what trees hold


def tree_values(found: Found) -> tuple[Files, Notes]:
    """A tree as values, and notes on what is not in it or not what it seems."""
    files: Files = {}
    unnamed: list[str] = []
    for raw, file in found.files.items():
        try:
            files[raw.decode()] = file
        except UnicodeDecodeError:
            unnamed.append(raw.decode(errors="backslashreplace"))
    outward = [path for path, file in files.items() if _leads_out(path, file)]
    kept = {path: file for path, file in files.items() if path not in set(outward)}
    notes = {
        "submodules": _list(path.decode(errors="backslashreplace") for path in found.gitlinks),
        "names_not_utf8": _list(unnamed),
        "links_out": _list(outward),
        "lfs_pointers": _list(path for path, (_, data) in kept.items() if _is_pointer(data)),
        "filters": _list(_filters(kept)),
    }
    return kept, {name: text for name, text in notes.items() if text}


def _leads_out(path: str, file: tuple[int, bytes]) -> bool:
    """Whether a file is a link whose target lies outside of the tree."""
    if file[0] != SYMLINK:
        return False
    target = file[1].decode("utf-8", "surrogateescape")
    landing = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target.startswith("/") or landing == ".." or landing.startswith("../")


def _is_pointer(data: bytes) -> bool:
    return data.startswith(LFS_POINTER)


def _filters(files: Files) -> set[str]:
    """Filters that the tree's attributes name: contents are as they are stored, before any."""
    return {
        name.decode(errors="backslashreplace")
        for path, (mode, data) in files.items()
        if mode == REGULAR and path.rpartition("/")[2] == ".gitattributes"
        for name in FILTER.findall(data)
    }


def _list(items: Iterable[str]) -> str:
    """``3: a, b, c``, cut off after a few; empty where there is none."""
    ordered = sorted(items)
    if not ordered:
        return ""
    more = ", ..." if len(ordered) > SHOWN_PATHS else ""
    return f"{len(ordered)}: {', '.join(ordered[:SHOWN_PATHS])}{more}"
