"""Looks at built tasks through the eyes of their agents: the scan of :mod:`orchestrator.tasks.scan`
in the sandbox, with the shell, mounts and variables that a rollout has.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.cluster.shell import SandboxShell
from orchestrator.repo.files import Files
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.ports import Limits, Sandbox
from orchestrator.tasks.audit import Subject
from orchestrator.tasks.compartments import temporary_folder, workroom
from orchestrator.tasks.findings import Finding
from orchestrator.tasks.scan import Depth, SandboxScan

SCAN_SLOT = 899
"""A user that no agent, evaluator or builder has."""


def scan_sandbox(
    out: Path,
    task_ids: Sequence[str],
    depth: Depth = Depth.ALL,
    *,
    say: Callable[[str], None] = lambda _line: None,
    shown: Callable[[Sandbox], Sandbox] = lambda sandbox: sandbox,
) -> list[Finding]:
    """Everything sealed of these built tasks that an agent could read in its sandbox.

    The system's folders are read once for all tasks (minutes, with :attr:`Depth.ALL`). ``say`` is
    told which task is being looked at; ``shown`` may make the sandbox show more than it does.
    BadInput, IntegrityError where a task cannot be read; InfrastructureFault where the scan cannot
    be carried out.
    """
    out = out.absolute()
    subjects = [Subject(out, task_id) for task_id in task_ids]
    scratch = temporary_folder(workroom(out), "scan")
    try:
        scratch.chmod(0o711)
        sandbox = BwrapSandbox(scratch, slot=SCAN_SLOT)
        scan = SandboxScan(
            shown(sandbox),
            sandbox.interpreter,
            _shell(scratch, sandbox.uid),
            tuple(subject.secrets for subject in subjects),
            system_folders=("/usr", str(Path(sandbox.interpreter).parents[1])),
            hidden=(str(out / "gold"), str(out / "evaluator")),
            depth=depth,
        )
        found: list[Finding] = []
        for subject in subjects:
            say(f"{subject.task_id}: looking through its agent's sandbox")
            base, mirror = subject.bundle.base, subject.repository.path
            found += scan.look(subject.secrets, base, mirror)
        return list(dict.fromkeys(found))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _shell(scratch: Path, uid: int | None) -> Callable[[Sandbox, Files, Path], object]:
    def run(sandbox: Sandbox, base: Files, git_directory: Path) -> object:
        return SandboxShell(sandbox, scratch, git_directory, Limits(), uid).run(base, "true")

    return run
