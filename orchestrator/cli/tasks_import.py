"""``factorial tasks import``: bugs that others have collected become a task manifest."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.spec.errors import BadInput
from orchestrator.tasks.importers.bugsinpy import (
    BugsinpyOptions,
    bugsinpy_drafts,
    read_statements,
)
from orchestrator.tasks.importers.drafts import Request
from orchestrator.tasks.importers.swebench import (
    URL_TEMPLATE,
    SwebenchOptions,
    swebench_drafts,
)
from orchestrator.tasks.importers.writing import Imported, import_drafts

import_app = typer.Typer(
    help="Turn SWE-bench-format rows or BugsInPy folders into a task manifest.",
    no_args_is_help=True,
)

Out = Annotated[Path, typer.Option(help="Task manifest to write; its files go beside it.")]
Requirements = Annotated[
    Path | None,
    typer.Option(help="Requirements file for all tasks, or a folder with one for each."),
]
Lock = Annotated[
    bool, typer.Option("--lock", help="The requirements are lists: pin and hash them with pip.")
]
Mirrors = Annotated[
    Path | None, typer.Option(help="Folder of local clones, used in place of URLs.")
]
Only = Annotated[
    list[str] | None, typer.Option(help="Import task ids that match this pattern; repeatable.")
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Import the rest where a row is refused.")
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Overwrite a manifest that says something else.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@import_app.command()
def swebench(
    rows: Annotated[Path, typer.Argument(help="Rows: .json, .jsonl or .parquet.")],
    *,
    out: Out,
    python: Annotated[str, typer.Option(help="Python of the tasks, such as 3.11.")],
    requirements: Requirements = None,
    lock: Lock = False,
    url_template: Annotated[
        str, typer.Option(help="URL of a repository, {repo} being owner/name.")
    ] = URL_TEMPLATE,
    mirrors: Mirrors = None,
    distribution: Annotated[
        list[str] | None,
        typer.Option(help="owner/name=distribution where the names differ; repeatable."),
    ] = None,
    only: Only = None,
    keep_going: KeepGoing = False,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Import rows with instance_id, repo, base_commit, patch, test_patch and the lists of test ids.

    Example: `factorial tasks import swebench rows.jsonl --out mine.yaml --python 3.11
    --requirements envs/mine.txt`
    """
    request = Request(
        out, python, requirements, lock, mirrors, tuple(only or ()), keep_going, replace
    )
    options = SwebenchOptions(url_template, _pairs(distribution or []))
    _report(import_drafts(swebench_drafts(rows, request, options), request, _say), as_json)


@import_app.command()
def bugsinpy(
    checkout: Annotated[Path, typer.Argument(help="Checkout of BugsInPy.")],
    *,
    out: Out,
    statements: Annotated[
        Path | None, typer.Option(help="YAML mapping task id -> problem statement.")
    ] = None,
    name_test_files: Annotated[
        bool,
        typer.Option(
            "--name-test-files", help="Tasks without a statement name their failing test modules."
        ),
    ] = False,
    python: Annotated[
        str | None, typer.Option(help="Python of all tasks, in place of each bug's own.")
    ] = None,
    requirements: Requirements = None,
    lock: Lock = False,
    mirrors: Mirrors = None,
    only: Only = None,
    keep_going: KeepGoing = False,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Import bugs, each a buggy and a fixed commit; nothing of the folder is run.

    Example: `factorial tasks import bugsinpy BugsInPy --out mine.yaml --only 'black-*' --lock
    --statements statements.yaml`
    """
    request = Request(
        out, python, requirements, lock, mirrors, tuple(only or ()), keep_going, replace
    )
    texts = read_statements(statements) if statements is not None else {}
    options = BugsinpyOptions(texts, name_test_files)
    _report(import_drafts(bugsinpy_drafts(checkout, request, options), request, _say), as_json)


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        repo, equals, name = word.partition("=")
        if not equals or not name:
            problem = f"{word!r} is no pair"
            raise BadInput("--distribution", "", problem, "Write owner/name=distribution.")
        pairs[repo] = name
    return pairs


def _report(imported: Imported, as_json: bool) -> None:
    """Say what became of every row; exit code 2 where nothing was written."""
    if as_json:
        typer.echo(json.dumps({**asdict(imported), "manifest": str(imported.manifest)}))
    else:
        for mistake in imported.refused:
            typer.echo(f"refused: {mistake}", err=True)
        counts = f"{len(imported.tasks)} tasks imported, {len(imported.refused)} rows refused"
        typer.echo(f"{imported.manifest}: {counts}" if imported.written else _nothing(imported))
    if not imported.written:
        raise typer.Exit(2)


def _nothing(imported: Imported) -> str:
    return (
        f"{imported.manifest}: not written, {len(imported.refused)} rows are refused. "
        "Mend them, leave them out with --only, or give --keep-going."
    )


def _say(line: str) -> None:
    typer.echo(line, err=True)
