"""``factorial report``: the decision and its figures as one HTML file that opens anywhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import analysis
from orchestrator.cli.decision import write_plan
from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import load
from orchestrator.spec.plan import design_of
from orchestrator.spec.study import Study
from orchestrator.store.root import Root

if TYPE_CHECKING:
    from analysis.report import Study as Reported


def report(
    roots: Annotated[
        list[Path] | None, typer.Argument(metavar="ROOT", help="Folders of replayed runs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("report.html"),
    outcomes: Annotated[
        list[Path] | None,
        typer.Option(help="Outcome table (Parquet or CSV) from anywhere; once per stack."),
    ] = None,
    study: Annotated[Path | None, typer.Option(help="Study manifest for --outcomes.")] = None,
) -> None:
    """Decision, figures and tables of a run as one self-contained HTML file.

    Several roots that decide the same question stand beside each other, one row per stack.

    Example: `factorial report runs/quickstart --out report.html`, or
    `factorial report --outcomes table.csv --study manifests/studies/quickstart.yaml`
    """
    if roots and not outcomes and study is None:
        made = [_of_root(root) for root in roots]
    elif outcomes and study is not None and not roots:
        made = _of_tables(outcomes, study)
    else:
        raise BadInput(
            "command line",
            "",
            "give either roots alone, or --outcomes with --study",
            "See `factorial report --help`.",
        )
    if out.is_dir():
        raise BadInput("command line", "--out", f"{out} is a folder", "Name a file.")
    from analysis.report import write_report

    write_report(made, out)
    typer.echo(f"{out}: {out.stat().st_size / 1024:.0f} KiB, {len(made)} stack(s)")


def _of_root(root: Path) -> "Reported":
    from analysis.report import study_of

    opened = Root.existing(root)
    write_plan(opened.lock(), opened)
    return study_of(analysis.load(opened.path), str(root))


def _of_tables(tables: list[Path], study: Path) -> list["Reported"]:
    from analysis.report import study_of

    design = design_of(load(study, Study).model_dump(mode="json", by_alias=True))
    return [
        study_of(analysis.load_outcomes(table, design), str(table), str(study)) for table in tables
    ]
