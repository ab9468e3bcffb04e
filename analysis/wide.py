"""A table that never breaks a figure: where the console is too narrow, it goes on below.

Comes in: a title, headings and rows of text. Goes out: one rich table, or several with the same
left columns and a part of the right ones each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

PADDING = 3
"""What a column costs beside its text."""


@dataclass
class WideTable:
    """``left`` columns name the row and are repeated; ``right`` ones hold its figures."""

    title: str
    left: Sequence[str]
    right: Sequence[str]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add_row(self, *values: str) -> None:
        """One row, a text per column."""
        self.rows.append(values)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As many tables as the width needs."""
        for number, places in enumerate(self._parts(options.max_width)):
            yield self._table(self.title + (" (continued)" if number else ""), places)

    def _parts(self, width: int) -> Iterator[list[int]]:
        """Places of the right columns that fit beside the left ones; always at least one."""
        used = sum(self._width(place) for place in range(len(self.left)))
        part: list[int] = []
        room = width - used
        for place in range(len(self.left), len(self.left) + len(self.right)):
            if part and room < self._width(place):
                yield part
                part, room = [], width - used
            part.append(place)
            room -= self._width(place)
        yield part

    def _width(self, place: int) -> int:
        head = (*self.left, *self.right)[place]
        cells = [*head.split("\n"), *(row[place] for row in self.rows)]
        return PADDING + max(map(cell_len, cells))

    def _table(self, title: str, places: Sequence[int]) -> Table:
        made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        for name in self.left:
            made.add_column(name, overflow="fold")
        for place in places:
            heading = self.right[place - len(self.left)]
            made.add_column(heading, justify="right", overflow="fold")
        for row in self.rows:
            made.add_row(*row[: len(self.left)], *(row[place] for place in places))
        return made
