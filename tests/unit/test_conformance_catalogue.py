"""The catalogue is whole, its page says what it holds, and a guard is off no longer than a case."""

import re
from pathlib import Path

import pytest

from orchestrator.admission import project, rules
from orchestrator.admission.conformance.catalogue import CATALOGUE, Case, Pending
from orchestrator.admission.conformance.guards import GUARDS, switched
from orchestrator.admission.conformance.observation import Observation
from orchestrator.admission.conformance.running import Choice, Outcome, Result, succeeded
from orchestrator.contract.modes import DISPOSITION
from orchestrator.spec.manifest import Frozen
from tests.unit.cli_support import REPOSITORY, Command

PAGE = (REPOSITORY / "docs" / "conformance.md").read_text(encoding="utf-8")
PENDING = {"SB021", "SB023", "SB026", "SB027", "SB032"}
CASES = [entry for entry in CATALOGUE if isinstance(entry, Case)]


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    assert section is not None, heading
    rows = re.findall(r"^\|(.*)\|$", section[1], re.M)[2:]
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def test_all_thirty_five_in_order() -> None:
    assert [entry.id for entry in CATALOGUE] == [f"SB{number:03}" for number in range(1, 36)]
    assert {entry.id for entry in CATALOGUE if isinstance(entry, Pending)} == PENDING
    assert set(GUARDS) == {case.id for case in CASES}
    assert len({case.inject for case in CASES}) == len(CASES) == 30


def test_the_page_is_the_catalogue() -> None:
    wanted = [
        [e.id, e.injection, e.expected, e.guard.name, e.fixture.name, "runs"]
        if isinstance(e, Case)
        else [e.id, e.injection, e.expected, "", "", "pending"]
        for e in CATALOGUE
    ]
    assert table("The catalogue") == wanted


def test_the_page_has_the_modes_and_the_rules() -> None:
    shown = {
        (verdict.strip("`"), mode): cell
        for verdict, *cells in table("Verdict, mode, disposition")
        for mode, cell in zip(("shadow", "warn", "enforce"), cells, strict=True)
    }
    assert shown == {(str(v), str(m)): str(d) for (v, m), d in DISPOSITION.items()}
    stated = {
        rule.strip("`"): verdict.strip("`")
        for rule, verdict in table("Rules beyond the transaction")
    }
    assert stated == {str(rule): str(verdict) for rule, verdict in rules.VERDICT_OF.items()}


def test_the_page_has_every_field_with_its_default() -> None:
    fields = {f.alias or name: f for name, f in project.Project.model_fields.items()}
    described = {name.strip("`"): default.strip("`") for name, default, _ in table("The manifest")}
    assert list(described) == list(fields)
    for name, field in fields.items():
        default = field.get_default(call_default_factory=True)
        if field.is_required():
            assert described[name] == "required"
        elif default in ((), {}):
            assert described[name] == "none"
        elif isinstance(default, float):
            assert float(described[name]) == default
        else:
            assert described[name] == str(default)
    for check in (name for name in project.Gate.model_fields):
        assert f"`{check}`" in PAGE, check
    assert issubclass(project.Project, Frozen)


# --------------------------------------------------------------------------------- guards


@pytest.mark.parametrize("id", GUARDS)
def test_a_guard_is_off_inside_and_back_outside(id: str) -> None:
    guard = GUARDS[id]
    before = [getattr(swap.owner, swap.name) for swap in guard.swaps]
    with switched(guard, on=True):
        assert [getattr(swap.owner, swap.name) for swap in guard.swaps] == before
    with pytest.raises(KeyboardInterrupt), switched(guard, on=False):
        for swap, original in zip(guard.swaps, before, strict=True):
            assert getattr(swap.owner, swap.name) is swap.without is not original
        raise KeyboardInterrupt
    assert [getattr(swap.owner, swap.name) for swap in guard.swaps] == before


def test_only_the_command_reaches_the_guards() -> None:
    importers = {
        path.relative_to(REPOSITORY).as_posix()
        for folder in ("orchestrator", "analysis")
        for path in (REPOSITORY / folder).rglob("*.py")
        if "admission.conformance" in path.read_text(encoding="utf-8")
        and "admission/conformance" not in path.as_posix()
    }
    assert importers == {"orchestrator/cli/conformance.py"}


def test_no_case_asserts_less_than_four_aspects() -> None:
    """Every case names claims of all four aspects; an empty one would pass unseen."""
    for path in (REPOSITORY / "orchestrator/admission/conformance").glob("cases_*.py"):
        text = path.read_text(encoding="utf-8")
        found = text.count("Observation(\n")
        for aspect in ("verdict", "state", "evidence", "receipt"):
            assert len(re.findall(rf"^        {aspect}={{", text, re.M)) == found, (path, aspect)
        assert "={}" not in text


# --------------------------------------------------------------------------------- choosing


def test_a_choice() -> None:
    every = {entry.id for entry in CATALOGUE}
    assert {entry.id for entry in Choice.of([], []).entries} == every
    assert [e.id for e in Choice.of(["SB009", "SB001"], []).entries] == ["SB001", "SB009"]
    negative = Choice.of([], ["SB009"])
    assert [e.id for e in negative.entries] == ["SB009"]
    both = Choice.of(["SB001", "SB009"], ["SB009"])
    assert [e.id for e in both.entries] == ["SB001", "SB009"]
    assert both.without == {"SB009"}
    assert {e.id for e in Choice.of([], ["all"]).entries} == every - PENDING


def test_a_claim_that_does_not_hold_is_named() -> None:
    seen = Observation({"a": True}, {"b": False}, {"c": True}, {"d": False})
    assert seen.broken == ("state: b", "receipt: d")


@pytest.mark.parametrize("outcome", Outcome)
def test_only_a_pass_is_a_pass(outcome: Outcome) -> None:
    result = Result("SB001", outcome, "", "", "", (), "", 0.0)
    assert succeeded([result]) is (outcome in (Outcome.PASSED, Outcome.PENDING))


# --------------------------------------------------------------------------------- the command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--only", "SB099"], "no such case"),
        (["--only", "all"], "no such case"),
        (["--without-guard", "SB000"], "no such case"),
        (["--without-guard", "SB021"], "is pending and has no guard"),
    ],
)
def test_mistakes(command: Command, arguments: list[str], problem: str) -> None:
    assert problem in command.refused("conformance", *arguments)


def test_a_toolchain_that_is_missing_is_said(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A case whose toolchain is not here is no pass: the command fails and says why."""
    for name in ("bwrap", "setpriv", "prlimit", "taskset", "env", "sh"):
        found = next(p / name for p in (Path("/usr/bin"), Path("/bin")) if (p / name).exists())
        (tmp_path / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = command("conformance", "--only", "SB008")
    assert done.code == 1
    assert "SB008   unavailable" in done.out
    assert "node not installed" in done.out
    assert "0 of 1 passed" in done.out
