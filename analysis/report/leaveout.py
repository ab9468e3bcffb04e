"""Leave-one-project-out plot: the decision's effect without each project in turn.

Descriptive: it shows whether one project carries the estimate. Points; one panel per endpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.plan import MAIN_ENDPOINTS
from analysis.report.blocks import Block, Table, absent, table
from analysis.report.drawing import GRID, MARKS, MUTED, Canvas, blank, draw, label, tick
from analysis.report.source import Study
from analysis.report.words import ENDPOINT_WORDS, effect_words, point_range
from analysis.results import EffectResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 30
"""Projects drawn; of more, those that move the estimate most."""
STEP = 0.21


@dataclass(frozen=True)
class _Panel:
    endpoint: str
    result: EffectResult
    projects: tuple[str, ...]

    @property
    def whole(self) -> tuple[float, float]:
        low, high = self.result.least.effect, self.result.greatest.effect
        return 100 * float(low), 100 * float(high)

    def without(self, project: str) -> tuple[float, float]:
        low, high = self.result.leave_one_project_out[project]
        return 100 * float(low), 100 * float(high)


def left_out(study: Study, key: str) -> tuple[Block, ...]:
    """The figure, or the sentence that says why there is none."""
    results = [study.analysis.effect(study.key, endpoint) for endpoint in MAIN_ENDPOINTS]
    if not results[0].leave_one_project_out:
        return absent("All tasks are of one project: there is nothing to leave out.")
    chosen = _most_moving(results)
    panels = [_Panel(result.endpoint, result, chosen) for result in results]
    words = effect_words(study.plan, study.key)
    caption = f"Effect of {words} when one project is left out.{_cut(results[0], chosen)}"
    numbers = _numbers(results)
    return (draw(key, caption, _describe(results), numbers, lambda c: _plot(panels, c)),)


def _most_moving(results: Sequence[EffectResult]) -> tuple[str, ...]:
    """All projects by name, or the :data:`MOST` whose absence moves some endpoint most."""
    projects = sorted(results[0].leave_one_project_out)
    if len(projects) <= MOST:
        return tuple(projects)

    def moved(project: str) -> float:
        return max(
            abs(float(end - whole))
            for result in results
            for end, whole in zip(
                result.leave_one_project_out[project],
                (result.least.effect, result.greatest.effect),
                strict=True,
            )
        )

    return tuple(sorted(sorted(projects, key=moved, reverse=True)[:MOST]))


def _cut(result: EffectResult, chosen: Sequence[str]) -> str:
    total = len(result.leave_one_project_out)
    if total == len(chosen):
        return ""
    return f" Drawn: the {len(chosen)} of {total:,} projects that move it most; all are listed."


def _describe(results: Sequence[EffectResult]) -> str:
    said = []
    for result in results:
        ends = [end for pair in result.leave_one_project_out.values() for end in pair]
        whole = point_range((result.least.effect, result.greatest.effect))
        said.append(
            f"{ENDPOINT_WORDS[result.endpoint]}: {whole} with all projects, "
            f"{point_range((min(ends), max(ends)))} without one."
        )
    return "Dot plot, in points. " + " ".join(said)


def _numbers(results: Sequence[EffectResult]) -> Table:
    rows = [["none (all projects)"]]
    rows[0] += [point_range((one.least.effect, one.greatest.effect)) for one in results]
    for project in sorted(results[0].leave_one_project_out):
        rows.append(
            [project, *(point_range(one.leave_one_project_out[project]) for one in results)]
        )
    return table("Effects in points", ["left out", *(one.endpoint for one in results)], rows)


def _plot(panels: Sequence[_Panel], canvas: Canvas) -> "Figure":
    rows = len(panels[0].projects)
    deep = STEP * rows + 0.12
    height = (deep + 0.3) * (len(panels) if canvas.narrow else 1) + 0.5
    figure = blank(canvas, height)
    span = _limits(panels)
    for at, panel in enumerate(panels):
        axes = figure.add_axes(_place(at, len(panels), deep, height, canvas))
        axes.set_xlim(*span)
        _draw(axes, panel, canvas, named=canvas.narrow or at == 0)
        if canvas.narrow and at < len(panels) - 1:
            axes.tick_params(labelbottom=False)
    figure.text(
        *(0.6 if canvas.narrow else 0.58, 0.06 / height, "effect in points"),
        fontsize=canvas.size,
        ha="center",
    )
    return figure


def _place(
    at: int, panels: int, deep: float, height: float, canvas: Canvas
) -> tuple[float, float, float, float]:
    """Left, bottom, width, height of one panel as shares: stacked on a phone, else side by side."""
    if canvas.narrow:
        return 0.3, (height - (deep + 0.3) * (at + 1)) / height, 0.68, deep / height
    width = 0.83 / panels
    return 0.17 + at * width, 0.48 / height, width - 0.035, deep / height


def _limits(panels: Sequence[_Panel]) -> tuple[float, float]:
    values = [0.0, *(end for panel in panels for end in panel.whole)]
    values += [end for panel in panels for one in panel.projects for end in panel.without(one)]
    pad = 0.08 * max(max(values) - min(values), 1.0)
    return min(values) - pad, max(values) + pad


def _draw(axes: "Axes", panel: _Panel, canvas: Canvas, named: bool) -> None:
    colour, shape = MARKS[panel.endpoint]
    axes.axvspan(*panel.whole, color=colour, alpha=0.25, linewidth=0, zorder=0)
    for end in panel.whole:
        axes.axvline(end, color=colour, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    axes.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
    for at, project in enumerate(panel.projects):
        ends = panel.without(project)
        filled = colour if ends[0] == ends[1] else "white"
        axes.plot(
            *(ends, [at, at]),
            color=colour,
            marker=shape,
            markersize=5,
            markerfacecolor=filled,
        )
    axes.set_ylim(len(panel.projects) - 0.4, -0.6)
    room = 15 if canvas.narrow else 18
    axes.set_yticks(range(len(panel.projects)))
    axes.set_yticklabels([label(name, room) for name in panel.projects] if named else [])
    axes.grid(axis="y", color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=canvas.size, length=0, axis="y")
    axes.tick_params(labelsize=canvas.size, length=3, axis="x")
    axes.xaxis.set_major_formatter(tick)
    axes.locator_params(axis="x", nbins=4)
    axes.set_title(
        ENDPOINT_WORDS[panel.endpoint], fontsize=canvas.size, fontweight="bold", loc="left", pad=4
    )
