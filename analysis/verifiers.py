"""How far verdicts of verifiers can be relied on: coverage, risk, and errors that they share.

Comes in: acceptances or scores of candidates, and whether each candidate is correct. Goes out:
exact fractions ("Looping Is Not Reliability", section 3, equations 5 to 8; docs/protocol.md).
Everything here is descriptive; task-cluster intervals are in :mod:`analysis.matched`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, groupby
from math import ceil, isfinite, sqrt

from analysis.errors import AnalysisError

NATIVE_THRESHOLD = 0.5
"""Acceptance at the native threshold is score >= 0.5 ("Looping Is Not Reliability", section 4)."""


@dataclass(frozen=True)
class OperatingPoint:
    """Counts of one acceptance rule over n >= 1 candidates."""

    candidates: int
    accepted: int
    wrong: int

    @property
    def coverage(self) -> Fraction:
        """P(A = 1)."""
        return Fraction(self.accepted, self.candidates)

    @property
    def risk(self) -> Fraction | None:
        """P(Y = 0 | A = 1); None where nothing is accepted, never 0."""
        return Fraction(self.wrong, self.accepted) if self.accepted else None

    @property
    def sound(self) -> Fraction:
        """Sound completion, P(A = 1, Y = 1): a rule that rejects all has no risk, and 0 here."""
        return Fraction(self.accepted - self.wrong, self.candidates)


@dataclass(frozen=True)
class Dependence:
    """Acceptances of two verifiers i and j among *incorrect* candidates, as a 2 x 2 table.

    Conditioning comes first: pooled over correct and incorrect candidates, two verifiers that are
    independent given correctness look dependent.

    >>> Dependence(both=3, i_only=1, j_only=2, neither=4).excess
    Fraction(1, 10)
    """

    both: int
    i_only: int
    j_only: int
    neither: int

    @property
    def incorrect(self) -> int:
        """Incorrect candidates, n >= 1."""
        return self.both + self.i_only + self.j_only + self.neither

    @property
    def f_i(self) -> Fraction:
        """P(A_i = 1 | Y = 0)."""
        return Fraction(self.both + self.i_only, self.incorrect)

    @property
    def f_j(self) -> Fraction:
        """P(A_j = 1 | Y = 0)."""
        return Fraction(self.both + self.j_only, self.incorrect)

    @property
    def excess(self) -> Fraction:
        """Excess joint false acceptance D_ij = P(A_i A_j | Y = 0) - f_i f_j (equation 7)."""
        return Fraction(self.both, self.incorrect) - self.f_i * self.f_j

    @property
    def ensemble(self) -> Fraction:
        """False acceptance of "both must accept": f_i f_j + D_ij = P(A_i A_j | Y = 0) (eq. 8)."""
        return self.f_i * self.f_j + self.excess

    @property
    def phi_squared(self) -> Fraction | None:
        """phi squared, exactly; None where a verifier accepts none or all of the incorrect."""
        spread = self.f_i * (1 - self.f_i) * self.f_j * (1 - self.f_j)
        return None if spread == 0 else self.excess**2 / spread

    @property
    def phi(self) -> float | None:
        """Conditional phi = D_ij / sqrt(f_i (1 - f_i) f_j (1 - f_j)); None as above, never 0."""
        squared = self.phi_squared
        if squared is None:
            return None
        return sqrt(squared) if self.excess >= 0 else -sqrt(squared)


def operating_point(accepted: Sequence[bool], correct: Sequence[bool]) -> OperatingPoint:
    """Coverage, risk and sound completion of one acceptance rule over the same candidates."""
    _same_length(accepted, correct)
    wrong = sum(bool(a) and not y for a, y in zip(accepted, correct, strict=True))
    return OperatingPoint(len(correct), sum(map(bool, accepted)), wrong)


def dependence(
    accepted_i: Sequence[bool], accepted_j: Sequence[bool], correct: Sequence[bool]
) -> Dependence | None:
    """The 2 x 2 table of two verifiers among incorrect candidates; None where there are none."""
    _same_length(accepted_i, correct)
    _same_length(accepted_j, correct)
    pairs = [
        (bool(i), bool(j)) for i, j, y in zip(accepted_i, accepted_j, correct, strict=True) if not y
    ]
    if not pairs:
        return None
    kinds = ((True, True), (True, False), (False, True), (False, False))
    return Dependence(*(pairs.count(kind) for kind in kinds))


def accept(scores: Sequence[float], threshold: float = NATIVE_THRESHOLD) -> list[bool]:
    """Acceptance at a threshold: score >= threshold."""
    return [score >= threshold for score in _finite(scores)]


def matched_threshold(scores: Sequence[float], coverage: Fraction) -> float:
    """The greatest threshold at which at least ``coverage`` (0 < c <= 1) of the scores is accepted.

    Equal scores are accepted or rejected together, so that the coverage attained may exceed the one
    asked for; report it (:attr:`OperatingPoint.coverage`) beside every figure.
    """
    if not 0 < coverage <= 1:
        raise refused("coverage", f"{coverage} is not in (0, 1]", "Give the share to accept.")
    ordered = sorted(_finite(scores), reverse=True)
    return ordered[ceil(coverage * len(ordered)) - 1]


def risk_coverage(
    scores: Sequence[float], correct: Sequence[bool]
) -> tuple[tuple[Fraction, Fraction], ...]:
    """(coverage, risk) at every distinct score as threshold, from the highest to the lowest."""
    groups = _tie_groups(scores, correct)
    taken = accumulate(size for size, _ in groups)
    wrong = accumulate(bad for _, bad in groups)
    return tuple(
        (Fraction(k, len(scores)), Fraction(bad, k)) for k, bad in zip(taken, wrong, strict=True)
    )


def aurc(scores: Sequence[float], correct: Sequence[bool]) -> Fraction:
    """Area under the risk-coverage curve: mean over k = 1..n of the risk of the k best scores.

    Ties: the expectation over all orders within each group of equal scores, so that the value does
    not depend on the order of the rows. Lower is better.

    >>> aurc([0.9, 0.8, 0.7, 0.6], [True, True, False, True])
    Fraction(7, 48)
    """
    total, before, wrong = Fraction(0), 0, 0
    for size, bad in _tie_groups(scores, correct):
        for place in range(1, size + 1):
            total += (wrong + Fraction(place * bad, size)) / (before + place)
        before, wrong = before + size, wrong + bad
    return total / len(scores)


def _tie_groups(scores: Sequence[float], correct: Sequence[bool]) -> list[tuple[int, int]]:
    """(size, wrong) of each group of equal scores, highest score first."""
    _same_length(scores, correct)
    ordered = sorted(zip(_finite(scores), correct, strict=True), key=lambda pair: -pair[0])
    groups = []
    for _, pairs in groupby(ordered, key=lambda pair: pair[0]):
        group = list(pairs)
        groups.append((len(group), sum(not y for _, y in group)))
    return groups


def _finite(scores: Sequence[float]) -> Sequence[float]:
    if not scores:
        raise refused("score", "there are no candidates", "Give one score per candidate.")
    for place, score in enumerate(scores, 1):
        if not isfinite(score):
            raise refused("score", f"candidate {place} has {score}", "Give a finite score.")
    return scores


def _same_length(values: Sequence[object], correct: Sequence[bool]) -> None:
    if not correct or len(values) != len(correct):
        problem = f"{len(values)} values for {len(correct)} candidates"
        raise refused("candidates", problem, "Give one value per candidate, and at least one.")


def refused(field: str, problem: str, remedy: str) -> AnalysisError:
    """The error of a table of verdicts, which has no file."""
    return AnalysisError("verdicts", field, problem, remedy)
