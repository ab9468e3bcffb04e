"""The working tree as a value: files in memory, their identity, and looking at them.

``search`` and ``view`` are pure, bounded and in path order, so that equal histories give equal
observations.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import re2

from orchestrator.agent.actions import Search, View
from orchestrator.spec.identity import Entry, Tree, sha256_hex
from orchestrator.spec.ports import Delta, FileChange

File = tuple[int, bytes]
Files = dict[str, File]
"""Path -> (git mode, content); a symlink's content is its target."""

SYMLINK = 0o120000
MAX_MATCHES = 100
MAX_LINE_CHARACTERS = 240
MAX_VIEW_LINES = 400
REGEX_MEMORY = 8 << 20
REGEX_PROGRAM = 2000
"""Largest compiled pattern (instructions): RE2 needs at most this many steps for a byte."""


@dataclass(frozen=True)
class Refusal:
    """Why a valid action was not carried out: a stable rule id, and a sentence for the agent."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Workspace:
    """A tree with its contents. Values are never changed in place."""

    files: Mapping[str, File]
    tree: Tree

    @staticmethod
    def of(files: Mapping[str, File]) -> "Workspace":
        """Hash every file of a tree."""
        return Workspace(dict(files), Tree({path: entry_of(file) for path, file in files.items()}))

    @cached_property
    def state_id(self) -> str:
        """Identity of the tree (design §3, invariant 1)."""
        return self.tree.state_id

    def replaced(self, changes: Mapping[str, File | None]) -> "Workspace":
        """A new workspace with files set, or removed where the change is None."""
        files = dict(self.files)
        for path, file in changes.items():
            if file is None:
                files.pop(path, None)
            else:
                files[path] = file
        entries = {path: entry_of(file) if file else None for path, file in changes.items()}
        return Workspace(files, self.tree.replaced(entries))

    def delta_from(self, base: "Workspace") -> Delta:
        """This tree as its difference from ``base``."""
        mine, theirs = self.tree.entries, base.tree.entries
        paths = sorted({*mine, *theirs}, key=str.encode)
        return {
            path: FileChange(mine[path], self.files[path][1]) if path in mine else None
            for path in paths
            if mine.get(path) != theirs.get(path)
        }


def entry_of(file: File) -> Entry:
    """Identity of one file."""
    return Entry(file[0], sha256_hex(file[1]))


def text_of(file: File) -> str | None:
    """The text of a regular UTF-8 file, or None."""
    mode, content = file
    if mode == SYMLINK:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


# --------------------------------------------------------------------------------- looking


def search(workspace: Workspace, action: Search) -> str | Refusal:
    """Matching lines as ``path:line: text``, at most MAX_MATCHES, in path order.

    ``^`` and ``$`` match at lines; a match over several lines is shown by its first one. Files that
    are no UTF-8 text, and symlinks, are passed over.
    """
    try:
        pattern = re2.compile(f"(?m){action.pattern}", _options())
    except re2.error as error:
        return Refusal("search.bad-pattern", f"not an RE2 pattern: {_message(error)}")
    if pattern.programsize > REGEX_PROGRAM:
        return Refusal("search.bad-pattern", "the pattern repeats too much; make it simpler")
    lines: list[str] = []
    for path in sorted(workspace.files, key=str.encode):
        file = workspace.files[path]
        if not path.startswith(action.path or "") or not pattern.search(file[1]):
            continue
        if text_of(file) is None:
            continue
        for number, line in _matching_lines(pattern, file[1]):
            if len(lines) == MAX_MATCHES:
                return "\n".join([*lines, f"(only the first {MAX_MATCHES} matching lines)"])
            lines.append(f"{path}:{number}: {_cut(line)}")
    return "\n".join(lines) or "no match"


def view(workspace: Workspace, action: View) -> str | Refusal:
    """Numbered lines of a text file, at most MAX_VIEW_LINES from ``start_line`` on."""
    file = workspace.files.get(action.path)
    if file is None:
        return Refusal("view.no-such-file", f"there is no file {action.path}")
    text = text_of(file)
    if text is None:
        return Refusal("view.not-text", f"{action.path} is not a UTF-8 text file")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()  # the end of the last line, not a line of its own
    first, last = action.start_line or 1, min(action.end_line or len(lines), len(lines))
    if first > max(last, 1):  # an empty file can be looked at too
        return Refusal("view.no-such-lines", f"{action.path} has lines 1 to {len(lines)}")
    shown = lines[first - 1 : min(last, first - 1 + MAX_VIEW_LINES)]
    numbered = [f"{number:5}  {line}" for number, line in enumerate(shown, start=first)]
    return "\n".join([f"{action.path} ({len(lines)} lines)", *numbered])


def listing(workspace: Workspace, limit: int) -> str:
    """Paths in order, cut at whole lines to about ``limit`` characters, with what is left out."""
    paths = sorted(workspace.files, key=str.encode)
    shown: list[str] = []
    room = limit
    for path in paths:
        room -= len(path) + 1
        if room < 0:
            break
        shown.append(path)
    rest = len(paths) - len(shown)
    return "\n".join([*shown, f"(and {rest} more files)"] if rest else shown)


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = REGEX_MEMORY
    return options


def _matching_lines(pattern: "re2._Regexp", content: bytes) -> Iterator[tuple[int, str]]:
    """(line number, line) of each line on which a match starts, once."""
    position, number = 0, 1
    while position < len(content) and (match := pattern.search(content, position)) is not None:
        number += content.count(b"\n", position, match.start())
        start = content.rfind(b"\n", 0, match.start()) + 1
        end = content.find(b"\n", match.start())
        yield number, content[start : end if end >= 0 else len(content)].decode()
        if end < 0:
            return
        position, number = end + 1, number + 1


def _cut(line: str) -> str:
    kept = line.rstrip("\r")
    return kept if len(kept) <= MAX_LINE_CHARACTERS else kept[:MAX_LINE_CHARACTERS] + "..."


def _message(error: Exception) -> str:
    detail = error.args[0] if error.args else b""
    text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
    return text.replace("(?m)", "", 1)[:200]
