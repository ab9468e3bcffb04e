"""The scanner inside the agent's sandbox: silent as it is, loud about everything that is planted.

All leaks are planted at once, in a sandbox that shows more than it should; the control is the same
sandbox without them.
"""

import py_compile
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from orchestrator.cluster.shell import SandboxShell
from orchestrator.repo.files import Files
from orchestrator.repo.mirror import Mirror
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.ports import Command, Completed, Limits, Mount, Sandbox
from orchestrator.tasks.audit import Subject, task_secrets
from orchestrator.tasks.findings import Finding
from orchestrator.tasks.leaks import Secrets
from orchestrator.tasks.scan import Depth, SandboxScan
from tests.unit import sealing_support as sealing
from tests.unit import tasks_support as support
from tests.unit.sealing_support import CLAMP_FIXED, CORE_FIXED, HUNK, TASK, TESTS, Sealed

OTHER = "tally-0.9-1.0"
SLOT = 8


@dataclass
class Leaky:
    """Shows what it is told besides what the command asks for."""

    sandbox: Sandbox
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def identity(self) -> Mapping[str, str]:
        return self.sandbox.identity()

    def run(self, command: Command) -> Completed:
        mounts, env = (*command.mounts, *self.mounts), {**command.env, **self.env}
        return self.sandbox.run(replace(command, mounts=mounts, env=env))


@dataclass(frozen=True)
class Place:
    """One sealed task, and a real sandbox."""

    sealed: Sealed
    scratch: Path
    sandbox: BwrapSandbox
    secrets: Secrets

    def looking(self, sandbox: Sandbox, others: tuple[Secrets, ...] = ()) -> SandboxScan:
        def shell(sandbox: Sandbox, base: Files, git_directory: Path) -> object:
            limits = Limits(wall_seconds=60, cpu_seconds=60)
            place = SandboxShell(sandbox, self.scratch, git_directory, limits, self.sandbox.uid)
            return place.run(base, "true")

        return SandboxScan(
            sandbox,
            self.sandbox.interpreter,
            shell,
            (self.secrets, *others),
            ("/usr", str(Path(self.sandbox.interpreter).parents[1])),
            hidden=(str(self.sealed.out / "gold"), str(self.sealed.out / "evaluator")),
            depth=Depth.OWN,
        )

    def scan(
        self,
        sandbox: Sandbox,
        extra: Files | None = None,
        others: tuple[Secrets, ...] = (),
        repository: Path | None = None,
    ) -> list[Finding]:
        base, home = {**sealing.BASE, **(extra or {})}, repository or self.sealed.repository
        return self.looking(sandbox, others).look(self.secrets, base, home)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    home = tmp_path_factory.mktemp("scan")
    for folder in (home, *home.parents[:2]):
        folder.chmod(0o711)
    sealed = sealing.build(home / "out")
    scratch = home / "scratch"
    scratch.mkdir(mode=0o711)
    return Place(
        sealed, scratch, BwrapSandbox(scratch, slot=SLOT), Subject(sealed.out, TASK).secrets
    )


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def leaks(place: Place, home: Path) -> tuple[Leaky, Files, Path]:
    """Everything at once: the sandbox, files of the overlay, the git directory."""
    compiled = write(home / "core.txt", CORE_FIXED)
    site = home / "site-packages"
    write(site / "other.py", f"import warnings\n\n{HUNK}")
    py_compile.compile(str(compiled), str(site / "cache.pyc"), doraise=True)
    archive = support.archive({"src/tally/core.py": CORE_FIXED}, "tally-1.1")
    unpacked = home / "tally-1.1"
    write(unpacked / "tally" / "core.py", CORE_FIXED)
    write(unpacked / "tests" / "test_core.py", TESTS)
    (site / "tally-1.1.dist-info").mkdir()
    repository = home / "repo.git"
    shutil.copytree(place.sealed.repository, repository)
    write(repository / "logs" / "HEAD", f"{'0' * 40} {'1' * 40} a <a@b> 1 +0000\n{CLAMP_FIXED}\n")
    sandbox = Leaky(
        place.sandbox,
        (
            Mount(write(home / "hint.txt", CLAMP_FIXED), "/tmp/hint.txt"),
            Mount(site, "/opt/site-packages"),
            Mount(unpacked, "/srv/tally-1.1"),
            Mount(write(home / "tally.tar", archive), "/srv/tally.tar"),
            Mount(place.sealed.places.evaluator, "/mnt/tests"),
        ),
        {"HINT": f"see {CLAMP_FIXED}\n{CLAMP_FIXED}"},
    )
    return sandbox, {"notes.txt": (0o100644, f"    {CLAMP_FIXED}\n".encode())}, repository


