"""Bubblewrap: how endings are classified, what is refused, what a dead driver leaves."""

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.agent.shell import ShellResult
from orchestrator.cluster.shell import SandboxShell
from orchestrator.repo.files import Files
from orchestrator.sandbox import bwrap, layout
from orchestrator.sandbox.bwrap import BwrapSandbox, completed
from orchestrator.sandbox.capabilities import capabilities
from orchestrator.sandbox.cgroup import Group, Usage
from orchestrator.sandbox.reaper import reap
from orchestrator.sandbox.supervise import Ended
from orchestrator.spec.errors import BadInput, InfrastructureFault, IntegrityError
from orchestrator.spec.ports import Command, ExitClass, Limits, Mount

MIB = 1 << 20


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> BwrapSandbox:
    return BwrapSandbox(tmp_path_factory.mktemp("scratch"), slot=2)


@pytest.fixture
def shared_scratch(tmp_path: Path) -> Path:
    tmp_path.chmod(0o711)
    return tmp_path


def groups() -> set[str]:
    """Names of this process's control groups that exist now."""
    parents = {place.parent for place in capabilities().places.values()}
    return {g.name for p in parents for g in p.glob(f"factorial-{os.getpid()}-*")}


# ------------------------------------------------------------------------------- endings


@pytest.mark.parametrize(
    ("code", "timed_out", "kills", "expected"),
    [
        (0, False, 0, ExitClass.OK),
        (1, False, 0, ExitClass.FAILED),
        (128, False, 0, ExitClass.FAILED),
        (255, False, 0, ExitClass.FAILED),
        (137, False, 0, ExitClass.KILLED),
        (128 + signal.SIGXCPU, False, 0, ExitClass.TIMEOUT),
        (137, False, 1, ExitClass.OUT_OF_MEMORY),
        (0, False, 1, ExitClass.OUT_OF_MEMORY),
        (None, False, 1, ExitClass.OUT_OF_MEMORY),
        (None, True, 0, ExitClass.TIMEOUT),
        (137, True, 1, ExitClass.TIMEOUT),
    ],
)
def test_classification(code: int | None, timed_out: bool, kills: int, expected: ExitClass) -> None:
    ended = Ended(code, timed_out, b"", b"", False, 1.0)
    done = completed(ended, Usage(kills, 0.5, 10))
    assert done.exit_class is expected
    assert done.exit_code == (None if timed_out else code)


def test_an_engine_without_an_exit_code_is_infrastructure() -> None:
    ended = Ended(None, False, b"", b"bwrap: setting up uid map: Permission denied\n", False, 0.1)
    with pytest.raises(InfrastructureFault, match="uid map") as fault:
        completed(ended, Usage(0, None, None))
    assert fault.value.boundary == "engine"


def test_an_engine_that_dies_is_infrastructure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = dataclasses.replace(
        capabilities(), programs={**capabilities().programs, "bwrap": "/bin/false"}
    )
    monkeypatch.setattr(bwrap, "require", lambda: broken)
    monkeypatch.setattr(bwrap, "_prove_chain", lambda _: None)
    with pytest.raises(InfrastructureFault):
        BwrapSandbox(tmp_path).run(Command(["true"]))
    missing = dataclasses.replace(
        broken, programs=dict.fromkeys(broken.programs, "/no/such/program")
    )
    monkeypatch.setattr(bwrap, "require", lambda: missing)
    with pytest.raises(InfrastructureFault):
        BwrapSandbox(tmp_path).run(Command(["true"]))
    assert groups() == set()


def test_an_interpreter_that_cannot_run_inside_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "python3"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho other\n")
    fake.chmod(0o755)
    with pytest.raises(BadInput, match="does not run inside"):
        BwrapSandbox(tmp_path / "scratch", python=fake)


def test_accounting(sandbox: BwrapSandbox) -> None:
    script = "x = b'x' * (50 << 20)\nwhile __import__('time').process_time() < 0.3: pass"
    done = sandbox.run(Command([sandbox.interpreter, "-I", "-S", "-c", script]))
    assert done.exit_class is ExitClass.OK
    places = capabilities().places
    assert (done.peak_memory_bytes is None) == ("memory" not in places)
    assert (done.cpu_seconds is None) == ("cpuacct" not in places)
    assert done.peak_memory_bytes is None or done.peak_memory_bytes >= 50 * MIB
    assert done.cpu_seconds is None or done.cpu_seconds >= 0.3
    assert groups() == set()


HORDE = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        x = b"x" * (60 << 20)
        time.sleep(0.3)
        os._exit(0)
