"""Endpoints from a commit and two patches on it: base, and base + fix + tests.

Patches are git's own format and have to fit exactly: no offset, no fuzz. Renames and copies are
resolved here; changes of submodules, and of anything outside the source's folder, are left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.repo.files import Files, apply_delta
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import digest_json
from orchestrator.spec.task import PatchSource, PinnedFile
from orchestrator.tasks.sources.endpoints import Endpoints
from orchestrator.tasks.sources.expected import read_pinned
from orchestrator.tasks.sources.git import finished, open_repository, tree_values

RELATION = "patch on base"
SECTION = re.compile(rb"^(?=diff --git )", re.MULTILINE)
BODY = re.compile(rb"^(?:@@ -|GIT binary patch$|--- |Binary files )", re.MULTILINE)
MOVE = re.compile(rb"^(rename|copy) from (.+)\n(?:rename|copy) to (.+)\n", re.MULTILINE)
DROPPED = re.compile(rb"^(?:dis)?similarity index .*\n|^(?:rename|copy) (?:from|to) .*\n", re.M)
SUBMODULE = re.compile(rb"^(?:new file mode|deleted file mode|index .*) 160000$", re.MULTILINE)
SIGNATURE = re.compile(rb"^-- \n\d.*\n+\Z", re.MULTILINE)
"""How a patch sent by mail ends: git's version, below two dashes."""


@dataclass(frozen=True)
class Section:
    """The part of a patch about one file: what describes it, its hunks, the path it results in.

    ``origin``: (path, whether it stays) of the file that is renamed or copied, else None.
    """

    head: bytes
    body: bytes
    path: str
    origin: tuple[str, bool] | None = None


def read_patches(source: PatchSource, task_id: str, manifest: Path) -> Endpoints:
    """The base commit's tree, and that tree with both patches applied.

    BadInput where a patch file is not the pinned one, is malformed or does not fit.
    """
    field = f"tasks.{task_id}.source"
    repository = open_repository(source, task_id, manifest, (source.base,))
    base, notes = tree_values(repository.files(repository.commit(source.base), source.path))
    fixed = base
    for part, pinned in (("patch", source.patch), ("test_patch", source.test_patch)):
        data = read_pinned(pinned, manifest, f"{field}.{part}")
        try:
            fixed = patched(fixed, data, source.path)
        except IntegrityError as error:
            raise _misfit(source, pinned, manifest, error) from None
    digests = [source.patch.sha256, source.test_patch.sha256]
    return finished(
        source,
        base,
        fixed,
        relation=RELATION,
        source_id=digest_json(["patches", source.base, *digests, source.path]),
        notes=notes,
        manifest=manifest,
        field=field,
    )


def _misfit(
    source: PatchSource, pinned: PinnedFile, manifest: Path, error: IntegrityError
) -> BadInput:
    return BadInput(
        str(manifest.parent / pinned.path),
        error.subject,
        f"does not apply to commit {source.base}: {error.detail}",
        "Use a patch and a commit that belong together.",
    )


def patched(files: Files, patch: bytes, folder: str | None = None) -> Files:
    """``files`` with a git patch applied; IntegrityError where it does not fit.

    With ``folder`` the patch speaks of a repository of which ``files`` are one folder's.
    """
    prefix = f"{folder}/" if folder else ""
    sections = [part for part in patch_sections(patch) if part.path.startswith(prefix)]
    moved = _moved({prefix + path: file for path, file in files.items()}, sections)
    text = b"".join(section.head + section.body for section in sections)
    result = apply_delta(moved, apply_patch(moved, text))
    return {path.removeprefix(prefix): file for path, file in result.items()}


def _moved(files: Files, sections: list[Section]) -> Files:
    """``files`` with every renamed or copied file in its new place; nothing else is changed."""
    moved = dict(files)
    origins = [(part.path, *part.origin) for part in sections if part.origin is not None]
    for path, old, stays in origins:
        if old not in files:
            raise IntegrityError(path, f"comes from {old!r}, which the tree does not have")
        if not stays:
            moved.pop(old, None)
    for path, old, _ in origins:
        if path in moved:
            raise IntegrityError(path, "is there already")
        moved[path] = files[old]
    return moved


# ------------------------------------------------------------------------------- sections


def patch_sections(patch: bytes) -> Iterator[Section]:
    """The sections of a git patch in order, without those of submodules.

    What stands before the first one and the signature below the last, as in a mail, is no part of
    it. IntegrityError for a patch without sections or a binary file without content.
    """
    data = patch if patch.endswith(b"\n") else patch + b"\n"
    parts = SECTION.split(SIGNATURE.sub(b"", data))
    parts = [part for part in parts if part.startswith(b"diff --git ")]
    if not parts:
        raise IntegrityError("patch", "no line begins with `diff --git`")
    for part in parts:
        start = BODY.search(part)
        at = start.start() if start else len(part)
        head, body = part[:at], part[at:]
        if SUBMODULE.search(head):
            continue
        section = _section(head, body)
        if body.startswith(b"Binary files "):
            raise IntegrityError(section.path, "is binary, and its content is not in the patch")
        yield section


def _section(head: bytes, body: bytes) -> Section:
    first, _, rest = head.partition(b"\n")
    rest = DROPPED.sub(b"", rest)
    move = MOVE.search(head)
    if move is None:
        names = first.removeprefix(b"diff --git ")
        name = _without(names[: len(names) // 2], b"a/")
        return Section(first + b"\n" + rest, body, _decoded(name))
    old, new = move[2], move[3]
    header = b"diff --git %s %s\n" % (_with(new, b"a/"), _with(new, b"b/"))
    if body.startswith(b"--- "):  # the names of the hunks say what the header has said
        hunks = body.split(b"\n", 2)[2]
        body = b"--- %s\n+++ %s\n" % (_with(new, b"a/"), _with(new, b"b/")) + hunks
    return Section(header + rest, body, _decoded(new), (_decoded(old), move[1] == b"copy"))


def _with(name: bytes, side: bytes) -> bytes:
    """A name as it stands in a patch, perhaps in quotes, with ``a/`` or ``b/`` before it."""
    return b'"' + side + name[1:] if name[:1] == b'"' else side + name


def _without(name: bytes, side: bytes) -> bytes:
    quote = name[:1] if name[:1] == b'"' else b""
    return quote + name.removeprefix(quote + side)


def _decoded(name: bytes) -> str:
    """The path that a name stands for. Git quotes as C does: ``\\t``, ``\\"``, ``\\303``."""
    try:
        if name[:1] == b'"':
            name = name.strip(b'"').decode("unicode_escape").encode("latin-1")
        return name.decode()
    except UnicodeError:
        raise IntegrityError("patch", f"the name {name!r} is not UTF-8") from None
