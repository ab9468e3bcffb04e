"""The bubblewrap backend: every command in namespaces, a file system and a user of its own.

Started as root, bubblewrap sets the namespaces up and ``setpriv`` then drops to an unprivileged
uid, because the process limit does not bind root; started as anybody else, it uses a user
namespace. The chain is bwrap, setpriv, prlimit, sh (for the working directory), env, command: each
replaces the one before, so nothing of it remains beside the command.
"""

import errno
import functools
import os
import posixpath
import resource
import shutil
import signal
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.sandbox import layout, seccomp
from orchestrator.sandbox.capabilities import NAMESPACES, require
from orchestrator.sandbox.cgroup import Group, Usage
from orchestrator.sandbox.overlay import Quota
from orchestrator.sandbox.supervise import Ended, supervise
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.ports import Command, Completed, ExitClass, Limits

FIRST_UID = 64001
"""Uid of slot 0. Debian leaves 60000-64999 to software that brings its own allocation."""

OPEN_FILES = 1024
CANNOT_RUN = 126
"""Exit code where the working directory or the arguments make a command impossible (SB017)."""

DROP_FLAGS = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP")
"""Capabilities that setpriv needs to give everything up."""

JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"'
ENTER = (
    'cd -P -- "$1" 2>/dev/null || '
    '{ echo "sandbox: $1 is not a directory that can be entered" >&2; exit 126; }; '
    'shift; exec "$@"'
)


