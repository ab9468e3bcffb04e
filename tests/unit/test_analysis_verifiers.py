"""Verdicts of verifiers: exact closed forms, and intervals that refit the cutoff in every draw."""

from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.inference import zero_event_bound
from analysis.matched import Candidates, conditional_phi, joint_excess, risk_difference
from analysis.verifiers import (
    Dependence,
    accept,
    aurc,
    dependence,
    matched_threshold,
    operating_point,
    risk_coverage,
)

SCORED = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=7)


def test_a_rule_that_rejects_all_has_no_risk_and_no_completion() -> None:
    point = operating_point([False, False], [True, False])
    assert (point.coverage, point.risk, point.sound) == (0, None, 0)


@given(SCORED, st.integers(0, 5))
def test_coverage_is_risk_plus_soundness(table: list[tuple[int, bool]], threshold: int) -> None:
    scores, correct = zip(*table, strict=True)
    point = operating_point(accept(scores, threshold), correct)
    assert point.coverage == point.sound + point.coverage * (point.risk or 0)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_the_ensemble_identity_holds_whatever_the_dependence(
    table: list[tuple[bool, bool, bool]],
) -> None:
    first, second, correct = zip(*table, strict=True)
    found = dependence(first, second, correct)
    wrong = [a and b for a, b, y in table if not y]
    if found is None:
        assert not wrong
        return
    assert found.f_i * found.f_j + found.excess == Fraction(sum(wrong), len(wrong))
    assert found.ensemble == Fraction(sum(wrong), len(wrong))
    assert found.phi is None or -1 - 1e-12 <= found.phi <= 1 + 1e-12


def test_dependence_looks_at_incorrect_candidates_only() -> None:
    """Independent given correctness, dependent when pooled."""
    incorrect = [(a, b, False) for a in (True, False) for b in (True, False)]
    both_right = [(True, True, True)] * 9 + [(False, False, True)]
    first, second, correct = zip(*incorrect, *both_right, strict=True)
    found = dependence(first, second, correct)
    assert found == Dependence(1, 1, 1, 1) and found.excess == 0
    pooled = dependence(first, second, [False] * len(correct))
    assert pooled is not None and pooled.excess > 0


def test_phi_without_any_spread_is_undefined_not_zero() -> None:
    assert Dependence(3, 2, 0, 0).phi is None
    assert Dependence(0, 3, 0, 5).phi_squared is None


@settings(max_examples=40, deadline=None)
@given(SCORED)
def test_aurc_is_the_mean_over_all_orders_of_equal_scores(table: list[tuple[int, bool]]) -> None:
    scores, correct = zip(*table, strict=True)
    areas = []
    for order in permutations(range(len(table))):
        ranked = sorted(order, key=lambda place: -scores[place])  # stable: keeps the permutation
        wrong = [not correct[place] for place in ranked]
        risks = [Fraction(sum(wrong[:k]), k) for k in range(1, len(wrong) + 1)]
        areas.append(sum(risks) / len(risks))
    assert aurc(scores, correct) == sum(areas) / len(areas)


@given(SCORED)
def test_the_last_point_of_the_curve_is_the_rate_of_wrong_candidates(
    table: list[tuple[int, bool]],
) -> None:
    scores, correct = zip(*table, strict=True)
    points = risk_coverage(scores, correct)
    assert points[-1] == (1, Fraction(correct.count(False), len(correct)))
    assert [c for c, _ in points] == sorted({c for c, _ in points})


@given(SCORED, st.fractions(Fraction(1, 100), 1))
def test_a_matched_threshold_is_the_greatest_that_covers(
    table: list[tuple[int, bool]], coverage: Fraction
) -> None:
    scores, correct = zip(*table, strict=True)
    threshold = matched_threshold(scores, coverage)
    assert operating_point(accept(scores, threshold), correct).coverage >= coverage
    stricter = [score for score in scores if score > threshold]
    assert Fraction(len(stricter), len(scores)) < coverage


def test_no_event_in_thirty_tasks() -> None:
    assert round(zero_event_bound(30), 4) == 0.095


@pytest.mark.parametrize(
    ("scores", "correct", "words"),
    [
        ([], [], "at least one"),
        ([0.5], [True, False], "1 values for 2"),
        ([0.5, float("nan")], [True, True], "candidate 2 has nan"),
    ],
)
def test_scores_that_are_none_are_refused(
    scores: list[float], correct: list[bool], words: str
) -> None:
    with pytest.raises(AnalysisError, match=words):
        aurc(scores, correct)


