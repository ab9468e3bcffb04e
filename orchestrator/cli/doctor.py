"""``factorial doctor``: what this machine can do, and what is missing for the rest."""

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from orchestrator.sandbox.capabilities import Capabilities, capabilities


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what works here: interpreter, sandbox and limits, Ray, disk; exit code 1 if no run can.

    Example: `factorial doctor`
    """
    sandbox = capabilities()
    facts = {
        "python": sys.version.split()[0],
        "cpus": str(os.cpu_count()),
        "disk free": f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GiB",
        "ray": "installed" if find_spec("ray") else "missing",
        "language model on the CPU": "installed"
        if find_spec("xllamacpp")
        else "missing: pip install 'repo-factorials[cpu-llm]'",
        "sandbox": sandbox.version,
        **(_sandbox_facts(sandbox) if sandbox.ok else {}),
    }
    if as_json:
        problems = [{"problem": what, "remedy": remedy} for what, remedy in sandbox.problems]
        typer.echo(json.dumps({**facts, "problems": problems, "usable": sandbox.ok}))
    else:
        table = Table(show_header=False, box=None, padding=(0, 2))
        for name, value in facts.items():
            table.add_row(name, value)
        Console().print(table)
        for what, remedy in sandbox.problems:
            typer.echo(f"  problem: {what}. {remedy}")
    if not sandbox.ok:
        raise typer.Exit(1)


def _sandbox_facts(sandbox: Capabilities) -> dict[str, str]:
    user = "a user of their own" if sandbox.privileged else "you, in a user namespace"
    return {
        "commands run as": user,
        **{f"sandbox limit: {name}": means for name, means in sandbox.enforced.items()},
        **{f"not used: {name}": reason for name, reason in sandbox.reasons.items()},
    }
