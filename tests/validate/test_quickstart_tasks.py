"""Every task of the quickstart manifest: built twice alike, nothing leaks, signatures repeat.

Several minutes; prints one line of figures per task for docs/validation/.
"""

import time
from pathlib import Path

import pytest

from orchestrator.spec.manifest import load
from orchestrator.spec.task import Task, TaskManifest
from orchestrator.tasks.audit import audit_task
from orchestrator.tasks.build import build_task, sandbox_bench
from orchestrator.tasks.compartments import environments
from orchestrator.tasks.signatures import audit_signatures
from orchestrator.tasks.variants import ensure_variants, load_variants
from tests.e2e.support import REPOSITORY

pytestmark = [pytest.mark.validate, pytest.mark.timeout(1800)]
MANIFEST = REPOSITORY / "manifests" / "tasks" / "quickstart.yaml"
TASKS = load(MANIFEST, TaskManifest).tasks


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_task(task: Task, places: tuple[Path, Path]) -> None:
    first, second = places
    started = time.monotonic()
    built = build_task(task, MANIFEST, first)
    seconds = time.monotonic() - started
    assert build_task(task, MANIFEST, second) == built, "another path gives the same facts"
    assert audit_task(first, task.id) == []
    ensure_variants(first, task.id)
    variants = load_variants(first, task.id)
    assert all(len(members) >= 2 for members in variants.classes.values())
    with sandbox_bench(first, environments(first) / built.environment_id) as bench:
        signatures, findings = audit_signatures(first, task.id, bench)
    assert findings == []
    ids = {s.suite.value: len(s.outcomes) for s in signatures if s.tree == "gold"}
    print(
        f"\n{task.id}: built in {seconds:.0f} s, ids {ids}, agent commit {built.agent_commit[:12]}"
    )
