"""The audit is silent about a sound task and finds every leak that is planted."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ObjectType

from orchestrator.spec.ports import SuiteName
from orchestrator.tasks.audit import audit_signatures, audit_task
from orchestrator.tasks.build import sandbox_bench
from orchestrator.tasks.compartments import environments
from tests.unit import tasks_support as support
from tests.unit.tasks_support import BUG, FILE, Built, build


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with support.own_cache(tmp_path_factory.mktemp("tasks")) as home:
        yield home


@pytest.fixture(scope="module")
def built(home: Path) -> Built:
    return build(home / "out", support.manifest(home / "manifest"))


@pytest.fixture
def copy(built: Built, tmp_path: Path) -> Built:
    return built.copy(tmp_path / "copy")


def test_a_fresh_task_has_no_finding(built: Built) -> None:
    assert audit_task(built.out, support.TASK) == []


def plant_object(copy: Built, which: str) -> None:
    repository, data = "agent", b""
    if which in ("gold", "gold in evaluator"):
        data = support.CORE_FIXED.encode()
        repository = "evaluator" if which == "gold in evaluator" else "agent"
    elif which == "test":
        data = support.TESTS.encode()
    elif which == "stray":
        data = b"nothing special"
    home = copy.out / repository / support.TASK / "repo.git"
    pygit2.Odb(str(home / "objects")).write(ObjectType.BLOB, data)


LEAKS = {
    "stray": {"one-commit"},
    "gold": {"one-commit", "no-gold-line"},
    "test": {"one-commit", "no-sealed-test"},
    "gold in evaluator": {"no-gold-object"},
}


@pytest.mark.parametrize("which", LEAKS)
def test_a_planted_object_is_found(copy: Built, which: str) -> None:
    plant_object(copy, which)
    rules = {finding.rule for finding in audit_task(copy.out, support.TASK)}
    assert rules - {"no-gold-line"} == LEAKS[which] - {"no-gold-line"}
    assert ("no-gold-line" in rules) == (which == "gold")


def test_a_second_commit_and_reference_are_found(copy: Built) -> None:
    repository = pygit2.Repository(str(copy.places.agent / "repo.git"))
    head = repository.references["refs/heads/main"].target
    who = pygit2.Signature("a", "a@b", 1, 0)
    tree = repository[head].tree.id
    repository.create_commit("refs/heads/later", who, who, "later", tree, [head])
    found = {finding.what for finding in audit_task(copy.out, support.TASK)}
    assert "reference refs/heads/later" in found
    assert any(what.endswith("has a history") for what in found)


def test_gold_beside_the_mirror_is_found(copy: Built) -> None:
    (copy.places.agent / "notes.txt").write_text(f"Hint:\n    {support.CLAMP_FIXED}\n")
    (finding,) = audit_task(copy.out, support.TASK)
    assert (finding.rule, finding.where) == ("no-gold-line", "agent compartment")


def test_the_fixed_release_in_the_environment_is_found(built: Built, copy: Built) -> None:
    environments(copy.out).unlink()
    environment = environments(copy.out) / support.ENVIRONMENT_ID
    environment.parent.mkdir()
    shutil.copytree(environments(built.out) / support.ENVIRONMENT_ID, environment, symlinks=True)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "tally").mkdir()
    (site / "tally" / "__init__.py").write_text("")
    (site / "tally" / "core.py").write_text(support.CORE_FIXED)
    (site / "tally-1.1.dist-info").mkdir()
    found = audit_task(copy.out, support.TASK)
    assert {(finding.rule, finding.where) for finding in found} == {
        ("no-gold-line", "environment"),
        ("project-not-installed", "environment"),
    }
    assert len(found) == 3


def test_signatures_of_a_suite_that_is_not_frozen_well_disagree(copy: Built) -> None:
    path = copy.places.evaluator / "bundle.json"
    record = json.loads(path.read_bytes())
    record["suites"]["gate"] += [f"{FILE}::test_skipped"]
    path.write_text(json.dumps(record))
    with sandbox_bench(copy.out, environments(copy.out) / support.ENVIRONMENT_ID) as bench:
        signatures, findings = audit_signatures(copy.out, support.TASK, bench, [SuiteName.GATE])
    assert [(finding.rule, finding.where) for finding in findings] == [
        ("base-signature", "suite gate on base"),
        ("gold-passes", "suite gate on gold"),
    ]
    assert all(f"{FILE}::test_skipped is skipped" == finding.what for finding in findings)
    base, gold = (signature.outcomes for signature in signatures)
    assert {i for i in base if base[i] != gold[i]} == {*BUG} & {*base}


def test_a_common_line_in_a_foreign_package_is_no_leak(built: Built, copy: Built) -> None:
    environments(copy.out).unlink()
    environment = environments(copy.out) / support.ENVIRONMENT_ID
    environment.parent.mkdir()
    shutil.copytree(environments(built.out) / support.ENVIRONMENT_ID, environment, symlinks=True)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "foreign.py").write_text(f"def f(low, high, value):\n    {support.CLAMP_FIXED}\n")
    assert audit_task(copy.out, support.TASK) == []
    (site / "foreign.py").write_text(support.CORE_FIXED)
    assert [finding.where for finding in audit_task(copy.out, support.TASK)] == ["environment"]
