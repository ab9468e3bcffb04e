"""Parts of the sandbox that are pure: the system call filter, cgroup discovery, capabilities."""

import errno
import os
import struct
from pathlib import Path

import pytest

from orchestrator.sandbox import capabilities as module
from orchestrator.sandbox import layout, seccomp
from orchestrator.sandbox.capabilities import PROGRAMS, Capabilities, enforced_by, require
from orchestrator.sandbox.cgroup import Place, _settings, _v2_offer, locate
from orchestrator.sandbox.overlay import ENTRY_BYTES, Quota, used, walk
from orchestrator.sandbox.reaper import remove_tree
from orchestrator.spec.errors import BadInput
from orchestrator.spec.ports import Limits

# ------------------------------------------------------------------------------- filter

ALLOW = 0x7FFF_0000
X86, ARM = 0xC000_003E, 0xC000_00B7
NEWUSER, NEWNET, THREAD = 0x1000_0000, 0x4000_0000, 0x003D_0F00


def verdict(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """Interpret the BPF program for one system call: 0 for allowed, else the errno."""
    memory = {0: number, 4: architecture, 16: argument}
    code = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            accumulator = memory[value]
        elif operation == 0x06:
            return 0 if value == ALLOW else value & 0xFFFF
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            at += if_true if holds else if_false


@pytest.mark.parametrize(
    ("machine", "architecture", "clone", "unshare", "keyctl", "affinity", "read"),
    [("x86_64", X86, 56, 272, 250, 203, 0), ("aarch64", ARM, 220, 97, 219, 122, 63)],
)
def test_filter(
    machine: str, architecture: int, clone: int, unshare: int, keyctl: int, affinity: int, read: int
) -> None:
    program = seccomp.program(machine)
    assert verdict(program, architecture, read) == 0
    assert verdict(program, architecture, clone, THREAD) == 0
    assert verdict(program, architecture, clone, NEWUSER | NEWNET) == errno.EPERM
    assert verdict(program, architecture, unshare, NEWUSER) == errno.EPERM
    assert verdict(program, architecture, unshare, NEWNET) == 0
    assert verdict(program, architecture, keyctl) == errno.EPERM
    assert verdict(program, architecture, 435) == errno.ENOSYS
    assert verdict(program, 0x4000_0003, read) == errno.ENOSYS
    assert verdict(program, architecture, read | 0x4000_0000) == errno.ENOSYS
    assert verdict(program, architecture, affinity) == 0
    assert verdict(seccomp.program(machine, pin_cpus=True), architecture, affinity) == errno.EPERM


def test_unknown_processors_are_not_claimed() -> None:
    assert not seccomp.supported("vax")
    with pytest.raises(KeyError):
        seccomp.program("vax")


# ------------------------------------------------------------------------------- discovery

V1 = """\
31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 23 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
"""
V2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
CONTAINER = "31 23 0:27 /docker/ab /sys/fs/cgroup/memory ro master:1 - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("mounts", "own", "expected"),
    [
        (V1, "4:memory:/a\n3:cpu,cpuacct:/\n2:pids:/b/c\n", {
            "memory": (1, "/sys/fs/cgroup/memory/a"), "cpu": (1, "/sys/fs/cgroup/cpu,cpuacct"),
            "cpuacct": (1, "/sys/fs/cgroup/cpu,cpuacct"), "pids": (1, "/sys/fs/cgroup/pids/b/c")}),
        (V2, "0::/user.slice/x.scope\n", dict.fromkeys(
            ("memory", "pids", "cpu", "cpuacct"), (2, "/sys/fs/cgroup/user.slice/x.scope"))),
        (V1.splitlines()[0] + "\n" + V2, "4:memory:/a\n0::/\n", {
            "memory": (1, "/sys/fs/cgroup/memory/a"), "pids": (2, "/sys/fs/cgroup"),
            "cpu": (2, "/sys/fs/cgroup"), "cpuacct": (2, "/sys/fs/cgroup")}),
        (CONTAINER, "4:memory:/docker/ab/inner\n", {"memory": (1, "/sys/fs/cgroup/memory/inner")}),
        ("", "", {}),
    ],
)  # fmt: skip
def test_locate(mounts: str, own: str, expected: dict[str, tuple[int, str]]) -> None:
    places = {name: Place(version, Path(path)) for name, (version, path) in expected.items()}
    assert locate(mounts, own) == places
    assert locate("".join(reversed(mounts.splitlines(keepends=True))), own) == places


