"""Writes the compartments of one task: the agent's, the evaluator's, and the gold beside them.

Each compartment takes its place whole; the same task gives the same bytes anywhere. Nothing of the
gold patch goes into the agent's or the evaluator's compartment.
"""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.evaluator.ground import Ground
from orchestrator.evaluator.proofs import Proofs
from orchestrator.evaluator.suites import (
    BASE_BRANCH,
    SEALED_BRANCH,
    Bundle,
    BundleFile,
    bundle_bytes,
    load_bundle,
)
from orchestrator.repo.files import Files, apply_delta, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import make_patch
from orchestrator.spec.identity import sha256_file, sha256_hex
from orchestrator.spec.task import Task
from orchestrator.tasks.classify import Classification, Layout, PathClass
from orchestrator.tasks.compartments import (
    AGENT_BRANCH,
    PRIVATE,
    PUBLIC,
    BuiltTask,
    Eligibility,
    Places,
    replacing,
    write_json,
    write_record,
)
from orchestrator.tasks.eligibility import Ruling
from orchestrator.tasks.mining import Mined, Trees
from orchestrator.tasks.sources import Endpoints
from orchestrator.tasks.trees import base_tree, removed_paths


@dataclass(frozen=True)
class Sources:
    """Both ends of a task and what follows from them without running anything."""

    task: Task
    ends: Endpoints
    layout: Layout
    change: Classification
    base: Files
    sealed: Files

    @property
    def gold_patch(self) -> bytes:
        return make_patch(self.base, self.change.gold)

    @property
    def trees(self) -> Trees:
        fixed = base_tree(self.ends.fixed, self.layout)
        stamps = {path for path, kind in self.change.classes.items() if kind is PathClass.METADATA}
        stamped = {path: self.base[path] for path in stamps & self.base.keys()}
        gold = apply_delta(self.base, self.change.gold)
        return Trees(self.base, gold, {**fixed, **stamped})

    def bundle(self, environment: Path) -> Bundle:
        """The bundle as the evaluator will read it, before there are suites."""
        task, layout = self.task, self.layout
        python = task.environment.python
        return Bundle(
            task_id=task.id,
            project=task.project,
            base_state_id=tree_of(self.base).state_id,
            environment_id=environment.name,
            ground=Ground(environment, layout.import_root, layout.test_paths, python),
            suites={},
            base=self.base,
            sealed=self.sealed,
            removed=frozenset(removed_paths(self.base, self.sealed)),
        )


def write_compartments(
    sources: Sources,
    mined: Mined,
    proofs: Proofs,
    rulings: tuple[Ruling, ...],
    out: Path,
    environment_id: str,
) -> None:
    """Write agent, evaluator and gold; the task counts as built only with its facts."""
    places = Places(out, sources.task.id)
    places.built.unlink(missing_ok=True)
    with replacing(out, places.agent, PUBLIC) as home:
        _write_agent(sources, home, out / "pool" / "agent")
    with replacing(out, places.evaluator, PRIVATE) as home:
        _write_evaluator(sources, mined, proofs, environment_id, home, out / "pool" / "evaluator")
    with replacing(out, places.gold, PRIVATE) as home:
        (home / places.gold_patch.name).write_bytes(sources.gold_patch)
        write_json(home / places.facts.name, _facts(sources, mined))
        write_record(home / places.eligibility.name, _eligibility(sources, rulings))


def _write_agent(sources: Sources, home: Path, pool: Path) -> None:
    """What the agent's side may read: statement, base tree, how the tree is imported."""
    task = sources.task
    mirror = Mirror.create(home / "repo.git", {AGENT_BRANCH: sources.base}, "Import", pool)
    (home / "statement.md").write_text(_statement(task), encoding="utf-8")
    record = {
        "schema": "factorial/agent-task@1",
        "task_id": task.id,
        "project": task.project,
        "import_root": sources.layout.import_root,
        "base_state_id": tree_of(sources.base).state_id,
        "agent_commit": mirror.commit_id(AGENT_BRANCH),
    }
    write_json(home / "task.json", record)


def _statement(task: Task) -> str:
    return task.problem_statement.strip() + "\n"


def _write_evaluator(
    sources: Sources, mined: Mined, proofs: Proofs, environment_id: str, home: Path, pool: Path
) -> None:
    branches = {BASE_BRANCH: sources.base, SEALED_BRANCH: sources.sealed}
    Mirror.create(home / "repo.git", branches, "Import", pool)
    task, layout = sources.task, sources.layout
    record = BundleFile(
        schema="factorial/bundle@1",
        task_id=task.id,
        project=task.project,
        base_state_id=tree_of(sources.base).state_id,
        environment_id=environment_id,
        import_root=layout.import_root,
        python=task.environment.python,
        test_paths=layout.test_paths,
        suites=dict(mined.suites),
        overlay_sha256=tree_of(sources.sealed).state_id,
        removed=removed_paths(sources.base, sources.sealed),
        untwinned=proofs.untwinned,
        unconfirmed=proofs.unconfirmed,
        unwatched=proofs.unwatched,
        unredacted=proofs.unredacted,
    )
    (home / "bundle.json").write_bytes(bundle_bytes(record))


def _facts(sources: Sources, mined: Mined) -> dict[str, object]:
    """What curation found, for the audit and for the person who reviews a task; no timings."""
    change = sources.change
    return {
        "schema": "factorial/facts@2",
        "task_id": sources.task.id,
        "changed_paths": {path: kind.value for path, kind in sorted(change.classes.items())},
        "gold_files": list(change.gold_files),
        "gold_lines": change.gold_lines,
        "counts": {name.value: len(ids) for name, ids in mined.suites.items()},
        "fail_to_pass_functions": mined.functions,
        "gate_overlap": mined.gate_overlap,
        "dropped": dict(mined.dropped),
        "hidden_api": list(mined.hidden_api),
        "not_python_alone": list(mined.not_python_alone),
        "uncollected": {tree: list(paths) for tree, paths in mined.uncollected.items()},
        "source_notes": dict(sources.ends.notes),
    }


def _eligibility(sources: Sources, rulings: tuple[Ruling, ...]) -> Eligibility:
    return Eligibility(
        schema="factorial/eligibility@1",
        task_id=sources.task.id,
        project=sources.task.project,
        source_id=sources.ends.source_id,
        relation=sources.ends.relation,
        rulings=rulings,
    )


def built_task(
    sources: Sources, mined: Mined, out: Path, input_digest: str, certificate_sha256: str
) -> BuiltTask:
    """The facts of the compartments as they lie on disk."""
    task, places = sources.task, Places(out, sources.task.id)
    bundle = load_bundle(out, task.id)
    return BuiltTask(
        schema="factorial/built@2",
        task_id=task.id,
        project=task.project,
        input_digest=input_digest,
        base_state_id=bundle.base_state_id,
        agent_commit=Mirror(places.agent / "repo.git").commit_id(AGENT_BRANCH),
        evaluator_commit=Mirror(places.evaluator / "repo.git").commit_id(SEALED_BRANCH),
        environment_id=bundle.environment_id,
        suites={name.value: suite.suite_id for name, suite in bundle.suites.items()},
        gate_overlap=mined.gate_overlap,
        fail_to_pass_functions=mined.functions,
        gold_patch_sha256=sha256_hex(sources.gold_patch),
        statement_sha256=sha256_hex(_statement(task).encode()),
        source_id=sources.ends.source_id,
        relation=sources.ends.relation,
        eligibility_sha256=sha256_file(places.eligibility),
        certificate_sha256=certificate_sha256,
    )
