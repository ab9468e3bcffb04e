"""Runs one engine process to its end: drains it, holds its deadline, leaves nothing alive.

The engine (``bwrap``) reports on a status pipe the pid of its namespace's init and, at the end, the
command's exit code. Killing that init kills the namespace, and the kernel lets it end only after
everything inside has ended: waiting for it is the proof.
"""

import fcntl
import io
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.ports import Limits

CHUNK = 1 << 16
WATCH_SECONDS = 0.2
"""How often the CPU budget and the disk are looked at."""
SURVIVAL_SECONDS = 10.0


@dataclass(frozen=True)
class Ended:
    """How the engine ended. ``exit_code`` is None where it reported none."""

    exit_code: int | None
    timed_out: bool
    stdout: bytes
    stderr: bytes
    truncated: bool
    wall_seconds: float
    over_quota: bool = False
    """It was ended because it filled the disk."""


class _Stop(Enum):
    """Why watching stopped."""

    ENDED = auto()
    DEADLINE = auto()
    QUOTA = auto()


@dataclass
class _Stream:
    """One drained pipe: keeps ``limit`` bytes, reads on and forgets the rest."""

    descriptor: int
    limit: int
    data: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    open: bool = True

    def read(self) -> bool:
        """Take one chunk; False where there is nothing (now, or ever again)."""
        try:
            chunk = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return False
        self.open = bool(chunk)
        room = self.limit - len(self.data)
        self.data += chunk[:room]
        self.truncated |= len(chunk) > room
        return self.open


class _Run:
    def __init__(self, process: subprocess.Popen[bytes], streams: Mapping[str, _Stream]) -> None:
        self.process = process
        self.out, self.err, self.status = (streams[name] for name in ("out", "err", "status"))
        self.init: int | None = None

    def events(self) -> dict[str, int]:
        """What the engine has said so far."""
        said: dict[str, int] = {}
        for line in bytes(self.status.data).splitlines(keepends=True):
            if line.endswith(b"\n"):
                said.update({k: v for k, v in json.loads(line).items() if isinstance(v, int)})
        return said

    def note_init(self) -> None:
        """Get hold of the namespace's init as soon as its pid is known."""
        pid = self.events().get("child-pid")
        if self.init is not None or pid is None:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        if _name(pid) == "bwrap":  # else the number already belongs to somebody else
            self.init = descriptor
        else:
            os.close(descriptor)

    def end(self) -> None:
        """Kill the namespace and the engine, and wait until both are gone."""
        self._end_namespace()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SURVIVAL_SECONDS)
        self._end_namespace()

    def _end_namespace(self) -> None:
        while self.status.read():
            pass
        self.note_init()
        if self.init is not None:
            _signal_and_wait(self.init)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _signal_and_wait(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(pidfd, selectors.EVENT_READ)
        if not selector.select(SURVIVAL_SECONDS):
            raise InfrastructureFault("engine", "a sandbox did not end when it was killed")


def supervise(
    command_line: Callable[[int, int], Sequence[str]],
    *,
    stdin: bytes,
    seccomp: bytes,
    limits: Limits,
    owner: int | None,
    cpu_seconds: Callable[[], float | None],
    over_quota: Callable[[], bool] = lambda: False,
) -> Ended:
    """Start ``command_line(status_fd, seccomp_fd)`` and see it to its end.

    ``owner``: uid to whom the pipes belong, so that ``/dev/stdout`` can be opened inside.
    ``cpu_seconds``: total so far, or None; the run ends when it passes ``limits.cpu_seconds``.
    ``over_quota``: asked as often; the run ends when it says True.
    OSError where the program cannot be started (errno E2BIG: arguments too long).
    """
    with ExitStack() as stack:
        started = time.monotonic()
        run = _start(stack, command_line, stdin, seccomp, limits, owner)
        try:
            deadline = started + limits.wall_seconds
            stop = _watch(run, deadline, limits, cpu_seconds, over_quota)
        finally:
            run.end()
            if run.init is not None:
                os.close(run.init)
        _drain(run)
        return Ended(
            run.events().get("exit-code"),
            stop is _Stop.DEADLINE,
            bytes(run.out.data),
            bytes(run.err.data),
            run.out.truncated or run.err.truncated,
            time.monotonic() - started,
            stop is _Stop.QUOTA,
        )


def _start(
    stack: ExitStack,
    command_line: Callable[[int, int], Sequence[str]],
    stdin: bytes,
    seccomp: bytes,
    limits: Limits,
    owner: int | None,
) -> _Run:
    pipes = {name: _pipe(stack, owner) for name in ("out", "err", "status")}
    inputs = _sealed(stack, stdin, owner), _sealed(stack, seccomp, None)
    status = pipes["status"][1].fileno()
    process = subprocess.Popen(
        command_line(status, inputs[1]),
        stdin=inputs[0],
        stdout=pipes["out"][1],
        stderr=pipes["err"][1],
        pass_fds=(status, inputs[1]),
        env={},
        cwd="/",
        start_new_session=True,
        umask=0o022,
    )
    for _, end in pipes.values():
        end.close()
    size = {"out": limits.output_bytes, "err": limits.output_bytes, "status": CHUNK}
    return _Run(process, {name: _Stream(pair[0], size[name]) for name, pair in pipes.items()})


def _pipe(stack: ExitStack, owner: int | None) -> tuple[int, io.FileIO]:
    read, write = os.pipe()
    stack.callback(os.close, read)
    end = stack.enter_context(io.FileIO(write, "w"))
    os.set_blocking(read, False)
    if owner is not None:
        os.fchown(write, owner, owner)
    return read, end


SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def _sealed(stack: ExitStack, data: bytes, owner: int | None) -> int:
    """A file in memory that holds ``data`` and can never hold anything else."""
    descriptor = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    return descriptor


def _watch(
    run: _Run,
    deadline: float,
    limits: Limits,
    cpu_seconds: Callable[[], float | None],
    over_quota: Callable[[], bool],
) -> _Stop:
    """Drain until the engine ends, or a deadline (wall or CPU) or the disk's quota comes first."""
    with selectors.DefaultSelector() as selector, _pidfd(run.process.pid) as engine:
        selector.register(engine, selectors.EVENT_READ, None)
        for stream in (run.out, run.err, run.status):
            selector.register(stream.descriptor, selectors.EVENT_READ, stream)
        look = time.monotonic() + WATCH_SECONDS
        while True:
            now = time.monotonic()
            if now >= deadline:
                return _Stop.DEADLINE
            if now >= look:
                if (cpu_seconds() or 0.0) > limits.cpu_seconds:
                    return _Stop.DEADLINE
                if over_quota():
                    return _Stop.QUOTA
                now = time.monotonic()
                look = now + WATCH_SECONDS
            for key, _ in selector.select(max(0.0, min(deadline, look) - now)):
                if key.data is None:
                    return _Stop.ENDED
                _take(run, key.data, selector)


def _take(run: _Run, stream: _Stream, selector: selectors.BaseSelector) -> None:
    stream.read()
    if stream is run.status:
        run.note_init()
    if not stream.open:
        selector.unregister(stream.descriptor)


class _pidfd:
    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _drain(run: _Run) -> None:
    """Read what is left. Every writer is dead, so all of it lies in the pipes already."""
    for stream in (run.out, run.err, run.status):
        while stream.read():
            pass
