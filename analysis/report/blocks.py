"""What a page is made of: tables, drawings, heat maps and paragraphs, as plain data.

Everything here is text; the template escapes it. Only :class:`Drawing` carries markup, which
:mod:`analysis.report.drawing` has made itself and checked element by element.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

NOT_REPORTED = "–"
"""Stands where a source does not report a figure or where none is defined."""


@dataclass(frozen=True)
class Table:
    """``rows``: one tuple of texts per row, as long as ``head``; the first ``left`` are words."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    note: str = ""
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Drawing:
    """A figure in two widths of the same content, with its text alternative and its numbers.

    ``key``: unique on the page. ``wide``, ``narrow``: SVG elements. ``shown``: its numbers stand
    open below it, and are printed.
    """

    key: str
    caption: str
    description: str
    wide: str
    narrow: str
    numbers: Table
    shown: bool = False
    kind: str = field(default="drawing", init=False)


@dataclass(frozen=True)
class HeatCell:
    """Counts of one task (or project) in one cell, of ``rollouts`` settled ones."""

    unsafe: int
    sound: int
    missing: int
    rollouts: int

    @property
    def unsafe_shade(self) -> int:
        """0 (none) to 4 (all of the rollouts)."""
        return _shade(self.unsafe, self.rollouts)

    @property
    def sound_shade(self) -> int:
        """0 (none) to 4 (all of the rollouts)."""
        return _shade(self.sound, self.rollouts)


def _shade(count: int, rollouts: int) -> int:
    return -(-4 * count // rollouts) if rollouts else 0


@dataclass(frozen=True)
class HeatGroup:
    """Rows of one project: (label, cells)."""

    project: str
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]


@dataclass(frozen=True)
class Heat:
    """A heat map that is its own table. ``head``: the lines of each cell's heading."""

    caption: str
    corner: str
    head: tuple[tuple[str, ...], ...]
    groups: tuple[HeatGroup, ...]
    note: str
    kind: str = field(default="heat", init=False)


@dataclass(frozen=True)
class Commands:
    """Lines for a shell, with a sentence before them."""

    lead: str
    lines: tuple[str, ...]
    kind: str = field(default="commands", init=False)


@dataclass(frozen=True)
class Paragraph:
    """A sentence or two; ``absent`` marks one that says what is not reported and why."""

    text: str
    absent: bool = False
    kind: str = field(default="paragraph", init=False)


Block = Table | Drawing | Heat | Commands | Paragraph


@dataclass(frozen=True)
class Part:
    """What one stack has to say in a section; ``name`` heads it where there are several."""

    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """A numbered section of the page. ``lead`` says what is shown and how to read it."""

    anchor: str
    title: str
    lead: str
    parts: tuple[Part, ...]


def absent(text: str) -> tuple[Block, ...]:
    """The whole content of a part that has nothing to show."""
    return (Paragraph(text, absent=True),)


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, note: str = ""
) -> Table:
    """A :class:`Table` from any sequences."""
    return Table(caption, tuple(head), tuple(tuple(row) for row in rows), left, note)
