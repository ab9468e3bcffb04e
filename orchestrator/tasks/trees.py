"""Derives the two trees of a task from its releases: what the agent gets, what the seal adds.

Pure. The base tree is the buggy release without tests, test configuration of its own, agent
instructions, git files and build residue; the sealed tree is the fixed release's tests and test
configuration, and the *buggy* release's metadata, so that ``importlib.metadata`` finds the project.
"""

import configparser
import tomllib
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from orchestrator.repo.files import REGULAR, Files
from orchestrator.spec.paths import (
    AGENT_INSTRUCTIONS,
    METADATA_SUFFIXES,
    TEST_CONFIG,
    is_test_path,
)
from orchestrator.spec.task import SdistSource
from orchestrator.tasks.classify import Layout

SHARED_CONFIG = frozenset({"setup.cfg", "pyproject.toml"})
"""Test configuration that is also packaging metadata: it stays readable in the agent's mirror."""

RESIDUE = frozenset({"PKG-INFO", ".hypothesis", ".pytest_cache", "__pycache__"})
RUNNER_PLUGINS = "pytest11"
AGENT_FOLDERS = frozenset({".claude", ".cursor", ".aider", ".idea", ".vscode"})


def base_tree(buggy: Files, layout: Layout) -> Files:
    """The agent's base tree: the buggy release without :func:`withheld` paths."""
    return {path: file for path, file in buggy.items() if withheld(path, layout) is None}


def withheld(path: str, layout: Layout) -> str | None:
    """Why a path of the buggy release is not given to the agent, or None where it is."""
    pure = PurePosixPath(path)
    parts = frozenset(pure.parts)
    if is_sealed(path, layout) and path not in SHARED_CONFIG:
        return "test or test configuration"
    if pure.name in AGENT_INSTRUCTIONS or parts & AGENT_FOLDERS:
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


def sealed_tree(buggy: Files, fixed: Files, source: SdistSource, layout: Layout) -> Files:
    """The files that a suite run lays on top of a candidate."""
    suite = {path: file for path, file in fixed.items() if is_sealed(path, layout)}
    return {**suite, **metadata_files(buggy, source, layout)}


def removed_paths(base: Files, sealed: Files) -> tuple[str, ...]:
    """Test configuration of the base tree that the fixed release does not have any more."""
    return tuple(sorted(path for path in base if path in TEST_CONFIG and path not in sealed))


# ------------------------------------------------------------------------------- metadata


def metadata_files(buggy: Files, source: SdistSource, layout: Layout) -> Files:
    """A ``.dist-info`` at the import root, so that the project counts as installed."""
    name = canonicalize_name(source.name).replace("-", "_")
    folder = PurePosixPath(layout.import_root) / f"{name}-{source.buggy.version}.dist-info"
    files = {str(folder / "METADATA"): (REGULAR, metadata(buggy, source))}
    points = entry_points(buggy)
    if points:
        files[str(folder / "entry_points.txt")] = (REGULAR, points)
    return files


def metadata(buggy: Files, source: SdistSource) -> bytes:
    """The buggy release's own PKG-INFO, or the three fields that every release has."""
    if "PKG-INFO" in buggy:
        return buggy["PKG-INFO"][1]
    fields = ("Metadata-Version: 2.1", f"Name: {source.name}", f"Version: {source.buggy.version}")
    return ("\n".join(fields) + "\n").encode()


def entry_points(buggy: Files) -> bytes:
    """The buggy release's entry points in the format of ``entry_points.txt``, or nothing.

    Projects find their own extensions by them. Those of the test runner are left out: they would
    load the code under test as a plugin before collection, where a broken candidate breaks the run.
    """
    groups = {k: v for k, v in _entry_point_groups(buggy).items() if k != RUNNER_PLUGINS and v}
    lines = [
        line
        for group, points in sorted(groups.items())
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in sorted(points.items())))
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _entry_point_groups(buggy: Files) -> dict[str, dict[str, str]]:
    """Group -> name -> object reference, from the sdist's ``.egg-info`` or else its pyproject."""
    built = sorted(path for path in buggy if path.endswith(".egg-info/entry_points.txt"))
    if built:
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[method-assign,assignment]
        try:
            parser.read_string(buggy[built[0]][1].decode("utf-8", "replace"))
        except configparser.Error:
            return {}
        return {group: dict(parser.items(group)) for group in parser.sections()}
    try:
        project = tomllib.loads(buggy["pyproject.toml"][1].decode())["project"]
        return {group: dict(points) for group, points in project["entry-points"].items()}
    except (KeyError, ValueError, AttributeError, TypeError):
        return {}
