"""From a replayed root to a printed decision: writes plan.json, calls the analysis, prints."""

import json

import typer

import analysis
from analysis.render import render_text
from orchestrator.spec.lock import Lock
from orchestrator.spec.plan import plan_of
from orchestrator.store.files import write_atomic
from orchestrator.store.root import Root


def write_plan(lock: Lock, root: Root) -> None:
    """``ROOT/analysis/plan.json``: all that the analysis knows of the design."""
    (root.path / "analysis").mkdir(exist_ok=True)
    text = json.dumps(plan_of(lock), indent=1, sort_keys=True, ensure_ascii=False)
    write_atomic(root.path / "analysis" / "plan.json", (text + "\n").encode())


def decide(lock: Lock, root: Root, as_json: bool) -> None:
    """Analyse the root, keep ``decision.json`` beside its inputs, print the result."""
    write_plan(lock, root)
    result = analysis.load(root.path).decision()
    write_atomic(root.path / "analysis" / "decision.json", result.to_json().encode())
    typer.echo(result.to_json() if as_json else render_text(result))
