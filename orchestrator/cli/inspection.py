"""``factorial status``, ``analyze``, ``verify``: read a root, settle nothing in it."""

import json
from pathlib import Path
from typing import Annotated

import typer

import analysis
from analysis.render import render_text
from orchestrator.cli.decision import write_plan
from orchestrator.cli.locks import lock_bytes
from orchestrator.cli.progress import report_progress
from orchestrator.cluster.checking import contract_checks
from orchestrator.spec.errors import BadInput
from orchestrator.spec.lock import Lock
from orchestrator.spec.manifest import load
from orchestrator.spec.plan import design_of
from orchestrator.spec.study import Study
from orchestrator.store.integrity import validate_evaluations, validate_matrix
from orchestrator.store.root import Root

RootArgument = Annotated[Path, typer.Argument(help="Folder of a run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def status(root: RootArgument, as_json: Json = False) -> None:
    """Where a run stands: settled, owed, attempts, tokens. Also while it goes on.

    Example: `factorial status runs/quickstart`
    """
    opened = Root.existing(root)
    report_progress(opened, opened.lock(), as_json)


def analyze(
    root: Annotated[Path | None, typer.Argument(help="Folder of a replayed run.")] = None,
    outcomes: Annotated[
        Path | None, typer.Option(help="Outcome table (Parquet or CSV) from anywhere.")
    ] = None,
    study: Annotated[Path | None, typer.Option(help="Study manifest for --outcomes.")] = None,
    as_json: Json = False,
) -> None:
    """Effects, bounds and decision of a run, or of an outcome table from elsewhere.

    Example: `factorial analyze runs/quickstart`, or
    `factorial analyze --outcomes table.csv --study manifests/studies/quickstart.yaml`
    """
    if root is not None and outcomes is None and study is None:
        opened = Root.existing(root)
        write_plan(opened.lock(), opened)
        result = analysis.load(opened.path).decision()
    elif outcomes is not None and study is not None and root is None:
        design = design_of(load(study, Study).model_dump(mode="json", by_alias=True))
        result = analysis.load_outcomes(outcomes, design).decision()
    else:
        raise BadInput(
            "command line",
            "",
            "give either a root alone, or --outcomes with --study",
            "See `factorial analyze --help`.",
        )
    typer.echo(result.to_json() if as_json else render_text(result))


def verify(root: RootArgument, as_json: Json = False) -> None:
    """Recompute hashes, ledgers, receipts, matrix and decision from the files alone.

    Example: `factorial verify runs/quickstart`
    """
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
    kept = root.path / "analysis" / "decision.json"
    if not kept.exists():
        return []
    recomputed = analysis.load(root.path).decision().to_json()
    if kept.read_text() != recomputed:
        return ["analysis/decision.json: recomputing it from the tables gives another result"]
    return []
