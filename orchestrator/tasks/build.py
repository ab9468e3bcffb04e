"""Builds one task: a manifest's entry in, three compartments and the facts for the lock out.

The same input gives the same ids, commits and bytes anywhere. A task whose input has not changed is
not built again, nor is a candidate that was refused judged again; one that was interrupted is built
anew. Nothing of the gold patch goes into the agent's or the evaluator's compartment.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from orchestrator.evaluator.suites import SEALED_BRANCH, load_bundle, runner_id
from orchestrator.repo.mirror import Mirror
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.sandbox.reaper import reap
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import digest_json, sha256_file
from orchestrator.spec.ports import SuiteName
from orchestrator.spec.task import Environment, Task
from orchestrator.tasks.audit import certify, gold_lines
from orchestrator.tasks.bench import Bench
from orchestrator.tasks.classify import classify, derive_layout, top_level_modules
from orchestrator.tasks.compartments import (
    AGENT_BRANCH,
    BuiltTask,
    Measured,
    Places,
    Rejected,
    environments,
    prepare,
    read_built,
    read_rejected,
    require_built,
    temporary_folder,
    workroom,
    write_record,
)
from orchestrator.tasks.eligibility import (
    RULES,
    Ineligible,
    Ruling,
    Sheet,
    check_patch,
    check_statement,
)
from orchestrator.tasks.environment import build_environment, check_absent
from orchestrator.tasks.listed import check_listed
from orchestrator.tasks.mining import Mined, mine
from orchestrator.tasks.sources import read_endpoints
from orchestrator.tasks.trees import base_tree, sealed_tree
from orchestrator.tasks.writing import Sources, built_task, write_compartments

Say = Callable[[str], None]
MakeEnvironment = Callable[[Environment, Path, Path], str]
OpenBench = Callable[[Path, Path], AbstractContextManager[Bench]]

CURATION_SLOTS = (900, 901)
"""Sandbox slots while one task is built: users that no agent or evaluator of a run has."""

ELSEWHERE = ("spec/paths.py", "repo/files.py", "repo/mirror.py", "repo/patch.py")
LATER = frozenset({"download", "hunks", "index", "signatures", "variants"})
"""Modules of this room whose change does not change what is built; importers/ neither."""


@contextmanager
def sandbox_bench(
    out: Path, environment: Path, slots: tuple[int, int] = CURATION_SLOTS
) -> Iterator[Bench]:
    """Two sandboxes for the environment's interpreter, scratch space below ``out`` for both.

    The scratch directory is removed afterwards; so is what killed builders have left.
    """
    reap(workroom(out))
    scratch = temporary_folder(workroom(out), "scratch")
    scratch.chmod(0o711)
    try:
        python = (environment / "bin" / "python").resolve()
        first, second = (BwrapSandbox(scratch, python, slot=slot) for slot in slots)
        yield Bench(first, scratch, twin=second)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def build_task(
    task: Task,
    manifest: Path,
    out: Path,
    say: Say = lambda _line: None,
    *,
    step: Say = lambda _step: None,
    make_environment: MakeEnvironment = build_environment,
    open_bench: OpenBench = sandbox_bench,
) -> BuiltTask:
    """Build ``task`` of ``manifest`` below ``out`` unless that was done from the same input.

    ``say`` is told what happens, ``step`` what is being done, by a short name. Raises Ineligible
    (with every ruling) where a rule refuses the candidate, which is remembered; BadInput where one
    that is to be refused (``rejected_by``) is not, or by another rule; BadInput, IntegrityError and
    InfrastructureFault where something else went wrong.
    """
    if task.rejected_by not in (None, *RULES):
        raise _unexpected(task, manifest, "there is no such rule")
    prepare(out)
    step("environment")
    name = make_environment(task.environment, manifest, environments(out))
    try:
        built = _built_before(task, out, input_digest(task, name))
        if built is not None:
            say(f"{task.id}: built already")
        else:
            built = _build(task, manifest, out, name, say, step, open_bench)
    except Ineligible as refusal:
        say(f"{task.id}: refused by rule {refusal.rule} ({refusal.detail})")
        if task.rejected_by not in (None, refusal.rule):
            raise _unexpected(task, manifest, f"rule {refusal.rule} refuses it") from None
        raise
    return built


def _built_before(task: Task, out: Path, digest: str) -> BuiltTask | None:
    """The task as it was built from the same input, or None. Raises the Ineligible of then."""
    refused = read_rejected(out, task.id)
    if refused is not None and refused.input_digest == digest:
        raise Ineligible(task.id, refused.rule, refused.detail, refused.rulings, refused.log)
    built = read_built(out, task.id)
    same = built is not None and built.input_digest == digest and _complete(out, task.id)
    return built if same else None


def settled(task: Task, manifest: Path, out: Path, environment_id: str) -> bool:
    """Whether a build would find everything done: built, or refused, from the same input."""
    try:
        digest = input_digest(task, environment_id)
        known = _built_before(task, out, digest) is not None
    except Ineligible:
        known = True
    return known and (environments(out) / environment_id).is_dir()


def _build(
    task: Task, manifest: Path, out: Path, name: str, say: Say, step: Say, open_bench: OpenBench
) -> BuiltTask:
    started, digest = time.monotonic(), input_digest(task, name)
    sheet, environment = Sheet(task.id), environments(out) / name
    mined, peak = None, 0
    try:
        step("sources")
        sources = read_sources(task, manifest, sheet)
        requirements = manifest.parent / task.environment.requirements
        modules = top_level_modules(sources.base, sources.layout.import_root)
        check_absent(environment, sources.ends.name, modules, requirements)
        step("suites")
        say(f"{task.id}: running its tests on base and gold")
        with open_bench(out, environment) as bench:
            try:
                bundle, told = sources.bundle(environment), task.problem_statement
                trees = sources.trees
                mined = mine(bundle, trees, bench, sheet, told)
                proofs = bench.prove(bundle, mined.suites, trees.base, trees.gold)
            finally:
                peak = bench.meter.peak_memory_bytes
        _check_listed(sources, mined, sheet)
    except Ineligible as refusal:
        seconds = time.monotonic() - started
        raise _reject(task, refusal, sheet, out, _measured(task, digest, seconds, peak)) from None
    if task.rejected_by is not None:
        raise _unexpected(task, manifest, "every rule accepts it")
    step("compartments")
    write_compartments(sources, mined, proofs, sheet.rulings(), out, name)
    step("certificate")
    certificate = _certified(out, task.id)
    seconds = time.monotonic() - started
    write_record(Places(out, task.id).measured, _measured(task, digest, seconds, peak, mined))
    Places(out, task.id).rejected.unlink(missing_ok=True)
    built = built_task(sources, mined, out, digest, certificate)
    write_record(Places(out, task.id).built, built)
    counts = ", ".join(f"{len(ids)} {suite.value}" for suite, ids in mined.suites.items())
    say(f"{task.id}: built in {seconds:.0f} s ({counts})")
    return built


def _check_listed(sources: Sources, mined: Mined, sheet: Sheet) -> None:
    failing, passing = (
        mined.suites[name] for name in (SuiteName.FAIL_TO_PASS, SuiteName.PASS_TO_PASS)
    )
    check_listed(sources.ends.expected, failing, passing, sheet)


def _measured(
    task: Task, digest: str, seconds: float, peak: int, mined: Mined | None = None
) -> Measured:
    return Measured(
        schema="factorial/measured@1",
        task_id=task.id,
        input_digest=digest,
        build_seconds=round(seconds, 1),
        suite_seconds=round(mined.seconds, 2) if mined else None,
        suite_peak_memory_bytes=peak,
        residue=mined.residue if mined else (),
    )


def _reject(
    task: Task, refusal: Ineligible, sheet: Sheet, out: Path, measured: Measured
) -> Ineligible:
    """Put the refusal on record, instead of what may have been built before; returns it whole."""
    sheet.fails(refusal.rule, refusal.detail)
    places, rulings = Places(out, task.id), sheet.rulings()
    places.built.unlink(missing_ok=True)
    write_record(places.measured, measured)
    write_record(places.rejected, _rejected(task, refusal, rulings, measured.input_digest))
    return Ineligible(task.id, refusal.rule, refusal.detail, rulings, refusal.log)


def _rejected(
    task: Task, refusal: Ineligible, rulings: tuple[Ruling, ...], digest: str
) -> Rejected:
    return Rejected(
        schema="factorial/rejected@1",
        task_id=task.id,
        project=task.project,
        input_digest=digest,
        row=task.model_dump(mode="json"),
        rule=refusal.rule,
        detail=refusal.detail,
        rulings=rulings,
        log=refusal.log,
    )


def _unexpected(task: Task, manifest: Path, found: str) -> BadInput:
    return BadInput(
        str(manifest),
        f"tasks.{task.id}.rejected_by",
        f"is to be refused by rule {task.rejected_by}, but {found}",
        "Correct the entry, or find out what changed.",
    )


def _certified(out: Path, task_id: str) -> str:
    """SHA-256 of the certificate that nothing sealed is within the agent's reach; it is kept."""
    certificate = certify(out, task_id)
    if certificate.findings:
        shown = "; ".join(str(finding) for finding in certificate.findings[:3])
        problem = f"sealed content is within reach ({len(certificate.findings)}): {shown}"
        raise IntegrityError(f"task {task_id}", problem)
    write_record(Places(out, task_id).certificate, certificate)
    return certificate.sha256


