"""Every line of everything that the agents' sandbox shows, for the secrets of all built tasks.

Reads the whole system part once (minutes), then only what belongs to each task.
"""

import time

import pytest

from orchestrator.cluster.sealing import scan_sandbox
from orchestrator.spec.manifest import load
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.build import build_task
from tests.e2e.support import REPOSITORY, TASKS

pytestmark = [pytest.mark.validate, pytest.mark.timeout(3600)]
MANIFEST = REPOSITORY / "manifests" / "tasks" / "quickstart.yaml"


def test_nothing_sealed_is_anywhere_in_the_sandbox() -> None:
    tasks = load(MANIFEST, TaskManifest).tasks
    for task in tasks:
        build_task(task, MANIFEST, TASKS)
    started = time.monotonic()
    moments: list[float] = []
    found = scan_sandbox(
        TASKS, [task.id for task in tasks], say=lambda _: moments.append(time.monotonic())
    )
    assert [str(finding) for finding in found] == []
    whole = time.monotonic() - started
    print(f"\n{len(tasks)} tasks: {whole:.0f} s, of which the first {moments[1] - started:.0f} s")
