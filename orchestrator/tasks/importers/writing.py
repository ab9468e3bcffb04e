"""Turns drafts into a task manifest: the files beside it first, the manifest last and whole.

Files are named by their content and never overwritten by another content, so a manifest that was
there before stays right until the moment in which the new one takes its place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from orchestrator.repo.files import disk_faults
from orchestrator.spec.errors import BadInput
from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.manifest import read_text, validate
from orchestrator.spec.task import Task, TaskManifest
from orchestrator.tasks.compartments import write_whole
from orchestrator.tasks.importers.drafts import Draft, Refusal, Request, refusal, unique
from orchestrator.tasks.importers.pins import Say, requirements_path

HEADER = "# Imported by `factorial tasks import`. docs/manifests.md describes the fields.\n"
PLACEHOLDER = "requirements.txt"
EXOTIC_LINE_ENDS = frozenset("\x85\u2028\u2029\ufeff")
"""What YAML takes for a line end or a mark unless it is escaped."""


@dataclass(frozen=True)
class Imported:
    """What an import did. ``written``: whether the manifest is there, new or as it was before."""

    manifest: Path
    tasks: tuple[str, ...]
    refused: tuple[Refusal, ...]
    written: bool


def import_drafts(
    drafts: Iterable[Draft | Refusal], request: Request, say: Say = lambda _line: None
) -> Imported:
    """Write the manifest of ``request`` with all drafts, in their order.

    Nothing is written where a row is refused, unless ``request.keep_going``. Raises BadInput where
    no task is left, or another manifest stands in the place.
    """
    sound: list[Draft] = []
    refused: list[Refusal] = []
    for draft in unique(drafts):
        mistake = draft if isinstance(draft, Refusal) else _mistake(draft, request)
        if isinstance(draft, Draft) and mistake is None:
            sound.append(draft)
        elif mistake is not None:
            refused.append(mistake)
    if not sound and not refused:
        problem = "there is nothing to import"
        raise BadInput(str(request.out), "", problem, "Check the source and --only.")
    entries: list[dict[str, object]] = []
    if not refused or request.keep_going:
        entries, late = _pinned(sound, request, say)
        refused += late
    complete = bool(entries) and (not refused or request.keep_going)
    if complete:
        write_manifest(request.out, entries, replace=request.replace)
    names = tuple(str(entry["id"]) for entry in entries) if complete else ()
    return Imported(request.out, names, tuple(refused), complete)


def files_folder(out: Path) -> Path:
    """Where the files of an imported manifest lie: beside it, called as it is."""
    return out.with_name(f"{out.stem}.files")


def _mistake(draft: Draft, request: Request) -> Refusal | None:
    """What is wrong with a draft, before anything is written for it."""
    try:
        validate(_entry(draft, PLACEHOLDER, request.out), Task, draft.row)
    except BadInput as error:
        return refusal(draft.row, error)
    return None


def _pinned(
    drafts: list[Draft], request: Request, say: Say
) -> tuple[list[dict[str, object]], list[Refusal]]:
    """Entries of the drafts whose requirements are to be had, and refusals of the others."""
    folder = files_folder(request.out)
    ready: list[tuple[Draft, str]] = []
    refused: list[Refusal] = []
    for draft in drafts:
        try:
            ready.append((draft, requirements_path(draft, request, folder, say)))
        except BadInput as error:
            field = "requirements" if error.file == draft.row else f"{error.file} {error.field}"
            refused.append(Refusal(draft.row, field.strip(), error.problem, error.remedy))
    if refused and not request.keep_going:
        return [], refused
    for draft, _ in ready:
        _write_files(draft, request.out)
    return [_entry(draft, path, request.out) for draft, path in ready], refused


def _entry(draft: Draft, requirements: str, out: Path) -> dict[str, object]:
    pins = {
        name: {"path": _relative(draft, file, data, out), "sha256": sha256_hex(data)}
        for name, (file, data) in draft.files.items()
    }
    return {
        "id": draft.task_id,
        "project": draft.project,
        "source": {**draft.source, **pins},
        "environment": {"python": draft.python, "requirements": requirements},
        "problem_statement": draft.statement,
    }


def _relative(draft: Draft, file: str, data: bytes, out: Path) -> str:
    stem, _, end = file.rpartition(".")
    return f"{files_folder(out).name}/{draft.task_id}/{stem}-{sha256_hex(data)[:12]}.{end}"


def _write_files(draft: Draft, out: Path) -> None:
    for file, data in draft.files.values():
        path = out.parent / _relative(draft, file, data, out)
        if not path.is_file() or path.read_bytes() != data:
            with disk_faults():
                path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)


# ------------------------------------------------------------------------------- the manifest


def write_manifest(
    out: Path, entries: Iterable[Mapping[str, object]], *, replace: bool = False
) -> None:
    """A task manifest as YAML, validated as it will be read; it appears whole or not at all.

    BadInput where another manifest stands there and is not to be replaced.
    """
    content = {"schema": "factorial/tasks@1", "tasks": list(entries)}
    manifest = validate(content, TaskManifest, str(out))
    text = HEADER + manifest_text(content)
    assert validate(yaml.safe_load(text), TaskManifest, str(out)) == manifest
    if out.exists() and not replace and read_text(out) != text:
        problem = "is there and says something else"
        raise BadInput(str(out), "", problem, "Give --replace, or another --out.")
    with disk_faults():
        out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text.encode())


def manifest_text(content: object) -> str:
    """YAML of a manifest, in the order given, long texts as blocks where YAML allows it."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """SafeDumper without aliases and with blocks for texts of several lines."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if set(text) & EXOTIC_LINE_ENDS else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
