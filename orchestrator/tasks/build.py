"""Builds one task: two pinned releases in, three compartments and the facts for the lock out.

The same input gives the same ids, commits and bytes anywhere. A task whose input has not changed is
not built again; one that was interrupted is built anew. Nothing of the gold patch goes into the
agent's or the evaluator's compartment.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from email.parser import Parser
from functools import cache
from pathlib import Path

from packaging.utils import canonicalize_version

from orchestrator.evaluator.ground import Ground
from orchestrator.evaluator.suites import (
    BASE_BRANCH,
    SEALED_BRANCH,
    Bundle,
    BundleFile,
    bundle_bytes,
    load_bundle,
    runner_id,
)
from orchestrator.repo.files import Files, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import make_patch
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.sandbox.reaper import reap
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import digest_json, sha256_file, sha256_hex
from orchestrator.spec.task import Environment, Release, Task
from orchestrator.tasks.classify import (
    Classification,
    Layout,
    classify,
    derive_layout,
    top_level_modules,
)
from orchestrator.tasks.compartments import (
    AGENT_BRANCH,
    PRIVATE,
    PUBLIC,
    BuiltTask,
    Places,
    environments,
    prepare,
    read_built,
    replacing,
    require_built,
    temporary_folder,
    write_json,
)
from orchestrator.tasks.download import Wanted, fetch_sdist
from orchestrator.tasks.eligibility import check_patch
from orchestrator.tasks.environment import build_environment, check_absent
from orchestrator.tasks.mining import Bench, Mined, mine
from orchestrator.tasks.trees import base_tree, removed_paths, sealed_tree
from orchestrator.tasks.unpack import unpack

Say = Callable[[str], None]
MakeEnvironment = Callable[[Environment, Path, Path], str]
OpenBench = Callable[[Path, Path], AbstractContextManager[Bench]]

CURATION_SLOTS = (900, 901)
"""Sandbox slots while tasks are built: users that no agent or evaluator of a run has."""

CURATION_MODULES = (
    "build", "classify", "compartments", "eligibility", "environment", "mining", "trees", "unpack",
)  # fmt: skip
"""Modules of this room whose change means that a task is built again."""


@dataclass(frozen=True)
class Sources:
    """Both releases and what follows from them without running anything."""

    task: Task
    layout: Layout
    change: Classification
    base: Files
    sealed: Files

    @property
    def gold_patch(self) -> bytes:
        return make_patch(self.base, self.change.gold)


@contextmanager
def sandbox_bench(out: Path, environment: Path) -> Iterator[Bench]:
    """Two sandboxes for the environment's interpreter, scratch space below ``out`` for both.

    The scratch directory is removed afterwards; so is what killed builders have left.
    """
    for folder in (out, environments(out)):
        reap(folder)
    scratch = temporary_folder(out, "scratch")
    scratch.chmod(0o711)
    try:
        python = (environment / "bin" / "python").resolve()
        first, second = (BwrapSandbox(scratch, python, slot=slot) for slot in CURATION_SLOTS)
        yield Bench(first, scratch, twin=second)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def build_task(
    task: Task,
    manifest: Path,
    out: Path,
    say: Say = lambda _line: None,
    *,
    make_environment: MakeEnvironment = build_environment,
    open_bench: OpenBench = sandbox_bench,
) -> BuiltTask:
    """Build ``task`` of ``manifest`` below ``out`` unless that was done from the same input.

    ``say`` is told what happens, one line per task. Raises BadInput, Ineligible (exit code 2) and
    InfrastructureFault.
    """
    prepare(out)
    name = make_environment(task.environment, manifest, environments(out))
    digest = input_digest(task, name)
    built = read_built(out, task.id)
    if built is not None and built.input_digest == digest and _complete(out, task.id):
        say(f"{task.id}: built already")
        return built
    started = time.monotonic()
    sources = read_sources(task, manifest)
    environment = environments(out) / name
    requirements = manifest.parent / task.environment.requirements
    modules = top_level_modules(sources.base, sources.layout.import_root)
    check_absent(environment, task.source.name, modules, requirements)
    say(f"{task.id}: running its tests on base and gold")
    with open_bench(out, environment) as bench:
        mined = mine(_bundle(sources, environment), sources.change.gold, bench)
    built = _write(sources, mined, out, name, digest)
    counts = ", ".join(f"{len(ids)} {suite.value}" for suite, ids in mined.suites.items())
    say(f"{task.id}: built in {time.monotonic() - started:.0f} s ({counts})")
    return built


def input_digest(task: Task, environment_id: str) -> str:
    """Everything that decides what is built: manifest entry, environment, curation, runner."""
    entry = task.model_dump(mode="json")
    return digest_json([entry, environment_id, curation_digest(), runner_id()])


@cache
def curation_digest() -> str:
    """SHA-256 over the source of the modules that derive a task, and the table of test paths."""
    home = Path(__file__).parent
    modules = [home / f"{name}.py" for name in CURATION_MODULES]
    modules.append(home.parent / "spec" / "paths.py")
    return digest_json({module.stem: sha256_file(module) for module in modules})


def read_sources(task: Task, manifest: Path) -> Sources:
    """Fetch and unpack both releases, classify the change, derive the trees. Runs nothing."""
    buggy = _release(task, manifest, "buggy", task.source.buggy)
    fixed = _release(task, manifest, "fixed", task.source.fixed)
    layout = derive_layout(fixed, task.import_root, task.test_paths)
    change = classify(buggy, fixed, layout)
    check_patch(task.id, change, layout)
    return Sources(
        task=task,
        layout=layout,
        change=change,
        base=base_tree(buggy, layout),
        sealed=sealed_tree(buggy, fixed, task.source, layout),
    )


def _release(task: Task, manifest: Path, which: str, release: Release) -> Files:
    """A release's files. The cache knows hashes only, so the archive has to say what it is."""
    field = f"tasks.{task.id}.source.{which}"
    files = unpack(fetch_sdist(Wanted(task.source.name, release, str(manifest), field)))
    said = Parser().parsestr(files.get("PKG-INFO", (0, b""))[1].decode(errors="replace"))
    version = said["Version"]
    if version and canonicalize_version(version) != canonicalize_version(release.version):
        raise BadInput(
            str(manifest),
            f"{field}.sha256",
            f"is the hash of version {version}, not {release.version}",
            "Correct the version or the hash.",
        )
    return files


