"""Worktree creation against ``git worktree add`` by the git program, as ratios (below 1: faster).

Run as ``python tests/bench/bench_worktree.py``; prints milliseconds and one ``ratio`` line each for
creating and for resetting a worktree of 400 files.
"""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.repo.files import REGULAR, Files
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.worktree import reset, worktree

ROUNDS = 15
FILES: Files = {
    f"src/package{n % 20}/module{n}.py": (REGULAR, b"x = %d  # a line of source\n" % n * 100)
    for n in range(400)
}


def milliseconds(action: Callable[[], object]) -> float:
    """Duration of one call."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def git(mirror: Path, *arguments: str) -> None:
    command = ["git", "-c", "safe.directory=*", "-C", str(mirror), *arguments]
    subprocess.run(command, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})


def by_git(mirror: Mirror, scratch: Path) -> tuple[float, float]:
    """Add and hard-reset one worktree with the git program."""
    place = str(scratch / "by-git")
    added = milliseconds(lambda: git(mirror.path, "worktree", "add", "--detach", place, "main"))
    Path(place, "residue").write_text("x")
    options = ("-C", place, "-c", "safe.directory=*")
    clean = ["git", *options, "clean", "-fdxq"]
    hard = ["git", *options, "reset", "--hard", "-q"]

    def both() -> None:
        for command in (hard, clean):
            subprocess.run(command, check=True, env={"PATH": os.environ["PATH"]})

    restored = milliseconds(both)
    git(mirror.path, "worktree", "remove", "--force", place)
    return added, restored


def by_us(mirror: Mirror, scratch: Path) -> tuple[float, float]:
    """Create and reset one worktree with this package."""
    files = mirror.files("main")
    start = time.perf_counter()
    with worktree(files, scratch) as place:
        created = (time.perf_counter() - start) * 1000
        (place / "residue").write_text("x")
        return created, milliseconds(lambda: reset(place, files))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        mirror = Mirror.create(scratch / "mirror", {"main": FILES}, "bench")
        theirs = [by_git(mirror, scratch) for _ in range(ROUNDS)]
        ours = [by_us(mirror, scratch) for _ in range(ROUNDS)]
    for at, name in enumerate(("worktree create", "worktree reset")):
        a = statistics.median(row[at] for row in ours)
        b = statistics.median(row[at] for row in theirs)
        print(f"{name}: {a:.1f} ms, git {b:.1f} ms")
        print(f"ratio {name.replace(' ', '_')}_vs_git {a / b:.2f}")


if __name__ == "__main__":
    main()
