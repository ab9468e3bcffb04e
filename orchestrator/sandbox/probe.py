"""What a conformance check is given, and what it is: a sandbox, an interpreter, a folder, a name.

Knows only the ``Sandbox`` port, so that every backend can be probed alike.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.spec.ports import Command, Completed, Limits, Mount, Sandbox

MIB = 1 << 20
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass(frozen=True)
class Probe:
    """A sandbox under test, an interpreter inside it and an empty folder outside."""

    sandbox: Sandbox
    python: str
    folder: Path

    def run(
        self,
        *argv: str,
        limits: Limits = Limits(wall_seconds=30),  # noqa: B008 - frozen
        mounts: Sequence[Mount] = (),
        stdin: bytes = b"",
        cwd: str = "/tmp",
    ) -> Completed:
        return self.sandbox.run(Command(argv, cwd, PATH, mounts, limits, stdin))

    def ask(self, script: str, *arguments: str, mounts: Sequence[Mount] = ()) -> object:
        """Run a Python script that prints one JSON value, and give that value."""
        done = self.run(self.python, "-I", "-S", "-c", script, *arguments, mounts=mounts)
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"probe said {done.stdout!r} {done.stderr[-400:]!r}") from None

    def mount(self, *, writable: bool) -> Mount:
        """A new folder, writable for everybody outside, shown at /mnt/shown."""
        shown = Path(tempfile.mkdtemp(dir=self.folder))
        shown.chmod(0o777)
        return Mount(shown, "/mnt/shown", writable)


@dataclass(frozen=True)
class Check:
    """One obligation: ``find_fault`` gives None, or one sentence about what went wrong."""

    name: str
    find_fault: Callable[[Probe], str | None] = field(repr=False)


def unless(good: bool, fault: str) -> str | None:
    """The fault, unless all is good."""
    return None if good else fault
