"""Verifiers compared at one coverage, with task-cluster intervals that refit the cutoff every draw.

Comes in: candidates with a score of each verifier. Goes out: risk differences, excess joint false
acceptance and conditional phi at a matched coverage ("Looping Is Not Reliability", section 5), each
with percentile bounds over resampled tasks. Coverage matching is retrospective: it compares
verifiers on these candidates and calibrates none of them for use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isfinite

import numpy as np
from numpy.typing import NDArray

from analysis.verifiers import refused

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
BATCH = 250
"""Draws at a time; memory is about BATCH x candidates x 40 bytes."""
STREAM = 3


@dataclass(frozen=True, eq=False)
class Candidates:
    """n candidates: task of each (its cluster), whether it is correct, scores by verifier."""

    tasks: tuple[str, ...]
    correct: tuple[bool, ...]
    scores: dict[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        """Refuse lengths that differ, no candidate at all, and scores that are no numbers."""
        for name, values in {"correct": self.correct, **self.scores}.items():
            if not self.tasks or len(values) != len(self.tasks):
                problem = f"{len(values)} values for {len(self.tasks)} candidates"
                raise refused(name, problem, "Give one value per candidate, and at least one.")
        for name, scores in self.scores.items():
            for place, score in enumerate(scores, 1):
                if not isfinite(score):
                    raise refused(name, f"candidate {place} has {score}", "Give a finite score.")

    @classmethod
    def from_rows(
        cls, rows: Sequence[Mapping[str, object]], verifiers: Sequence[str]
    ) -> "Candidates":
        """From rows with columns ``task_id``, ``correct`` and one score per verifier."""
        for number, row in enumerate(rows, 1):
            for column in ("task_id", "correct", *verifiers):
                if row.get(column) is None:
                    problem = f"row {number} has no value"
                    raise refused(column, problem, "Every candidate needs one.")
            if not isinstance(row["correct"], bool):
                problem = f"row {number}: expected true or false, found {row['correct']!r}"
                raise refused("correct", problem, "Correct the type.")
        return cls(
            tuple(str(row["task_id"]) for row in rows),
            tuple(bool(row["correct"]) for row in rows),
            {name: tuple(_number(row[name], name) for row in rows) for name in verifiers},
        )


@dataclass(frozen=True)
class Matched:
    """One statistic at matched coverage. None where it is undefined on the data themselves.

    ``lower``, ``upper``: two-sided percentile bounds (quantile min{x : F(x) >= p}). A draw in which
    the statistic is undefined counts as the worst possible value for either bound; ``undefined``
    says how many of the ``draws`` were. ``attained``: coverage of each verifier, which ties may put
    above the one asked for.
    """

    statistic: str
    coverage: Fraction
    attained: dict[str, Fraction]
    value: float | None
    lower: float | None
    upper: float | None
    tasks: int
    draws: int
    undefined: int
    seed: int
    method: str = "task-cluster percentile bootstrap, cutoffs refit in every draw"


def risk_difference(
    candidates: Candidates, i: str, j: str, coverage: Fraction, draws: int, seed: int
) -> Matched:
    """Risk of i minus risk of j, each accepting the best ``coverage`` of the candidates."""

    def statistic(weights: Floats, accepted: Sequence[Floats], wrong: Floats) -> Floats:
        risks = [_ratio((weights * a * wrong).sum(1), (weights * a).sum(1)) for a in accepted]
        difference: Floats = risks[0] - risks[1]
        return difference

    return _matched(f"risk of {i} minus {j}", statistic, candidates, (i, j), coverage, draws, seed)


def joint_excess(
    candidates: Candidates, i: str, j: str, coverage: Fraction, draws: int, seed: int
) -> Matched:
    """D_ij among incorrect candidates (equation 7)."""
    name = f"excess joint false acceptance of {i} and {j}"
    return _matched(name, _excess, candidates, (i, j), coverage, draws, seed)


def conditional_phi(
    candidates: Candidates, i: str, j: str, coverage: Fraction, draws: int, seed: int
) -> Matched:
    """phi among incorrect candidates; undefined where one accepts none or all of them."""
    return _matched(f"phi of {i} and {j}", _phi, candidates, (i, j), coverage, draws, seed)


Statistic = Callable[[Floats, Sequence[Floats], Floats], Floats]
"""Weights (draws x n), acceptances of i and j (draws x n), wrong (n) -> one value per draw."""


def _excess(weights: Floats, accepted: Sequence[Floats], wrong: Floats) -> Floats:
    f_i, f_j, both = _false_rates(weights, accepted, wrong)
    excess: Floats = both - f_i * f_j
    return excess


def _phi(weights: Floats, accepted: Sequence[Floats], wrong: Floats) -> Floats:
    f_i, f_j, both = _false_rates(weights, accepted, wrong)
    spread = np.maximum(f_i * (1 - f_i) * f_j * (1 - f_j), 0.0)
    return _ratio(both - f_i * f_j, np.where(spread > 1e-15, np.sqrt(spread), 0.0))


def _false_rates(
    weights: Floats, accepted: Sequence[Floats], wrong: Floats
) -> tuple[Floats, Floats, Floats]:
    counted = weights * wrong
    total = counted.sum(1)
    first, second = accepted
    kinds = (first, second, first * second)
    f_i, f_j, both = (_ratio((counted * kind).sum(1), total) for kind in kinds)
    return f_i, f_j, both


def _ratio(above: Floats, below: Floats) -> Floats:
    """NaN where undefined."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def _matched(
    name: str,
    statistic: Statistic,
    candidates: Candidates,
    pair: tuple[str, str],
    coverage: Fraction,
    draws: int,
    seed: int,
) -> Matched:
    if not 0 < coverage <= 1 or draws < 1:
        raise refused(
            "coverage", f"{coverage} with {draws} draws", "Give a share in (0, 1] and draws."
        )
    names, cluster = np.unique(np.array(candidates.tasks), return_inverse=True)
    wrong = 1.0 - np.array(candidates.correct, dtype=np.float64)
    cuts = [_Cut.of(candidates, verifier, cluster) for verifier in pair]
    once = np.ones((1, len(names)), dtype=np.int64)

    def at(counts: Integers) -> Floats:
        accepted = [cut.accepted(counts, coverage) for cut in cuts]
        return statistic(counts[:, cluster].astype(np.float64), accepted, wrong)

    value = float(at(once)[0])
    values = np.concatenate([at(counts) for counts in _draws(len(names), draws, seed)])
    known = isfinite(value)
    return Matched(
        statistic=name,
        coverage=coverage,
        attained={
            verifier: Fraction(int(cut.accepted(once, coverage).sum()), len(wrong))
            for verifier, cut in zip(pair, cuts, strict=True)
        },
        value=value if known else None,
        lower=_quantile(values, Fraction(1, 40), -1.0) if known else None,
        upper=_quantile(values, Fraction(39, 40), 1.0) if known else None,
        tasks=len(names),
        draws=draws,
        undefined=int(np.isnan(values).sum()),
        seed=seed,
    )


