"""Golden rows against what the command prints: one figure per row, and the table of deviations.

``python -m tests.golden.expected`` prints the table of docs/validation/golden.md.
"""

from collections.abc import Iterator
from fractions import Fraction

from analysis.inference import holm
from tests.golden.command import STUDIES, Row, decision, effect, exact, holm_row

EFFECTS = {"stack": "contract", "common_state": "stale"}
"""Effect that a study's keys leave out, by kind of study."""

WORDS = {
    "decision.unsafe_superiority": "superiority",
    "decision.sound_noninferiority": "non_inferiority",
    "decision.joint": "joint",
}
BOUNDS = {
    "ci95_lo": "ci_low",
    "ci95_hi": "ci_high",
    "lower_one_sided_95": "lower",
    "upper_one_sided_95": "upper",
}
ROWS = [(name, at) for name, study in STUDIES.items() for at in range(len(study["expected"]))]
"""(study, place) of every expected row."""


def expected(name: str, at: int) -> Row:
    """One expected row."""
    row: Row = STUDIES[name]["expected"][at]
    return row


def found(name: str, key: str) -> Fraction | float | bool:
    """The figure that the command prints under a golden key; points, counts, p-values, verdicts."""
    printed = decision(name)
    if key in WORDS:
        word: bool = printed["decision"]["verdict"][WORDS[key]]
        return word
    *names, figure = key.split(".")
    kind = STUDIES[name]["kind"]
    left_out = [EFFECTS[kind]] if kind in EFFECTS else []
    which, endpoint = [*left_out, *(names or ["unsafe"])]
    if figure == "holm_p":
        adjusted: float = holm_row(printed, which, endpoint)["p_holm"]
        return adjusted
    one = effect(printed, which, endpoint)
    if figure == "exact_holm_p":
        return holm([float(exact(one["least"]["exact_p"])), *[1.0] * 5])[0]
    return _figure(one, figure)


def _figure(one: Row, figure: str) -> Fraction | bool:
    least, without = one["least"], one["leave_one_project_out"].values()
    if figure in BOUNDS:
        return 100 * exact(least["exact"][BOUNDS[figure]])
    figures: dict[str, Fraction | bool] = {
        "effect": 100 * exact(least["effect"]),
        "signflip_p": exact(least["exact_p"]),
        "n_nonzero_tasks": Fraction(least["nonzero_tasks"]),
        "lopo_all_nonpositive": all(exact(high) <= 0 for _, high in without),
        "lopo_all_positive": all(exact(low) > 0 for low, _ in without),
    }
    return figures[figure]


def deviation(name: str, at: int) -> float:
    """Distance of the printed figure from the expected one, in the figure's unit."""
    row = expected(name, at)
    return abs(float(found(name, row["key"])) - float(row["value"]))


def within(name: str, at: int) -> bool:
    """Whether a row is reproduced; tolerance zero leaves room for the notation of a double."""
    return deviation(name, at) <= expected(name, at)["tol"] + 1e-12


def table() -> Iterator[str]:
    """Per study: rows, rows reproduced, largest deviations of points and of p-values."""
    for name, study in STUDIES.items():
        rows = range(len(study["expected"]))
        parts: dict[bool, list[float]] = {True: [0.0], False: [0.0]}
        for at in rows:
            parts[study["expected"][at]["key"].endswith("_p")].append(deviation(name, at))
        good = sum(within(name, at) for at in rows)
        published = sum(row["status"] == "published" for row in study["expected"])
        largest = " | ".join(f"{max(parts[is_p]):.4f}" for is_p in (False, True))
        yield f"| {name} | {len(rows)} | {published} | {good} | {largest} |"


if __name__ == "__main__":
    print("\n".join(table()))
