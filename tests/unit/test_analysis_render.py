"""The printed report says what a reviewer has to know, in words and figures."""

from dataclasses import replace
from fractions import Fraction
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from analysis import inference, lattice
from analysis.data import read_root
from analysis.decision import analyze
from analysis.plan import parse_plan
from analysis.render import render_text
from analysis.wide import WideTable
from tests.unit.analysis_support import Root, analysed, counted, small_plan


def line(text: str, start: str) -> str:
    return next(row.strip() for row in text.splitlines() if row.strip().startswith(start))


def test_the_report_of_a_run(tmp_path: Path) -> None:
    plan = parse_plan(small_plan())
    text = render_text(analyze(plan, read_root(Root().write(tmp_path), plan)), width=160)
    assert "SIMULATED" not in text
    assert "Coverage: planned 4 = settled 4 + owed 0 infrastructure + 0 unknown" in text
    assert "2 tasks of 2 projects x 2 cells (contract {OFF, ON}) x 1 seeds = 4 rollouts" in text
    assert "evidence held at stale" in text
    assert line(text, "OFF").split()[:4] == ["OFF", "2/2", "2", "(100.0%)"]
    assert line(text, "contract   unsafe").split()[2] == "-100.00"
    assert line(text, "unsafe superiority:").startswith("unsafe superiority: yes")
    assert "Baseline sound rate 0.0%: floor-limited, below 5.0%" in text
    assert line(text, "joint:") == "joint: yes"
    assert "invalid actions" in text
    assert "tasks without gate overlap" in text
    assert line(text, "contract   task").split()[2:] == ["1", "0", "0", "1", "0", "1.0000"]
    gate = line(text, "gate false pass").split()[3:]
    assert gate == ["50.0%", "1/2", "100.0%", "1/1", "0.0%", "0/1"]
    assert line(text, "all").split()[1] == "2/2"
    assert line(text, "p1").split() == ["p1", "-100.00", "0.00", "-100.00"]
    assert "No unsafe completion at contract = ON in 2 task clusters" in text


def test_a_simulated_run_says_so_first(tmp_path: Path) -> None:
    run = Root()
    for row in run.rollouts:
        row["simulated"] = True
    plan = parse_plan(small_plan() | {"simulated": True})
    result = analyze(plan, read_root(run.write(tmp_path), plan))
    assert render_text(result).startswith("SIMULATED")


def test_zero_against_zero_is_printed_as_no_superiority() -> None:
    text = render_text(analysed(*counted([0] * 24, seeds=3)))
    assert line(text, "unsafe superiority:") == (
        "unsafe superiority: no  (upper exactly 0; has to be below 0)"
    )
    assert line(text, "joint:") == "joint: no"
    assert "the rate may still be up to 11.7%" in text


def test_the_decision_comes_first(tmp_path: Path) -> None:
    plan = parse_plan(small_plan())
    lines = render_text(analyze(plan, read_root(Root().write(tmp_path), plan))).splitlines()
    assert lines[0].startswith("trial: A trial")
    assert lines[3].startswith("Decision on contract, 95% one-sided bounds, exact bootstrap")
    assert lines.index("Task-equal effects, points") > lines.index("  joint: yes")


def test_what_the_rule_is_worth_stands_beside_the_decision() -> None:
    text = " ".join(render_text(analysed(*counted([1, 0, -1] * 8, seeds=3))).split())
    assert "Nearest simulated case, 24-" in text
    assert "this rule claimed falsely, at worst: superiority" in text
    assert "Bounds that assume only the range of an effect: superiority no" in text


def test_a_no_from_one_task_is_explained() -> None:
    plan, given = counted([-2], 2)
    given = [row | {"resolved": False if row["accepted"] else None} for row in given]
    text = render_text(analysed(plan, given))
    assert line(text, "Decision on").endswith("bootstrap over one task")
    assert line(text, "joint:") == "joint: no"
    assert line(text, "Why no:").startswith("Why no: no claim can be made from one task")
    assert "Why no" not in render_text(analysed(*counted([-2, 0], 2)))


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_width_breaks_a_figure_or_a_name(tmp_path: Path, width: int) -> None:
    plan = parse_plan(small_plan())
    result = analyze(plan, read_root(Root().write(tmp_path), plan))
    text = render_text(result, width)
    assert max(map(len, text.splitlines())) <= width
    words = set(text.split())
    assert {"[-100.00,", "-100.00]", "discovered", "contract", "accepted"} <= words
    assert words >= {word for word in render_text(result, 400).split() if "─" not in word}


def test_a_table_that_is_too_wide_goes_on_below() -> None:
    table = WideTable("Figures", ["name"], ["first", "second"], [("row", "1" * 20, "2" * 20)])
    console = Console(width=40, file=StringIO(), color_system=None)
    console.print(table)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Figures (continued)" in shown and shown.count("row") == 2
    assert "1" * 20 in shown and "2" * 20 in shown


def test_missing_outcomes_are_printed_as_ranges() -> None:
    plan, given = counted([1, 0, 0], seeds=1, families=[])
    given = [row | {"settled_as": "agent"} for row in given]
    given[0] |= {"accepted": None, "resolved": None, "settled_as": "infrastructure"}
    text = render_text(analysed(plan, given))
    assert "settled 5 + owed 1 infrastructure" in text
    assert "missing outcomes set against the claim" in text
    assert "0.00 to +33.33" in line(text, "contract   sound")


def test_a_disagreement_with_the_draws_is_printed() -> None:
    plan, given = counted([-1] * 9 + [0], seeds=1)
    result = analysed(plan, given)
    agreed = render_text(result)
    sampled = replace(result.decision.monte_carlo, non_inferiority=True)
    decision = replace(result.decision, monte_carlo=sampled, monte_carlo_agrees=False)
    text = render_text(replace(result, decision=decision))
    assert "Monte Carlo disagrees" not in agreed
    assert "non-inferiority yes" in line(text, "Monte Carlo disagrees")
    assert "exact decides" in line(text, "Monte Carlo disagrees")


def test_too_large_a_lattice_falls_back_to_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, given = counted([-1] * 9 + [1], seeds=1)
    exact = analysed(plan, given)
    monkeypatch.setattr(lattice, "MAX_BITS", 0)
    result = analysed(plan, given)
    estimate = result.effect("contract", "sound").least
    assert (estimate.exact, estimate.exact_p) == (None, None)
    assert estimate.bounds == estimate.monte_carlo
    assert estimate.p == estimate.monte_carlo_p
    assert result.decision.decided_by == "monte carlo"
    assert exact.decision.decided_by == "exact"
    assert "monte carlo bootstrap over 10 tasks" in render_text(result)


def test_a_sampled_p_value_is_never_zero() -> None:
    all_alike = lattice.TaskEffects((1,) * 40, 1)
    assert inference.monte_carlo_p_values([all_alike], 999, 1) == [Fraction(1, 1000)]


def test_too_fine_a_unit_is_refused_rather_than_rounded() -> None:
    effects = lattice.TaskEffects((2**53, 1), 1)
    with pytest.raises(ValueError, match="too fine"):
        inference.monte_carlo_bounds([effects], Fraction(19, 20), 10, 1)
    with pytest.raises(ValueError, match="at least one"):
        inference.zero_event_bound(0)
