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

from orchestrator.evaluator.suites import load_bundle
from orchestrator.repo.files import apply_delta, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import SuiteName
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.build import build_task, built_facts, read_sources, sandbox_bench
from orchestrator.tasks.compartments import Places, environments, read_facts
from orchestrator.tasks.eligibility import Ineligible
from tests.unit import tasks_support as support
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
    assert facts["unstable"] == [f"{FILE}::test_hash_seed", f"{FILE}::test_unstable_id"]
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
    left, kept = (copy.out / f"factorial-{pid}-building-x" for pid in (dead.pid, os.getpid()))
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


# ------------------------------------------------------------------------------- refusals


def refusal(home: Path, name: str, fixed: support.Texts) -> Ineligible:
    manifest = support.manifest(home / name, fixed=fixed, task_id=name)
    with pytest.raises(Ineligible) as caught:
        build(home / "out", manifest)
    assert not Places(home / "out", name).built.exists()
    return caught.value


def test_a_release_without_tests_is_refused(built: Built, home: Path) -> None:
    texts = {path: text for path, text in support.FIXED.items() if not path.startswith("tests/")}
    assert refusal(home, "untested", texts).rule == "tests-present"


def test_a_release_that_only_stamps_a_version_is_refused(built: Built, home: Path) -> None:
    stamped = ("PKG-INFO", "src/tally/__init__.py")
    texts = {**support.BUGGY, **{path: support.FIXED[path] for path in stamped}}
    assert refusal(home, "stamp", texts).rule == "gold-present"


def test_a_fix_that_no_test_shows_is_refused(built: Built, home: Path) -> None:
    texts = {
        **support.BUGGY,
        "PKG-INFO": support.FIXED["PKG-INFO"],
        "src/tally/core.py": support.CORE_FIXED,
    }
    assert refusal(home, "untold", texts).rule == "fail-to-pass"


def test_a_hash_of_another_version_is_refused(home: Path) -> None:
    path = support.manifest(home / "m")
    path.write_text(path.read_text().replace('version: "1.1"', 'version: "1.2"'))
    task = load(path, TaskManifest).tasks[0]
    with pytest.raises(BadInput, match=r"fixed\.sha256: is the hash of version 1\.1, not 1\.2"):
        read_sources(task, path)


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
