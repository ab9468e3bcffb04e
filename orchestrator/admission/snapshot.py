"""Trees of worktrees as values: taken without build caches, brought back to the last byte."""

from pathlib import Path

from orchestrator.admission.project import matches
from orchestrator.repo.files import Files, read_directory
from orchestrator.repo.worktree import reset


def is_ignored(path: str, ignored: tuple[str, ...]) -> bool:
    """Whether a path is a build cache: outside the candidate, unseen by the verifier."""
    return matches(ignored, path)


def capture(directory: Path, ignored: tuple[str, ...]) -> Files:
    """The candidate in a directory. BadInput where it holds what no tree can hold."""
    return {p: f for p, f in read_directory(directory).items() if not is_ignored(p, ignored)}


def restore(directory: Path, files: Files) -> tuple[str, ...]:
    """Make ``directory`` hold exactly ``files``; residue of every kind goes. Returns what changed.

    Caches go as well: they are no part of the tree, and what a rejected candidate left in them is
    residue.
    """
    return reset(directory, files)


def with_suite(candidate: Files, suite: Files, patterns: tuple[str, ...]) -> Files:
    """The candidate with the files that judge as their owner has them, whatever it made of them."""
    own = {path: file for path, file in candidate.items() if not matches(patterns, path)}
    blocked = {path for path in own if any(other.startswith(f"{path}/") for other in suite)}
    return {**{path: file for path, file in own.items() if path not in blocked}, **suite}


def suite_of(source: Files, patterns: tuple[str, ...]) -> Files:
    """The files of a tree that judge."""
    return {path: file for path, file in source.items() if matches(patterns, path)}