def input_digest(task: Task, environment_id: str) -> str:
    """Everything that decides what is built: manifest entry, environment, curation, runner."""
    entry = task.model_dump(mode="json")
    return digest_json([entry, environment_id, curation_digest(), runner_id()])


@cache
def curation_digest() -> str:
    """SHA-256 over the source of the modules that derive, write and certify a task."""
    home = Path(__file__).parent
    sources = [home.parent / name for name in ELSEWHERE]
    for path in home.rglob("*.py"):
        relative = path.relative_to(home)
        if relative.stem not in LATER and relative.parts[0] != "importers":
            sources.append(path)
    root = home.parent
    return digest_json({p.relative_to(root).as_posix(): sha256_file(p) for p in sources})


def read_sources(task: Task, manifest: Path, sheet: Sheet) -> Sources:
    """Fetch both ends, classify the change, derive the trees, and rule on what needs no run.

    Runs nothing. Raises BadInput and Ineligible.
    """
    ends = read_endpoints(task, manifest)
    sheet.passes("direct-parent", ends.relation)
    layout = derive_layout(ends.fixed, task.import_root, task.test_paths)
    change = classify(ends.buggy, ends.fixed, layout)
    base = base_tree(ends.buggy, layout)
    check_statement(task.problem_statement, gold_lines(base, change.gold), sheet)
    check_patch(change, layout, sheet)
    return Sources(
        task=task,
        ends=ends,
        layout=layout,
        change=change,
        base=base,
        sealed=sealed_tree(ends.buggy, ends.fixed, ends.name, ends.version, layout),
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
        "eligibility record": sha256_file(places.eligibility),
        **suites,
    }
    expected = {
        "agent commit": built.agent_commit,
        "agent tree": built.base_state_id,
        "evaluator commit": built.evaluator_commit,
        "gold patch": built.gold_patch_sha256,
        "statement": built.statement_sha256,
        "eligibility record": built.eligibility_sha256,
        **recorded,
    }
    for part, value in expected.items():
        if found.get(part) != value:
            raise IntegrityError(
                f"task {task_id}", f"{part} is {found.get(part)}, not {value} as it was built"
            )
    return built
