"""Bundles: what is refused on loading, what a suite's identity covers, how suites are laid down."""

import dataclasses
import json
from pathlib import Path

import pytest

from orchestrator.evaluator.suites import (
    BundleFile,
    bundle_bytes,
    load_bundle,
    read_bundle,
    sources_id,
)
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.ports import SuiteName
from tests.unit import evaluator_support as support

ZERO = "0" * 64


def test_a_bundle_comes_back_as_it_was_written(tmp_path: Path) -> None:
    bundle = load_bundle(support.build_tasks(tmp_path), support.TASK)
    assert bundle.base == support.BASE
    assert bundle.sealed == support.SEALED
    assert bundle.suites[SuiteName.FULL].ids == tuple(sorted(support.PASSING))
    assert bundle.ground.import_path == "/workspace/repo/src"
    path = tmp_path / "evaluator" / support.TASK / "bundle.json"
    assert bundle_bytes(read_bundle(path)) == path.read_bytes()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"base_state_id": ZERO}, "base_state_id"),
        ({"overlay_sha256": ZERO}, "overlay_sha256"),
        ({"task_id": "other"}, "task_id"),
        ({"environment_id": "absent"}, "environment absent"),
        ({"python": "3.1"}, "not of Python 3.1"),
        ({"suites": {"full": ["a"]}}, "suite diagnostic is missing"),
        ({"suites": {name: ["a", "a"] for name in SuiteName}}, "lists an id twice"),
    ],
)
def test_a_bundle_that_does_not_match_its_digests_is_refused(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    tasks = support.build_tasks(tmp_path, **changes)
    with pytest.raises(IntegrityError, match=named):
        load_bundle(tasks, support.TASK)


def test_a_changed_sealed_file_is_refused(tmp_path: Path) -> None:
    tasks = support.build_tasks(tmp_path)
    mirror = tasks / "evaluator" / support.TASK / "repo.git" / "refs" / "heads"
    (mirror / "sealed").write_bytes((mirror / "base").read_bytes())
    with pytest.raises(IntegrityError, match="overlay_sha256"):
        load_bundle(tasks, support.TASK)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"import_root": "../elsewhere"}, "import_root"),
        ({"test_paths": ["/etc"]}, "test_paths.0"),
        ({"suites": {"full": []}}, "suites.full"),
        ({"suites": {"half": ["a"]}}, "suites.half"),
        ({"surprise": 1}, "surprise"),
        ({"schema": "factorial/bundle@9"}, "schema"),
    ],
)
def test_a_mistake_in_the_file_is_named(
    tmp_path: Path, changes: dict[str, object], field: str
) -> None:
    path = tmp_path / "bundle.json"
    path.write_text(json.dumps({**support.bundle_fields(), **changes}))
    with pytest.raises(BadInput) as caught:
        read_bundle(path)
    assert caught.value.file == str(path)
    assert caught.value.field.startswith(field)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text("{")
    with pytest.raises(BadInput, match="not valid JSON"):
        read_bundle(tmp_path / "bundle.json")


def test_a_suite_is_identified_by_everything_that_decides_its_verdict(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {},
        {"import_root": "."},
        {"test_paths": ["tests", "more"]},
        {"removed": []},
        {"suites": {name: [support.BUG[0]] for name in SuiteName}},
    ]
    found = [_suite_id(tmp_path / str(number), change) for number, change in enumerate(changes)]
    assert len(set(found)) == len(changes)
    assert _suite_id(tmp_path / "again", {}) == found[0]


def _suite_id(directory: Path, changes: dict[str, object]) -> str:
    bundle = load_bundle(support.build_tasks(directory, **changes), support.TASK)
    return bundle.suites[SuiteName.GATE].suite_id


