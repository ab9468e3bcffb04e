"""Does a record say that the planned treatment was given? One row of a table per factor.

A record whose arm differs from its plan is refused: the analysis groups by plan, and would
otherwise attribute an outcome to a treatment that was never applied.
"""

from collections.abc import Callable, Iterable

from analysis.errors import AnalysisError
from analysis.outcomes import Row
from analysis.plan import Plan

COMPONENTS = ("binding", "admission", "certification")


def _switches(*names: str) -> Callable[[Row, str], bool]:
    return lambda row, level: all(row[name] is (level == "ON") for name in names)


GIVEN: dict[str, Callable[[Row, str], bool]] = {
    "evidence": lambda row, level: bool(row["evidence"] == level),
    "contract": _switches(*COMPONENTS),
    "binding": _switches("binding"),
    "admission": _switches("admission"),
    "certification": _switches("certification"),
    "revision_cap": lambda row, level: str(row["revision_cap"]) == level,
}
"""Factor -> whether the record's columns show that level."""


def check_arms(records: Iterable[Row], plan: Plan, file: str) -> None:
    """Compare every record's arm with its planned levels and the plan's constants."""
    planned = {rollout.rollout_id: rollout.levels for rollout in plan.rollouts}
    for record in records:
        levels = {**plan.constants, **planned[record["rollout_id"]]}
        for factor, level in levels.items():
            if factor not in GIVEN:
                problem = f"factor {factor} is not recorded"
                raise AnalysisError(plan.file, "factors", problem, f"Known: {', '.join(GIVEN)}.")
            if not GIVEN[factor](record, level):
                problem = f"rollout {record['rollout_id']} was not run at {factor} = {level}"
                raise AnalysisError(file, factor, problem, "Run the lock again in a new root.")
