"""From inside the agent's sandbox nothing sealed can be read: files, git objects, /proc, packages.

The scan runs as the agent's shell runs, on a real task. Negative controls plant a sealed file, a
gold line and a gold object where it has to find them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pygit2
import pytest

from orchestrator.cluster.sealing import scan_sandbox
from orchestrator.cluster.shell import REPOSITORY as REPOSITORY_INSIDE
from orchestrator.repo.files import Files, apply_delta
from orchestrator.repo.mirror import Mirror
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import Command, Completed, Mount, Sandbox
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.audit import Subject, audit_task
from orchestrator.tasks.build import build_task
from orchestrator.tasks.scan import Depth
from tests.e2e.support import CHEAP, REPOSITORY, TASKS


@dataclass(frozen=True)
class Sealed:
    """A built task and what must not be reachable."""

    subject: Subject
    gold: Files

    @property
    def base(self) -> Files:
        return self.subject.bundle.base

    @property
    def tests(self) -> Files:
        return self.subject.bundle.sealed


@pytest.fixture(scope="module")
def sealed() -> Sealed:
    manifest = REPOSITORY / "manifests/tasks/quickstart.yaml"
    task = next(t for t in load(manifest, TaskManifest).tasks if t.id == CHEAP[0])
    build_task(task, manifest, TASKS)
    subject = Subject(TASKS, task.id)
    return Sealed(subject, apply_delta(subject.bundle.base, subject.gold))


@dataclass(frozen=True)
class Planted:
    """Shows other things than the command asks for at some of its places."""

    sandbox: Sandbox
    mounts: tuple[Mount, ...]

    def identity(self) -> Mapping[str, str]:
        return self.sandbox.identity()

    def run(self, command: Command) -> Completed:
        targets = {mount.target for mount in self.mounts}
        kept = [mount for mount in command.mounts if mount.target not in targets]
        return self.sandbox.run(replace(command, mounts=(*kept, *self.mounts)))


def test_nothing_sealed_is_reachable(sealed: Sealed) -> None:
    secrets = sealed.subject.secrets
    assert len(secrets.own) >= 10 and len(secrets.files) >= 2 and secrets.codes
    assert audit_task(TASKS, sealed.subject.task_id) == []
    assert scan_sandbox(TASKS, [sealed.subject.task_id], Depth.SIZES) == []


def test_the_scan_finds_whatever_is_planted(sealed: Sealed, tmp_path: Path) -> None:
    """A sealed test and a line of gold in the tree, the fixed file among the git objects."""
    path = next(path for path in sealed.gold if sealed.base.get(path) != sealed.gold[path])
    changed, before = sealed.gold[path][1], sealed.base[path][1].splitlines()
    line = max((line for line in changed.splitlines() if line not in before), key=len)
    leaky = Mirror.create(tmp_path / "leaky.git", {"main": sealed.base}, "Import")
    pygit2.Repository(str(leaky.path)).create_blob(changed)
    (tmp_path / "notes.txt").write_bytes(b"see:\n" + line)
    test = max(sealed.tests.values(), key=lambda file: len(file[1]))[1]
    (tmp_path / "x.py").write_bytes(test)
    mounts = (
        Mount(leaky.path, f"{REPOSITORY_INSIDE}/.git"),
        Mount(tmp_path / "notes.txt", "/tmp/notes.txt"),
        Mount(tmp_path / "x.py", "/srv/x.py"),
    )
    findings = scan_sandbox(
        TASKS,
        [sealed.subject.task_id],
        Depth.OWN,
        shown=lambda sandbox: Planted(sandbox, mounts),
    )
    found = {(finding.rule, finding.what.partition(": ")[0]) for finding in findings}
    assert ("no-sealed-test", "/srv/x.py") in found
    assert ("no-gold-line", "/tmp/notes.txt") in found
    assert any(r == "no-fixed-file" and w.startswith("/workspace/repo/.git/") for r, w in found)
