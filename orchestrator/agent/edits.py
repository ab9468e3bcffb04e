"""Applies an edit to the working tree: all of it or nothing, and never a guess.

Changes are applied in order; a ``find`` has to occur exactly once in its file at that moment.
Tests, configuration and anything outside the tree are out of reach (protocol §1 "State and
revision").
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.agent.actions import Change, Create, Delete, Edit, Replace
from orchestrator.agent.workspace import SYMLINK, File, Refusal, Workspace, text_of
from orchestrator.spec.paths import folded, protection

REGULAR = 0o100644
MAX_FILE_BYTES = 1 << 20
MAX_NAME_BYTES = 255
MAX_COUNTED = 1000


@dataclass(frozen=True)
class Edited:
    """The tree after an edit and the paths that differ from the tree before it, sorted."""

    workspace: Workspace
    changed: tuple[str, ...]


class _Refused(Exception):
    """Carries a refusal out of the application of one change."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.refusal = Refusal(rule, reason)


def apply_edit(workspace: Workspace, edit: Edit) -> Edited | Refusal:
    """The edited tree, or why nothing was changed (a no-op is a refusal)."""
    files = dict(workspace.files)
    try:
        for change in edit.changes:
            _check_path(change.path)
            _apply(files, change, workspace)
    except _Refused as refused:
        return refused.refusal
    paths = {change.path for change in edit.changes}
    changed = sorted(p for p in paths if files.get(p) != workspace.files.get(p))
    if not changed:
        return Refusal("edit.no-op", "the edit changes nothing")
    return Edited(workspace.replaced({p: files.get(p) for p in changed}), tuple(changed))


# --------------------------------------------------------------------------------- one change


def _apply(files: dict[str, File], change: Change, before: Workspace) -> None:
    if isinstance(change, Create):
        _check_free(files, change.path)
        # A file deleted and created again in one edit keeps its mode: modes are not edited.
        mode = before.files[change.path][0] if change.path in before.files else REGULAR
        files[change.path] = (mode, _content(change.path, change.create))
        return
    mode, text = _target(files, change.path)
    if isinstance(change, Delete):
        del files[change.path]
    else:
        files[change.path] = (mode, _content(change.path, _replaced(text, change)))


def _target(files: dict[str, File], path: str) -> tuple[int, str]:
    """Mode and text of the regular file that a change is about."""
    file = files.get(path)
    if file is None:
        raise _Refused("edit.no-such-file", f"there is no file {path}")
    if file[0] == SYMLINK:
        raise _Refused("edit.symlink", f"{path} is a symbolic link")
    text = text_of(file)
    if text is None:
        raise _Refused("edit.not-text", f"{path} is not a UTF-8 text file")
    return file[0], text


def _replaced(text: str, change: Replace) -> str:
    count = _occurrences(text, change.find)
    if count != 1:
        many = f"{count} or more" if count == MAX_COUNTED else str(count)
        raise _Refused("edit.find", f'"find" occurs {many} times in {change.path}, not once')
    return text.replace(change.find, change.replace, 1)


def _occurrences(text: str, find: str) -> int:
    """How often ``find`` starts in ``text``, overlaps included, at most MAX_COUNTED."""
    count, position = 0, text.find(find)
    while position >= 0 and count < MAX_COUNTED:
        count, position = count + 1, text.find(find, position + 1)
    return count


def _content(path: str, text: str) -> bytes:
    content = text.encode()
    if b"\0" in content:
        raise _Refused("edit.nul", f"{path} would hold a NUL character")
    if len(content) > MAX_FILE_BYTES:
        raise _Refused("edit.too-large", f"{path} would be larger than {MAX_FILE_BYTES} bytes")
    return content


# --------------------------------------------------------------------------------- paths


def _check_path(path: str) -> None:
    """Refuse what is no plain path inside the tree, and what is protected."""
    if "\\" in path or any(unicodedata.category(c).startswith("C") for c in path):
        raise _Refused("edit.path", "a path holds a backslash or a control character")
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise _Refused("edit.path", "a path is absolute, climbs or is not normal")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise _Refused("edit.path", f"a name is longer than {MAX_NAME_BYTES} bytes")
    reason = protection(path)
    if reason is not None:
        raise _Refused("edit.protected", f"{path} is protected ({reason})")


def _check_free(files: dict[str, File], path: str) -> None:
    """Refuse to create what exists, what passes through a file, and what only looks different."""
    if path in files:
        raise _Refused("edit.exists", f"{path} exists already")
    spelled = {folded(p): p for known in files for p in (*_parents(known), known)}
    for parent in _parents(path):
        if parent in files:
            raise _Refused("edit.path", f"{parent} is not a directory")
    for part in (*_parents(path), path):
        if spelled.get(folded(part), part) != part:
            raise _Refused("edit.collision", f"{part} collides with {spelled[folded(part)]}")
    if path in spelled.values():
        raise _Refused("edit.path", f"{path} is a directory")


def _parents(path: str) -> Iterator[str]:
    """Every directory above a path, topmost first."""
    position = path.find("/")
    while position >= 0:
        yield path[:position]
        position = path.find("/", position + 1)
