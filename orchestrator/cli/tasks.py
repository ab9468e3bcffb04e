"""``factorial tasks``: import candidates, build tasks from their sources, audit what was built."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.auditing import Look, audited, findings_of, looked_through, table_of
from orchestrator.cli.building import BuildView, summary
from orchestrator.cli.locks import require_folder
from orchestrator.cli.study import Address
from orchestrator.cli.tasks_import import import_app
from orchestrator.cluster.curation import CPUS_PER_BUILD, MAX_JOBS, build_tasks, chosen
from orchestrator.sandbox.capabilities import require
from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import load
from orchestrator.spec.task import TaskManifest

app = typer.Typer(help="Import, build and audit tasks.", no_args_is_help=True)
app.add_typer(import_app, name="import")

DEFAULT_JOBS = min(MAX_JOBS, max(1, (os.cpu_count() or 1) // CPUS_PER_BUILD))
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def build(
    manifest: Annotated[Path, typer.Argument(help="Task manifest (YAML).")],
    out: Annotated[
        Path, typer.Option(help="Folder for the built tasks.", envvar="FACTORIAL_TASKS")
    ] = Path("build/tasks"),
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_JOBS,
            help="Tasks at a time; each runs two suites side by side. Half the CPUs where absent.",
        ),
    ] = DEFAULT_JOBS,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Build this task only; may be repeated.")
    ] = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Judge tasks by the rules of eligibility and make mirrors, sealed suites and environments.

    Builds what is missing or changed; goes on where an earlier build was interrupted. Exit code 1
    if a build failed, or a task was rejected whose entry does not say so.

    Example: `factorial tasks build manifests/tasks/quickstart.yaml --out build/tasks`
    """
    require()
    require_folder(out, "--out")
    tasks, only = load(manifest, TaskManifest), task or []
    with BuildView(len(chosen(tasks, manifest, only))) as view:
        outcomes = build_tasks(
            tasks,
            manifest,
            out,
            only=only,
            jobs=jobs,
            address=address or None,
            watch=view.watch,
            ended=view.done,
        )
    if as_json:
        typer.echo(json.dumps([asdict(outcome) for outcome in outcomes], sort_keys=True))
    else:
        typer.echo(summary(outcomes))
    if not all(outcome.ok for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def audit(
    directory: Annotated[
        Path, typer.Argument(help="Folder of built tasks.", envvar="FACTORIAL_TASKS")
    ] = Path("build/tasks"),
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Audit this task only; may be repeated.")
    ] = None,
    signatures: Annotated[
        bool, typer.Option("--signatures", help="Run every suite three times more on both trees.")
    ] = False,
    sandbox: Annotated[
        Look,
        typer.Option(help="How much of the agents' sandboxes is looked through."),
    ] = Look.SIZES,
    as_json: AsJson = False,
) -> None:
    """Show every rule's verdict and figure, and look for sealed content on the agent's side.

    Rejected candidates are shown with their reasons. Exit code 1 on any finding.

    Example: `factorial tasks audit build/tasks`
    """
    if signatures or sandbox is not Look.NONE:
        require()
    read = [audited(directory, name, signatures) for name in _named(directory, task or [])]
    found = looked_through(directory, read, sandbox)
    problems = findings_of(found)
    if as_json:
        typer.echo(json.dumps([one.as_json() for one in found], sort_keys=True))
    else:
        for one in found:
            typer.echo(table_of(one))
        eligible = sum(one.eligible for one in found)
        rejected = len(found) - eligible
        typer.echo(f"{eligible} eligible, {rejected} rejected, {len(problems)} findings")
    if problems:
        raise typer.Exit(1)


def _named(directory: Path, only: list[str]) -> list[str]:
    """Built tasks and rejected candidates of a folder, or those asked for."""
    places = (directory / "built", directory / "rejected")
    known = sorted({path.stem for place in places for path in place.glob("*.json")})
    if not known:
        raise BadInput(str(directory), "", "no built tasks", "Run `factorial tasks build` first.")
    for name in only:
        if name not in known:
            raise BadInput(str(directory), "--task", f"no task {name!r}", "Build it first.")
    return [name for name in known if not only or name in only]