class BwrapSandbox:
    """A :class:`~orchestrator.spec.ports.Sandbox` by bubblewrap.

    ``scratch``: a directory local to this node. ``python``: an interpreter whose installation is
    shown (default: this one's), at :attr:`interpreter`, with no package installed. ``cpus``: share
    of processor time, in processors. ``slot``: sandboxes that run at the same time need different
    ones, because the process limit counts by uid. Writable mounts must be writable for :attr:`uid`
    (None: for this process's own user); they lie on the host's disk, where a
    command that adds more than ``scratch_bytes`` to folders is ended (looked at every 0.2 s).
    """

    def __init__(
        self, scratch: Path, python: Path | None = None, cpus: float = 1.0, slot: int = 0
    ) -> None:
        self._capabilities = require()
        if cpus <= 0:
            raise BadInput("sandbox", "cpus", f"{cpus} is not positive", "Give at least 0.01.")
        scratch = scratch.absolute()
        self._arguments = (scratch, python, cpus, slot)
        base = layout.interpreter_prefix(python or Path(sys.executable))
        self._prefix = base
        self._cpus = cpus
        self._inner_uid = FIRST_UID + slot
        self.uid: int | None = self._inner_uid if self._capabilities.privileged else None
        self.interpreter = str(_interpreter(base, python))
        self._etc = _make_etc(scratch, self._inner_uid)
        self._finalizer = weakref.finalize(self, shutil.rmtree, self._etc, ignore_errors=True)
        _prove_chain(self)

    def __reduce__(self) -> tuple[type["BwrapSandbox"], tuple[Path, Path | None, float, int]]:
        return type(self), self._arguments

    def identity(self) -> Mapping[str, str]:
        """Backend, version, kind of user, and by what means each limit is enforced."""
        kind = "own uid" if self._capabilities.privileged else "user namespace"
        limits = {f"limit.{name}": how for name, how in self._capabilities.enforced.items()}
        version = self._capabilities.version
        return {"backend": "bwrap", "version": version, "user": kind, **limits,
                "cpus": str(self._cpus)}  # fmt: skip

    def run(self, command: Command) -> Completed:
        """Run one command; see :class:`~orchestrator.spec.ports.Sandbox`.

        BadInput for mounts that cover the system or an environment name that cannot be one.
        """
        _check_environment(command.env)
        problem = _unrunnable(command)
        if problem:
            return _refused(problem)
        mounts = layout.own(command.mounts)
        quota = Quota(
            [m.source for m in command.mounts if m.writable and m.source.is_dir()],
            command.limits.scratch_bytes,
        )
        with Group(self._capabilities.places, command.limits, self._cpus) as group:
            try:
                ended = supervise(
                    functools.partial(self._command_line, command, mounts, group.join_files),
                    stdin=command.stdin,
                    seccomp=seccomp.program(pin_cpus=self._pinned is not None),
                    limits=command.limits,
                    owner=self.uid,
                    cpu_seconds=group.cpu_seconds,
                    over_quota=quota.exceeded,
                )
            except OSError as error:
                if error.errno == errno.E2BIG:
                    return _refused("arguments are too long")
                raise InfrastructureFault("engine", f"cannot start bubblewrap: {error}") from error
            group.empty()
            return completed(ended, group.usage())

    # ----------------------------------------------------------------------- command line

    @property
    def _pinned(self) -> str | None:
        """CPUs to pin a command to, where no control group can ration them."""
        if "cpu" in self._capabilities.places:
            return None
        available = sorted(os.sched_getaffinity(0))
        wanted = min(len(available), max(1, int(-(-self._cpus // 1))))
        first = (self._arguments[3] * wanted) % len(available)
        chosen = [available[(first + i) % len(available)] for i in range(wanted)]
        return ",".join(map(str, chosen))

    def _command_line(
        self,
        command: Command,
        mounts: Sequence[str],
        join_files: Sequence[str],
        status_fd: int,
        seccomp_fd: int,
    ) -> list[str]:
        programs = self._capabilities.programs
        pin = [programs["taskset"], "-c", self._pinned] if self._pinned else []
        return [
            *([programs["sh"], "-c", JOIN, "sh", *join_files, "--"] if join_files else []),
            *pin,
            programs["bwrap"],
            *(DROP_FLAGS if self.uid is not None else _user_namespace(self._inner_uid)),
            *NAMESPACES,
            *("--new-session", "--die-with-parent", "--clearenv", "--hostname", "sandbox"),
            *("--json-status-fd", str(status_fd), "--seccomp", str(seccomp_fd)),
            *layout.system(self._etc, self._prefix, command.limits),
            *mounts,
            *("--chdir", "/", "--"),
            *(_setpriv(programs["setpriv"], self.uid) if self.uid is not None else []),
            *self._prlimit(command.limits),
            *(programs["sh"], "-c", ENTER, "sh", posixpath.join("/", command.cwd)),
            *(programs["env"], "--default-signal", "-i"),
            *(f"{name}={value}" for name, value in command.env.items()),
            *command.argv,
        ]

    def _prlimit(self, limits: Limits) -> list[str]:
        values = {
            "cpu": f"{limits.cpu_seconds}:{limits.cpu_seconds + 1}",
            "fsize": str(limits.file_bytes),
            "nofile": str(min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
            "core": "0",
            "nproc": str(limits.processes),
        }
        if "memory" not in self._capabilities.places:
            values["as"] = str(limits.memory_bytes)
        program = self._capabilities.programs["prlimit"]
        return [program, *(f"--{name}={value}" for name, value in values.items()), "--"]


def _user_namespace(uid: int) -> list[str]:
    return ["--unshare-user", "--uid", str(uid), "--gid", str(uid)]


def _setpriv(program: str, uid: int) -> list[str]:
    user = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    return [program, *user, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]


def _interpreter(prefix: Path, python: Path | None) -> Path:
    real = (python or Path(sys.executable)).resolve()
    inside = prefix / "bin" / real.name
    return inside if inside.exists() else prefix / "bin" / "python3"


def _make_etc(scratch: Path, uid: int) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    etc = Path(tempfile.mkdtemp(prefix=f"factorial-{os.getpid()}-etc-", dir=scratch)).resolve()
    layout.write_etc(etc, uid)
    return etc


_proven: set[tuple[Path, bool]] = set()


def _prove_chain(sandbox: BwrapSandbox) -> None:
    """Once per process and interpreter: the whole chain runs, so later failures are not its."""
    key = (sandbox._prefix, sandbox.uid is not None)
    if key in _proven:
        return
    probe = Command([sandbox.interpreter, "-I", "-S", "-c", "print('ready')"], cwd="/")
    answer = sandbox.run(probe)
    if answer.stdout != b"ready\n":
        said = answer.stderr.decode(errors="replace").strip()
        raise BadInput(
            "sandbox", "bwrap", f"{sandbox.interpreter} does not run inside ({said})",
            "Use an interpreter that every user of this machine may read.",
        )  # fmt: skip
    _proven.add(key)


# ------------------------------------------------------------------------------- verdicts


def completed(ended: Ended, usage: Usage) -> Completed:
    """Classify an ending. A deadline beats an out-of-memory kill beats the exit code.

    InfrastructureFault where bubblewrap reported no exit code although nothing was killed: then the
    command never started, or the engine itself died.
    """
    kind = _exit_class(ended, usage)
    if kind is ExitClass.ENGINE_FAULT:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise InfrastructureFault("engine", said[-1] if said else "bubblewrap ended silently")
    return Completed(
        kind,
        None if ended.timed_out or ended.over_quota else ended.exit_code,
        ended.stdout,
        ended.stderr,
        ended.truncated,
        ended.wall_seconds,
        usage.cpu_seconds,
        usage.peak_memory_bytes,
    )


def _exit_class(ended: Ended, usage: Usage) -> ExitClass:
    code = ended.exit_code
    if ended.timed_out:
        return ExitClass.TIMEOUT
    if usage.oom_kills:
        return ExitClass.OUT_OF_MEMORY
    if code is None and not ended.over_quota:
        return ExitClass.ENGINE_FAULT
    if code == 128 + signal.SIGXCPU:
        return ExitClass.TIMEOUT
    if code is None or ended.over_quota or 128 < code <= 128 + signal.SIGRTMAX:
        return ExitClass.KILLED
    return ExitClass.OK if code == 0 else ExitClass.FAILED


def _check_environment(environment: Mapping[str, str]) -> None:
    for name in environment:
        if not name or "=" in name:
            raise BadInput("command", f"env: {name!r}", "is no variable name", "Rename it.")


def _unrunnable(command: Command) -> str | None:
    """Why no operating system could start this command, or None."""
    words = [*command.argv, command.cwd, *command.env, *command.env.values()]
    if not command.argv or not command.argv[0]:
        return "there is no program to run"
    if "=" in command.argv[0]:
        return "a program's name cannot contain `=`"
    if any("\0" in word for word in words):
        return "an argument contains a NUL character"
    try:
        for word in words:
            os.fsencode(word)
    except UnicodeEncodeError:
        return "an argument cannot be encoded"
    return None


def _refused(problem: str) -> Completed:
    return Completed(
        ExitClass.FAILED, CANNOT_RUN, b"", f"sandbox: {problem}\n".encode(), False, 0.0, 0.0, 0
    )
