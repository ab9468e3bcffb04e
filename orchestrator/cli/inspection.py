"""``factorial status``, ``analyze``, ``verify``: read a root, settle nothing in it."""

import json
from pathlib import Path
from typing import Annotated

import typer

import analysis
from analysis.results import SCHEMA, Analysis
from orchestrator.cli.decision import show, show_many, write_plan
from orchestrator.cli.locks import lock_bytes
from orchestrator.spec.errors import BadInput
from orchestrator.spec.lock import Lock
from orchestrator.spec.manifest import load
from orchestrator.spec.plan import design_of
from orchestrator.spec.study import Study
from orchestrator.store.root import Root

RootArgument = Annotated[Path, typer.Argument(help="Folder of a run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def status(root: RootArgument, as_json: Json = False) -> None:
    """Where a run stands: settled, owed, attempts, tokens. Also while it goes on.

    Example: `factorial status runs/quickstart`
    """
    from orchestrator.cli.progress import report_progress

    opened = Root.existing(root)
    report_progress(opened, opened.lock(), as_json)


def analyze(
    roots: Annotated[
        list[Path] | None, typer.Argument(metavar="ROOT", help="Folders of replayed runs.")
    ] = None,
    outcomes: Annotated[
        list[Path] | None,
        typer.Option(help="Outcome table (Parquet or CSV) from anywhere; may be repeated."),
    ] = None,
    study: Annotated[Path | None, typer.Option(help="Study manifest for --outcomes.")] = None,
    as_json: Json = False,
) -> None:
    """Effects, bounds and decision of runs, or of outcome tables from elsewhere.

    Several runs or tables are analysed one by one, each with its own decision; they are never
    pooled. The columns that a table needs and may have are listed in docs/columns.md.

    Example: `factorial analyze runs/quickstart`, or
    `factorial analyze runs/stack-a runs/stack-b --json`, or
    `factorial analyze --outcomes table.csv --study manifests/studies/quickstart.yaml`
    """
    if roots and not outcomes and study is None:
        results = _of_roots(roots)
    elif outcomes and study is not None and not roots:
        design = design_of(load(study, Study).model_dump(mode="json", by_alias=True))
        results = analysis.load_many_outcomes(outcomes, design).decisions()
    else:
        raise BadInput(
            "command line",
            "",
            "give either roots alone, or --outcomes with --study",
            "See `factorial analyze --help`.",
        )
    if len(results) == 1:
        show(next(iter(results.values())), as_json)
    else:
        show_many(results, as_json)


def _of_roots(roots: list[Path]) -> dict[str, Analysis]:
    for root in roots:
        opened = Root.existing(root)
        write_plan(opened.lock(), opened)
    return analysis.load_many(roots).decisions()


def verify(root: RootArgument, as_json: Json = False) -> None:
    """Recompute hashes, ledgers, receipts, matrix and decision from the files alone.

    Example: `factorial verify runs/quickstart`
    """
    from orchestrator.cluster.checking import contract_checks
    from orchestrator.store.integrity import validate_evaluations, validate_matrix

    opened = Root.existing(root)
    lock = opened.lock()
    findings = [*_lock_findings(lock, opened)]
    findings += validate_matrix(lock, opened, contract_checks(lock))
    if any(opened.evaluations.iterdir()):
        findings += validate_evaluations(lock, opened)
    findings += _decision_findings(opened)
    if as_json:
        typer.echo(json.dumps({"root": str(root), "findings": findings}))
    else:
        for finding in findings:
            typer.echo(f"finding: {finding}")
        if not findings:
            typer.echo(f"{root}: {len(lock.rollouts)} rollouts verified, 0 findings")
    if findings:
        raise typer.Exit(1)


def _lock_findings(lock: Lock, root: Root) -> list[str]:
    content = lock.model_dump(mode="json", by_alias=True)
    findings = []
    if Lock.digest(content) != lock.lock_id:
        findings.append("lock.json: content does not match its id")
    if (root.path / "lock.json").read_bytes() != lock_bytes(lock):
        findings.append("lock.json: not in canonical form")
    return findings


def _decision_findings(root: Root) -> list[str]:
    name = "analysis/decision.json"
    kept = root.path / name
    if not kept.exists():
        return []
    text = kept.read_text(encoding="utf-8", errors="replace")
    if (version := _schema(text)) != SCHEMA:
        return [f"{name}: is {version}, this version writes {SCHEMA}; make it again from the root"]
    if text != analysis.load(root.path).decision().to_json():
        return [f"{name}: recomputing it from the tables gives another result"]
    return []


def _schema(text: str) -> str:
    try:
        return str(json.loads(text)["schema"])
    except (ValueError, KeyError, TypeError):
        return "no decision"
