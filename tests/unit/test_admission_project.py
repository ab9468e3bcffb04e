"""The manifest of a project: what it accepts, refuses in one sentence, and identifies."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.admission import identities
from orchestrator.admission.identities import Identities, identify
from orchestrator.admission.project import Check, Gate, Project, load_project
from orchestrator.repo.files import REGULAR, Files
from orchestrator.spec.errors import BadInput
from tests.unit.admission_support import GATE, stated


def read(folder: Path, **changes: object) -> Project:
    (folder / "project.yaml").write_text(json.dumps(stated(**changes)))
    return load_project(folder / "project.yaml")


def test_defaults(tmp_path: Path) -> None:
    project = read(tmp_path)
    assert (project.mode, project.on_timeout) == ("enforce", "reject")
    (gate,) = project.gates
    assert (gate.layer, gate.binding, gate.writable, gate.cwd) == ("L1", True, False, ".")


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"schema": "factorial/admission@2"}, "schema", "input should be"),
        ({"mode": "strict"}, "mode", "input should be"),
        ({"gates": []}, "gates", "at least 1"),
        ({"gates": [{**GATE, "argv": []}]}, "gates.0.argv", "at least 1"),
        ({"gates": [{**GATE, "cwd": "../x"}]}, "gates.0.cwd", "inside the tree"),
        ({"gates": [{**GATE, "cwd": "/x"}]}, "gates.0.cwd", "inside the tree"),
        ({"gates": [{**GATE, "timeout_s": 0}]}, "gates.0.timeout_s", "greater than 0"),
        ({"gates": [{**GATE, "layer": "L0"}]}, "gates.0.layer", "input should be"),
        ({"gates": [{**GATE, "binding": False}]}, "gates", "no gate is binding"),
        ({"gates": [GATE, GATE]}, "gates", "one name"),
        ({"diagnostics": [GATE]}, "gates", "one name"),
        ({"suite": ["/etc"]}, "suite.0", "pattern"),
        ({"protected": ["x"], "ignored": ["x"]}, "ignored", "has an identity"),
        ({"tools": {"/usr/lib": "/tmp"}}, "tools", "pattern"),
        ({"environment": {"A=B": "x"}}, "environment", "pattern"),
        ({"candidates": 0}, "candidates", "greater than or equal to 1"),
        ({"on_timeout": "wait"}, "on_timeout", "input should be"),
        ({"surprise": 1}, "surprise", "unknown key"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, **changes)
    assert refused.value.field.startswith(field)
    assert problem in refused.value.problem
    assert refused.value.file.endswith("project.yaml")


# --------------------------------------------------------------------------------- identities

SUITE: Files = {"tests/a.py": (REGULAR, b"1")}


def ids(project: Project, suite: Files = SUITE, **world: dict[str, str]) -> Identities:
    return identify(project, suite, world.get("environment", {}), world.get("sandbox", {}))


@pytest.mark.parametrize(
    "gate",
    [
        {"argv": ["check", "-x"]},
        {"cwd": "sub"},
        {"timeout_s": 1.0},
        {"writable": True},
        {"memory_mib": 64},
        {"layer": "L2"},
    ],
)
def test_a_command_of_the_same_name_is_another_suite(tmp_path: Path, gate: dict[str, Any]) -> None:
    one, other = read(tmp_path), read(tmp_path, gates=[{**GATE, **gate}])
    assert ids(one).gate_suite != ids(other).gate_suite
    assert ids(one).commands["tests"] != ids(other).commands["tests"]
    assert ids(one).policy == ids(other).policy


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "warn"},
        {"protected": ["ci"]},
        {"suite": ["tests/**"]},
        {"ignored": ["x"]},
        {"candidates": 3},
        {"wall_s": 1.0},
        {"on_timeout": "abstain"},
        {"repeat_limit": 9},
        {"oscillation_limit": 9},
    ],
)
def test_another_policy_is_another_suite(tmp_path: Path, change: dict[str, Any]) -> None:
    one, other = ids(read(tmp_path)), ids(read(tmp_path, **change))
    assert one.policy != other.policy
    assert one.gate_suite != other.gate_suite
    assert one.diagnostic_suite != other.diagnostic_suite


def test_another_world_is_another_suite(tmp_path: Path) -> None:
    project = read(tmp_path)
    suites = [
        ids(project),
        ids(project, {"tests/a.py": (REGULAR, b"2")}),
        ids(project, environment={"A": "1"}),
        ids(project, environment={"A": "2"}),
        ids(project, sandbox={"version": "2"}),
        ids(read(tmp_path, tools={"/opt/x": "/tmp"})),
    ]
    assert len({suite.gate_suite for suite in suites}) == len(suites)
    assert ids(read(tmp_path)) == suites[0]


def test_a_value_of_the_environment_is_in_no_identity_as_it_is(tmp_path: Path) -> None:
    named = ids(read(tmp_path), environment={"TOKEN": "correct-horse"})
    assert "correct-horse" not in str(named)


def test_every_field_is_in_some_identity() -> None:
    """What is not a command's or the context's is the policy's: nothing falls between."""
    assert set(Project.model_fields) >= identities.EVIDENCE_FIELDS
    project = Project.model_validate(stated())
    dumped = project.model_dump(mode="json", exclude=set(identities.EVIDENCE_FIELDS))
    assert set(dumped) == set(Project.model_fields) - identities.EVIDENCE_FIELDS
    assert set(Gate.model_fields) > set(Check.model_fields)
