"""The whole catalogue through the command line: 30 pass, and without their guard all 30 fail."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.admission.conformance.catalogue import CATALOGUE, Case
from tests.unit.cli_support import Command

pytestmark = pytest.mark.services

CASES = [entry.id for entry in CATALOGUE if isinstance(entry, Case)]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_thirty_pass_and_five_are_pending(command: Command) -> None:
    done = command("conformance")
    lines = done.out.splitlines()
    assert done.code == 0, done.out
    assert lines[-1].startswith("total: 30 of 35 passed (30 passed, 5 pending)"), lines[-1]
    for entry in CATALOGUE:
        outcome = "passed" if isinstance(entry, Case) else "pending"
        assert f"{entry.id:<7} {outcome:<12} {entry.expected}" in lines
    for fixture in ("python", "node"):
        assert any(line.startswith(f"{fixture:<7} passed") for line in lines)


def test_every_negative_control_fails_by_its_claims(command: Command) -> None:
    done = command("conformance", "--without-guard", "all", "--json")
    assert done.code == 1
    report: dict[str, Any] = json.loads(done.out)
    assert [case["id"] for case in report["cases"]] == CASES
    for case in report["cases"]:
        assert case["outcome"] == "failed", case
        assert case["broken"], case
        assert case["without_guard"], case
    assert report["total"]["failed"] == 30


def test_one_guard_is_off_for_one_case(command: Command) -> None:
    """The case beside it passes in the same process, before and after."""
    off = ["--without-guard", "SB009"]
    done = command("conformance", "--only", "SB008", "--only", "SB009", "--only", "SB010", *off)
    assert done.code == 1
    assert "SB008   passed" in done.out
    assert "SB009   failed" in done.out
    assert "[guard off: the checkpoint moves by a pass only]" in done.out
    assert "SB010   passed" in done.out
    assert command("conformance", "--only", "SB009").code == 0


def test_two_runs_say_the_same_and_leave_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def told() -> list[tuple[str, str]]:
        chosen = [word for id in ("SB007", "SB013", "SB016", "SB024") for word in ("--only", id)]
        report = json.loads(command("conformance", "--json", *chosen).out)
        return [(case["id"], case["outcome"]) for case in report["cases"]]

    assert told() == told() == [(id, "passed") for id in ("SB007", "SB013", "SB016", "SB024")]
    assert not list(tmp_path.iterdir())
