"""What a notebook is given: the outcome table as a data frame, the plan, the decision on demand."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.data import read_root
from analysis.external import read_outcomes
from analysis.outcomes import Outcomes
from analysis.plan import Plan, parse_plan, read_plan
from analysis.results import Analysis

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Loaded:
    """A run, opened. ``plan`` is its plan, ``source`` the outcome table as Arrow."""

    plan: Plan
    source: Outcomes

    @cached_property
    def outcomes(self) -> "pd.DataFrame":
        """One row per planned rollout (pandas); columns as in :mod:`analysis.outcomes`."""
        return self.source.table.to_pandas()

    def decision(self) -> Analysis:
        """The whole analysis."""
        from analysis.decision import analyze

        return analyze(self.plan, self.source)


def open_run(root: Path, plan: Path | None = None) -> Loaded:
    """Read plan and outcomes of a finished, replayed run."""
    parsed = read_plan(plan or root / "analysis" / "plan.json")
    return Loaded(parsed, read_root(root, parsed))


def open_outcomes(table: Path, plan: object) -> Loaded:
    """Read an outcome table from elsewhere against the data of a plan."""
    return Loaded(*read_outcomes(table, parse_plan(plan)))
