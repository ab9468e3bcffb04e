"""One control group per sandboxed command: limits, accounting, and proof that nothing survived.

Works on cgroup v1, v2 and the hybrid of both, controller by controller, always *below* the group
this process is in (v2: or the nearest ancestor that may have children), so that no outer limit is
escaped. A group's name carries the pid of its owner for the reaper.
"""

import errno
import itertools
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.ports import Limits

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
PREFIX = "factorial-"
PERIOD_MICROSECONDS = 100_000
OWN_PROCESSES = 2
"""Processes of the engine itself inside the group: its monitor and the namespace's init."""
EMPTY_SECONDS = 10.0
_counter = itertools.count()


@dataclass(frozen=True)
class Place:
    """Where a controller's groups can be made: hierarchy version (1 or 2) and parent directory."""

    version: int
    parent: Path


@dataclass(frozen=True)
class Usage:
    """What a group's processes used; None where the machine does not account for it."""

    oom_kills: int
    cpu_seconds: float | None
    peak_memory_bytes: int | None


# ------------------------------------------------------------------------------- discovery


def locate(mountinfo: str, cgroups: str) -> dict[str, Place]:
    """Controller -> this process's own group, from the texts of /proc/self/{mountinfo,cgroup}.

    On v2 every controller maps to the unified group, whether or not it can be enabled there.
    """
    own = _own_paths(cgroups)
    places: dict[str, Place] = {}
    for kind, root, mount, options in _mounts(mountinfo):
        if kind == "cgroup2" and "" in own:
            unified = Place(2, _below(mount, root, own[""]))
            for name in CONTROLLERS:
                places.setdefault(name, unified)
        for name in set(options) & set(CONTROLLERS) & own.keys() if kind == "cgroup" else ():
            places[name] = Place(1, _below(mount, root, own[name]))
    return places


