"""Closed forms of the verifier analysis: AURC, conditional phi, excess joint false acceptance."""

from fractions import Fraction

import pytest

from analysis.verifiers import Dependence, aurc, dependence, risk_coverage
from tests.golden.command import GOLDEN, Row

CASES = GOLDEN["property_cases"]
PAIRS = CASES["phi_D"]
COUNTS = ("both", "i_only", "j_only", "neither")


@pytest.mark.parametrize("case", CASES["aurc"]["cases"], ids=lambda case: case["name"])
def test_area_under_the_risk_coverage_curve(case: Row) -> None:
    """The tie rule is the expectation over orders within equal scores."""
    scores, correct = case["scores"], [bool(one) for one in case["correct"]]
    value = aurc(scores, correct)
    assert value == Fraction(case["aurc_expected_random_ties"])
    best, worst = Fraction(case["aurc_ties_best"]), Fraction(case["aurc_ties_worst"])
    assert best <= value <= worst
    points = tuple((Fraction(c), Fraction(r)) for c, r in case["risk_coverage_group_points"])
    assert risk_coverage(scores, correct) == points


@pytest.mark.parametrize("case", CASES["aurc"]["cases"], ids=lambda case: case["name"])
def test_the_order_of_the_rows_does_not_matter(case: Row) -> None:
    scores, correct = case["scores"], [bool(one) for one in case["correct"]]
    assert aurc(scores[::-1], correct[::-1]) == aurc(scores, correct)


@pytest.mark.parametrize("case", PAIRS["cases"], ids=lambda case: case["name"])
def test_dependence_among_incorrect_candidates(case: Row) -> None:
    pair = Dependence(**{name: case[name] for name in COUNTS})
    assert (pair.f_i, pair.f_j) == (Fraction(case["f_i"]), Fraction(case["f_j"]))
    assert pair.excess == Fraction(case["D"])
    squared = case["phi_squared"]
    assert pair.phi_squared == (None if squared is None else Fraction(squared))
    assert pair.phi == (None if case["phi"] is None else pytest.approx(case["phi"], abs=1e-15))
    assert pair.ensemble == Fraction(case["both"], pair.incorrect)


def candidates(counts: Row, correct: bool) -> list[tuple[bool, bool, bool]]:
    """(A_i, A_j, Y) of each candidate of a two-by-two table."""
    kinds = zip(COUNTS, ((True, True), (True, False), (False, True), (False, False)), strict=True)
    return [(*kind, correct) for name, kind in kinds for _ in range(counts[name])]


def test_dependence_is_conditioned_before_it_is_taken() -> None:
    case = PAIRS["conditioning"]
    rows = candidates(case["Y0"], False) + candidates(case["Y1"], True)
    pair = dependence(*(list(column) for column in zip(*rows, strict=True)))
    assert pair is not None
    assert pair.excess == Fraction(case["D_given_Y0"])
    pooled = Dependence(**{name: case["Y0"][name] + case["Y1"][name] for name in COUNTS})
    assert pooled.excess == Fraction(case["D_pooled"])