for _ in range(4): os.wait()
"""


def test_memory_counts_over_all_processes(sandbox: BwrapSandbox) -> None:
    argv = [sandbox.interpreter, "-I", "-S", "-c", HORDE]
    done = sandbox.run(Command(argv, limits=Limits(memory_bytes=150 * MIB)))
    together = "memory" in capabilities().places
    assert done.exit_class is (ExitClass.OUT_OF_MEMORY if together else ExitClass.OK)


def test_cpu_time_over_all_processes_ends_the_run(
    sandbox: BwrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "cpu_seconds", lambda _: 7.0)
    done = sandbox.run(Command(["sleep", "20"], limits=Limits(wall_seconds=20, cpu_seconds=6)))
    assert done.exit_class is ExitClass.TIMEOUT
    assert done.wall_seconds < 20


@pytest.mark.parametrize(
    "argv", [[], [""], ["a=b"], ["echo", "a\0b"], ["echo", "\ud800"], ["echo", "x" * (3 * MIB)]]
)
def test_arguments_that_no_system_can_start_are_the_commands_failure(
    sandbox: BwrapSandbox, argv: list[str]
) -> None:
    done = sandbox.run(Command(argv))
    assert (done.exit_class, done.exit_code) == (ExitClass.FAILED, 126)
    assert done.stderr.startswith(b"sandbox: ")


def test_streams_can_be_opened_by_name(sandbox: BwrapSandbox) -> None:
    script = "read line </dev/stdin; echo $line >/dev/stdout; echo b >/dev/stderr"
    done = sandbox.run(Command(["sh", "-c", script], stdin=b"a\n"))
    assert (done.stdout, done.stderr) == (b"a\n", b"b\n")


def test_the_interpreter_has_no_installed_packages(sandbox: BwrapSandbox) -> None:
    script = (
        "import sys, os; print([n for p in sys.path if 'packages' in p for n in os.listdir(p)])"
    )
    for python in (sandbox.interpreter, "/usr/bin/python3"):
        done = sandbox.run(Command([python, "-I", "-c", script]))
        there = done.exit_code != 127  # a host need not have the second one
        assert done.stdout == (b"[]\n" if there else b"")


def test_identity_names_every_limit_and_survives_pickling(sandbox: BwrapSandbox) -> None:
    identity = sandbox.identity()
    fields = {field.name for field in dataclasses.fields(Limits)}
    assert {f"limit.{name}" for name in fields} <= identity.keys()
    copy = pickle.loads(pickle.dumps(sandbox))
    assert copy.identity() == identity
    assert copy.uid == sandbox.uid


# ------------------------------------------------------------------------------- mounts


@pytest.mark.parametrize(
    "target", ["/", "/usr", "/usr/lib/x", "/etc", "/proc/1", "/dev/x", "/tmp", "work", "/a/../b",
               "/a/", "//a"]
)  # fmt: skip
def test_mounts_that_cover_the_system_are_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(BadInput):
        layout.own([Mount(tmp_path, target)])


def test_mounts_are_laid_outer_first_and_never_through_a_symlink(tmp_path: Path) -> None:
    tree, suite = tmp_path / "tree", tmp_path / "suite"
    tree.mkdir()
    suite.mkdir()
    inner, outer = Mount(suite, "/candidate/tests"), Mount(tree, "/candidate", writable=True)
    arguments = layout.own([inner, outer])
    assert arguments.index("/candidate") < arguments.index("/candidate/tests")
    (tree / "tests").symlink_to("/etc")
    with pytest.raises(IntegrityError, match="symlink"):
        layout.own([inner, outer])
    with pytest.raises(BadInput, match="twice"):
        layout.own([outer, outer])
    with pytest.raises(InfrastructureFault, match="missing"):
        layout.own([Mount(tmp_path / "gone", "/candidate")])


def test_a_variable_name_with_an_equals_sign_is_refused(sandbox: BwrapSandbox) -> None:
    with pytest.raises(BadInput, match="variable"):
        sandbox.run(Command(["true"], env={"A=B": "c"}))


def test_a_virtual_environment_leads_to_its_base(tmp_path: Path) -> None:
    assert layout.interpreter_prefix(Path(sys.executable)) == Path(sys.base_prefix).resolve()
    copied = tmp_path / "venv" / "bin" / "python3"
    copied.parent.mkdir(parents=True)
    copied.write_text("")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    assert layout.interpreter_prefix(copied) == Path("/opt/python")
    with pytest.raises(BadInput, match="no such interpreter"):
        layout.interpreter_prefix(tmp_path / "none")


# ------------------------------------------------------------------------------- dead drivers

DRIVER = """
import sys
from pathlib import Path
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.ports import Command, Mount
sandbox = BwrapSandbox(Path(sys.argv[1]), slot=3)
beat = "while :; do echo x >>/mnt/shown/beat; sleep 0.05; done"
script = f"({beat}) & {beat}"
sandbox.run(Command(["sh", "-c", script], mounts=[Mount(Path(sys.argv[2]), "/mnt/shown", True)]))
"""


def test_a_killed_driver_leaves_nothing_running_and_the_reaper_clears_up(tmp_path: Path) -> None:
    scratch, shown = tmp_path / "scratch", tmp_path / "shown"
    shown.mkdir()
    shown.chmod(0o777)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-c", DRIVER, str(scratch), str(shown)]
    with subprocess.Popen(argv, env=environment) as driver:
        beat = shown / "beat"
        while not beat.exists() and driver.poll() is None:
            time.sleep(0.02)
        driver.kill()
    left = [path for path in scratch.iterdir() if f"-{driver.pid}-" in path.name]
    assert left, "the driver's own scratch must be there for the reaper to find"
    kept = scratch / f"factorial-{os.getpid()}-mine"
    kept.mkdir()
    reaped = reap(scratch)
    assert {path.name for path in left} <= set(reaped.directories)
    assert kept.exists()
    grouped = bool(capabilities().places)
    assert any(f"-{driver.pid}-" in name for name in reaped.groups) == grouped
    size = beat.stat().st_size
    time.sleep(0.3)
    assert beat.stat().st_size == size
    assert reap(scratch).directories == ()


# ------------------------------------------------------------------------------- overlay


FILES: Files = {
    "a.py": (0o100644, b"a\n"),
    "same.py": (0o100644, b"b\n"),
    "run.sh": (0o100755, b"c\n"),
    "link": (0o120000, b"a.py"),
}


def shelled(sandbox: BwrapSandbox, scratch: Path, command: str, **limits: int) -> ShellResult:
    git = scratch / "repo.git"
    git.mkdir(exist_ok=True)
    overlays = scratch / "overlays"
    overlays.mkdir(exist_ok=True)
    shell = SandboxShell(sandbox, overlays, git, Limits(**limits), sandbox.uid)
    result = shell.run(FILES, command)
    assert list(overlays.iterdir()) == []
    return result


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        ("cat a.py", ()),
        ("echo x > a.py; rm link; chmod 0 run.sh", ("a.py", "link", "run.sh")),
        ("echo x > same.py", ("same.py",)),
        ("mkfifo f; mkdir d; touch d/g; chmod 0 d .", ("d/g", "f")),
        (r"touch $'n\xff\nm'", (r"n\xff\nm",)),
        ("ln -sf / link; ln -s link l2", ("l2", "link")),
        ("rm a.py; mkdir a.py; ln -s /etc/passwd a.py/b", ("a.py", "a.py/b")),
        ("truncate -s 60M s1 s2 s3", ("s1", "s2", "s3")),
    ],
)
def test_whatever_a_command_leaves_is_counted_and_removed(
    sandbox: BwrapSandbox, shared_scratch: Path, command: str, writes: tuple[str, ...]
) -> None:
    assert shelled(sandbox, shared_scratch, command).writes == writes


def test_what_a_command_leaves_is_neither_followed_nor_read(
    sandbox: BwrapSandbox, shared_scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda p: (read.append(p.name), original(p))[1])
    shelled(sandbox, shared_scratch, "truncate -s 60M big a.py; rm same.py; ln -s run.sh same.py")
    assert set(read) == {"run.sh"}


@pytest.mark.parametrize(
    "command",
    [
        "for i in $(seq 100); do head -c 8M /dev/zero > f$i; done; sleep 60",
        "for i in $(seq 3000); do : > f$i; done; sleep 60",
    ],
)
def test_a_command_that_fills_the_disk_is_ended(
    sandbox: BwrapSandbox, shared_scratch: Path, command: str
) -> None:
    result = shelled(sandbox, shared_scratch, command, scratch_bytes=8 * MIB)
    assert result.exit_code is None
    assert not result.timed_out
    assert result.seconds < 60


def test_equal_commands_on_equal_trees_read_equally(
    sandbox: BwrapSandbox, shared_scratch: Path
) -> None:
    # Without the kernel's mount ids, which every other sandbox of the machine moves on.
    mounts = "grep factorial- /proc/self/mountinfo | cut -d' ' -f4-"
    command = f"ls -la . ..; date; stat a.py | grep -v Inode; {mounts}"
    first, second = (shelled(sandbox, shared_scratch, command).output for _ in range(2))
    assert first == second
    assert b"2000" in first
    assert b"factorial-" not in first
