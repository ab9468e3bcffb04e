"""``factorial tasks``: build tasks from their sources and audit what is sealed."""

import json
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.locks import require_folder
from orchestrator.sandbox.capabilities import require
from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import load
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.audit import audit_task
from orchestrator.tasks.build import build_task

app = typer.Typer(help="Build and audit tasks.", no_args_is_help=True)


@app.command()
def build(
    manifest: Annotated[Path, typer.Argument(help="Task manifest (YAML).")],
    out: Annotated[
        Path, typer.Option(help="Folder for the built tasks.", envvar="FACTORIAL_TASKS")
    ] = Path("build/tasks"),
) -> None:
    """Materialise mirrors, sealed suites and environments; builds what is missing or changed.

    Example: `factorial tasks build manifests/tasks/quickstart.yaml --out build/tasks`
    """
    require()
    require_folder(out, "--out")
    tasks = load(manifest, TaskManifest).tasks
    for number, task in enumerate(tasks, 1):
        built = build_task(task, manifest, out, _say)
        typer.echo(
            f"[{number}/{len(tasks)}] {task.id}: agent commit {built.agent_commit[:12]}, "
            f"gate {built.suites['gate'][:12]}"
        )


@app.command()
def audit(
    directory: Annotated[
        Path, typer.Argument(help="Folder of built tasks.", envvar="FACTORIAL_TASKS")
    ] = Path("build/tasks"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for anything sealed (gold lines, sealed tests, fixed releases) on the agent's side.

    Example: `factorial tasks audit build/tasks`
    """
    built = sorted(path.stem for path in (directory / "built").glob("*.json"))
    if not built:
        raise BadInput(str(directory), "", "no built tasks", "Run `factorial tasks build` first.")
    findings = {
        task_id: [str(finding) for finding in audit_task(directory, task_id)] for task_id in built
    }
    if as_json:
        typer.echo(json.dumps(findings, sort_keys=True))
    else:
        for task_id, found in findings.items():
            typer.echo(f"{task_id}: {'; '.join(found) if found else 'nothing sealed is reachable'}")
    if any(findings.values()):
        raise typer.Exit(1)


def _say(line: str) -> None:
    typer.echo(line, err=True)
