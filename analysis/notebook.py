"""What a notebook is given: outcome table as a data frame, SQL views, the decision on demand."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.data import read_root
from analysis.external import read_outcomes
from analysis.outcomes import Outcomes
from analysis.plan import Plan, parse_plan, read_plan
from analysis.results import Analysis
from analysis.views import Source, Views

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa


@dataclass(frozen=True)
class Loaded:
    """A run or table, opened. ``plan`` is its plan, ``source`` the outcome table as Arrow.

    ``root`` is None for an outcome table from elsewhere.
    """

    plan: Plan
    source: Outcomes
    root: Path | None = None

    @cached_property
    def outcomes(self) -> "pd.DataFrame":
        """One row per planned rollout (pandas); columns as in docs/columns.md."""
        return self.source.table.to_pandas()

    @cached_property
    def views(self) -> Views:
        """The SQL views (docs/columns.md); column ``source`` holds the folder's or stack's name."""
        return Views([self.labelled(self.root.resolve().name if self.root else self.plan.stack)])

    def labelled(self, label: str) -> Source:
        """This source for views that hold several."""
        return Source(label, self.source, self.root)

    def sql(self, query: str) -> "pd.DataFrame":
        """Answer of one query over the views, as a data frame."""
        return self.views.sql(query)

    def arrow(self, query: str) -> "pa.Table":
        """The same as an Arrow table."""
        return self.views.arrow(query)

    def decision(self) -> Analysis:
        """The whole analysis."""
        from analysis.decision import analyze

        return analyze(self.plan, self.source)


def open_run(root: Path, plan: Path | None = None) -> Loaded:
    """Read plan and outcomes of a finished, replayed run."""
    parsed = read_plan(plan or root / "analysis" / "plan.json")
    return Loaded(parsed, read_root(root, parsed), root)


def open_outcomes(table: Path, plan: object) -> Loaded:
    """Read an outcome table from elsewhere against the data of a plan."""
    return Loaded(*read_outcomes(table, parse_plan(plan)))
