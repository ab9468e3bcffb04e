"""Forest plot of effects with their intervals, one-sided bounds and preregistered limits.

After figure 4 of "Looping Is Not Reliability": effects in points, 95% task-cluster bootstrap
intervals, one row per stack; unsafe completion has to stay below its limit, sound completion above
its margin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.plan import MAIN_ENDPOINTS
from analysis.report.blocks import Drawing, Table, table
from analysis.report.drawing import GRID, INK, MARKS, MUTED, SHADE, Canvas, blank, draw, label, tick
from analysis.report.source import Study
from analysis.report.words import (
    ENDPOINT_WORDS,
    effect_words,
    interval,
    level,
    limit,
    p_value,
    point_range,
    points,
)
from analysis.results import EffectResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDED = {"unsafe": "upper", "sound": "lower"}
"""Endpoint -> the one-sided bound that the rule looks at."""
STEP, GAP = 0.30, 0.34
"""Inches of one row, and of a panel's heading."""


@dataclass(frozen=True)
class Row:
    """One effect as it is drawn; points. ``bound``: its one-sided bound where the rule has one."""

    label: str
    endpoint: str
    result: EffectResult
    decides: bool

    @property
    def span(self) -> tuple[float, float]:
        """Two-sided interval, over both assignments of missing outcomes."""
        low, high = self.result.least.bounds.ci_low, self.result.greatest.bounds.ci_high
        return 100 * float(low), 100 * float(high)

    @property
    def ends(self) -> tuple[float, float]:
        """Least and greatest estimate."""
        return 100 * float(self.result.least.effect), 100 * float(self.result.greatest.effect)

    @property
    def bound(self) -> float | None:
        """The one-sided bound."""
        if not self.decides or self.endpoint not in BOUNDED:
            return None
        if BOUNDED[self.endpoint] == "upper":
            return 100 * float(self.result.greatest.bounds.upper)
        return 100 * float(self.result.least.bounds.lower)

    @property
    def figures(self) -> str:
        """Estimate and interval in words."""
        low, high = self.result.least, self.result.greatest
        shown = point_range((low.effect, high.effect))
        return f"{shown} {interval(low.bounds.ci_low, high.bounds.ci_high)}"


@dataclass(frozen=True)
class Panel:
    """Rows of one endpoint; ``limit``: where the rule's bound has to stay, in points."""

    title: str
    rows: tuple[Row, ...]
    limit: float | None
    below: bool


def decision_forest(studies: Sequence[Study], names: Sequence[str]) -> Drawing:
    """The decision's effect on the three main endpoints, one row per stack."""
    first = studies[0]
    panels = [_panel(studies, names, endpoint) for endpoint in MAIN_ENDPOINTS]
    words = effect_words(first.plan, first.key)
    caption = (
        f"Effect of {words} on completions: estimates with "
        f"{level(first.analysis.decision.level)} task-cluster bootstrap intervals."
    )
    rows = [row for panel in panels for row in panel.rows]
    numbers = _numbers(rows)
    return draw(
        "forest", caption, _describe(panels), numbers, lambda canvas: _plot(panels, canvas), True
    )


def all_effects(study: Study, key: str) -> Drawing | None:
    """Every declared effect of one study; None where the decision's is the only one."""
    if len(study.plan.effects) < 2:
        return None
    panels = []
    for endpoint in MAIN_ENDPOINTS:
        rows = [
            Row(effect.name, endpoint, study.analysis.effect(effect.name, endpoint), False)
            for effect in study.plan.effects
        ]
        panels.append(Panel(ENDPOINT_WORDS[endpoint], tuple(rows), None, False))
    rows = [row for panel in panels for row in panel.rows]
    caption = (
        f"All declared effects: estimates with {level(study.analysis.decision.level)} "
        "task-cluster bootstrap intervals, not adjusted for their number."
    )
    return draw(key, caption, _describe(panels), _numbers(rows), lambda c: _plot(panels, c))


def _panel(studies: Sequence[Study], names: Sequence[str], endpoint: str) -> Panel:
    rule = studies[0].plan.rule
    limits = {"unsafe": rule.unsafe_below, "sound": rule.sound_above}
    rows = tuple(
        Row(name, endpoint, study.analysis.effect(study.key, endpoint), True)
        for study, name in zip(studies, names, strict=True)
    )
    if endpoint not in limits:
        return Panel(f"{ENDPOINT_WORDS[endpoint]} (no rule)", rows, None, False)
    below = endpoint == "unsafe"
    wanted = f"bound {'below' if below else 'above'} {limit(limits[endpoint])}"
    title = f"{ENDPOINT_WORDS[endpoint]} ({wanted})"
    return Panel(title, rows, 100 * float(limits[endpoint]), below)


def _describe(panels: Sequence[Panel]) -> str:
    lines = []
    for panel in panels:
        shown = "; ".join(f"{row.label} {row.figures}{_said_bound(row)}" for row in panel.rows)
        lines.append(f"{panel.title}: {shown}.")
    return "Forest plot, in points. " + " ".join(lines)


def _said_bound(row: Row) -> str:
    if row.bound is None:
        return ""
    return f", one-sided {BOUNDED[row.endpoint]} bound {_bound_text(row)}"


def _bound_text(row: Row) -> str:
    low, high = row.result.least.bounds, row.result.greatest.bounds
    return points(high.upper if BOUNDED[row.endpoint] == "upper" else low.lower)


