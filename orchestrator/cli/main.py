"""Entry point of ``factorial``: registers the commands and turns errors into one sentence.

Exit codes: 0 success, 2 bad input, 1 failure. A traceback is shown only for a defect of ours.
"""

import sys

import click
import typer

from analysis.errors import AnalysisError
from orchestrator.cli import doctor, inspection, study, tasks
from orchestrator.spec.errors import FactorialError

app = typer.Typer(
    name="factorial",
    help="Run controlled experiments on coding agents: frozen manifest in, decision out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(tasks.app, name="tasks")
app.command()(doctor.doctor)
app.command()(study.freeze)
app.command()(study.run)
app.command()(study.replay)
app.command()(inspection.status)
app.command()(inspection.trace)
app.command()(inspection.analyze)
app.command()(inspection.verify)


def main() -> None:
    """Run the command line and exit."""
    try:
        code = app(standalone_mode=False)
    except click.exceptions.Abort:
        _fail("interrupted; run the same command again to go on", 1)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (FactorialError, AnalysisError) as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted; nothing settled is lost, run the same command again to go on", 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(
            f"{where}{error.strerror or error}. Free space or correct the path, then run again", 1
        )
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> None:
    typer.echo(f"error: {sentence}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
