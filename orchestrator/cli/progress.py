"""Progress of a run: a live line block on a terminal, plain lines elsewhere."""

import json
import sys
import time
from dataclasses import asdict, dataclass, field

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from orchestrator.cluster.driver import RolloutEnded
from orchestrator.spec.lock import Lock
from orchestrator.store.reading import Progress, progress
from orchestrator.store.root import Root

REFRESH_SECONDS = 2.0


@dataclass
class RunView:
    """Shows where a run stands; call it with each ended attempt. Use as a context manager."""

    lock: Lock
    root: Root
    console: Console = field(default_factory=lambda: Console(stderr=True))
    started: float = field(default_factory=time.monotonic)
    ended: int = 0

    def __enter__(self) -> "RunView":
        self._at_start = progress(self.root, self.lock)
        self._live = (
            Live(
                get_renderable=self._render,
                console=self.console,
                refresh_per_second=1 / REFRESH_SECONDS,
            )
            if sys.stderr.isatty()
            else None
        )
        if self._live is not None:
            self._live.start()
        elif self._at_start.settled:
            self.console.print(
                f"resuming: {self._at_start.settled} of {self._at_start.planned} settled",
                highlight=False,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: RolloutEnded) -> None:
        self.ended += event.settled_as is not None
        if self._live is not None:
            return
        done = self._at_start.settled + self.ended
        what = event.settled_as or f"owed again ({event.outcome}: {event.reason})"
        self.console.print(
            f"[{done}/{self._at_start.planned}] {event.rollout_id}: {what}; {self._pace()}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    def _pace(self) -> str:
        elapsed = time.monotonic() - self.started
        if not self.ended:
            return f"{elapsed:.0f} s so far"
        owed = self._at_start.planned - self._at_start.settled - self.ended
        rate = self.ended / elapsed
        return f"{rate * 60:.1f} rollouts/min, about {owed / rate:.0f} s to go"

    def _render(self) -> Table:
        return progress_table(progress(self.root, self.lock), self._pace())


def report_progress(root: Root, lock: Lock, as_json: bool) -> None:
    """Print where a run stands."""
    now = progress(root, lock)
    if as_json:
        typer.echo(json.dumps(asdict(now), sort_keys=True))
    else:
        Console().print(progress_table(now))


def progress_table(now: Progress, pace: str = "") -> Table:
    """The matrix of a run as a small table."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    settled = ", ".join(f"{k} {v}" for k, v in sorted(now.settled_by.items())) or "none"
    table.add_row(
        "rollouts", f"{now.settled} settled of {now.planned} ({settled}), {now.owed} owed"
    )
    attempts = ", ".join(f"{k} {v}" for k, v in sorted(now.attempts_by.items())) or "none"
    table.add_row("attempts", attempts)
    table.add_row("actions", f"{now.actions}")
    table.add_row(
        "tokens",
        f"{now.tokens_prompt} prompt + {now.tokens_completion} completion, "
        f"{now.tokens_served} served",
    )
    table.add_row("evaluated", f"{now.evaluated} of {now.planned} rollouts")
    if pace:
        table.add_row("pace", pace)
    return table
