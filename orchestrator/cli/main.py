"""Entry point of ``factorial``: registers the commands and turns errors into one sentence.

Exit codes: 0 success, 2 bad input, 1 failure. A traceback is shown only for a defect of ours.
SIGINT, SIGTERM and SIGHUP end a command in the same way: what it started is stopped first.
"""

import signal
import sys
from importlib import import_module
from importlib.metadata import version
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from analysis.errors import AnalysisError
from orchestrator.spec.errors import FactorialError

COMMANDS = {
    "doctor": ("doctor", "doctor"),
    "conformance": ("conformance", "conformance"),
    "tasks": ("tasks", "app"),
    "power": ("power", "power"),
    "freeze": ("study", "freeze"),
    "run": ("study", "run"),
    "replay": ("study", "replay"),
    "status": ("inspection", "status"),
    "trace": ("trace", "trace"),
    "analyze": ("inspection", "analyze"),
    "report": ("report", "report"),
    "verify": ("inspection", "verify"),
    "receipt": ("receipts", "receipt"),
}
"""Command -> module of this package and name in it, in the order of the help text."""

LOOK: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
}


class Commands(TyperGroup):
    """Commands whose modules are imported when they are asked for: an analysis loads no Ray."""

    def list_commands(self, ctx: object) -> list[str]:
        """Names in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        found = getattr(import_module(f"orchestrator.cli.{module}"), name)
        one = typer.Typer(**LOOK)
        if isinstance(found, typer.Typer):
            one.add_typer(found, name=cmd_name)
        else:
            one.command(cmd_name)(found)
        return get_group(one).commands[cmd_name]


app = typer.Typer(name="factorial", cls=Commands, no_args_is_help=True, **LOOK)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"factorial {version('repo-factorials')}")
        raise typer.Exit


@app.callback()
def options(
    _asked: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Run controlled experiments on coding agents: frozen manifest in, decision out."""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
"""What Typer makes of a KeyboardInterrupt."""


def main() -> None:
    """Run the command line and exit."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    try:
        app()  # reports a wrong command line itself, with exit code 2
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        _fail("interrupted; nothing settled is lost, run the same command again to go on", 1)
    except (FactorialError, AnalysisError) as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(
            f"{where}{error.strerror or error}. Free space or correct the path, then run again", 1
        )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """The first signal interrupts; more of them would only interrupt the cleaning up."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _fail(sentence: str, code: int) -> None:
    typer.echo(f"error: {sentence}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
