"""``factorial status``, ``trace``, ``analyze``, ``verify``: read a root, settle nothing in it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

import analysis
from analysis.render import render_text
from orchestrator.cli.decision import write_plan
from orchestrator.cli.progress import progress_table
from orchestrator.cli.study import lock_bytes
from orchestrator.contract.ledger import check as check_ledger
from orchestrator.contract.receipt import receipt_follows
from orchestrator.spec.errors import BadInput
from orchestrator.spec.lock import Lock
from orchestrator.spec.manifest import load
from orchestrator.spec.plan import design_of
from orchestrator.spec.study import Study
from orchestrator.store.integrity import validate_evaluations, validate_matrix
from orchestrator.store.reading import progress, read_table
from orchestrator.store.root import Root

RootArgument = Annotated[Path, typer.Argument(help="Folder of a run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def status(root: RootArgument, as_json: Json = False) -> None:
    """Where a run stands: settled, owed, attempts, tokens. Also while it goes on.

    Example: `factorial status runs/quickstart`
    """
    opened = Root.existing(root)
    now = progress(opened, opened.lock())
    if as_json:
        typer.echo(json.dumps(asdict(now), sort_keys=True))
    else:
        Console().print(progress_table(now))


def trace(
    root: RootArgument,
    rollout: Annotated[str, typer.Argument(help="Rollout id.")],
    as_json: Json = False,
) -> None:
    """One rollout, readable: actions, evidence, verdicts, what became of each proposal.

    Example: `factorial trace runs/quickstart xmltodict-1.0.2-1.0.3__stale_ON__s1`
    """
    opened = Root.existing(root)
    known = [planned.rollout_id for planned in opened.lock().rollouts]
    if rollout not in known:
        raise BadInput(
            str(root), "rollout", f"no rollout {rollout!r}", f"One is {known[0]}; see the lock."
        )
    if not opened.record_path(rollout).exists():
        raise BadInput(
            str(root), "rollout", f"{rollout} has not settled", "See `factorial status`."
        )
    tables = {
        name: read_table(opened, name, rollout).to_pylist()
        for name in ("rollout", "actions", "proposals", "verdicts")
    }
    if as_json:
        typer.echo(json.dumps(tables, sort_keys=True))
    else:
        _print_trace(Console(), tables)


def _print_trace(console: Console, tables: dict[str, list[dict[str, Any]]]) -> None:
    row = tables["rollout"][0]
    switches = " ".join(
        f"{letter}={int(bool(row[name]))}"
        for letter, name in (("B", "binding"), ("A", "admission"), ("C", "certification"))
    )
    console.rule(Text(row["rollout_id"]))
    console.print(
        f"{row['stack']}{' (SIMULATED)' if row['simulated'] else ''}, evidence {row['evidence']}, "
        f"{switches}, revisions at most {row['revision_cap']}",
        markup=False,
    )
    proposals = {proposal["turn"]: proposal for proposal in tables["proposals"]}
    for action in tables["actions"]:
        _print_action(console, action, proposals.get(action["turn"]))
    for verdict in tables["verdicts"]:
        console.print(
            f"  {verdict['purpose']:13} {verdict['suite']:12} state {verdict['state_id'][:12]} "
            f"{verdict['outcome']}",
            markup=False,
            highlight=False,
        )
    accepted = f"accepted via {row['accepted_via']}" if row["accepted"] else "nothing accepted"
    console.print(
        f"end: {row['end_reason']}; {accepted}; checkpoint "
        f"{(row['checkpoint_state_id'] or 'none')[:12]}; receipt {row['receipt_sha256'][:12]}",
        markup=False,
    )


def _print_action(
    console: Console, action: dict[str, Any], proposal: dict[str, Any] | None
) -> None:
    title = f"{action['turn']}. {action['kind']}: {action['result']}"
    if action["reason"]:
        title += f" ({action['reason']})"
    console.print(Panel(Text(action["reply"]), title=Text(title), title_align="left"))
    console.print(Text(action["observation"], style="dim"))
    if proposal is not None:
        gate = "passed" if proposal["gate_passed"] else "failed"
        kept = "kept" if proposal["retained"] else "rolled back"
        console.print(
            f"  proposal {proposal['proposal']}: state {proposal['state_id'][:12]}, gate {gate}, "
            f"{kept}, patch {proposal['patch_sha256'][:12]}",
            markup=False,
            highlight=False,
        )


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
    `factorial analyze --outcomes table.csv --study manifests/studies/stack.yaml`
    """
    if root is not None and outcomes is None:
        opened = Root.existing(root)
        write_plan(opened.lock(), opened)
        result = analysis.load(opened.path).decision()
    elif outcomes is not None and study is not None and root is None:
        design = design_of(load(study, Study).model_dump(mode="json", by_alias=True))
        result = analysis.load_outcomes(outcomes, design).decision()
    else:
        raise BadInput(
            "command line", "", "give either a root, or --outcomes with --study", "See --help."
        )
    typer.echo(result.to_json() if as_json else render_text(result))


def verify(root: RootArgument, as_json: Json = False) -> None:
    """Recompute hashes, ledgers, receipts, matrix and decision from the files alone.

    Example: `factorial verify runs/quickstart`
    """
    opened = Root.existing(root)
    lock = opened.lock()
    findings = [*_lock_findings(lock, opened)]
    findings += validate_matrix(lock, opened, check_ledger, receipt_follows)
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