def _bundle(sources: Sources, environment: Path) -> Bundle:
    """The bundle as the evaluator will read it, before there are suites."""
    task, layout = sources.task, sources.layout
    ground = Ground(environment, layout.import_root, layout.test_paths, task.environment.python)
    return Bundle(
        task_id=task.id,
        project=task.project,
        base_state_id=tree_of(sources.base).state_id,
        environment_id=environment.name,
        ground=ground,
        suites={},
        base=sources.base,
        sealed=sources.sealed,
        removed=frozenset(removed_paths(sources.base, sources.sealed)),
    )


# ------------------------------------------------------------------------------- writing


def _write(
    sources: Sources, mined: Mined, out: Path, environment_id: str, digest: str
) -> BuiltTask:
    places = Places(out, sources.task.id)
    places.built.unlink(missing_ok=True)
    with replacing(out, places.agent, PUBLIC) as home:
        _write_agent(sources, home)
    with replacing(out, places.evaluator, PRIVATE) as home:
        _write_evaluator(sources, mined, environment_id, home)
    with replacing(out, places.gold, PRIVATE) as home:
        (home / places.gold_patch.name).write_bytes(sources.gold_patch)
        write_json(home / places.facts.name, _facts(sources, mined))
    built = _built(sources, mined, out, digest)
    write_json(places.built, built.model_dump(mode="json", by_alias=True))
    return built


def _write_agent(sources: Sources, home: Path) -> None:
    """What the agent's side may read: statement, base tree, how the tree is imported."""
    task = sources.task
    mirror = Mirror.create(home / "repo.git", {AGENT_BRANCH: sources.base}, "Import")
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