def _numbers(rows: Sequence[Row]) -> Table:
    head = (
        *("effect on", "row", "estimate", "interval", "lower bound", "upper bound"),
        *("tasks moved", "sign-flip p", "project-equal"),
    )
    body = []
    for row in rows:
        low, high = row.result.least, row.result.greatest
        body.append(
            (
                *(row.endpoint, row.label, point_range((low.effect, high.effect))),
                interval(low.bounds.ci_low, high.bounds.ci_high),
                *(points(low.bounds.lower), points(high.bounds.upper)),
                str(low.nonzero_tasks) if row.result.p is not None else "undecided",
                p_value(row.result.p),
                point_range(row.result.project_equal),
            )
        )
    return table("Effects in points", head, body, left=2)


def _plot(panels: Sequence[Panel], canvas: Canvas) -> "Figure":
    step = STEP + 0.16 if canvas.narrow else STEP
    rows = sum(len(panel.rows) for panel in panels)
    height = step * rows + GAP * len(panels) + 0.55
    figure = blank(canvas, height)
    left, right = (0.02, 0.98) if canvas.narrow else (0.24, 0.72)
    top = height - 0.05
    axes = figure.add_axes((left, 0.5 / height, right - left, (top - 0.5) / height))
    axes.set_xlim(*_limits(panels))
    axes.set_ylim(-(top - 0.5), 0)
    depth = 0.0
    for panel in panels:
        depth = _draw_panel(axes, panel, depth, step, canvas)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    axes.tick_params(labelsize=canvas.size, length=3)
    axes.xaxis.set_major_formatter(tick)
    axes.locator_params(axis="x", nbins=6 if canvas.narrow else 9)
    axes.set_xlabel("effect in points (percentage points)", fontsize=canvas.size)
    return figure


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    values = [0.0]
    for panel in panels:
        values += [panel.limit] if panel.limit is not None else []
        for row in panel.rows:
            values += [*row.span, *row.ends]
    pad = 0.06 * max(max(values) - min(values), 1.0)
    return min(values) - pad, max(values) + pad


def _draw_panel(axes: "Axes", panel: Panel, depth: float, step: float, canvas: Canvas) -> float:
    """Draw one panel from ``depth`` inches down; returns where it ends."""
    end = depth + GAP + step * len(panel.rows)
    edge = 0.0 if canvas.narrow else -0.47
    axes.text(
        *(edge, -depth - 0.17, label(panel.title)),
        transform=axes.get_yaxis_transform(),
        fontsize=canvas.size,
        fontweight="bold",
        va="center",
    )
    bands = [(-end + 0.06, -depth - 0.3)]
    middles = [-(depth + GAP + step * (at + 0.5)) for at in range(len(panel.rows))]
    if canvas.narrow:  # the row's words stand above its bar: the lines leave them free
        middles = [middle - 0.09 for middle in middles]
        bands = [(middle - 0.14, middle + 0.12) for middle in middles]
    for band in bands:
        _draw_limit(axes, panel, band)
        axes.plot([0, 0], band, color=MUTED, linewidth=0.8, zorder=1)
    for row, middle in zip(panel.rows, middles, strict=True):
        _draw_row(axes, row, middle, canvas)
    return end


def _draw_limit(axes: "Axes", panel: Panel, inside: tuple[float, float]) -> None:
    """Shade where the bound has to lie, up to the limit itself."""
    from matplotlib.patches import Rectangle

    if panel.limit is None:
        return
    (left, right), edge = axes.get_xlim(), panel.limit
    start, width = (left, edge - left) if panel.below else (edge, right - edge)
    box = (start, inside[0]), width, inside[1] - inside[0]
    axes.add_patch(Rectangle(*box, facecolor=SHADE, edgecolor="none", zorder=0))
    axes.plot([edge, edge], inside, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2)


def _draw_row(axes: "Axes", row: Row, middle: float, canvas: Canvas) -> None:
    colour, shape = MARKS[row.endpoint]
    axes.plot(row.span, [middle, middle], color=colour, linewidth=1.6, zorder=3)
    for end in row.span:
        axes.plot([end, end], [middle - 0.04, middle + 0.04], color=colour, linewidth=1.6, zorder=3)
    filled = row.ends[0] == row.ends[1]
    axes.plot(
        *(row.ends, [middle, middle]),
        color=colour,
        marker=shape,
        markersize=7,
        zorder=5,
        linewidth=3.2,
        markerfacecolor=colour if filled else "white",
    )
    if row.bound is not None:
        _draw_bound(axes, row.bound, middle, BOUNDED[row.endpoint] == "upper")
    _write_row(axes, row, middle, canvas)


def _draw_bound(axes: "Axes", at: float, middle: float, upper: bool) -> None:
    """A tall bracket that opens towards the values which the bound allows."""
    left, right = axes.get_xlim()
    foot = at + (-1 if upper else 1) * 0.012 * (right - left)
    heights = [middle - 0.1, middle - 0.1, middle + 0.1, middle + 0.1]
    axes.plot([foot, at, at, foot], heights, color=INK, linewidth=1.3, zorder=6)


def _write_row(axes: "Axes", row: Row, middle: float, canvas: Canvas) -> None:
    across = axes.get_yaxis_transform()
    words: dict[str, Any] = {"fontsize": canvas.size, "va": "center", "transform": across}
    if canvas.narrow:
        axes.text(0.0, middle + 0.22, label(row.label, max(8, 48 - len(row.figures))), **words)
        axes.text(1.0, middle + 0.22, row.figures, ha="right", **words)
    else:
        axes.text(-0.47, middle, label(row.label, 26), **words)
        axes.text(1.03, middle, row.figures, **words)
        axes.axhline(middle, color=GRID, linewidth=0.5, zorder=0.5)
