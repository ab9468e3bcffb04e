"""Curation as a user runs it: shipped candidates are built, refused and audited by command."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.spec.manifest import load
from orchestrator.spec.task import TaskManifest
from tests.e2e.support import REPOSITORY, Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FOLDER = REPOSITORY / "manifests" / "tasks"
SMALL = ("xmltodict-0.14.1-0.14.2",)
"""A task of the paper-sized list whose suite takes about a second."""
REFUSED = {
    "more_itertools-8.0.1-8.0.2": "gold-present",
    "sqlparse-0.5.0-0.5.1": "gold-files",
    "boltons-15.0.1-15.0.2": "tests-present",
}
"""Candidates that are refused before anything runs."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("curation"))


def build(workspace: Workspace, manifest: str, *names: str) -> list[dict[str, Any]]:
    asked = [word for name in names for word in ("--task", name)]
    path = str(FOLDER / manifest)
    done = workspace.run("tasks", "build", path, "--out", "built", "--jobs", "1", "--json", *asked)
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)
    return outcomes


def audit(workspace: Workspace) -> dict[str, dict[str, Any]]:
    done = workspace.run("tasks", "audit", "built", "--json")
    return {one["task_id"]: one for one in json.loads(done.stdout)}


def records(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "built").glob("*.json"))}


def test_tasks_of_the_paper_sized_list_are_built_and_stay_as_they_are(workspace: Workspace) -> None:
    outcomes = build(workspace, "paper24.yaml", *SMALL)
    assert [(one["task_id"], one["kind"]) for one in outcomes] == [(n, "eligible") for n in SMALL]
    before = records(workspace.path / "built")
    again = build(workspace, "all.yaml", *SMALL)
    assert records(workspace.path / "built") == before, "both lists mean the same tasks"
    assert all(one["expected"] for one in again)
    for name, one in audit(workspace).items():
        assert (one["eligible"], one["findings"]) == (True, []), name
        assert {rule["verdict"] for rule in one["rules"]} <= {"pass", "flag"}


def test_standing_negative_cases_are_refused_by_their_rules(workspace: Workspace) -> None:
    stated = {
        task.id: task.rejected_by for task in load(FOLDER / "rejected.yaml", TaskManifest).tasks
    }
    assert {name: stated[name] for name in REFUSED} == REFUSED
    outcomes = build(workspace, "rejected.yaml", *REFUSED)
    assert {one["task_id"]: one["rule"] for one in outcomes} == REFUSED
    found = audit(workspace)
    for name, rule in REFUSED.items():
        assert not found[name]["eligible"]
        assert found[name]["reason"].startswith(f"{rule}: ")
