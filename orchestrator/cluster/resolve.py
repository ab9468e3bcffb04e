"""Reads the world into a lock: manifests, built tasks, prompts, sandbox and code, each hashed.

``freeze_study`` makes a lock; ``require_match`` freezes again and refuses to go on where anything
differs, naming each difference.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cluster.code import code_digest, tree_digests
from orchestrator.cluster.curation import Outcome, build_tasks
from orchestrator.cluster.stage import planted_variants
from orchestrator.coders.manifest import load_stack
from orchestrator.coders.variants import check_variants
from orchestrator.evaluator.suites import load_bundle
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.errors import BadInput, IntegrityError, LockMismatch
from orchestrator.spec.freeze import differences, lock_content, make_lock, select_tasks
from orchestrator.spec.identity import sha256_file
from orchestrator.spec.lock import Lock, LockedTask
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import SuiteName
from orchestrator.spec.stack import PlantedStack, RecordedStack, Stack
from orchestrator.spec.study import Study
from orchestrator.spec.task import Task, TaskManifest
from orchestrator.store.integrity import outcome_digest
from orchestrator.store.root import Root
from orchestrator.tasks.build import build_task, built_facts
from orchestrator.tasks.required import require_functions
from orchestrator.tasks.variants import ensure_variants

Say = Callable[[str], None]


@dataclass(frozen=True)
class Crew:
    """How many tasks are built at a time, and on which Ray cluster (None: on this machine)."""

    jobs: int = 1
    address: str | None = None


ALONE = Crew()


@dataclass(frozen=True)
class Sources:
    """A study with the manifests it names, read and validated."""

    path: Path
    study: Study
    stack_path: Path
    stack: Stack
    manifest_path: Path
    manifest: TaskManifest
    tasks: tuple[Task, ...]
    prompts_dir: Path


def read_sources(path: Path) -> Sources:
    """Read a study file and everything it names. Raises BadInput naming file and field."""
    study = load(path, Study)
    manifest_path = _named(path, "tasks.manifest", study.tasks.manifest)
    manifest = load(manifest_path, TaskManifest)
    available = {task.id: (task.project, _barred(task)) for task in manifest.tasks}
    chosen = select_tasks(study, available, str(path))
    prompts_dir = _beside(path, study.prompts)
    if not prompts_dir.is_dir():
        raise BadInput(str(path), "prompts", f"no folder {prompts_dir}", "Name a prompt folder.")
    stack_path = _named(path, "stack", study.stack)
    return Sources(
        path=path,
        study=study,
        stack_path=stack_path,
        stack=load_stack(stack_path),
        manifest_path=manifest_path,
        manifest=manifest,
        tasks=tuple(task for task in manifest.tasks if task.id in chosen),
        prompts_dir=prompts_dir,
    )


def _barred(task: Task) -> str | None:
    """Why a task is in no study, or None."""
    if task.pilot:
        return "a pilot task"
    return None if task.rejected_by is None else "a standing negative case"


def freeze_study(path: Path, tasks_dir: Path, say: Say, crew: Crew = ALONE) -> Lock:
    """Resolve, build what is not built, hash, enumerate. Freezing twice gives the same lock."""
    sources = read_sources(path)
    study = sources.study
    _build(sources, tasks_dir, say, crew)
    locked = [
        _lock_task(task, sources, tasks_dir, say, f"[{number}/{len(sources.tasks)}]")
        for number, task in enumerate(sources.tasks, 1)
    ]
    if isinstance(sources.stack, PlantedStack):
        check_variants(
            sources.stack, {t.id: planted_variants(tasks_dir, t.id) for t in sources.tasks}
        )
    return make_lock(
        study_path=_portable(path),
        study=study,
        stack=sources.stack.model_dump(mode="json", by_alias=True),
        simulated=_simulated(sources.stack),
        sources=_source_digests(sources),
        prompts=tree_digests(sources.prompts_dir),
        sandbox=dict(BwrapSandbox(tasks_dir, cpus=study.sandbox.cpus).identity()),
        code=code_digest(),
        tasks=locked,
    )


def require_match(
    lock: Lock, lock_path: str, study_path: Path, tasks_dir: Path, say: Say, crew: Crew = ALONE
) -> None:
    """Raise LockMismatch unless freezing again gives the same lock."""
    try:
        present = freeze_study(study_path, tasks_dir, say, crew)
    except IntegrityError as error:
        raise LockMismatch(lock_path, (str(error),)) from None
    lines = differences(lock_content(lock), lock_content(present))
    if lines:
        raise LockMismatch(lock_path, lines)


def _build(sources: Sources, tasks_dir: Path, say: Say, crew: Crew) -> None:
    """Build the tasks side by side. A build that fails fails again, by itself, when it is locked:
    there its error is raised as what it is.
    """
    if crew.jobs == 1:
        return

    def ended(outcome: Outcome) -> None:
        say(f"{outcome.task_id} {outcome.kind} in {outcome.seconds:g} s ({outcome.message})")

    names = [task.id for task in sources.tasks]
    path, jobs, address = sources.manifest_path, crew.jobs, crew.address
    build_tasks(
        sources.manifest, path, tasks_dir, only=names, jobs=jobs, address=address, ended=ended
    )


def _lock_task(task: Task, sources: Sources, tasks_dir: Path, say: Say, place: str) -> LockedTask:
    build_task(task, sources.manifest_path, tasks_dir, lambda line: say(f"{place} {line}"))
    facts = built_facts(tasks_dir, task.id)
    require_functions(facts, sources.manifest.requires, sources.manifest_path)
    bundle = load_bundle(tasks_dir, task.id)
    variants = None
    if isinstance(sources.stack, PlantedStack):
        variants = ensure_variants(tasks_dir, task.id, lambda line: say(f"{place} {line}"))
    return LockedTask(
        task_id=task.id,
        project=task.project,
        base_state_id=bundle.base_state_id,
        agent_commit=facts.agent_commit,
        evaluator_commit=facts.evaluator_commit,
        suites={name.value: bundle.suites[name].suite_id for name in SuiteName},
        gold_patch_sha256=facts.gold_patch_sha256,
        source_id=facts.source_id,
        relation=facts.relation,
        eligibility_sha256=facts.eligibility_sha256,
        certificate_sha256=facts.certificate_sha256,
        environment_id=bundle.environment_id,
        statement_sha256=facts.statement_sha256,
        gate_overlap=facts.gate_overlap,
        variants_id=variants,
    )


def _simulated(stack: Stack) -> bool:
    if isinstance(stack, RecordedStack):
        return Root.existing(Path(stack.root)).lock().simulated
    return isinstance(stack, PlantedStack)


def _source_digests(sources: Sources) -> dict[str, str]:
    """SHA-256 per manifest file, keyed by its path relative to the study's folder."""
    files = [sources.path, sources.stack_path, sources.manifest_path]
    files += [
        _beside(sources.manifest_path, task.environment.requirements) for task in sources.tasks
    ]
    home = sources.path.resolve().parent
    digests = {Path(os.path.relpath(f.resolve(), home)).as_posix(): sha256_file(f) for f in files}
    if isinstance(sources.stack, RecordedStack):
        digests[f"recorded:{sources.stack.root}"] = outcome_digest(
            Root.existing(Path(sources.stack.root))
        )
    return digests


def _beside(manifest: Path, name: str) -> Path:
    return manifest.parent / name


def _named(manifest: Path, field: str, name: str) -> Path:
    """A file that a manifest names; BadInput with the manifest's field where there is none."""
    path = _beside(manifest, name)
    if not path.is_file():
        shown = os.path.normpath(path)
        raise BadInput(str(manifest), field, f"no such file {shown}", "Correct the path.")
    return path


def _portable(path: Path) -> str:
    """Path relative to the working directory where it lies below it, else absolute."""
    resolved = path.resolve()
    here = Path.cwd()
    return (resolved.relative_to(here) if resolved.is_relative_to(here) else resolved).as_posix()
