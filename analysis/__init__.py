"""From finished tables to a decision: estimands, inference, decision words, report.

Reads Parquet and ``plan.json`` with DuckDB and imports nothing of the orchestrator, so that anyone
can recompute a decision from the files of a run alone. Heavy libraries are imported where they are
used: ``import analysis`` costs nothing.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.notebook import Loaded

__all__ = ["load", "load_outcomes"]


def load(root: str | Path, plan: str | Path | None = None) -> "Loaded":
    """Open a run for a notebook: ``.outcomes`` (pandas), ``.plan``, ``.decision()``.

    ``plan`` defaults to ``ROOT/analysis/plan.json``. Raises ``AnalysisError`` where the files are
    missing, unbalanced or contradict the plan.

    >>> run = load("runs/quickstart")  # doctest: +SKIP
    >>> run.outcomes.groupby("contract")["sound"].mean()  # doctest: +SKIP
    """
    from analysis.notebook import open_run

    return open_run(Path(root), None if plan is None else Path(plan))


def load_outcomes(table: str | Path, plan: object) -> "Loaded":
    """The same for an outcome table from elsewhere (Parquet or CSV).

    ``plan``: the JSON data of a plan, with empty ``tasks`` and ``rollouts`` where the table is to
    complete it. Raises ``AnalysisError`` for a table that does not fit the design.
    """
    from analysis.notebook import open_outcomes

    return open_outcomes(Path(table), plan)
