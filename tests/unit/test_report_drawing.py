"""Figures survive any label, keep their promises of size and identity, and show what they say."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.report.blocks import Drawing, HeatCell, Table, table
from analysis.report.drawing import HARMLESS, Canvas, blank, draw, label
from analysis.report.forest import decision_forest
from analysis.report.heat import MOST_PROJECTS, REST, heat
from analysis.report.leaveout import MOST, left_out
from analysis.report.paths import paths
from analysis.report.words import p_value, points, share, typeset
from tests.unit.report_support import root_study, table_study

NUMBERS: Table = table("numbers", ["a"], [["1"]])


def drawn(text: str, key: str = "key") -> Drawing:
    def plot(canvas: Canvas) -> object:
        figure = blank(canvas, 1.0)
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], marker="o")
        axes.set_yticks([0], [label(text)])
        axes.set_title(label(text), fontweight="bold")
        return figure

    return draw(key, text, text, NUMBERS, plot)  # type: ignore[arg-type]


def nodes(svg: str) -> Iterator[ElementTree.Element]:
    return ElementTree.fromstring(svg).iter()


@settings(max_examples=25, deadline=None)
@given(
    st.text(max_size=70) | st.sampled_from(["$\\frac{", "a_b^c$", "<b>", "]]>", "\x00", "\ud800"])
)
def test_any_label_makes_a_harmless_figure(text: str) -> None:
    for svg in (drawn(text).wide, drawn(text).narrow):
        for node in nodes(svg):
            assert node.tag in HARMLESS | {"title", "desc"}
            assert not any(name.startswith("on") for name in node.attrib)


def test_a_label_is_drawn_as_it_is_written() -> None:
    texts = [node.text for node in nodes(drawn("a $x_1$ <b>").wide) if node.tag == "text"]
    assert texts.count("a $x_1$ <b>") == 2


def test_fonts_are_the_pages_and_no_date_is_kept() -> None:
    svg = drawn("word").wide
    assert "font-family" not in svg
    assert "DejaVu" not in svg
    assert "metadata" not in svg
    assert "font-weight: 700" in svg


def test_two_figures_share_no_id_and_the_same_figure_has_the_same_bytes() -> None:
    ids = [
        {node.attrib["id"] for node in nodes(svg) if "id" in node.attrib}
        for one in (drawn("same", "one"), drawn("same", "two"))
        for svg in (one.wide, one.narrow)
    ]
    assert sum(map(len, ids)) == len(set().union(*ids))
    assert drawn("same") == drawn("same")


def test_labels_are_cut_and_made_printable() -> None:
    assert label("a\x00b\nc") == "a�b c"
    assert label("x" * 100, 10) == "x" * 9 + "…"


# ------------------------------------------------------------------------------------- each figure


def test_the_forest_writes_estimate_interval_and_bounds() -> None:
    study = table_study()
    forest = decision_forest([study], ["coder"])
    result = study.analysis.effect("contract", "unsafe")
    texts = [node.text for node in nodes(forest.wide) if node.tag == "text"]
    assert f"{points(result.least.effect)} " in " ".join(map(str, texts))
    assert "Unsafe completions (bound below 0)" in texts
    assert "Sound completions (bound above −5 points)" in texts
    assert "one-sided upper bound" in forest.description
    assert [row[:2] for row in forest.numbers.rows] == [
        ("unsafe", "coder"),
        ("sound", "coder"),
        ("accepted", "coder"),
    ]


def test_leaving_out_lists_every_project_and_draws_the_most_moving() -> None:
    few = left_out(table_study(), "few")[0]
    assert isinstance(few, Drawing)
    assert [row[0] for row in few.numbers.rows] == ["none (all projects)", "p0", "p1", "p2"]


def test_of_many_projects_the_most_moving_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.report.leaveout.MOST", 2)
    cut = left_out(table_study(), "cut")[0]
    assert isinstance(cut, Drawing)
    assert "Drawn: the 2 of 3 projects that move it most" in cut.caption
    drawn_names = {node.text for node in nodes(cut.wide) if node.tag == "text"}
    assert {"p0", "p1"} <= drawn_names
    assert "p2" not in drawn_names
    assert len(cut.numbers.rows) == 4


def test_one_project_leaves_nothing_out() -> None:
    (said,) = left_out(table_study(tasks=1), "one")
    assert said.kind == "paragraph"


def test_transitions_draw_ever_and_current(tmp_path: Path) -> None:
    rates, steps = paths(root_study(tmp_path), "s1")
    assert isinstance(rates, Drawing)
    assert isinstance(steps, Drawing)
    assert rates.numbers.rows[0] == (
        "all cells",
        "2/2 (100.0%)",
        "100.0%",
        *rates.numbers.rows[0][3:],
    )
    by_cell = {(row[0], row[1]): row[2:5] for row in steps.numbers.rows}
    assert by_cell["OFF", "2"] == ("0/2 (0.0%)", "1/2 (50.0%)", "1")
    assert by_cell["ON", "2"] == ("1/2 (50.0%)", "1/2 (50.0%)", "0")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_shade_is_zero_only_for_nothing_and_full_only_for_all(counts: tuple[int, int]) -> None:
    some, rollouts = counts
    cell = HeatCell(unsafe=some, sound=0, missing=0, rollouts=rollouts)
    assert (cell.unsafe_shade == 0) is (some == 0)
    assert cell.unsafe_shade <= 4
    if some == rollouts:
        assert cell.unsafe_shade == 4


@pytest.mark.parametrize("tasks", [5, 60, 61, 1000])
def test_the_heat_map_counts_every_rollout_once(tasks: int) -> None:
    study = table_study(tasks=tasks, seeds=1, lost=2)
    cells = [cell for group in heat(study).groups for _, row in group.rows for cell in row]
    assert sum(cell.rollouts + cell.missing for cell in cells) == 4 * tasks
    assert sum(cell.missing for cell in cells) == 2
    named = sum(len(group.rows) for group in heat(study).groups)
    assert named == (tasks if tasks <= 60 else 3)


def test_more_projects_than_fit_leave_a_line_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.report.heat.MOST_PROJECTS", 2)
    monkeypatch.setattr("analysis.report.heat.MOST_TASKS", 5)
    (group,) = heat(table_study()).groups
    names = [name for name, _ in group.rows]
    assert names == ["p0 (2 tasks)", "p1 (2 tasks)", f"{REST} (1 project, 2 tasks)"]
    assert MOST_PROJECTS > MOST > 2


# ------------------------------------------------------------------------------------------ words


def test_figures_are_written_with_signs_and_units() -> None:
    assert points(Fraction(-1, 36)) == "−2.78"
    assert points(Fraction(0)) == "0.00"
    assert points(Fraction(1, 24)) == "+4.17"
    assert share(0, 0) == "0/0"
    assert share(7, 72) == "7/72 (9.7%)"
    assert p_value(None) == "undecided"
    assert p_value(Fraction(1, 10**6)) == "<0.0001"
    assert p_value(0.25) == "0.2500"
    assert typeset("24-sparse, -4.6 [-1, 2]") == "24-sparse, −4.6 [−1, 2]"
