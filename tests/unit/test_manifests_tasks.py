"""What the shipped task manifests promise, as far as it can be told without building anything."""

import re
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.manifest import load
from orchestrator.spec.task import SdistSource, Task, TaskManifest
from orchestrator.tasks.eligibility import RULES
from orchestrator.tasks.environment import check_requirements, requirement_names

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "manifests" / "tasks"
CATALOGUE = (REPOSITORY / "docs" / "tasks-catalogue.md").read_text(encoding="utf-8")
MANIFESTS = {path.stem: load(path, TaskManifest) for path in sorted(FOLDER.glob("*.yaml"))}
ALL = {task.id: task for task in MANIFESTS["all"].tasks}
PAPER = MANIFESTS["paper24"].tasks
PILOTS = [task for task in ALL.values() if task.pilot]
REJECTED = MANIFESTS["rejected"].tasks
EVERY = [task for manifest in MANIFESTS.values() for task in manifest.tasks]

NO_RELEASES_DO = {
    "direct-parent": "releases have no parents; commits have",
    "stable": "drops single functions; what no repeat has in common is refused as fail-to-pass",
    "gold-python-alone": "likewise: drops functions that need other files of the fixed end",
    "shuffled": "drops single functions; a whole list that depends on the order is a made one",
    "alone": "likewise: drops functions until none is left",
    "no-ignored-oracle": "likewise: drops functions that are skipped when they are asked for",
    "base-fails": "likewise: drops functions that pass on base after all",
    "gold-passes": "likewise: drops functions that fail on gold after all",
    "listed-oracles": "releases list no tests; rows of a benchmark do",
    "offline": "looks at the sandbox, not at the candidate",
    "residue": "flags; a suite that leaves files is no reason to refuse a task",
}
"""Rules that no pair of releases in the manifest can break, and why; other tests break them."""


TOLD = "-told"
"""Ends the id of the candidate whose statement quotes the fix of a task."""


def order(task: Task) -> str:
    return sha256_hex(task.id.encode())


def described(task: Task) -> dict[str, object]:
    return task.model_dump(exclude={"pilot"})


# ------------------------------------------------------------------------------- the lists


def test_the_lists_agree_about_the_tasks_that_they_share() -> None:
    for task in (*PAPER, *MANIFESTS["quickstart"].tasks):
        assert described(task) == described(ALL[task.id])


def test_the_paper_sized_list_has_the_papers_size() -> None:
    projects = Counter(task.project for task in PAPER)
    assert (len(PAPER), len(projects) >= 9, max(projects.values()) <= 3) == (24, True, True)
    assert not any(task.pilot or task.rejected_by for task in PAPER)
    requires = MANIFESTS["paper24"].requires
    assert (requires.min_tasks, requires.max_per_project, requires.min_projects) == (24, 3, 9)
    assert requires.min_fail_to_pass_functions == 2


def test_the_choice_follows_the_order_of_the_hashes() -> None:
    assert list(PAPER) == sorted(PAPER, key=order)
    full = {project for project, number in Counter(t.project for t in PAPER).items() if number == 3}
    assert PILOTS
    for pilot in PILOTS:
        assert order(pilot) > order(PAPER[-1]) or pilot.project in full


def test_no_candidate_is_both_a_task_and_rejected() -> None:
    sources = {task.source: task.id for task in ALL.values()}
    again = [
        task for task in REJECTED if task.source in sources and task.rejected_by != "statement"
    ]
    assert again == []
    assert not {task.id for task in REJECTED} & set(ALL)


def test_every_rule_that_releases_can_break_rejects_a_candidate() -> None:
    rules = {task.rejected_by for task in REJECTED}
    assert len(REJECTED) >= 12
    assert None not in rules
    assert rules | set(NO_RELEASES_DO) == set(RULES)
    assert not rules & set(NO_RELEASES_DO)


def test_the_catalogue_has_a_row_for_every_candidate() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", CATALOGUE, re.M)
    named = Counter(name for name, _ in rows)
    assert named == Counter([*ALL, *(task.id for task in REJECTED)])
    rules = {name: cells.split(" | ")[0] for name, cells in rows}
    for task in REJECTED:
        assert rules[task.id] == task.rejected_by


def test_the_catalogue_places_a_task_by_its_number_of_fail_to_pass_functions() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| \d+ \| \d+ \| (\d+) \| .* \| (\w+) \|$", CATALOGUE, re.M)
    assert {name for name, _, _ in rows} == set(ALL)
    chosen = {task.id for task in PAPER}
    for name, functions, place in rows:
        listed = "paper24" if name in chosen else "pilot"
        assert place == (listed if int(functions) >= 2 else "gate_overlap")
        assert (place == "paper24", place == "pilot") == (name in chosen, ALL[name].pilot)


# ------------------------------------------------------------------------------- one entry


@pytest.mark.parametrize("task", EVERY, ids=lambda task: task.id)
def test_an_entry_is_a_pair_of_different_releases_named_after_them(task: Task) -> None:
    source = task.source
    assert isinstance(source, SdistSource)
    assert source.buggy.sha256 != source.fixed.sha256
    name = source.name.replace("-", "_")
    assert task.id.removesuffix(TOLD) == f"{name}-{source.buggy.version}-{source.fixed.version}"


GIVEAWAYS = re.compile(
    r"(?:test_\w+\(|tests?/|\.py\b|^[+-]{3} |^@@|\bdiff\b|\bcommit\b|\bupstream\b|\bpatch\b)",
    re.MULTILINE,
)


@pytest.mark.parametrize("task", list(ALL.values()), ids=lambda task: task.id)
def test_a_statement_tells_of_behaviour_and_not_of_the_fix(task: Task) -> None:
    statement = task.problem_statement
    assert 100 <= len(statement) <= 1500
    assert GIVEAWAYS.search(statement) is None
    assert isinstance(task.source, SdistSource)
    assert task.source.fixed.version not in statement


def test_no_two_statements_are_alike() -> None:
    assert len({task.problem_statement for task in ALL.values()}) == len(ALL)


# ------------------------------------------------------------------------------- environments


@pytest.mark.parametrize("path", sorted(FOLDER.glob("envs/*.txt")), ids=lambda path: path.stem)
def test_an_environment_is_locked_and_free_of_the_projects_that_it_serves(path: Path) -> None:
    check_requirements(path)
    served = {
        task.source.name
        for task in EVERY
        if isinstance(task.source, SdistSource)
        and task.environment.requirements == f"envs/{path.name}"
    }
    assert served, "an environment that no task uses"
    assert not served & set(requirement_names(path))
    assert {"pytest==7.4.4", "pluggy==1.5.0"} <= set(
        re.findall(r"^\S+==\S+", path.read_text(), re.M)
    )
