"""Transition plots: repairs and harms per edit, and current against ever correct over proposals.

alpha: an edit of an unresolved state resolves it; beta: an edit of a resolved state breaks it;
q_t: share of rollouts whose working state resolves after t proposals ("Looping Is Not
Reliability", transition quantities). Descriptive: conditional on an edit having been made.
"""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from analysis.report.blocks import NOT_REPORTED, Block, Table, absent, table
from analysis.report.drawing import BLUE, GRID, INK, VERMILION, Canvas, blank, draw, label
from analysis.report.source import Study
from analysis.report.words import cell_label, percent, share
from analysis.transitions import Rate, Transitions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MOST_CELLS = 16
RATES = (("alpha", "repairs α", BLUE, "o"), ("beta", "harms β", VERMILION, "^"))
NO_PROPOSALS = (
    "Transitions are not reported: this source has no proposals with verdicts, only the outcome of "
    "each rollout. A replayed root has them."
)


def paths(study: Study, key: str) -> tuple[Block, ...]:
    """Both figures, or the sentence that says why there are none."""
    found = study.analysis.transitions
    if not found:
        return absent(NO_PROPOSALS)
    if not any(one.steps for one in found):
        return absent("No rollout made a proposal, so there is no transition to report.")
    shown = found[: MOST_CELLS + 1]
    cut = "" if len(shown) == len(found) else f" Drawn: the first {MOST_CELLS} of the cells."
    names = [cell_label(study.plan, one.levels) for one in found]
    return (
        draw(
            f"{key}-rates",
            f"Repair rate α and harm rate β per edit, pooled over the edits of a cell.{cut}",
            _describe_rates(found, names),
            _rate_numbers(found, names),
            lambda canvas: _plot_rates(shown, names, canvas),
        ),
        draw(
            f"{key}-steps",
            "Rollouts whose working state resolves after t proposals (current: q at t), and that "
            f"ever had one that did (ever).{cut}",
            _describe_steps(found, names),
            _step_numbers(found, names),
            lambda canvas: _plot_steps(shown, names, canvas),
        ),
    )


def _describe_rates(found: Sequence[Transitions], names: Sequence[str]) -> str:
    said = [
        f"{name}: α {share(one.alpha.events, one.alpha.trials)}, "
        f"β {share(one.beta.events, one.beta.trials)}"
        for one, name in zip(found, names, strict=True)
    ]
    return "Dot plot of two rates per cell. " + "; ".join(said) + "."


def _describe_steps(found: Sequence[Transitions], names: Sequence[str]) -> str:
    said = []
    for one, name in zip(found, names, strict=True):
        if one.steps:
            last = one.steps[-1]
            said.append(
                f"{name}: after {last.t} proposals current {share(last.current, last.rollouts)}, "
                f"ever {share(last.ever, last.rollouts)}"
            )
    return "Step lines of two shares per cell, from 0 at t = 0. " + "; ".join(said) + "."


def _rate_numbers(found: Sequence[Transitions], names: Sequence[str]) -> Table:
    head = ("cell", "repairs α", "α task-equal", "harms β", "β task-equal", "α/(α+β)")
    rows = []
    for one, name in zip(found, names, strict=True):
        turn = NOT_REPORTED if one.threshold is None else percent(one.threshold)
        rows.append((name, *_rate(one.alpha), *_rate(one.beta), turn))
    note = (
        "α/(α+β): another edit helps while the share of correct states is below it. Task-equal: "
        "mean over the tasks that have such edits."
    )
    return table("Transition rates per edit", head, rows, note=note)


def _rate(rate: Rate) -> tuple[str, str]:
    equal = NOT_REPORTED if rate.task_equal is None else percent(rate.task_equal)
    return share(rate.events, rate.trials), equal


def _step_numbers(found: Sequence[Transitions], names: Sequence[str]) -> Table:
    head = ("cell", "t", "current", "ever", "ever − current", "rollouts with a t-th proposal")
    rows = [
        (
            *(name, str(step.t), share(step.current, step.rollouts)),
            *(share(step.ever, step.rollouts), str(step.ever - step.current), str(step.reached)),
        )
        for one, name in zip(found, names, strict=True)
        for step in one.steps
    ]
    return table("Rollouts whose working state resolves", head, rows)


def _plot_rates(found: Sequence[Transitions], names: Sequence[str], canvas: Canvas) -> "Figure":
    deep = 0.4 * len(found)
    figure = blank(canvas, deep + 0.85)
    left = 0.36 if canvas.narrow else 0.3
    height = deep + 0.85
    axes = figure.add_axes((left, 0.48 / height, 0.96 - left, deep / height))
    for at, one in enumerate(found):
        for (name, _, colour, shape), shift in zip(RATES, (-0.18, 0.18), strict=True):
            _dot(axes, getattr(one, name), at + shift, (colour, shape), canvas)
    axes.set_xlim(-3, 118)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_yticks(range(len(found)))
    axes.set_yticklabels([label(name, 18 if canvas.narrow else 34) for name in names[: len(found)]])
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.grid(axis="x", color=GRID, linewidth=0.5)
    axes.tick_params(labelsize=canvas.size, length=0)
    axes.set_xlabel("% of edits", fontsize=canvas.size)
    _key(axes, [(name, colour, shape, "-") for _, name, colour, shape in RATES], canvas, 1.0)
    return figure