def _own_paths(cgroups: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for line in cgroups.splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    return paths


def _mounts(mountinfo: str) -> Iterator[tuple[str, str, str, list[str]]]:
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split()[:3]
        yield kind, fields[3], fields[4], options.split(",")


def _below(mount: str, root: str, path: str) -> Path:
    inside = path[len(root) :] if root != "/" and path.startswith(root) else path
    return Path(mount) / inside.strip("/")


def usable(found: Mapping[str, Place]) -> tuple[dict[str, Place], dict[str, str]]:
    """Which of the located controllers can really be used, and for each other one the reason."""
    unified = [name for name in CONTROLLERS if name in found and found[name].version == 2]
    offered = _v2_offer(found[unified[0]].parent, unified) if unified else {}
    places: dict[str, Place] = {}
    reasons: dict[str, str] = {}
    for name in CONTROLLERS:
        place = offered.get(name) if name in unified else found.get(name)
        problem = _unusable(name, place) if place else "no group of this process offers it"
        if place is None or problem:
            reasons[name] = problem or ""
        else:
            places[name] = place
    return places, reasons


def _v2_offer(own: Path, names: Sequence[str]) -> dict[str, Place]:
    """One parent for all v2 controllers (a process is in one v2 group only): the nearest best.

    Our own group may be told to hand controllers down; in those above, which are not ours, only
    what is handed down already counts.
    """
    wanted = [name for name in names if name != "cpuacct"]
    best, offers = own, [name for name in wanted if _enabled(own / "cgroup.subtree_control", name)]
    for group in own.parents:
        control = group / "cgroup.subtree_control"
        if len(offers) == len(wanted) or not control.exists():
            break
        here = [name for name in wanted if name in control.read_text().split()]
        if len(here) > len(offers):
            best, offers = group, here
    accounting = ["cpuacct"] if "cpuacct" in names else []  # cpu.stat needs no controller
    return {name: Place(2, best) for name in [*offers, *accounting]}


def _enabled(control: Path, name: str) -> bool:
    try:
        if name not in control.read_text().split():
            control.write_text(f"+{name}")
    except OSError:
        return False
    return name in control.read_text().split()


def _unusable(name: str, place: Place) -> str | None:
    probe = place.parent / f"{PREFIX}{os.getpid()}-probe{next(_counter)}"
    try:
        probe.mkdir()
        try:
            for file, value in _settings(name, place.version, Limits(), 1.0):
                (probe / file).write_text(value)
        finally:
            probe.rmdir()
    except OSError as error:
        return f"{place.parent} cannot be used ({error.strerror})"
    return None


# ------------------------------------------------------------------------------- settings


def _settings(name: str, version: int, limits: Limits, cpus: float) -> list[tuple[str, str]]:
    """The files to write for one controller; the rows are the whole policy."""
    memory, processes = str(limits.memory_bytes), str(limits.processes + OWN_PROCESSES)
    quota = str(max(1000, round(cpus * PERIOD_MICROSECONDS)))
    period = str(PERIOD_MICROSECONDS)
    rows = {
        ("memory", 1): [("memory.limit_in_bytes", memory)],
        ("memory", 2): [("memory.max", memory)],
        ("pids", 1): [("pids.max", processes)],
        ("pids", 2): [("pids.max", processes)],
        ("cpu", 1): [("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota)],
        ("cpu", 2): [("cpu.max", f"{quota} {period}")],
    }
    return rows.get((name, version), [])


def _no_swap(name: str, version: int, limits: Limits) -> tuple[str, str] | None:
    """The setting that keeps memory out of swap; kernels without swap accounting lack the file."""
    if name != "memory":
        return None
    if version == 1:
        return "memory.memsw.limit_in_bytes", str(limits.memory_bytes)
    return "memory.swap.max", "0"


class Group:
    """A control group for one command, as a context manager: made, joined, emptied, removed."""

    def __init__(self, places: Mapping[str, Place], limits: Limits, cpus: float) -> None:
        self._name = f"{PREFIX}{os.getpid()}-{time.monotonic_ns():x}-{next(_counter)}"
        self._at = {name: place.parent / self._name for name, place in places.items()}
        self._version = {name: place.version for name, place in places.items()}
        self._settings = (limits, cpus)
        self.directories = tuple(dict.fromkeys(self._at.values()))

    @property
    def join_files(self) -> tuple[str, ...]:
        """Files to which the first process writes ``0`` to put itself, and its children, inside."""
        return tuple(str(directory / "cgroup.procs") for directory in self.directories)

    def __enter__(self) -> "Group":
        try:
            for directory in self.directories:
                directory.mkdir()
            for name, directory in self._at.items():
                self._configure(name, directory)
        except OSError as error:
            self._remove()
            raise InfrastructureFault("engine", f"control group: {error}") from error
        return self

    def _configure(self, name: str, directory: Path) -> None:
        limits, cpus = self._settings
        for file, value in _settings(name, self._version[name], limits, cpus):
            (directory / file).write_text(value)
        swap = _no_swap(name, self._version[name], limits)
        if swap and (directory / swap[0]).exists():
            (directory / swap[0]).write_text(swap[1])

    def __exit__(self, *_: object) -> None:
        self.empty()
        self._remove()

    def _remove(self) -> None:
        for directory in self.directories:
            remove_group(directory)

    def empty(self) -> None:
        """Kill until no process is left. InfrastructureFault where one survives ten seconds."""
        for directory in self.directories:
            empty_group(directory)

    def usage(self) -> Usage:
        """Accounting so far; still readable after the last process ended."""
        return Usage(self._oom_kills(), self.cpu_seconds(), self._peak())

    def cpu_seconds(self) -> float | None:
        """CPU time of all processes of the group, ended ones included."""
        directory = self._at.get("cpuacct")
        if directory is None:
            return None
        if self._version["cpuacct"] == 1:
            return int((directory / "cpuacct.usage").read_text()) / 1e9
        return _keyed(directory / "cpu.stat").get("usage_usec", 0) / 1e6

    def _oom_kills(self) -> int:
        directory = self._at.get("memory")
        if directory is None:
            return 0
        file = "memory.oom_control" if self._version["memory"] == 1 else "memory.events"
        return _keyed(directory / file).get("oom_kill", 0)

    def _peak(self) -> int | None:
        directory = self._at.get("memory")
        if directory is None:
            return None
        file = "memory.max_usage_in_bytes" if self._version["memory"] == 1 else "memory.peak"
        try:
            return int((directory / file).read_text())
        except FileNotFoundError:  # memory.peak came with Linux 5.19
            return None


def _keyed(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in file.read_text().splitlines())
    return {key: int(value) for key, value in pairs}


# ------------------------------------------------------------------------------- ending


def empty_group(directory: Path) -> None:
    """SIGKILL every process of a group until there is none."""
    deadline = time.monotonic() + EMPTY_SECONDS
    while pids := _processes(directory):
        for pid in pids:
            _kill(pid)
        if time.monotonic() > deadline:
            raise InfrastructureFault("engine", f"processes {pids} of {directory.name} survive")
        time.sleep(0.001)


def _processes(directory: Path) -> list[int]:
    try:
        return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
    except FileNotFoundError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def remove_group(directory: Path) -> None:
    """Remove an emptied group; a zombie that is not yet reaped may hold it for a moment."""
    deadline = time.monotonic() + EMPTY_SECONDS
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise InfrastructureFault("engine", f"control group: {error}") from error
            time.sleep(0.001)
        else:
            return
