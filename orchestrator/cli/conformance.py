"""``factorial conformance``: the failure injections, and their negative controls."""

import json
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.admission.conformance.catalogue import CATALOGUE, Case
from orchestrator.admission.conformance.running import (
    ALL,
    Choice,
    Outcome,
    Result,
    open_bench,
    run_cases,
    run_fixtures,
    succeeded,
)
from orchestrator.sandbox.capabilities import require
from orchestrator.spec.errors import BadInput


def conformance(
    only: Annotated[
        list[str] | None, typer.Option(help="Run this case only; may be repeated.", metavar="ID")
    ] = None,
    without_guard: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this case with its guard off: the negative control, which has to fail. "
            "`all` for every case; may be repeated.",
            metavar="ID",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Inject the failures of the catalogue into real sessions on small projects of three languages.

    Prints `id outcome expected` per case and a total. Exit code 1 if a case that is not pending
    does not pass. A guard is switched off for the named case alone, in this process alone.

    Example: `factorial conformance --without-guard SB009`
    """
    require()
    choice = Choice.of(_known(only or [], "--only"), _known(without_guard or [], "--without-guard"))
    with tempfile.TemporaryDirectory(prefix="factorial-conformance-") as scratch:
        bench = open_bench(Path(scratch))
        fixtures = [] if choice.only else [_told(r, as_json) for r in run_fixtures(bench)]
        cases = [_told(result, as_json) for result in run_cases(bench, choice)]
    if as_json:
        typer.echo(json.dumps(_report(fixtures, cases), indent=2))
    else:
        typer.echo(_total(fixtures, cases))
    broken = [f for f in fixtures if f.outcome in (Outcome.FAILED, Outcome.ERROR)]
    if broken or not succeeded(cases):
        raise typer.Exit(1)


def _known(ids: list[str], option: str) -> list[str]:
    """The ids, or BadInput for one that is not in the catalogue or has no guard."""
    cases = {entry.id: entry for entry in CATALOGUE}
    for id in ids:
        if option == "--without-guard" and id == ALL:
            continue
        if id not in cases:
            raise BadInput(option, id, "no such case", "Cases are SB001 to SB035.")
        if option == "--without-guard" and not isinstance(cases[id], Case):
            raise BadInput(option, id, "is pending and has no guard", "Name another case.")
    return ids


def _told(result: Result, as_json: bool) -> Result:
    if not as_json:
        off = f"  [guard off: {result.without_guard}]" if result.without_guard else ""
        typer.echo(f"{result.id:<7} {result.outcome:<12} {result.expected}{off}")
        for line in (*result.broken, *([result.detail] if result.detail else [])):
            typer.echo(f"{'':<21}{line}")
    return result


def _total(fixtures: list[Result], cases: list[Result]) -> str:
    counts = Counter(result.outcome for result in cases)
    parts = [f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]]
    total = f"total: {counts[Outcome.PASSED]} of {len(cases)} passed ({', '.join(parts)})"
    if fixtures:
        verified = sum(fixture.outcome is Outcome.PASSED for fixture in fixtures)
        total += f"; {verified} of {len(fixtures)} fixtures verified by their own toolchain"
    return total


def _report(fixtures: list[Result], cases: list[Result]) -> dict[str, object]:
    counts = Counter(result.outcome for result in cases)
    tally = {outcome.value: counts[outcome] for outcome in Outcome}
    return {
        "cases": [asdict(result) for result in cases],
        "fixtures": [asdict(result) for result in fixtures],
        "total": {"cases": len(cases), **tally},
    }
