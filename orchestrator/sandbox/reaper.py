"""Removes what dead drivers left on this node: control groups and scratch directories.

Everything a driver makes is named ``factorial-<pid>-...``. What no live process owns is removed;
what a live one owns is never touched. Call it at every start; scratch must be local to the node.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.sandbox.capabilities import capabilities
from orchestrator.sandbox.cgroup import empty_group, remove_group
from orchestrator.sandbox.overlay import empty

_NAME = re.compile(r"factorial-(\d+)-.+")


@dataclass(frozen=True)
class Reaped:
    """Names of the control groups and scratch directories that were removed."""

    groups: tuple[str, ...]
    directories: tuple[str, ...]


def reap(scratch: Path) -> Reaped:
    """Remove the leftovers of dead owners below ``scratch`` and in this machine's cgroups."""
    parents = {place.parent for place in capabilities().places.values()}
    groups = [group for parent in sorted(parents) for group in _orphans(parent)]
    for group in groups:
        empty_group(group)
        remove_group(group)
    directories = list(_orphans(scratch))
    for directory in directories:
        remove_tree(directory)
    names = sorted({group.name for group in groups})
    return Reaped(tuple(names), tuple(directory.name for directory in directories))


def _orphans(parent: Path) -> Iterable[Path]:
    if not parent.is_dir():
        return []
    return sorted(child for child in parent.iterdir() if child.is_dir() and _is_orphan(child.name))


def _is_orphan(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and not _alive(int(match[1]))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def remove_tree(directory: Path) -> None:
    """Remove a directory, also one whose own modes forbid it or that is deeper than any path."""
    empty(directory)
    directory.rmdir()
