"""From finished tables to a decision: estimands, inference, decision words, report.

Reads Parquet and ``plan.json`` with DuckDB and imports nothing of the orchestrator, so that anyone
can recompute a decision from the files of a run alone. Heavy libraries are imported where they are
used: ``import analysis`` costs nothing.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from analysis.many import Many
    from analysis.notebook import Loaded

__all__ = ["load", "load_many", "load_many_outcomes", "load_outcomes"]

_Path = str | PathLike[str]
_Paths = Sequence[_Path] | Mapping[str, _Path]


@overload
def load(root: _Path, plan: _Path | None = None) -> "Loaded": ...
@overload
def load(root: list[_Path] | tuple[_Path, ...] | Mapping[str, _Path]) -> "Many": ...


def load(
    root: _Path | list[_Path] | tuple[_Path, ...] | Mapping[str, _Path], plan: _Path | None = None
) -> "Loaded | Many":
    """Open a run: ``.outcomes`` (pandas), ``.sql(query)``, ``.plan``, ``.decision()``.

    ``plan`` defaults to ``ROOT/analysis/plan.json``. Given several roots, the same as
    :func:`load_many`. Raises ``AnalysisError`` where the files are missing, unbalanced or
    contradict the plan.

    >>> run = load("runs/quickstart")  # doctest: +SKIP
    >>> run.outcomes.groupby("contract")["sound"].mean()  # doctest: +SKIP
    """
    from analysis.notebook import open_run

    if isinstance(root, str | PathLike):
        return open_run(Path(root), None if plan is None else Path(plan))
    return load_many(root)


def load_many(roots: _Paths) -> "Many":
    """Open several runs (stacks, studies): one ``.sql(query)`` over all, ``.decisions()`` apart.

    ``roots``: folders, or label -> folder. Raises ``AnalysisError`` as :func:`load` does.

    >>> runs = load_many(["runs/stack-a", "runs/stack-b"])  # doctest: +SKIP
    >>> runs.sql("SELECT source, avg(unsafe::INT) FROM outcomes GROUP BY source")  # doctest: +SKIP
    """
    from analysis.many import open_runs

    return open_runs(roots)


def load_outcomes(table: _Path, plan: object) -> "Loaded":
    """The same as :func:`load` for an outcome table from elsewhere (Parquet or CSV).

    ``plan``: the JSON data of a plan, with empty ``tasks`` and ``rollouts`` where the table is to
    complete it. Raises ``AnalysisError`` for a table that does not fit the design.
    """
    from analysis.notebook import open_outcomes

    return open_outcomes(Path(table), plan)


def load_many_outcomes(tables: _Paths, plan: object) -> "Many":
    """The same as :func:`load_many` for outcome tables of one design, each analysed on its own."""
    from analysis.many import open_tables

    return open_tables(tables, plan)
