"""Bad manifests are refused in one sentence that names file, field and remedy."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.spec.errors import BadInput
from orchestrator.spec.freeze import differences
from orchestrator.spec.manifest import load, read_yaml
from orchestrator.spec.study import Study
from orchestrator.spec.task import TaskManifest

STUDY: dict[str, Any] = {
    "schema": "factorial/study@1",
    "name": "s",
    "title": "t",
    "tasks": {"manifest": "tasks.yaml"},
    "stack": "stack.yaml",
    "prompts": "prompts",
    "factors": [
        {"name": "evidence", "levels": ["current", "stale"]},
        {"name": "contract", "levels": ["OFF", "ON"]},
    ],
    "seeds": [1, 2, 3],
    "effects": [
        {"name": "contract", "kind": "contrast", "factor": "contract", "low": "OFF", "high": "ON"}
    ],
    "decision": {"effect": "contract"},
}

SHA = "0" * 64
TASK: dict[str, Any] = {
    "id": "a-1-2",
    "project": "a",
    "source": {
        "kind": "sdist",
        "name": "a",
        "buggy": {"version": "1", "sha256": SHA},
        "fixed": {"version": "2", "sha256": SHA},
    },
    "environment": {"python": "3.11", "requirements": "envs/a.txt"},
    "problem_statement": "Something is wrong with it.",
}


def write(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "file.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def refusal(tmp_path: Path, data: Any, model: Any = Study) -> BadInput:
    with pytest.raises(BadInput) as caught:
        load(write(tmp_path, data), model)
    assert "file.yaml" in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_complete_study_is_read(tmp_path: Path) -> None:
    study = load(write(tmp_path, STUDY), Study)
    assert len(study.cells()) == 4
    on = study.arm({"evidence": "stale", "contract": "ON"})
    assert (on.evidence, on.binding, on.admission, on.certification) == ("stale", True, True, True)
    off = study.arm({"evidence": "current", "contract": "OFF"})
    assert (off.binding, off.admission, off.certification) == (False, False, False)
    assert (study.budgets.actions, study.budgets.revisions, study.budgets.visible_tests) == (
        15,
        3,
        6,
    )


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"colour": 1}, "colour", "unknown key"),
        ({"seeds": "1"}, "seeds", "valid list"),
        ({"seeds": [True]}, "seeds.0", "integer"),
        ({"seeds": [1, 1]}, "seeds", "seeds repeat"),
        ({"budgets": {"actions": 3}}, "budgets", "cannot be satisfied"),
        ({"budgets": {"actions": "15"}}, "budgets.actions", "integer"),
        ({"budgets": {"wall_seconds": 10}}, "budgets", "cannot be satisfied"),
        ({"factors": [{"name": "evidence", "levels": ["fresh"]}]}, "factors.0", "unknown level"),
        ({"factors": [{"name": "mood", "levels": ["a"]}]}, "factors.0.name", "input should be"),
        ({"constants": {"contract": "ON"}}, "constants", "both a factor and a constant"),
        ({"constants": {"binding": "ON"}}, "factors", "cannot be combined"),
        ({"decision": {"effect": "depth"}}, "decision.effect", "no effect is named"),
        (
            {"families": [{"name": "f", "effects": ["x"], "endpoints": ["sound"]}]},
            "families.f",
            "no effect is named",
        ),
        ({"sandbox": {"backend": "chroot"}}, "sandbox.backend", "bwrap"),
    ],
)
def test_bad_studies(tmp_path: Path, change: dict[str, Any], field: str, words: str) -> None:
    error = refusal(tmp_path, {**STUDY, **change})
    assert error.field.startswith(field)
    assert words in error.problem.lower()


def test_missing_key_duplicate_key_and_broken_yaml(tmp_path: Path) -> None:
    without = {key: value for key, value in STUDY.items() if key != "seeds"}
    assert "missing" in refusal(tmp_path, without).problem
    assert "duplicate key 'name'" in refusal(tmp_path, "name: a\nname: b\n").problem
    assert "not valid YAML" in refusal(tmp_path, "a: [").problem
    assert "mapping" in refusal(tmp_path, "- a\n").problem
    with pytest.raises(BadInput, match="no such file"):
        load(tmp_path / "absent.yaml", Study)


def test_bad_tasks(tmp_path: Path) -> None:
    manifest = {"schema": "factorial/tasks@1", "tasks": [TASK, TASK]}
    assert "duplicate task id 'a-1-2'" in refusal(tmp_path, manifest, TaskManifest).problem
    short = {**TASK, "source": {**TASK["source"], "buggy": {"version": "1", "sha256": "abc"}}}
    bad = {"schema": "factorial/tasks@1", "tasks": [short]}
    assert refusal(tmp_path, bad, TaskManifest).field == "tasks.0.source.sdist.buggy.sha256"


def test_ablation_and_depth_designs_have_the_published_size() -> None:
    """24 tasks x 8 cells x 3 seeds = 576 (protocol §1)."""
    ablation = Study.model_validate(
        {
            **STUDY,
            "factors": [
                {"name": n, "levels": ["OFF", "ON"]}
                for n in ("binding", "admission", "certification")
            ],
            "constants": {"evidence": "stale"},
            "effects": [
                {"name": n, "kind": "contrast", "factor": n, "low": "OFF", "high": "ON"}
                for n in ("binding", "admission", "certification")
            ],
            "decision": {"effect": "binding"},
        }
    )
    assert 24 * len(ablation.cells()) * len(ablation.seeds) == 576
    assert {ablation.arm(cell).evidence for cell in ablation.cells()} == {"stale"}
    depth = Study.model_validate(
        {
            **STUDY,
            "factors": [
                {"name": "revision_cap", "levels": ["1", "3", "5", "8"]},
                {"name": "contract", "levels": ["OFF", "ON"]},
            ],
            "effects": [
                {
                    "name": "depth",
                    "kind": "linear",
                    "factor": "revision_cap",
                    "low": "1",
                    "high": "8",
                },
                {
                    "name": "contract",
                    "kind": "contrast",
                    "factor": "contract",
                    "low": "OFF",
                    "high": "ON",
                },
                {"name": "both", "kind": "interaction", "of": ["contract", "depth"]},
            ],
        }
    )
    assert 24 * len(depth.cells()) * len(depth.seeds) == 576
    assert sorted({depth.arm(cell).revision_cap for cell in depth.cells()}) == [1, 3, 5, 8]


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("? [a, b]\n: 1\n", "line 1, column 3", "plain word"),
        ("a: 1\nb: [1\nc: 2\n", "line 3, column 2", "expected ',' or ']'"),
        ("a: 2024-13-45\n", "", "month must be in"),
        ("a: !!int many\n", "", "invalid literal"),
        ("a: " + "[" * 5000, "", "recursion"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1", "another document"),
        ("\ta: 1\n", "line 1, column 1", "cannot start any token"),
        ("", "", "is empty"),
        ("- a\n", "", "expected a mapping"),
    ],
)
def test_text_that_is_no_manifest(tmp_path: Path, text: str, field: str, words: str) -> None:
    error = refusal(tmp_path, text)
    assert error.field == field
    assert words in error.problem
    assert "unicode string" not in str(error)


def test_words_that_yaml_takes_for_something_else_are_to_be_quoted(tmp_path: Path) -> None:
    factors = [{"name": "contract", "levels": [False, True]}]
    error = refusal(tmp_path, {**STUDY, "factors": factors})
    assert (error.field, error.remedy) == ("factors.0.levels.0", "Put the value in quotes.")
    for bare in ("3.1", "7", "2024-01-01", "off"):
        text = yaml.safe_dump({**STUDY, "name": "bare"}).replace("name: bare", f"name: {bare}")
        assert refusal(tmp_path, text).remedy == "Put the value in quotes."


def test_merge_keys_of_yaml_work(tmp_path: Path) -> None:
    path = write(tmp_path, "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_yaml(path)["b"] == {"x": 1, "y": 3}


def test_a_folder_and_bytes_are_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder"):
        read_yaml(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_yaml(tmp_path / "bytes.yaml")


def test_where_a_study_lies_is_no_difference() -> None:
    frozen = {"study_path": "a/s.yaml", "lock_id": "1", "code": "x"}
    assert differences(frozen, {**frozen, "study_path": "/b/s.yaml", "lock_id": "2"}) == ()
    assert differences(frozen, {**frozen, "code": "y"}) == ("code: frozen x, now y",)
