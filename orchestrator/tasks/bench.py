"""Where suites run while tasks are curated: one or two sandboxes, scratch space, limits.

Runs are made as the evaluator makes them, on a read-only tree with the sealed files laid down last.
Two things are looked at besides: what a run leaves in a tree that it may write, and which network
it finds.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.evaluator.doubts import Desk
from orchestrator.evaluator.ground import ENVIRONMENT, SUITE_LIMITS, Ground
from orchestrator.evaluator.proofs import Proofs, prove
from orchestrator.evaluator.runner import TestRun, run_tests
from orchestrator.evaluator.suites import Bundle
from orchestrator.repo.files import Files
from orchestrator.repo.worktree import reset, worktree
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.ports import Command, Completed, ExitClass, Limits, Mount, Sandbox, SuiteName

SUITE_SECONDS = 300.0
First = TypeVar("First")
Second = TypeVar("Second")

NETWORK_PROBE: Final = """\
import json, socket
names = [name for _, name in socket.if_nameindex()]
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    probe.connect(("192.0.2.1", 9))
    names.append("a route to the outside")
except OSError:
    pass
print(json.dumps(sorted(names)))
"""
"""Prints what connects a sandbox to anything. 192.0.2.1 is nobody's (RFC 5737); connecting a
datagram socket sends nothing, it only asks for a route."""


@dataclass(frozen=True)
class Job:
    """One run to make: a candidate tree, the ids (None: all), PYTHONHASHSEED, and a seed that
    shuffles the tests (None: in their own order).
    """

    tree: Files
    ids: Sequence[str] | None = None
    hash_seed: int = 0
    order_seed: int | None = None


@dataclass(frozen=True)
class WritableGround(Ground):
    """A ground whose tree may be written: the one difference from how the evaluator runs."""

    def mounts(self, tree: Path, plugin: Path, report: Path) -> tuple[Mount, ...]:
        first, *rest = super().mounts(tree, plugin, report)
        return (replace(first, writable=True), *rest)


@dataclass
class Meter:
    """The largest peak memory that any run needed, in bytes; 0 where it is not measured."""

    peak_memory_bytes: int = 0


@dataclass
class Timed:
    """A sandbox that remembers what its last command used."""

    inner: Sandbox
    last: Completed | None = None

    def run(self, command: Command) -> Completed:
        self.last = self.inner.run(command)
        return self.last

    def identity(self) -> Mapping[str, str]:
        return self.inner.identity()


def unloaded_seconds(done: Completed, load: float, cpus: int) -> float:
    """How long a command would take by itself: its wall time, or its processor time where more
    processes want to run than there are processors (``load``) and it had to wait for its turn.
    """
    if load <= cpus or done.cpu_seconds is None:
        return done.wall_seconds
    return min(done.wall_seconds, done.cpu_seconds)


@dataclass(frozen=True)
class Bench:
    """Sandbox, scratch directory and limits of one run.

    With a ``twin`` (a sandbox of another user) two runs are made at the same time.
    """

    sandbox: Sandbox
    scratch: Path
    wall_seconds: float = SUITE_SECONDS
    limits: Limits | None = None
    twin: Sandbox | None = None
    meter: Meter = field(default_factory=Meter)

    def run(self, bundle: Bundle, job: Job, sandbox: Sandbox | None = None) -> TestRun:
        """Make one run, with the sealed files laid over the candidate last."""
        with worktree(bundle.laid_down(job.tree), self.scratch) as tree:
            return self._run(bundle.ground, tree, job, sandbox or self.sandbox)

    def residue(self, bundle: Bundle, job: Job) -> tuple[TestRun, tuple[str, ...]]:
        """One run in a tree that it may write, and the paths that it wrote, changed or removed."""
        files, sandbox = bundle.laid_down(job.tree), self.twin or self.sandbox
        ground = WritableGround(**vars(bundle.ground))
        with worktree(files, self.scratch, uid=getattr(sandbox, "uid", None)) as tree:
            run = self._run(ground, tree, job, sandbox)
            return run, reset(tree, files)

    def pair(self, bundle: Bundle, first: Job, second: Job) -> tuple[TestRun, TestRun]:
        """Make two runs, side by side where there is a twin."""
        return self.both(
            lambda: self.run(bundle, first), lambda: self.run(bundle, second, self.twin)
        )

    def both(
        self, first: Callable[[], First], second: Callable[[], Second]
    ) -> tuple[First, Second]:
        """Answers of both, side by side where there is a twin; the second has to use the twin."""
        if self.twin is None:
            return first(), second()
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(second)
            return first(), other.result()

    def network(self, ground: Ground) -> tuple[str, ...]:
        """Names of the network interfaces of a sandbox as suites have it, and of a route out."""
        command = Command(
            argv=(f"{ENVIRONMENT}/bin/python", "-I", "-c", NETWORK_PROBE),
            env=ground.variables(),
            mounts=(Mount(ground.environment, ENVIRONMENT),),
        )
        answer = self.sandbox.run(command)
        if answer.exit_class is not ExitClass.OK:
            last = answer.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InfrastructureFault("engine", f"no look at the network ({last[-1:]})")
        return tuple(json.loads(answer.stdout))

    def prove(
        self,
        bundle: Bundle,
        suites: Mapping[SuiteName, Sequence[str]],
        base: Files,
        gold: Files,
    ) -> Proofs:
        """What hardening must not do with this task, tried on both trees."""
        limits = self.limits or SUITE_LIMITS
        desk = Desk(self.sandbox, self.scratch, limits, self.wall_seconds, None)
        return prove(bundle, suites, (base, gold), gold, desk)

    def _run(self, ground: Ground, tree: Path, job: Job, sandbox: Sandbox) -> TestRun:
        timed = Timed(sandbox)
        run = run_tests(
            timed,
            ground,
            tree,
            job.ids,
            wall_seconds=self.wall_seconds,
            scratch=self.scratch,
            limits=self.limits,
            hash_seed=job.hash_seed,
            order_seed=job.order_seed,
        )
        self.meter.peak_memory_bytes = max(self.meter.peak_memory_bytes, run.peak_memory_bytes or 0)
        if timed.last is None:
            return run
        seconds = unloaded_seconds(timed.last, os.getloadavg()[0], os.cpu_count() or 1)
        return replace(run, duration_seconds=seconds)
