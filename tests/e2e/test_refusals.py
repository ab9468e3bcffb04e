"""A run against anything that differs from its lock is refused, naming what differs."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster.code import require_code
from orchestrator.spec.errors import LockMismatch
from orchestrator.spec.lock import Lock
from tests.e2e.support import CHEAP, TASKS, Workspace, make_workspace, read_json

STACK = {"rates": [{"alpha": 0.5, "beta": 0.0}], "submit": 0.5}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = make_workspace(tmp_path_factory.mktemp("refusals"), stack=STACK)
    workspace.run("freeze", str(workspace.study), "--out", "mini.lock.json")
    return workspace


@pytest.fixture
def workspace(frozen: Workspace, tmp_path: Path) -> Workspace:
    shutil.copytree(frozen.path, tmp_path / "copy")
    return Workspace(tmp_path / "copy")


def refused(workspace: Workspace, *names: str) -> None:
    done = workspace.run("run", "mini.lock.json", "--root", "runs/r", code=2)
    for name in names:
        assert name in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not (workspace.path / "runs/r").exists(), "a refused run leaves nothing"


def test_a_changed_prompt(workspace: Workspace) -> None:
    prompt = sorted((workspace.path / "manifests/prompts/repository-agent").iterdir())[0]
    prompt.write_text(prompt.read_text() + "\nBe bold.\n")
    refused(workspace, f"prompts.{prompt.name}")


def test_a_changed_stack_file(workspace: Workspace) -> None:
    workspace.edit("stacks/mini.yaml", lambda stack: stack.update(submit=0.6))
    refused(workspace, "stack.submit: frozen 0.5, now 0.6", "stacks/mini.yaml")


def test_a_changed_factor_level(workspace: Workspace) -> None:
    def drop(study: dict[str, Any]) -> None:
        study["factors"][0]["levels"] = ["current"]
        study["effects"] = study["effects"][:1]

    workspace.edit("studies/mini.yaml", drop)
    refused(workspace, "study.factors[evidence].levels", "rollouts")


def test_a_changed_gold_version_hash(workspace: Workspace) -> None:
    def other(manifest: dict[str, Any]) -> None:
        task = next(t for t in manifest["tasks"] if t["id"] == CHEAP[0])
        task["source"]["fixed"]["sha256"] = "0" * 64

    workspace.edit("tasks/quickstart.yaml", other)
    refused(workspace, "sha256")


def test_a_changed_suite(workspace: Workspace) -> None:
    tasks = workspace.path / "tasks"
    shutil.copytree(TASKS, tasks, symlinks=True, ignore=shutil.ignore_patterns("factorial-*"))
    bundle = tasks / "evaluator" / CHEAP[0] / "bundle.json"
    content = read_json(bundle)
    dropped = content["suites"]["gate"][0]
    bundle.write_text(bundle.read_text().replace(f'"{dropped}"', '"tests/test_x.py::test_y"'))
    done = workspace.run("run", "mini.lock.json", "--root", "runs/r", "--tasks", "tasks", code=2)
    assert CHEAP[0] in done.stderr
    assert "suite" in done.stderr or "bundle" in done.stderr


def test_an_edited_lock(workspace: Workspace) -> None:
    lock = workspace.path / "mini.lock.json"
    lock.write_text(lock.read_text().replace('"actions": 15', '"actions": 16'))
    refused(workspace, "lock_id")


def test_bad_input_is_one_sentence(workspace: Workspace) -> None:
    workspace.edit("studies/mini.yaml", lambda study: study.update(colour="red"))
    done = workspace.run("freeze", str(workspace.study), "--out", "x.json", code=2)
    assert done.stderr.strip().splitlines() == [
        f"error: {workspace.study}: colour: unknown key. Remove the key or correct its spelling."
    ]
    done = workspace.run("freeze", "absent.yaml", "--out", "x.json", code=2)
    assert "absent.yaml: no such file" in done.stderr
    workspace.run("status", "runs/absent", code=2)
    workspace.run("analyze", code=2)


def test_a_design_that_cannot_be_analysed_is_refused_before_it_is_frozen(
    workspace: Workspace,
) -> None:
    def twice(study: dict[str, Any]) -> None:
        study["families"] = [{"name": "f", "effects": ["contract"] * 2, "endpoints": ["sound"]}]

    workspace.edit("studies/mini.yaml", twice)
    done = workspace.run("freeze", str(workspace.study), "--out", "x.json", code=2)
    assert "families" in done.stderr.splitlines()[-1]
    assert not (workspace.path / "x.json").exists()


def test_a_missing_stack_names_the_study_and_its_field(workspace: Workspace) -> None:
    workspace.edit("studies/mini.yaml", lambda study: study.update(stack="../stacks/no.yaml"))
    done = workspace.run("freeze", str(workspace.study), "--out", "x.json", code=2)
    assert "mini.yaml: stack: no such file" in done.stderr


def test_an_actor_of_another_code_version_is_refused(workspace: Workspace) -> None:
    """A process that imports other code than the lock's must not produce a verdict."""
    lock = Lock.model_validate_json((workspace.path / "mini.lock.json").read_bytes())
    require_code(lock)
    with pytest.raises(LockMismatch, match="code: frozen 000"):
        require_code(lock.model_copy(update={"code": "0" * 64}))


def test_a_root_of_another_lock_is_refused(workspace: Workspace) -> None:
    workspace.run("run", "mini.lock.json", "--root", "runs/r", "--through", "rollouts")
    workspace.edit("studies/mini.yaml", lambda study: study.update(seeds=[2]))
    done = workspace.run("run", str(workspace.study), "--root", "runs/r", code=2)
    assert "study.seeds" in done.stderr