@pytest.fixture(scope="module")
def found(place: Place, tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    sandbox, extra, repository = leaks(place, tmp_path_factory.mktemp("leaks"))
    findings = place.scan(sandbox, extra, repository=repository)
    assert {(finding.task_id, finding.where) for finding in findings} == {(TASK, "sandbox")}
    return {(finding.rule, finding.what.partition(": ")[0]) for finding in findings}


def test_nothing_is_found_in_the_sandbox_as_it_is(place: Place) -> None:
    assert place.scan(place.sandbox) == []
    assert place.scan(Leaky(place.sandbox, env={"HINT": "no hint"})) == []


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ("no-gold-line", "/workspace/repo/notes.txt"),
        ("no-gold-line", "/workspace/repo/.git/logs/HEAD"),
        ("no-gold-line", "/tmp/hint.txt"),
        ("no-gold-line", "/opt/site-packages/other.py"),
        ("no-gold-bytecode", "/opt/site-packages/cache.pyc"),
        ("project-not-installed", "/opt/site-packages/tally-1.1.dist-info"),
        ("no-fixed-file", "/srv/tally-1.1/tally/core.py"),
        ("no-sealed-test", "/srv/tally-1.1/tests/test_core.py"),
        ("no-fixed-file", "/srv/tally.tar!tally-1.1/src/tally/core.py"),
    ],
)
def test_a_planted_leak_is_found(found: set[tuple[str, str]], rule: str, where: str) -> None:
    assert (rule, where) in found


def test_variables_and_mounts_of_every_process_are_read(found: set[tuple[str, str]]) -> None:
    assert any(r == "no-gold-line" and w.endswith("/environ") for r, w in found)
    assert any(r == "no-sealed-path" and w.endswith("/mountinfo") for r, w in found)


def test_tasks_share_a_scan_of_what_they_share(place: Place, tmp_path: Path) -> None:
    """A leak of another task counts where that task would meet it, too, and not in this tree."""
    bundle = Subject(place.sealed.out, TASK).bundle
    mirror = Mirror.create(tmp_path / "repo.git", {"main": sealing.FIXED}, "Import")
    gold = Subject(place.sealed.out, TASK).gold
    other = replace(bundle, task_id=OTHER, base=sealing.BASE)
    secrets = task_secrets(other, gold, place.sealed.environment / "bin" / "python")
    mine = replace(place.secrets, own=(), foreign=(), files={}, codes={})
    here = replace(place, secrets=mine)
    assert here.scan(place.sandbox, sealing.FIXED, (secrets,), mirror.path) == []
    shared = Leaky(place.sandbox, (Mount(write(tmp_path / "x", CORE_FIXED), "/opt/x"),))
    findings = here.scan(shared, sealing.FIXED, (secrets,), mirror.path)
    assert {finding.task_id for finding in findings} == {OTHER}


def test_the_system_is_read_once_for_all_tasks(place: Place, tmp_path: Path) -> None:
    """A leak in it is told by the look that reads it; a file that changes is read again."""
    system = write(tmp_path / "system" / "a.py", CORE_FIXED).parent
    tmp_path.chmod(0o711)
    shown = Leaky(place.sandbox, (Mount(system, "/opt/system"),))
    looking = replace(place.looking(shown), system_folders=("/opt/system",), depth=Depth.ALL)
    looking.closed = ("/usr", str(Path(place.sandbox.interpreter).parents[1]))

    def look() -> set[str]:
        found = looking.look(place.secrets, sealing.BASE, place.sealed.repository)
        return {finding.what.partition(": ")[0] for finding in found}

    assert look() == {"/opt/system/a.py"}
    assert look() == set()
    write(system / "b.py", CORE_FIXED)
    assert look() == {"/opt/system/a.py", "/opt/system/b.py"}


def test_a_scan_that_does_not_finish_is_no_clean_one(place: Place) -> None:
    class Broken:
        def identity(self) -> Mapping[str, str]:
            return {}

        def run(self, command: Command) -> Completed:
            argv = ("/bin/sh", "-c", "exit 3")
            return place.sandbox.run(replace(command, argv=argv))

    with pytest.raises(InfrastructureFault, match="failed"):
        place.scan(Broken())