def group(path: Path, handed_down: str) -> Path:
    path.mkdir()
    (path / "cgroup.subtree_control").write_text(handed_down)
    return path


def test_v2_controllers_share_one_parent_the_nearest_that_hands_most_down(tmp_path: Path) -> None:
    names = ("memory", "pids", "cpu", "cpuacct")
    top = group(tmp_path / "top", "memory pids cpu io\n")
    middle = group(top / "middle", "memory pids\n")
    own = group(middle / "own", "")
    (own / "cgroup.subtree_control").chmod(0o444)
    assert _v2_offer(middle, ("memory", "pids")) == {
        n: Place(2, middle) for n in ("memory", "pids")
    }
    (own / "cgroup.subtree_control").unlink()  # a group of processes: nothing can be handed down
    assert _v2_offer(own, names) == {name: Place(2, top) for name in names}


def test_settings_of_both_versions_carry_every_limit() -> None:
    limits = Limits(memory_bytes=1000, processes=7)
    assert _settings("memory", 1, limits, 1) == [("memory.limit_in_bytes", "1000")]
    assert _settings("memory", 2, limits, 1) == [("memory.max", "1000")]
    assert _settings("pids", 2, limits, 1) == [("pids.max", "9")]
    assert _settings("cpu", 2, limits, 1.5) == [("cpu.max", "150000 100000")]
    assert _settings("cpu", 1, limits, 0.5)[1] == ("cpu.cfs_quota_us", "50000")
    assert _settings("cpuacct", 2, limits, 1) == []


# ------------------------------------------------------------------------------- capabilities


def test_every_limit_has_a_means_with_and_without_cgroups() -> None:
    some = Place(2, Path("/x"))
    for places in ({}, {"memory": some}, dict.fromkeys(("memory", "pids", "cpu", "cpuacct"), some)):
        assert all(enforced_by(places).values())
    assert "cgroup-v2" in enforced_by({"memory": some})["memory_bytes"]
    assert "cgroup" not in enforced_by({})["memory_bytes"]


def test_a_machine_that_cannot_sandbox_is_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    problems = module._problems({}, True)
    assert {problem.split()[2] for problem, _ in problems} == PROGRAMS.keys()
    answer = Capabilities("absent", True, {}, {}, problems=tuple(problems))
    monkeypatch.setattr(module, "capabilities", lambda: answer)
    with pytest.raises(BadInput, match="apt-get install bubblewrap"):
        require()


def test_namespaces_that_cannot_be_made_are_a_problem(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    ((problem, remedy),) = module._namespace_problem(str(fake), False)
    assert "No permissions" in problem
    assert "sysctl" in remedy


def test_a_tree_is_removed_whatever_its_modes(tmp_path: Path) -> None:
    deep = tmp_path / "factorial-1-x" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    (deep / "link").symlink_to("/etc")
    for folder in (deep, deep.parent):
        folder.chmod(0)
    remove_tree(tmp_path / "factorial-1-x")
    assert list(tmp_path.iterdir()) == []


def dig(folder: Path, levels: int) -> None:
    """A chain of folders, longer than a path can be."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 100, dir_fd=descriptor)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


def test_a_tree_deeper_than_any_path_is_walked_measured_and_removed(tmp_path: Path) -> None:
    tree = tmp_path / "factorial-1-x"
    tree.mkdir()
    dig(tree, 1200)
    assert 20 < len(list(walk(tree))) < 100
    assert used(tree, 1 << 40) == (1 << 40) + 1
    remove_tree(tree)
    assert list(tmp_path.iterdir()) == []


def test_a_quota_counts_what_was_added_empty_files_too(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(b"x" * (1 << 20))
    quota = Quota([tmp_path], 3 * ENTRY_BYTES)
    for name in "abc":
        (tmp_path / name).touch()
    assert not quota.exceeded()
    os.mkfifo(tmp_path / "d")
    assert quota.exceeded()


def test_python_code_of_system_packages_is_covered_but_not_the_interpreters(tmp_path: Path) -> None:
    usr = tmp_path / "usr"
    for name in (
        "lib/tool/vendor/jinja2/lexer.py",
        "lib/tool/vendor/jinja2/deep/more.py",
        "lib/python3.11/json/decoder.py",
        "local/lib/python3/dist-packages/a.py",
        "share/own/lib/os.py",
        "share/data/plain.txt",
    ):
        path = usr / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    found = layout.foreign_code(usr, usr / "share/own")
    assert found == (usr / "lib/tool/vendor/jinja2",)