def test_order_of_ids_in_the_file_does_not_matter_but_the_name_does(tmp_path: Path) -> None:
    forward = {name: list(support.BUG) for name in SuiteName}
    backward = {name: list(reversed(support.BUG)) for name in SuiteName}
    assert _suite_id(tmp_path / "a", {"suites": forward}) == _suite_id(
        tmp_path / "b", {"suites": backward}
    )
    bundle = load_bundle(tmp_path / "a", support.TASK)
    assert len({suite.suite_id for suite in bundle.suites.values()}) == len(SuiteName)


def test_the_runner_is_identified_by_its_sources(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (tmp_path / "runner.py").write_text("1")
    (plugin / "report.py").write_text("1")
    before = sources_id(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    assert sources_id(tmp_path) == before
    (plugin / "report.py").write_text("2")
    assert sources_id(tmp_path) != before


def test_suites_are_laid_down_last(tmp_path: Path) -> None:
    bundle = load_bundle(support.build_tasks(tmp_path), support.TASK)
    candidate = support.changed(
        {
            "src/calc/core.py": support.FIXED,
            "src/calc/extra.py": "",
            "tests/test_core.py": "def test_add(): pass",
            "tests/test_more.py": "",
            "conftest.py": "",
            "src/calc/conftest.py": "",
            "pyproject.toml": "",
        }
    )
    laid = bundle.laid_down(candidate)
    assert {path: laid[path] for path in support.SEALED} == support.SEALED
    assert laid["src/calc/core.py"][1] == support.FIXED.encode()
    assert "src/calc/extra.py" in laid
    gone = {"tests/test_more.py", "conftest.py", "src/calc/conftest.py", "setup.cfg"}
    assert not gone & laid.keys()


@pytest.mark.parametrize("obstacle", ["tests", "pyproject.toml/x"])
def test_nothing_stands_in_the_way_of_a_sealed_path(tmp_path: Path, obstacle: str) -> None:
    bundle = load_bundle(support.build_tasks(tmp_path), support.TASK)
    laid = bundle.laid_down({**support.BASE, obstacle: (0o120000, b"/etc")})
    assert obstacle not in laid
    assert support.SEALED.items() <= laid.items()


@pytest.mark.parametrize(
    "path", ["tests/conftest/__init__.py", "check_a/__init__.py", "check_a.abi3.so"]
)
def test_nothing_new_is_imported_in_the_place_of_a_sealed_module(tmp_path: Path, path: str) -> None:
    bundle = load_bundle(support.build_tasks(tmp_path), support.TASK)
    sealed = {**bundle.sealed, **support.text_files({"check_a.py": ""})}
    candidate = support.changed({path: "", "check_b/__init__.py": "", "check_a.md": ""})
    laid = dataclasses.replace(bundle, sealed=sealed).laid_down(candidate)
    assert path not in laid
    assert {"check_b/__init__.py", "check_a.md"} <= laid.keys()
    own = dataclasses.replace(bundle, sealed=sealed, base=candidate).laid_down(candidate)
    assert (path in own) == (not path.startswith("tests/"))


@pytest.mark.parametrize(
    ("path", "shadows"),
    [
        ("faulthandler.py", True),
        ("src/_pytest/runner.py", True),
        ("src/json.abi3.so", True),
        ("plugged/__init__.py", True),
        ("src/plugged.py", True),
        ("tests.py", True),
        ("src/calc/json.py", False),
        ("src/fresh/__init__.py", False),
        ("json.md", False),
    ],
)
def test_a_new_module_of_a_taken_name_shadows_it(tmp_path: Path, path: str, shadows: bool) -> None:
    bundle = load_bundle(support.build_tasks(tmp_path), support.TASK)
    site = bundle.ground.environment / "lib" / f"python{bundle.ground.python}" / "site-packages"
    (site / "_pytest").mkdir(parents=True)
    (site / "plugged.py").touch()
    assert bundle.shadows(path) is shadows
    own = dataclasses.replace(bundle, base=support.changed({path: ""}))
    assert not own.shadows(path)


def test_the_file_model_refuses_what_it_does_not_know() -> None:
    assert BundleFile.model_validate(support.bundle_fields()).task_id == support.TASK
