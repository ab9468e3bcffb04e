"""From a matplotlib figure to an SVG element that can stand in the page: same input, same bytes.

Labels come from manifests and tables and may hold anything: they are drawn as plain text (never as
mathematics), stripped of characters that XML cannot hold, and the element is rebuilt from a list of
harmless tags. Fonts are the page's own; ids are unique to the figure.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from analysis.report.blocks import Drawing, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID, SHADE = "#1a1a1a", "#595959", "#d9d9d9", "#e8f0f6"
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#4d4d4d"
"""Okabe and Ito's palette, which keeps its distinctions under the common colour deficiencies."""
MARKS = {
    "unsafe": (VERMILION, "^"),
    "sound": (BLUE, "o"),
    "accepted": (GREY, "s"),
    "discovered": ("#785EF0", "D"),
}
"""Endpoint -> colour and shape: never told apart by colour alone."""

STYLE: dict[Any, object] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "hatch.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}
HARMLESS = frozenset(
    {"svg", "g", "path", "text", "tspan", "use", "defs", "clipPath", "rect", "pattern"}
)
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FAMILY = re.compile(r"font-family: [^;]*; ?")
_FONT = re.compile(r"font: ((?:\w+ )*)([\d.]+)px [^;]*")


@dataclass(frozen=True)
class Canvas:
    """One of the two widths. ``width``: inches; ``size``: points of ordinary text."""

    name: str
    width: float
    size: float

    @property
    def narrow(self) -> bool:
        """Whether this is the one for a phone."""
        return self.name == "narrow"


WIDE = Canvas("wide", 7.2, 9.0)
NARROW = Canvas("narrow", 3.4, 8.5)


def draw(
    key: str,
    caption: str,
    description: str,
    numbers: Table,
    plot: Callable[[Canvas], "Figure"],
    shown: bool = False,
) -> Drawing:
    """The drawing that ``plot`` makes in both widths; ``shown`` as in :class:`Drawing`."""
    made = {}
    for canvas in (WIDE, NARROW):
        with _quiet_style(f"{key}-{canvas.name}"):
            made[canvas.name] = to_svg(plot(canvas), f"{key}-{canvas.name}", caption, description)
    return Drawing(key, caption, description, made["wide"], made["narrow"], numbers, shown)


@contextmanager
def _quiet_style(salt: str) -> Iterator[None]:
    """Our settings; a glyph that the measuring font lacks is drawn by the reader's own."""
    import matplotlib

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def blank(canvas: Canvas, height: float) -> "Figure":
    """An empty figure of this canvas, ``height`` inches high; owned by the caller alone."""
    from matplotlib.figure import Figure

    return Figure(figsize=(canvas.width, height))


def label(text: str, room: int = 60) -> str:
    """A label that a figure can hold: printable, on one line, at most ``room`` characters."""
    shown = " ".join(_UNPRINTABLE.sub("�", text).split())
    return shown if len(shown) <= room else shown[: room - 1] + "…"


def tick(value: float, _: float) -> str:
    """A number on an axis, without needless digits."""
    return f"{value:g}".replace("-", "−")


def to_svg(figure: "Figure", key: str, title: str, description: str) -> str:
    """One ``<svg role="img">`` with title and description, ids prefixed by ``key``."""
    stream = BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(stream, format="svg", metadata=nothing)
    root = _cleaned(ElementTree.fromstring(stream.getvalue()), key)
    heads = {"title": title, "desc": description}
    for place, (tag, text) in enumerate(heads.items()):
        head = ElementTree.Element(tag, {"id": f"{key}-{tag}"})
        head.text = label(text, 2000)
        root.insert(place, head)
    named = {"role": "img", "aria-labelledby": f"{key}-title {key}-desc", "class": "chart"}
    root.attrib = {"viewBox": root.attrib["viewBox"], **named}
    return ElementTree.tostring(root, encoding="unicode")


def _cleaned(node: ElementTree.Element, key: str) -> ElementTree.Element:
    """A copy without namespaces, metadata and style sheets; every id and reference prefixed."""
    made = ElementTree.Element(_bare(node.tag), _attributes(node, key))
    made.text = (node.text or "").strip() or None
    made.extend(_cleaned(child, key) for child in node if _bare(child.tag) in HARMLESS)
    return made


def _attributes(node: ElementTree.Element, key: str) -> dict[str, str]:
    found = {}
    for name, value in node.attrib.items():
        bare, shown = _bare(name), _REFERENCE.sub(rf"url(#{key}-\1)", value)
        if bare == "id":
            shown = f"{key}-{value}"
        if bare == "href":
            shown = f"#{key}-{value.removeprefix('#')}"
        if bare == "style":
            shown = _FAMILY.sub("", _FONT.sub(_page_font, shown))
        found[bare] = shown
    return found


def _page_font(found: re.Match[str]) -> str:
    """Size and weight of a ``font`` shorthand; the family is the page's."""
    heavy = "; font-weight: 700" if {"bold", "700"} & set(found[1].split()) else ""
    return f"font-size: {found[2]}px{heavy}"


def _bare(name: str) -> str:
    return name.rpartition("}")[2]
