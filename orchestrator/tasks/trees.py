"""Derives the two trees of a task from its endpoints: what the agent gets, what the seal adds.

Pure. The base tree is the buggy end without tests, test configuration of its own, agent
instructions, git files and build residue; the sealed tree is the fixed end's tests and test
configuration, and the *buggy* end's metadata, so that ``importlib.metadata`` finds the project.
"""

from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from orchestrator.repo.files import REGULAR, Files
from orchestrator.spec.paths import (
    AGENT_INSTRUCTIONS,
    METADATA_SUFFIXES,
    TEST_CONFIG,
    is_test_path,
)
from orchestrator.tasks.classify import Layout
from orchestrator.tasks.declared import entry_point_groups

SHARED_CONFIG = frozenset({"setup.cfg", "pyproject.toml"})
"""Test configuration that is also packaging metadata: it stays readable in the agent's mirror."""

RESIDUE = frozenset({"PKG-INFO", ".hypothesis", ".pytest_cache", "__pycache__"})
RUNNER_PLUGINS = "pytest11"
AGENT_FILES = frozenset(
    {name.lower() for name in AGENT_INSTRUCTIONS}
    | {".aider.conf.yml", ".clinerules", ".goosehints", ".roorules", ".windsurfrules", "gemini.md"}
)
AGENT_FOLDERS = frozenset(
    {
        ".agents", ".aider", ".claude", ".clinerules", ".codex", ".continue", ".cursor", ".gemini",
        ".idea", ".junie", ".kiro", ".openhands", ".roo", ".vscode", ".windsurf",
    }
)  # fmt: skip
"""Where instructions for coding agents and editors lie, in lower case: the study gives its own."""


def base_tree(buggy: Files, layout: Layout) -> Files:
    """The agent's base tree: the buggy end without :func:`withheld` paths."""
    return {path: file for path, file in buggy.items() if withheld(path, layout) is None}


def withheld(path: str, layout: Layout) -> str | None:
    """Why a path of the buggy end is not given to the agent, or None where it is."""
    pure = PurePosixPath(path)
    parts = frozenset(pure.parts)
    if is_sealed(path, layout) and path not in SHARED_CONFIG:
        return "test or test configuration"
    lower = frozenset(part.lower() for part in pure.parts)
    if pure.name.lower() in AGENT_FILES or lower & AGENT_FOLDERS:
        return "agent instructions"
    if any(part.lower().startswith(".git") for part in parts):
        return "git file"
    if parts & RESIDUE or any(part.endswith(METADATA_SUFFIXES) for part in parts):
        return "build residue"
    return None


def is_sealed(path: str, layout: Layout) -> bool:
    """Whether a path belongs to the suite: tests with their data, and pytest's configuration."""
    if is_test_path(path) or path in TEST_CONFIG:
        return True
    return any(path == place or path.startswith(f"{place}/") for place in layout.test_paths)


def sealed_tree(buggy: Files, fixed: Files, name: str, version: str, layout: Layout) -> Files:
    """The files that a suite run lays on top of a candidate.

    ``name`` and ``version`` are the distribution's, at the buggy end.
    """
    suite = {path: file for path, file in fixed.items() if is_sealed(path, layout)}
    return {**suite, **metadata_files(buggy, name, version, layout)}


def removed_paths(base: Files, sealed: Files) -> tuple[str, ...]:
    """Test configuration of the base tree that the fixed end does not have any more."""
    return tuple(sorted(path for path in base if path in TEST_CONFIG and path not in sealed))


# ------------------------------------------------------------------------------- metadata


def metadata_files(buggy: Files, name: str, version: str, layout: Layout) -> Files:
    """A ``.dist-info`` at the import root, so that the project counts as installed."""
    stem = f"{canonicalize_name(name).replace('-', '_')}-{version}"
    folder = PurePosixPath(layout.import_root) / f"{stem}.dist-info"
    files = {str(folder / "METADATA"): (REGULAR, metadata(buggy, name, version))}
    points = entry_points(buggy)
    if points:
        files[str(folder / "entry_points.txt")] = (REGULAR, points)
    return files


def metadata(buggy: Files, name: str, version: str) -> bytes:
    """The buggy end's own PKG-INFO, or the three fields that every release has."""
    if "PKG-INFO" in buggy:
        return buggy["PKG-INFO"][1]
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()


def entry_points(buggy: Files) -> bytes:
    """The buggy end's entry points in the format of ``entry_points.txt``, or nothing.

    Projects find their own extensions by them. Those of the test runner are left out: they would
    load the code under test as a plugin before collection, where a broken candidate breaks the run.
    """
    groups = {k: v for k, v in entry_point_groups(buggy).items() if k != RUNNER_PLUGINS and v}
    lines = [
        line
        for group, points in sorted(groups.items())
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in sorted(points.items())))
    ]
    return "".join(f"{line}\n" for line in lines).encode()
