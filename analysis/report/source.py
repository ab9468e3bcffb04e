"""One stack's study as the report needs it, and the refusal of one that does not balance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.outcomes import Outcomes
from analysis.plan import Plan
from analysis.report.facts import Facts, read_facts
from analysis.results import Analysis

if TYPE_CHECKING:
    from analysis.notebook import Loaded


@dataclass(frozen=True)
class Study:
    """``place``: the root or table it was read from; ``manifest``: a table's study, else empty."""

    place: str
    manifest: str
    plan: Plan
    outcomes: Outcomes
    analysis: Analysis
    facts: Facts

    @property
    def key(self) -> str:
        """The decision's effect."""
        return self.plan.rule.effect


def study_of(loaded: "Loaded", place: str, manifest: str = "") -> Study:
    """Analyse what was loaded and read what else its root recorded."""
    analysed, facts = loaded.decision(), read_facts(loaded)
    made = Study(place, manifest, loaded.plan, loaded.source, analysed, facts)
    require_balance(made)
    return made


def require_balance(study: Study) -> None:
    """Refuse a matrix in which planned is not settled + owed: it is unfinished, not final."""
    coverage = study.analysis.coverage
    planned = {len(study.plan.rollouts), study.analysis.design.rollouts, coverage.planned}
    owed = sum(coverage.owed.values())
    if planned != {coverage.settled + owed}:
        problem = (
            f"planned {len(study.plan.rollouts)} is not settled {coverage.settled} + owed {owed}"
        )
        raise AnalysisError(study.place, "", problem, "Resume the run; then report it.")


def require_same_question(studies: Sequence[Study]) -> None:
    """Refuse stacks that cannot share one figure: other effect, rule, or the same stack twice."""
    first = studies[0]
    for other in studies[1:]:
        if (other.plan.rule, other.plan.effect(other.key)) != (
            first.plan.rule,
            first.plan.effect(first.key),
        ):
            problem = f"decides another question than {first.place}"
            raise AnalysisError(other.place, "decision", problem, "Report it on its own.")
    if len(set(names(studies))) < len(studies):
        repeated = next(name for name in names(studies) if names(studies).count(name) > 1)
        problem = f"{repeated} is given twice"
        raise AnalysisError(studies[-1].place, "stack", problem, "Give each run once.")


def names(studies: Sequence[Study]) -> list[str]:
    """How the stacks are told apart: by name, with the study's where a name repeats."""
    stacks = [study.analysis.stack for study in studies]
    if len(set(stacks)) == len(stacks):
        return stacks
    return [f"{study.analysis.study} · {study.analysis.stack}" for study in studies]