@dataclass(frozen=True, eq=False)
class _Cut:
    """Candidates of one verifier, best score first, so that a cutoff is a place in that order.

    ``rank``: place of the last candidate with the same score, in each candidate's own order.
    """

    cluster: Integers
    ends: Integers
    rank: Integers

    @classmethod
    def of(cls, candidates: Candidates, verifier: str, cluster: Integers) -> "_Cut":
        if verifier not in candidates.scores:
            known = ", ".join(candidates.scores)
            raise refused(verifier, "there are no scores of it", f"Known: {known}.")
        scores = np.array(candidates.scores[verifier])
        order = np.argsort(-scores, kind="stable")
        ordered = scores[order]
        ends = np.searchsorted(-ordered, -ordered, side="right") - 1
        rank = np.empty(len(scores), dtype=np.int64)
        rank[order] = ends
        return cls(cluster[order], ends, rank)

    def accepted(self, counts: Integers, coverage: Fraction) -> Floats:
        """Draws x n: 1 where accepted. The cutoff is the first score at which enough are, whole
        groups of equal scores at a time, by the draw's own counts.
        """
        taken = counts[:, self.cluster].cumsum(axis=1)
        needed = [ceil(coverage * int(total)) for total in taken[:, -1]]
        first = (taken < np.array(needed)[:, None]).sum(axis=1)
        accepted: Floats = (self.rank[None, :] <= self.ends[first][:, None]).astype(np.float64)
        return accepted


def _draws(tasks: int, draws: int, seed: int) -> Iterator[Integers]:
    """How often each task is drawn, draws x tasks, in batches."""
    rng = np.random.default_rng([seed, STREAM])
    share = np.full(tasks, 1 / tasks)
    for start in range(0, draws, BATCH):
        yield rng.multinomial(tasks, share, size=min(BATCH, draws - start)).astype(np.int64)


def _quantile(values: Floats, probability: Fraction, undefined: float) -> float:
    ordered = np.sort(np.where(np.isnan(values), undefined, values))
    return float(ordered[max(1, ceil(probability * len(ordered))) - 1])


def _number(value: object, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(column, f"expected a number, found {value!r}", "Correct the type.")
    return float(value)
