"""``factorial report``: a table from elsewhere becomes a page; a wrong call is refused."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from orchestrator.cli.report import report
from orchestrator.spec.errors import BadInput, FactorialError
from tests.unit.report_support import Page

STUDY = Path(__file__).parents[2] / "manifests/studies/quickstart.yaml"
HEAD = "task_id,project,stack,seed,evidence,contract,accepted,resolved"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = [HEAD]
    for task in range(3):
        for evidence in ("current", "stale"):
            lines.append(f"t{task},p{task},mine,1,{evidence},OFF,true,false")
            lines.append(f"t{task},p{task},mine,1,{evidence},ON,true,true")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def call(*arguments: object) -> tuple[str, BaseException | None]:
    app = typer.Typer()
    app.command()(report)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.output, done.exception


def test_a_table_becomes_a_page(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "report.html"
    said, error = call("--outcomes", table, "--study", STUDY, "--out", out)
    assert error is None
    assert str(out) in said
    text = Page(out.read_text(encoding="utf-8")).text
    assert "The joint claim for contract (ON − OFF) is supported" in text
    assert f"--outcomes {table}" in text


@pytest.mark.parametrize("arguments", [[], ["ROOT", "--study", STUDY], ["--study", STUDY]])
def test_half_a_source_is_refused(arguments: list[object]) -> None:
    _, error = call(*arguments)
    assert isinstance(error, BadInput)
    assert "either roots alone, or --outcomes with --study" in str(error)


def test_a_folder_is_no_page_and_nothing_is_left(table: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    _, error = call("--outcomes", table, "--study", STUDY, "--out", tmp_path)
    assert isinstance(error, BadInput)
    assert "Name a file" in str(error)
    assert sorted(tmp_path.iterdir()) == before


def test_a_root_that_is_none_is_refused(tmp_path: Path) -> None:
    _, error = call(tmp_path / "nothing", "--out", tmp_path / "report.html")
    assert isinstance(error, FactorialError)
    assert not (tmp_path / "report.html").exists()
