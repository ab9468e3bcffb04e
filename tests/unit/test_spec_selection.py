"""Which tasks a study takes, and what a task manifest as a whole has to satisfy."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.spec.errors import BadInput
from orchestrator.spec.freeze import select_tasks
from orchestrator.spec.manifest import validate
from orchestrator.spec.study import Study
from orchestrator.spec.task import Requires, TaskManifest
from orchestrator.tasks.compartments import BuiltTask
from orchestrator.tasks.required import require_functions
from tests.unit.test_spec_manifest import STUDY

SHA = "0" * 64
AVAILABLE = {
    "a-1": ("a", None),
    "a-2": ("a", None),
    "b-1": ("b", None),
    "pilot": ("c", "a pilot task"),
    "negative": ("c", "a standing negative case"),
}


def study(**tasks: Any) -> Study:
    return Study.model_validate({**STUDY, "tasks": {"manifest": "m.yaml", **tasks}})


def test_all_but_pilots_and_negative_cases_are_taken() -> None:
    assert select_tasks(study(), AVAILABLE, "s.yaml") == ("a-1", "a-2", "b-1")
    assert select_tasks(study(include=["b-1"]), AVAILABLE, "s.yaml") == ("b-1",)


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ({"include": ["other"]}, "unknown task id 'other'"),
        ({"include": ["pilot"]}, "pilot is a pilot task"),
        ({"include": ["negative"]}, "negative is a standing negative case"),
        ({"include": ["a-1", "a-1"]}, "a task id is repeated"),
        ({"max_per_project": 1}, "more than 1 tasks of project a"),
    ],
)
def test_what_a_study_cannot_take_is_named(tasks: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        select_tasks(study(**tasks), AVAILABLE, "s.yaml")


def test_three_tasks_of_a_project_are_the_most_unless_the_study_says_more() -> None:
    many = {f"a-{number}": ("a", None) for number in range(4)}
    with pytest.raises(BadInput, match="more than 3 tasks"):
        select_tasks(study(), many, "s.yaml")
    assert len(select_tasks(study(max_per_project=4), many, "s.yaml")) == 4


def test_a_manifest_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(BadInput, match="no task of the manifest is left"):
        select_tasks(study(), {"pilot": ("c", "a pilot task")}, "s.yaml")


# ------------------------------------------------------------------------------- the list


def entry(name: str, project: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "project": project,
        "source": {
            "kind": "sdist",
            "name": project,
            "buggy": {"version": "1", "sha256": SHA},
            "fixed": {"version": "2", "sha256": SHA},
        },
        "environment": {"python": "3.11", "requirements": "env.txt"},
        "problem_statement": "Something does not work as it should.",
        **more,
    }


def listed(requires: dict[str, int], *entries: dict[str, Any]) -> TaskManifest:
    data = {"schema": "factorial/tasks@1", "tasks": list(entries), "requires": requires}
    return validate(data, TaskManifest, "tasks.yaml")


def test_a_list_that_satisfies_its_requirements() -> None:
    requires = {"max_per_project": 1, "min_projects": 2, "min_tasks": 2}
    uncounted = [entry("p", "a", pilot=True), entry("n", "a", rejected_by="stable")]
    found = listed(requires, entry("x", "a"), entry("y", "b"), *uncounted)
    assert len(found.tasks) == 4


@pytest.mark.parametrize(
    ("requires", "problem"),
    [
        ({"max_per_project": 1}, r"requires\.max_per_project: a has 2 tasks, more than 1"),
        ({"min_projects": 3}, r"requires\.min_projects: 2 projects, fewer than 3"),
        ({"min_tasks": 4}, r"requires\.min_tasks: 3 tasks, fewer than 4"),
        ({"min_tasks": 0}, r"requires\.min_tasks"),
        ({"colour": 1}, r"requires\.colour: unknown key"),
    ],
)
def test_a_list_that_does_not_is_refused(requires: dict[str, int], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        listed(requires, entry("x", "a"), entry("y", "a"), entry("z", "b"))


@pytest.mark.parametrize(("functions", "holds"), [(1, False), (2, True), (3, True)])
def test_the_paper_sized_list_wants_two_fail_to_pass_functions(functions: int, holds: bool) -> None:
    built = BuiltTask(
        schema="factorial/built@2",
        task_id="x",
        project="a",
        input_digest=SHA,
        base_state_id=SHA,
        agent_commit="c",
        evaluator_commit="c",
        environment_id=SHA,
        suites={"gate": SHA},
        gate_overlap=functions == 1,
        fail_to_pass_functions=functions,
        gold_patch_sha256=SHA,
        statement_sha256=SHA,
        source_id=SHA,
        relation="consecutive releases",
        eligibility_sha256=SHA,
        certificate_sha256=SHA,
    )
    requires = Requires(min_fail_to_pass_functions=2)
    if holds:
        require_functions(built, requires, Path("tasks.yaml"))
        return
    with pytest.raises(BadInput, match=r"tasks\.x: has 1 fail-to-pass function, .* requires 2"):
        require_functions(built, requires, Path("tasks.yaml"))
