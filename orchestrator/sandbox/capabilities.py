"""What this machine can enforce on a sandboxed command, by what means, and why not.

Asked once per process by trying: bubblewrap is started, control groups are made and removed. Where
a limit has no means at all, :func:`require` refuses; nothing is ever enforced in name only.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.sandbox import seccomp
from orchestrator.sandbox.cgroup import Place, locate, usable
from orchestrator.spec.errors import BadInput

PROGRAMS = {"bwrap": "bubblewrap", "setpriv": "util-linux", "prlimit": "util-linux",
            "taskset": "util-linux", "env": "coreutils", "sh": "dash"}  # fmt: skip
"""Program -> the Debian package that has it."""

NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
              "--unshare-cgroup-try")  # fmt: skip
PROBE_SECONDS = 20.0


@dataclass(frozen=True)
class Capabilities:
    """The machine's answer. ``enforced`` maps each limit to its means; ``problems`` are fatal."""

    version: str
    privileged: bool
    """True: started as root, commands get a uid of their own; False: user namespace."""
    programs: Mapping[str, str]
    enforced: Mapping[str, str]
    places: Mapping[str, Place] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Controller -> why it is not used (the limit then has a weaker means)."""
    problems: tuple[tuple[str, str], ...] = ()
    """(problem, remedy) pairs; empty where the sandbox works."""

    @property
    def ok(self) -> bool:
        return not self.problems


@functools.cache
def capabilities() -> Capabilities:
    """Probe this machine; the answer holds for the life of the process."""
    programs = {name: path for name in PROGRAMS if (path := shutil.which(name))}
    privileged = os.geteuid() == 0
    proc = Path("/proc/self")
    found = locate((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    places, reasons = usable(found)
    problems = _problems(programs, privileged)
    return Capabilities(
        version=_version(programs),
        privileged=privileged,
        programs=programs,
        enforced=enforced_by(places),
        places=places,
        reasons=reasons,
        problems=tuple(problems),
    )


def require() -> Capabilities:
    """The capabilities, or BadInput with the remedy where the sandbox cannot work here."""
    answer = capabilities()
    if not answer.ok:
        problem, remedy = answer.problems[0]
        raise BadInput("sandbox", "bwrap", problem, remedy)
    return answer


def enforced_by(places: Mapping[str, Place]) -> dict[str, str]:
    """Limit -> means, given the usable controllers. Every limit has a row."""

    def group(name: str, otherwise: str) -> str:
        join = "" if otherwise else " + "
        return f"{join}cgroup-v{places[name].version}" if name in places else otherwise

    return {
        "wall_seconds": "deadline, pid namespace killed",
        "cpu_seconds": "rlimit per process" + group("cpuacct", ""),
        "memory_bytes": group("memory", "rlimit (address space per process)"),
        "processes": "rlimit" + group("pids", ""),
        "file_bytes": "rlimit",
        "scratch_bytes": "tmpfs size; writable folders watched",
        "output_bytes": "drained and cut",
        "cpus": group("cpu", "affinity"),
    }


def _version(programs: Mapping[str, str]) -> str:
    if "bwrap" not in programs:
        return "absent"
    answer = subprocess.run(
        [programs["bwrap"], "--version"], capture_output=True, text=True, check=False,
        timeout=PROBE_SECONDS,
    )  # fmt: skip
    return answer.stdout.strip()


def _problems(programs: Mapping[str, str], privileged: bool) -> list[tuple[str, str]]:
    missing = sorted(PROGRAMS.keys() - programs.keys())
    problems = [
        (f"the program {name} is missing", f"Run `apt-get install {PROGRAMS[name]}`.")
        for name in missing
    ]
    if not seccomp.supported():
        problems.append(("no system call table for this processor", "Use x86_64 or aarch64."))
    if "bwrap" in programs:
        problems += _namespace_problem(programs["bwrap"], privileged)
    return problems


def _namespace_problem(bwrap: str, privileged: bool) -> list[tuple[str, str]]:
    user = [] if privileged else ["--unshare-user"]
    argv = [bwrap, *user, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--", "/bin/true"]
    answer = subprocess.run(argv, capture_output=True, check=False, timeout=PROBE_SECONDS)
    if answer.returncode == 0:
        return []
    said = answer.stderr.decode(errors="replace").strip().splitlines()
    return [
        (
            f"bubblewrap cannot make namespaces here ({said[-1] if said else answer.returncode})",
            "Allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
            "kernel.apparmor_restrict_unprivileged_userns=0), or run as root with CAP_SYS_ADMIN.",
        )
    ]
