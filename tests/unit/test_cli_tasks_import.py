"""``factorial tasks import`` says what became of each row and ends with the right code."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.cli.tasks_import import import_app
from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import load
from orchestrator.spec.task import TaskManifest

PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"
ROW = {
    "instance_id": "calc__adder-7",
    "repo": "calc/adder",
    "base_commit": "1" * 40,
    "patch": PATCH,
    "test_patch": PATCH.replace("a.py", "test_a.py"),
    "FAIL_TO_PASS": [],
    "PASS_TO_PASS": [],
    "problem_statement": "The sum of nothing should be zero, it is one.",
}
RUNNER = CliRunner()


@pytest.fixture
def base(tmp_path: Path) -> list[str]:
    (tmp_path / "rows.json").write_text(json.dumps([ROW, {**ROW, "instance_id": "b", "repo": "?"}]))
    (tmp_path / "env.txt").touch()
    files = ["swebench", str(tmp_path / "rows.json"), "--out", str(tmp_path / "t.yaml")]
    return [*files, "--requirements", str(tmp_path / "env.txt"), "--python", "3.11"]


def test_refused_rows_are_named_and_nothing_is_written(base: list[str], tmp_path: Path) -> None:
    done = RUNNER.invoke(import_app, base)
    assert done.exit_code == 2
    assert "refused: row 2 (b): repo: " in done.output and "--keep-going" in done.output
    assert not (tmp_path / "t.yaml").exists()


def test_the_rest_is_imported_on_demand(base: list[str], tmp_path: Path) -> None:
    names = ["--distribution", "calc/adder=Adder"]
    done = RUNNER.invoke(import_app, [*base, "--keep-going", "--json", *names])
    assert done.exit_code == 0
    said = json.loads(done.stdout)
    assert said["tasks"] == ["calc__adder-7"] and said["written"] is True
    assert [row["field"] for row in said["refused"]] == ["repo"]
    (task,) = load(tmp_path / "t.yaml", TaskManifest).tasks
    assert task.source.name == "Adder"
    plain = RUNNER.invoke(import_app, [*base, "--only", "calc*", *names])
    assert plain.exit_code == 0 and "1 tasks imported, 0 rows refused" in plain.output


def test_bugs_are_imported_from_a_checkout(tmp_path: Path) -> None:
    bug = tmp_path / "B" / "projects" / "adder" / "bugs" / "1"
    bug.mkdir(parents=True)
    (bug / "bug.info").write_text(
        f'python_version="3.8.3"\nbuggy_commit_id="{"1" * 40}"\n'
        f'fixed_commit_id="{"2" * 40}"\ntest_file="tests/test_a.py"\n'
    )
    (bug.parents[1] / "project.info").write_text('github_url="https://git.test/calc/adder"\n')
    (tmp_path / "env.txt").touch()
    (tmp_path / "s.yaml").write_text("adder-1: The sum of nothing should be zero.\n")
    command = ["bugsinpy", str(tmp_path / "B"), "--out", str(tmp_path / "t.yaml")]
    command += ["--requirements", str(tmp_path / "env.txt")]
    assert RUNNER.invoke(import_app, command).exit_code == 2
    done = RUNNER.invoke(import_app, [*command, "--statements", str(tmp_path / "s.yaml")])
    assert done.exit_code == 0, done.output
    named = RUNNER.invoke(import_app, [*command, "--name-test-files", "--replace"])
    assert named.exit_code == 0
    (task,) = load(tmp_path / "t.yaml", TaskManifest).tasks
    assert "tests/test_a.py" in task.problem_statement


def test_a_pair_that_is_none_is_refused(base: list[str]) -> None:
    done = RUNNER.invoke(import_app, [*base, "--distribution", "adder"])
    assert isinstance(done.exception, BadInput) and done.exception.field == ""


@pytest.mark.parametrize("command", ["swebench", "bugsinpy"])
def test_help_shows_an_example(command: str) -> None:
    assert (
        f"factorial tasks import {command}" in RUNNER.invoke(import_app, [command, "--help"]).output
    )
