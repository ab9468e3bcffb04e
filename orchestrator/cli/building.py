"""Shows a build of many tasks: a live table on a terminal, plain lines elsewhere, a summary."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from orchestrator.cluster.curation import Kind, Outcome

MIB = 1 << 20


@dataclass
class BuildView:
    """Told of steps and of ended builds; use as a context manager."""

    total: int
    console: Console = field(default_factory=lambda: Console(stderr=True))
    ended: int = 0
    steps: dict[str, tuple[str, float]] = field(default_factory=dict)
    _live: Live | None = None

    def __enter__(self) -> "BuildView":
        if sys.stderr.isatty():
            self._live = Live(
                get_renderable=self._table, console=self.console, refresh_per_second=2
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def watch(self, steps: Mapping[str, str]) -> None:
        """Note which tasks are being built, and since when each is at its step."""
        now = time.monotonic()
        for task_id, step in steps.items():
            if self.steps.get(task_id, ("", 0.0))[0] != step:
                self.steps[task_id] = step, now
                self._say(f"{task_id}: {step}")

    def done(self, outcome: Outcome) -> None:
        """Note one ended build and print its line."""
        self.ended += 1
        self.steps.pop(outcome.task_id, None)
        line = f"[{self.ended}/{self.total}] {outcome.task_id}: {described(outcome)}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _say(self, line: str) -> None:
        if self._live is None:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2), title=f"{self.ended} of {self.total} done")
        for heading in ("task", "step", "for"):
            table.add_column(heading)
        now = time.monotonic()
        for task_id, (step, since) in sorted(self.steps.items()):
            table.add_row(task_id, step, f"{now - since:.0f} s")
        return table


def described(outcome: Outcome) -> str:
    """One outcome in words; a failure names its step and shows the end of its log."""
    if outcome.kind is Kind.ELIGIBLE:
        return f"eligible, {outcome.message} ({outcome.seconds:.0f} s)"
    if outcome.kind is Kind.REJECTED:
        wanted = "as it should be, " if outcome.expected else ""
        return f"rejected, {wanted}by rule {outcome.rule} ({outcome.message})"
    tail = "".join(f"\n    {line}" for line in outcome.log.splitlines())
    return f"failed at step {outcome.step}: {outcome.message}{tail}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """Totals in three lines: what became of the tasks, what it took."""
    counts = {kind: sum(o.kind is kind for o in outcomes) for kind in Kind}
    unexpected = sum(o.kind is Kind.REJECTED and not o.expected for o in outcomes)
    rejected = f"{counts[Kind.REJECTED]} rejected ({unexpected} of them unexpectedly)"
    built = [o for o in outcomes if o.kind is Kind.ELIGIBLE]
    disk = sum(o.disk_bytes for o in built)
    seconds = sorted(o.seconds for o in outcomes)
    return (
        f"{counts[Kind.ELIGIBLE]} eligible, {rejected}, {counts[Kind.FAILED]} failed\n"
        f"seconds per task: median {seconds[len(seconds) // 2]:.0f}, longest {seconds[-1]:.0f}; "
        f"disk per task: {disk / MIB / max(1, len(built)):.1f} MiB\n"
        f"peak memory: builder {max(o.peak_memory_bytes for o in outcomes) / MIB:.0f} MiB, "
        f"suite {max(o.suite_peak_memory_bytes for o in outcomes) / MIB:.0f} MiB"
    )
