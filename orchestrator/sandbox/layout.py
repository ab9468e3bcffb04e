"""The file system that a command sees, as bubblewrap arguments: a table of what there is.

Read-only system programs and libraries, a synthetic /etc, the base interpreter without any
installed package, private and bounded /tmp and /dev/shm, and the command's own mounts. Nothing else
of the host: no /home, /root, /var, /etc, /sys, and no Python code of system packages (some carry
whole copies of libraries, among which the fixed release of a task may be).
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from orchestrator.spec.errors import BadInput, InfrastructureFault, IntegrityError
from orchestrator.spec.ports import Limits, Mount

SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
RESERVED = ("usr", "etc", "proc", "dev", "sys", *SYSTEM_LINKS)
"""Top directories that no mount may cover."""

SHARED_MEMORY_SHARE = 4
"""/dev/shm may hold this fraction of the scratch size, 1/4."""

PACKAGE_FOLDERS = ("site-packages", "dist-packages")
SYSTEM_ROOTS = ("lib", "lib32", "lib64", "libexec", "share", "local/lib", "local/share")
"""Folders of /usr in which system packages keep what is theirs."""


def write_etc(directory: Path, uid: int) -> None:
    """Write the synthetic /etc: one ordinary user, one host, no services."""
    (directory / "passwd").write_text(
        f"root:x:0:0:root:/nonexistent:/bin/false\nsandbox:x:{uid}:{uid}:sandbox:/tmp:/bin/sh\n"
    )
    (directory / "group").write_text(f"root:x:0:\nsandbox:x:{uid}:\n")
    (directory / "hosts").write_text("127.0.0.1 localhost sandbox\n::1 localhost\n")
    (directory / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    cache = Path("/etc/ld.so.cache")
    if cache.exists():
        shutil.copyfile(cache, directory / "ld.so.cache")
    alternatives = Path("/etc/alternatives")
    if alternatives.is_dir():
        shutil.copytree(alternatives, directory / "alternatives", symlinks=True)
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)


def interpreter_prefix(python: Path) -> Path:
    """Root of the installation behind an interpreter; a virtual environment leads to its base."""
    real = python.resolve()
    if not real.exists():
        raise BadInput(str(python), "python", "no such interpreter", "Name an existing one.")
    configuration = real.parents[1] / "pyvenv.cfg"
    if configuration.exists():
        for line in configuration.read_text().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                return Path(value.strip()).resolve().parent
    return real.parents[1]


def system(etc: Path, prefix: Path, limits: Limits) -> list[str]:
    """Arguments for everything but the command's own mounts."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM_LINKS:
        arguments += _system_folder(Path("/") / name)
    arguments += ["--ro-bind", str(etc), "/etc", "--proc", "/proc", "--dev", "/dev"]
    arguments += _tmpfs("/dev/shm", max(4096, limits.scratch_bytes // SHARED_MEMORY_SHARE))
    arguments += _tmpfs("/tmp", limits.scratch_bytes)
    arguments += ["--dir", "/var", "--symlink", "../tmp", "/var/tmp"]
    if not prefix.is_relative_to("/usr"):
        arguments += [*_parents(str(prefix)), "--ro-bind", str(prefix), str(prefix)]
    for folder in (*package_folders(prefix), *foreign_code(Path("/usr"), prefix)):
        arguments += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    return arguments


def _system_folder(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.is_dir() else []


def _tmpfs(target: str, size: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size), "--tmpfs", target]


def _parents(target: str) -> list[str]:
    """Make a target's parents enterable; bubblewrap copies the mode of private source folders."""
    above = list(PurePosixPath(target).parents)[-2::-1]
    return [part for path in above for part in ("--perms", "0755", "--dir", str(path))]


def package_folders(prefix: Path) -> tuple[Path, ...]:
    """Every folder of installed Python packages that the system part would show."""
    roots = dict.fromkeys((Path("/usr"), Path("/usr/local"), prefix))
    found = (
        folder
        for root in roots
        for library in sorted(root.glob("lib*/python3*"))
        for folder in (library / name for name in PACKAGE_FOLDERS)
        if folder.is_dir()
    )
    return tuple(dict.fromkeys(found))


@cache
def foreign_code(usr: Path, prefix: Path) -> tuple[Path, ...]:
    """Topmost folders of system packages that hold Python files, the interpreters' own aside.

    Read once per process: a second's walk on a full machine.
    """
    roots = (usr / root for root in SYSTEM_ROOTS)
    return tuple(f for r in roots if not r.is_symlink() for f in _code_below(r, usr, prefix))


def _code_below(folder: Path, usr: Path, prefix: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            inside = list(entries)
    except OSError:  # nor can the sandbox's user read it
        return
    if any(e.name.endswith(".py") and e.is_file(follow_symlinks=False) for e in inside):
        yield folder
        return
    for entry in sorted(inside, key=lambda entry: entry.name):
        path = Path(entry.path)
        interpreter = path == prefix or (
            entry.name.startswith("python3") and path.parent.parent in (usr, usr / "local")
        )
        if entry.is_dir(follow_symlinks=False) and not interpreter:
            yield from _code_below(path, usr, prefix)


# ------------------------------------------------------------------------------- own mounts


def own(mounts: Sequence[Mount]) -> list[str]:
    """Arguments for the command's mounts, outer ones first, then the root made read-only.

    BadInput for a target that is not absolute and normal, covers the system or repeats;
    InfrastructureFault where a source is missing; IntegrityError where a target would lie behind a
    symlink that another mount's contents hold.
    """
    ordered = sorted(mounts, key=lambda mount: len(PurePosixPath(mount.target).parts))
    arguments: list[str] = []
    for place, mount in enumerate(ordered):
        _check_target(mount)
        if not mount.source.exists():
            raise InfrastructureFault("engine", f"mount source {mount.source} is missing")
        for outer in ordered[:place]:
            _check_nesting(outer, mount)
        if not any(PurePosixPath(mount.target).is_relative_to(o.target) for o in ordered[:place]):
            arguments += _parents(mount.target)
        arguments += [
            "--bind" if mount.writable else "--ro-bind",
            str(mount.source.absolute()),
            mount.target,
        ]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/"]


def _check_target(mount: Mount) -> None:
    target = PurePosixPath(mount.target)
    normal = str(target) == mount.target and not mount.target.startswith("//")
    if not normal or not target.is_absolute() or ".." in target.parts:
        raise _bad_target(mount, "is not an absolute, normal path")
    if len(target.parts) < 2 or target.parts[1] in RESERVED or mount.target == "/tmp":
        raise _bad_target(mount, "would cover the system")


def _check_nesting(outer: Mount, inner: Mount) -> None:
    if outer.target == inner.target:
        raise _bad_target(inner, "is given twice")
    if not PurePosixPath(inner.target).is_relative_to(outer.target):
        return
    for part in _steps(outer.source, PurePosixPath(inner.target).relative_to(outer.target)):
        if part.is_symlink():
            raise IntegrityError(inner.target, f"mount target lies behind the symlink {part}")


def _steps(source: Path, relative: PurePosixPath) -> Iterator[Path]:
    for part in relative.parts:
        source = source / part
        yield source


def _bad_target(mount: Mount, problem: str) -> BadInput:
    return BadInput("command", f"mounts: {mount.target}", problem, "Choose another target.")