def _dot(axes: "Axes", rate: Rate, height: float, mark: tuple[str, str], canvas: Canvas) -> None:
    """One rate with its denominator; a rate without a trial is said, not drawn as zero."""
    text = f"{rate.events}/{rate.trials}"
    words: dict[str, Any] = {"fontsize": canvas.size - 1, "va": "center"}
    if rate.pooled is None:
        axes.text(0, height, "no such edit", color=INK, **words)
        return
    at = 100 * float(rate.pooled)
    axes.plot([0, at], [height, height], color=mark[0], linewidth=1.2)
    axes.plot([at], [height], color=mark[0], marker=mark[1], markersize=6)
    axes.text(at + 3, height, text, **words)


def _plot_steps(found: Sequence[Transitions], names: Sequence[str], canvas: Canvas) -> "Figure":
    columns = min(2 if canvas.narrow else 5, len(found))
    rows = ceil(len(found) / columns)
    one = 1.15 if canvas.narrow else 1.25
    height = rows * (one + 0.42) + 0.62
    figure = blank(canvas, height)
    last = max(len(each.steps) for each in found)
    top = 100 * max((s.ever / s.rollouts for each in found for s in each.steps), default=1.0)
    left, width = (0.13, 0.85) if canvas.narrow else (0.07, 0.91)
    for at, each in enumerate(found):
        row, column = divmod(at, columns)
        bottom = height - 0.3 - (row + 1) * (one + 0.42) + 0.2
        place = left + column * width / columns, bottom / height
        axes = figure.add_axes((*place, width / columns - 0.035, one / height))
        _draw_steps(axes, each, canvas)
        axes.set_xlim(-0.15, last + 0.15)
        axes.set_ylim(-0.04 * top, 1.12 * top or 1.0)
        axes.set_xticks(range(0, last + 1, max(1, last // 4)))
        axes.set_title(label(names[at], 20), fontsize=canvas.size - 0.5, loc="left", pad=3)
        axes.tick_params(labelsize=canvas.size - 1, length=2, labelleft=column == 0)
    lines = [("ever", INK, "s", (0, (4, 2))), ("current", BLUE, "o", "-")]
    _legend(figure, lines, canvas, height)
    figure.text(0.5, 0.06 / height, "proposals t", fontsize=canvas.size, ha="center")
    figure.text(0.005, 1 - 0.24 / height, "% of rollouts", fontsize=canvas.size)
    return figure


def _draw_steps(axes: "Axes", one: Transitions, canvas: Canvas) -> None:
    """q_0 is 0 by eligibility: the base tree does not resolve."""
    times = [0, *(step.t for step in one.steps)]
    current = [0.0, *(100 * step.current / step.rollouts for step in one.steps)]
    ever = [0.0, *(100 * step.ever / step.rollouts for step in one.steps)]
    size = 3.5 if canvas.narrow else 4
    axes.fill_between(times, current, ever, facecolor="none", edgecolor=VERMILION, hatch="////")
    axes.plot(
        times,
        ever,
        color=INK,
        linestyle=(0, (4, 2)),
        marker="s",
        markersize=size + 1.5,
        markerfacecolor="white",
        linewidth=1.1,
    )
    axes.plot(times, current, color=BLUE, marker="o", markersize=size, linewidth=1.6)
    axes.grid(axis="y", color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)


Line = tuple[str, str, str, Any]
"""Name, colour, marker, line style of an entry of a key."""


def _handles(lines: Sequence[Line]) -> "list[Line2D]":
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [],
            [],
            color=colour,
            marker=shape,
            linestyle=style,
            label=name,
            markersize=5,
            markerfacecolor="white" if style != "-" else colour,
        )
        for name, colour, shape, style in lines
    ]


def _key(axes: "Axes", lines: Sequence[Line], canvas: Canvas, across: float) -> None:
    axes.legend(
        handles=_handles(lines),
        loc="lower right",
        bbox_to_anchor=(across, 1.0),
        ncol=2,
        frameon=False,
        fontsize=canvas.size,
        borderaxespad=0.2,
        handlelength=1.6,
    )


def _legend(figure: "Figure", lines: Sequence[Line], canvas: Canvas, height: float) -> None:
    figure.legend(
        handles=_handles(lines),
        loc="upper right",
        bbox_to_anchor=(0.99, 1 - 0.04 / height),
        ncol=2,
        frameon=False,
        fontsize=canvas.size,
        borderaxespad=0,
        handlelength=2.4,
    )