def _write_evaluator(sources: Sources, mined: Mined, environment_id: str, home: Path) -> None:
    branches = {BASE_BRANCH: sources.base, SEALED_BRANCH: sources.sealed}
    Mirror.create(home / "repo.git", branches, "Import")
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
    )
    (home / "bundle.json").write_bytes(bundle_bytes(record))


def _facts(sources: Sources, mined: Mined) -> dict[str, object]:
    """What curation found, for the audit and for the person who reviews a task; no timings."""
    change = sources.change
    return {
        "schema": "factorial/facts@1",
        "task_id": sources.task.id,
        "changed_paths": {path: kind.value for path, kind in sorted(change.classes.items())},
        "gold_files": list(change.gold_files),
        "gold_lines": change.gold_lines,
        "counts": {name.value: len(ids) for name, ids in mined.suites.items()},
        "gate_overlap": mined.gate_overlap,
        "unstable": list(mined.unstable),
        "alone": list(mined.alone),
        "hidden_api": list(mined.hidden_api),
        "uncollected": {tree: list(paths) for tree, paths in mined.uncollected.items()},
    }


def _built(sources: Sources, mined: Mined, out: Path, digest: str) -> BuiltTask:
    task, places = sources.task, Places(out, sources.task.id)
    bundle = load_bundle(out, task.id)
    return BuiltTask(
        schema="factorial/built@1",
        task_id=task.id,
        project=task.project,
        input_digest=digest,
        base_state_id=bundle.base_state_id,
        agent_commit=Mirror(places.agent / "repo.git").commit_id(AGENT_BRANCH),
        evaluator_commit=Mirror(places.evaluator / "repo.git").commit_id(SEALED_BRANCH),
        environment_id=bundle.environment_id,
        suites={name.value: suite.suite_id for name, suite in bundle.suites.items()},
        gate_overlap=mined.gate_overlap,
        gold_patch_sha256=sha256_hex(sources.gold_patch),
        statement_sha256=sha256_hex(_statement(task).encode()),
        buggy_sdist_sha256=task.source.buggy.sha256,
        fixed_sdist_sha256=task.source.fixed.sha256,
    )


# ------------------------------------------------------------------------------- reading back


def _complete(out: Path, task_id: str) -> bool:
    places = Places(out, task_id)
    return places.agent.is_dir() and places.evaluator.is_dir() and places.gold.is_dir()


def built_facts(out: Path, task_id: str) -> BuiltTask:
    """The facts of a built task, checked against the compartments as they lie on disk.

    Raises BadInput where the task is not built and IntegrityError, naming the part, where anything
    is not as it was when it was built.
    """
    built = require_built(out, task_id)
    places = Places(out, task_id)
    agent, evaluator = Mirror(places.agent / "repo.git"), Mirror(places.evaluator / "repo.git")
    bundle = load_bundle(out, task_id)
    suites = {f"suite {name.value}": suite.suite_id for name, suite in bundle.suites.items()}
    recorded = {f"suite {name}": suite_id for name, suite_id in built.suites.items()}
    found = {
        "agent commit": agent.commit_id(AGENT_BRANCH),
        "agent tree": agent.tree(AGENT_BRANCH).state_id,
        "evaluator commit": evaluator.commit_id(SEALED_BRANCH),
        "gold patch": sha256_file(places.gold_patch),
        "statement": sha256_file(places.agent / "statement.md"),
        **suites,
    }
    expected = {
        "agent commit": built.agent_commit,
        "agent tree": built.base_state_id,
        "evaluator commit": built.evaluator_commit,
        "gold patch": built.gold_patch_sha256,
        "statement": built.statement_sha256,
        **recorded,
    }
    for part, value in expected.items():
        if found.get(part) != value:
            raise IntegrityError(
                f"task {task_id}", f"{part} is {found.get(part)}, not {value} as it was built"
            )
    return built
