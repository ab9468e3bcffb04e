"""From a replayed root to a printed decision: writes plan.json, calls the analysis, prints."""

import json
import sys
from collections.abc import Mapping

import typer
from rich.console import Console

import analysis
from analysis.render import render, render_text
from analysis.results import Analysis
from orchestrator.spec.lock import Lock
from orchestrator.spec.plan import plan_of
from orchestrator.store.files import write_atomic
from orchestrator.store.root import Root

SCHEMA_OF_MANY = "factorial/decisions@1"


def write_plan(lock: Lock, root: Root) -> None:
    """``ROOT/analysis/plan.json``: all that the analysis knows of the design."""
    path = root.path / "analysis" / "plan.json"
    text = json.dumps(plan_of(lock), indent=1, sort_keys=True, ensure_ascii=False)
    content = (text + "\n").encode()
    if path.exists() and path.read_bytes() == content:
        return  # a root that cannot be written to can still be analysed
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, content)


def decide(lock: Lock, root: Root, as_json: bool) -> None:
    """Analyse the root, keep ``decision.json`` beside its inputs, print the result."""
    write_plan(lock, root)
    result = analysis.load(root.path).decision()
    write_atomic(root.path / "analysis" / "decision.json", result.to_json().encode())
    show(result, as_json)


def show(result: Analysis, as_json: bool) -> None:
    """One decision: JSON, or tables as wide as the terminal (a fixed width where there is none)."""
    if as_json:
        typer.echo(result.to_json(), nl=False)
    elif sys.stdout.isatty():
        Console().print(render(result))
    else:
        typer.echo(render_text(result), nl=False)


def show_many(results: Mapping[str, Analysis], as_json: bool) -> None:
    """Several decisions, each under the name of its source; never a common one."""
    if as_json:
        decisions = [{"source": name, "decision": one.as_dict()} for name, one in results.items()]
        listed = {"schema": SCHEMA_OF_MANY, "decisions": decisions}
        typer.echo(json.dumps(listed, sort_keys=True, indent=2, allow_nan=False))
        return
    for name, one in results.items():
        typer.echo(f"===== {name}")
        show(one, as_json)
