"""From two source archives to three compartments, through real suite runs in the real sandbox."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.evaluator.suites import load_bundle
from orchestrator.repo.files import apply_delta, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import SuiteName
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.build import build_task, built_facts, read_sources, sandbox_bench
from orchestrator.tasks.compartments import (
    Places,
    environments,
    read_eligibility,
    read_facts,
    read_measured,
    read_rejected,
    workroom,
)
from orchestrator.tasks.eligibility import RULES, Ineligible, Sheet, Verdict
from orchestrator.tasks.sources import Expected
from orchestrator.tasks.sources.expected import expected_bytes
from tests.unit import tasks_support as support
from tests.unit.git_support import Repo, pinned
from tests.unit.tasks_support import BUG, FILE, KEPT, Built, build, never


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


# ------------------------------------------------------------------------------- suites


def test_suites_are_what_the_runs_show(built: Built) -> None:
    suites = load_bundle(built.out, support.TASK).suites
    assert suites[SuiteName.FAIL_TO_PASS].ids == BUG
    assert suites[SuiteName.PASS_TO_PASS].ids == KEPT
    assert {*suites[SuiteName.FULL].ids} == {
        *BUG,
        *KEPT,
        f"{FILE}::test_offset_is_new",
        "tests/test_extra.py::test_twice",
    }


def test_what_was_dropped_is_on_record(built: Built) -> None:
    facts = read_facts(built.out, support.TASK)
    assert facts["dropped"] == {
        f"{FILE}::test_hash_seed": "stable",
        f"{FILE}::test_unstable_id": "stable",
    }
    assert facts["hidden_api"] == [f"{FILE}::test_offset_is_new"]
    assert facts["uncollected"] == {"base": ["tests/test_extra.py"], "gold": []}
    assert facts["gold_files"] == ["src/tally/core.py", "src/tally/extra.py"]
    changed = facts["changed_paths"]
    assert isinstance(changed, dict)
    assert {path: changed[path] for path in changed if path.startswith("src/tally/")} == {
        "src/tally/__init__.py": "metadata",
        "src/tally/core.py": "gold",
        "src/tally/extra.py": "gold",
        "src/tally/layout.py": "format",
        "src/tally/words.txt": "package_data",
    }


# ------------------------------------------------------------------------------- compartments


def test_the_agent_gets_the_buggy_tree_and_nothing_of_the_tests(built: Built) -> None:
    kept = ("README.md", "docs/conf.py", "setup.cfg", "setup.py")
    sources = [path for path in support.BUGGY if path.startswith("src/tally/")]
    assert {path: data.decode() for path, (_, data) in built.base.items()} == {
        path: support.BUGGY[path] for path in (*kept, *sources)
    }
    record = json.loads((built.places.agent / "task.json").read_bytes())
    assert record["base_state_id"] == tree_of(built.base).state_id == built.task.base_state_id
    assert record["import_root"] == "src"
    assert (built.places.agent / "statement.md").read_text().startswith("clamp ignores")


def test_base_and_gold_patch_give_the_fixed_production_files(built: Built) -> None:
    patch = built.places.gold_patch.read_bytes()
    fixed = apply_delta(built.base, apply_patch(built.base, patch))
    gold = ("src/tally/core.py", "src/tally/extra.py")
    assert {path: data for path, (_, data) in fixed.items()} == {
        **{path: data for path, (_, data) in built.base.items()},
        **{path: support.FIXED[path].encode() for path in gold},
    }


def test_the_seal_has_the_fixed_tests_and_the_buggy_metadata(built: Built) -> None:
    sealed = load_bundle(built.out, support.TASK).sealed
    tests = [path for path in support.FIXED if path.startswith("tests/")]
    metadata = "src/tally-1.0.dist-info/METADATA"
    points = "src/tally-1.0.dist-info/entry_points.txt"
    assert {*sealed} == {*tests, "setup.cfg", metadata, points}
    assert sealed[points][1] == b"[tally.units]\nMetre = tally.core:clamp\n"
    assert sealed["setup.cfg"][1].decode() == support.FIXED["setup.cfg"]
    assert sealed[metadata][1].decode() == support.BUGGY["PKG-INFO"]


def test_sealed_compartments_are_closed_to_other_users(built: Built) -> None:
    for path in (built.places.evaluator, built.places.gold):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_same_input_gives_the_same_bytes_elsewhere(built: Built, home: Path) -> None:
    again = build(home / "elsewhere" / "deep", built.manifest)
    assert again.task == built.task
    for part in ("agent", "evaluator", "gold", "built"):
        assert _bytes(again.out / part) == _bytes(built.out / part)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "variants" not in str(path.relative_to(folder))
    }


# ------------------------------------------------------------------------------- building again


def test_an_unchanged_task_is_not_built_again(built: Built) -> None:
    again = build_task(
        support.only_task(built.manifest),
        built.manifest,
        built.out,
        make_environment=support.ready_environment,
        open_bench=never,
    )
    assert again == built.task


@pytest.mark.parametrize("lost", ["built", "evaluator"])
def test_an_interrupted_task_is_built_anew(copy: Built, lost: str) -> None:
    victim = {"built": copy.places.built, "evaluator": copy.places.evaluator}[lost]
    victim.unlink() if lost == "built" else shutil.rmtree(victim)
    with pytest.raises(AssertionError, match="built again"):
        build_task(
            support.only_task(copy.manifest),
            copy.manifest,
            copy.out,
            make_environment=support.ready_environment,
            open_bench=never,
        )


def test_what_a_killed_builder_left_is_removed_and_a_living_one_keeps_its_own(copy: Built) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    room = workroom(copy.out)
    left, kept = (room / f"factorial-{pid}-building-x" for pid in (dead.pid, os.getpid()))
    for folder in (left, kept):
        folder.mkdir()
    with sandbox_bench(copy.out, environments(copy.out) / support.ENVIRONMENT_ID) as bench:
        scratch = bench.scratch
        assert (left.exists(), kept.exists(), scratch.exists()) == (False, True, True)
    assert not scratch.exists()


def test_facts_of_a_task_that_is_not_built_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not built"):
        built_facts(tmp_path, support.TASK)


def test_facts_hold_as_long_as_nothing_is_touched(copy: Built) -> None:
    assert built_facts(copy.out, support.TASK) == copy.task


@pytest.mark.parametrize("part", ["gold patch", "statement", "suite gate", "agent commit"])
def test_a_changed_part_is_named(copy: Built, part: str) -> None:
    places = copy.places
    if part == "gold patch":
        places.gold_patch.write_bytes(places.gold_patch.read_bytes() + b"\n")
    elif part == "statement":
        (places.agent / "statement.md").write_text("Do something else.\n")
    elif part == "suite gate":
        path = places.evaluator / "bundle.json"
        record = json.loads(path.read_bytes())
        record["suites"]["gate"] = record["suites"]["gate"][1:]
        path.write_text(json.dumps(record))
    else:
        repository = places.agent / "repo.git"
        shutil.rmtree(repository)
        Mirror.create(repository, {"main": {"other.py": (0o100644, b"")}}, "Import")
    with pytest.raises(IntegrityError, match=part):
        built_facts(copy.out, support.TASK)


# ------------------------------------------------------------------------------- records


def test_every_rule_is_on_record_without_times(built: Built) -> None:
    record = read_eligibility(built.out, support.TASK)
    figures = {ruling.rule: ruling.figure for ruling in record.rulings}
    assert list(figures) == list(RULES)
    assert {r.rule: r.verdict for r in record.rulings if r.verdict is not Verdict.PASS} == {
        "hidden-api": Verdict.FLAG
    }
    assert figures["gold-files"] == "2 files of 5"
    assert figures["stable"] == "3 of 3 repeats alike, 2 functions dropped"
    assert (record.relation, record.source_id) == (built.task.relation, built.task.source_id)
    measured = read_measured(built.out, support.TASK)
    assert measured is not None and measured.suite_seconds is not None
    assert measured.suite_seconds > 0 and measured.residue == ()


def test_a_touched_record_is_named(copy: Built) -> None:
    text = copy.places.eligibility.read_text()
    copy.places.eligibility.write_text(text.replace("2 files of 5", "1 file of 5"))
    with pytest.raises(IntegrityError, match="eligibility record"):
        built_facts(copy.out, support.TASK)


# ------------------------------------------------------------------------------- from git


def in_git(home: Path, name: str, buggy: str, fixed: str, listed: Expected) -> Path:
    """A manifest whose task is a pair of commits, with ids that the source lists."""
    path = support.manifest(home / name, task_id=name)
    manifest = yaml.safe_load(path.read_text())
    expected = pinned(path.parent / "expected.json", expected_bytes(listed))
    source = {"kind": "git", "name": "tally", "url": str(home / "history"), "version": "1.0"}
    manifest["tasks"][0]["source"] = {
        **source,
        "buggy": buggy,
        "fixed": fixed,
        "expected": expected,
    }
    path.write_text(yaml.safe_dump(manifest))
    return path


def test_a_pair_of_commits_becomes_the_same_task_and_a_longer_way_is_refused(
    built: Built, home: Path
) -> None:
    repo = Repo.create(home / "history")
    buggy = repo.commit(support.BUGGY)
    fixed = repo.commit(support.FIXED, buggy)
    later = repo.commit({**support.FIXED, "README.md": "later"}, fixed)
    listed = Expected((f"{FILE}::test_clamp_high", f"{FILE}::test_gone"), (f"{FILE}::test_scale",))
    task = build(home / "out", in_git(home, "commits", buggy, fixed, listed)).task
    assert (task.relation, task.base_state_id) == ("parent and child", built.task.base_state_id)
    assert task.agent_commit == built.task.agent_commit
    rulings = {r.rule: r for r in read_eligibility(home / "out", "commits").rulings}
    assert rulings["listed-oracles"].verdict is Verdict.FLAG
    assert rulings["listed-oracles"].figure == (
        "1 of 2 fail-to-pass, 1 of 1 pass-to-pass as listed"
    )
    with pytest.raises(Ineligible) as caught:
        build(home / "out", in_git(home, "longer", buggy, later, listed))
    assert verdicts(caught.value)["direct-parent"] is Verdict.FAIL
    record = read_rejected(home / "out", "longer")
    assert record is not None and f"the parent of {later} is {fixed}" in record.detail


# ------------------------------------------------------------------------------- refusals


def refusal(home: Path, name: str, fixed: support.Texts) -> Ineligible:
    manifest = support.manifest(home / name, fixed=fixed, task_id=name)
    with pytest.raises(Ineligible) as caught:
        build(home / "out", manifest)
    assert not Places(home / "out", name).built.exists()
    record = read_rejected(home / "out", name)
    assert record is not None and record.rulings == caught.value.rulings
    assert (record.rule, record.row["id"]) == (caught.value.rule, name)
    return caught.value


def verdicts(refused: Ineligible) -> dict[str, Verdict]:
    return {ruling.rule: ruling.verdict for ruling in refused.rulings}


UNTESTED = {path: text for path, text in support.FIXED.items() if not path.startswith("tests/")}
STAMPED = {
    **support.BUGGY,
    **{path: support.FIXED[path] for path in ("PKG-INFO", "src/tally/__init__.py")},
}
UNTOLD = {
    **support.BUGGY,
    "PKG-INFO": support.FIXED["PKG-INFO"],
    "src/tally/core.py": support.CORE_FIXED,
}


def test_a_release_without_tests_is_refused(built: Built, home: Path) -> None:
    refused = verdicts(refusal(home, "untested", UNTESTED))
    assert (refused["gold-lines"], refused["tests-present"]) == (Verdict.PASS, Verdict.FAIL)
    assert refused["stable"] is Verdict.NOT_REACHED


def test_a_release_that_only_stamps_a_version_is_refused(built: Built, home: Path) -> None:
    assert refusal(home, "stamp", STAMPED).rule == "gold-present"


def test_a_fix_that_no_test_shows_is_refused(built: Built, home: Path) -> None:
    assert refusal(home, "untold", UNTOLD).rule == "fail-to-pass"


def test_a_statement_that_shows_the_fix_is_refused(home: Path) -> None:
    manifest = support.manifest(home / "telling", task_id="telling")
    text = manifest.read_text().replace("clamp ignores", f"Write `{support.CLAMP_FIXED}`, clamp")
    manifest.write_text(text)
    with pytest.raises(Ineligible) as caught:
        build(home / "out", manifest)
    assert caught.value.rule == "statement"


def test_a_refused_candidate_is_not_judged_again(home: Path) -> None:
    manifest = support.manifest(home / "again", fixed=UNTOLD, task_id="again")
    said: list[str] = []
    for opened in (support.REPLAY.open, never):
        with pytest.raises(Ineligible) as caught:
            build_task(
                support.only_task(manifest),
                manifest,
                home / "out",
                said.append,
                make_environment=support.ready_environment,
                open_bench=opened,
            )
        assert len(caught.value.rulings) == len(RULES)
    assert said[-1].startswith("again: refused by rule fail-to-pass")


@pytest.mark.parametrize(
    ("name", "fixed", "rule", "problem"),
    [
        ("as-told", UNTESTED, "tests-present", None),
        ("otherwise", UNTESTED, "gold-lines", "but rule tests-present refuses it"),
        ("eligible", support.FIXED, "gold-lines", "but every rule accepts it"),
        ("unknown", UNTESTED, "no-such-rule", "but there is no such rule"),
    ],
)
def test_a_standing_negative_has_to_be_refused_by_its_rule(
    built: Built, home: Path, name: str, fixed: support.Texts, rule: str, problem: str | None
) -> None:
    manifest = support.manifest(home / name, fixed=fixed, task_id=name)
    manifest.write_text(manifest.read_text() + f"    rejected_by: {rule}\n")
    with pytest.raises(Ineligible if problem is None else BadInput, match=problem):
        build(home / "out", manifest)
    assert not Places(home / "out", name).built.exists()


def test_a_hash_of_another_version_is_refused(home: Path) -> None:
    path = support.manifest(home / "m")
    path.write_text(path.read_text().replace('version: "1.1"', 'version: "1.2"'))
    task = load(path, TaskManifest).tasks[0]
    with pytest.raises(BadInput, match=r"fixed\.sha256: is the hash of version 1\.1, not 1\.2"):
        read_sources(task, path, Sheet(task.id))


def test_the_project_must_not_be_in_its_environment(built: Built, tmp_path: Path) -> None:
    manifest = support.manifest(tmp_path / "manifest", task_id="within-reach")
    out = tmp_path / "out"
    environment = environments(out) / support.ENVIRONMENT_ID
    environment.parent.mkdir(parents=True)
    shutil.copytree(environments(built.out) / support.ENVIRONMENT_ID, environment, symlinks=True)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "tally.py").write_text("fixed = True\n")
    with pytest.raises(BadInput, match="module tally"):
        build(out, manifest)
