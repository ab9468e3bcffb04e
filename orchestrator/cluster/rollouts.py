"""One attempt on the agent's side: all that ``run_rollout`` needs, from the agent's compartment.

Nothing here takes a path to sealed data; verdicts and replies come through ports.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from orchestrator.agent.loop import RolloutPorts, RolloutSetup, run_rollout
from orchestrator.agent.prompt import Prompts, load_prompts
from orchestrator.cluster.shell import SandboxShell
from orchestrator.cluster.stage import shell_limits
from orchestrator.repo.files import Files
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import make_patch
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.lock import Lock, PlannedRollout
from orchestrator.spec.manifest import read_text
from orchestrator.spec.ports import Coder, Verifier
from orchestrator.spec.records import RolloutRecord
from orchestrator.spec.study import Study
from orchestrator.store.writer import journal_for


@dataclass(frozen=True)
class AgentSide:
    """What a rollout worker is given: the lock, the agents' compartment, prompts, scratch space."""

    lock: Lock
    agent_dir: str
    prompts_dir: str
    scratch: str
    slot: int


def perform_rollout(
    side: AgentSide,
    sandbox: BwrapSandbox,
    planned: PlannedRollout,
    attempt_id: str,
    journal: Path,
    coder: Coder,
    verifier: Verifier,
) -> RolloutRecord:
    """Run one attempt of one planned rollout and return its record; writes only the journal."""
    study = Study.model_validate(side.lock.study)
    task = next(task for task in side.lock.tasks if task.task_id == planned.task_id)
    home = Path(side.agent_dir) / planned.task_id
    setup = RolloutSetup(
        lock_id=side.lock.lock_id,
        study=study.name,
        stack=str(side.lock.stack["name"]),
        simulated=side.lock.simulated,
        privileged=bool(side.lock.stack.get("privileged", False)),
        rollout=planned,
        project=task.project,
        gate_overlap=task.gate_overlap,
        base_files=_base_files(home / "repo.git"),
        statement=read_text(home / "statement.md"),
        prompts=_prompts(side.prompts_dir),
        budgets=study.budgets,
        sampling=study.sampling,
        context_tokens=_context_tokens(side.lock),
        suite_seconds=study.sandbox.suite_seconds,
        attempt_id=attempt_id,
        verifier_id=side.lock.verifier_id,
    )
    shell = SandboxShell(
        sandbox=sandbox,
        scratch=Path(side.scratch),
        git_directory=home / "repo.git",
        limits=shell_limits(study.sandbox),
        uid=sandbox.uid,
    )
    return run_rollout(
        setup, RolloutPorts(coder, verifier, shell, journal_for(journal), make_patch)
    )


@lru_cache(maxsize=64)
def _base_files(repository: Path) -> Files:
    return Mirror(repository).files("main")


@lru_cache(maxsize=4)
def _prompts(directory: str) -> Prompts:
    return load_prompts(Path(directory))


def _context_tokens(lock: Lock) -> int | None:
    tokens = lock.stack.get("context_tokens")
    return tokens if isinstance(tokens, int) else None