def test_a_coverage_outside_the_unit_interval_is_refused() -> None:
    with pytest.raises(AnalysisError, match="coverage"):
        matched_threshold([0.1], Fraction(0))


def candidates(tasks: int = 12) -> Candidates:
    """``good`` ranks correct candidates first; ``bad`` is its reverse; ``echo`` equals ``good``."""
    rows = []
    for task in range(tasks):
        for place in range(4):
            score = (place * 7 + task) % 10 / 10
            rows.append(
                {"task_id": f"t{task}", "correct": score >= 0.4}
                | {"good": score, "echo": score, "bad": -score}
            )
    return Candidates.from_rows(rows, ["good", "echo", "bad"])


def test_a_better_ranking_has_the_lower_risk_at_the_same_coverage() -> None:
    found = risk_difference(candidates(), "good", "bad", Fraction(1, 2), draws=600, seed=3)
    assert found.value is not None and found.upper is not None
    assert found.value < 0 and found.upper < 0
    assert (found.tasks, found.draws, found.undefined) == (12, 600, 0)
    again = risk_difference(candidates(), "good", "bad", Fraction(1, 2), draws=600, seed=3)
    assert again == found


def test_the_value_is_that_of_the_plain_functions() -> None:
    table, half = candidates(), Fraction(1, 2)
    taken = {
        name: accept(table.scores[name], matched_threshold(table.scores[name], half))
        for name in ("good", "bad")
    }
    exact = dependence(taken["good"], taken["bad"], table.correct)
    risks = [operating_point(taken[name], table.correct).risk for name in ("good", "bad")]
    assert exact is not None and risks[0] is not None and risks[1] is not None
    found = joint_excess(table, "good", "bad", half, draws=20, seed=1)
    assert found.value == pytest.approx(float(exact.excess))
    assert found.attained["bad"] == operating_point(taken["bad"], table.correct).coverage
    risk = risk_difference(table, "good", "bad", half, draws=20, seed=1)
    assert risk.value == pytest.approx(float(risks[0] - risks[1]))
    phi = conditional_phi(table, "good", "bad", half, draws=20, seed=1)
    assert (phi.value is None) == (exact.phi is None)


def test_a_verifier_and_its_echo_are_wholly_dependent() -> None:
    found = conditional_phi(candidates(), "good", "echo", Fraction(4, 5), draws=200, seed=1)
    assert found.value == pytest.approx(1.0)


def test_cutoffs_are_refit_in_every_draw() -> None:
    """Each task by itself is all right or all wrong: a fixed cutoff would accept 0 to 2 tasks."""
    rows = [
        {"task_id": f"t{task}", "correct": task < 2, "v": float(-task), "w": float(task)}
        for task in range(4)
    ]
    found = risk_difference(
        Candidates.from_rows(rows, ["v", "w"]), "v", "w", Fraction(1, 2), draws=500, seed=2
    )
    assert found.value == -1.0 and found.undefined == 0
    assert found.upper == 0.0, "draws of right or of wrong tasks alone have equal risks"


def test_undefined_draws_are_counted_and_set_against_both_bounds() -> None:
    rows = [
        {"task_id": f"t{task}", "correct": task > 0, "v": float(task), "w": float(task % 2)}
        for task in range(3)
    ]
    table = Candidates.from_rows(rows, ["v", "w"])
    found = joint_excess(table, "v", "w", Fraction(1), draws=400, seed=5)
    assert found.value == 0.0 and found.undefined > 0, "the wrong task is not in every draw"
    assert (found.lower, found.upper) == (-1.0, 1.0)
    phi = conditional_phi(table, "v", "w", Fraction(1), draws=10, seed=5)
    assert (phi.value, phi.lower, phi.upper) == (None, None, None)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"task_id": "t", "correct": True}, "v: row 1 has no value"),
        ({"task_id": "t", "correct": 1, "v": 0.1}, "expected true or false"),
        ({"task_id": "t", "correct": True, "v": "high"}, "expected a number"),
        ({"task_id": "t", "correct": True, "v": float("inf")}, "candidate 1 has inf"),
    ],
)
def test_bad_candidates_are_refused_by_column(row: dict[str, object], words: str) -> None:
    with pytest.raises(AnalysisError, match=words):
        Candidates.from_rows([row], ["v"])


def test_an_unknown_verifier_is_refused() -> None:
    with pytest.raises(AnalysisError, match="Known: good, echo, bad"):
        risk_difference(candidates(), "good", "best", Fraction(1, 2), draws=5, seed=1)
