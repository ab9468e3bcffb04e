"""Several runs or outcome tables beside each other: queried together, decided one by one.

Each source keeps its own plan, matrix and decision. There is no decision of a collection: stacks
and studies are analysed separately (docs/protocol.md, "stacks"), so that pooling them cannot happen
by accident.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.notebook import Loaded, open_outcomes, open_run
from analysis.results import Analysis
from analysis.views import Views

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

Paths = Sequence[str | PathLike[str]] | Mapping[str, str | PathLike[str]]
"""Files or folders, or label -> file or folder."""


@dataclass(frozen=True, eq=False)
class Many(Mapping[str, Loaded]):
    """Label -> :class:`~analysis.notebook.Loaded`, in the order given."""

    runs: dict[str, Loaded]

    def __getitem__(self, label: str) -> Loaded:
        return self.runs[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @cached_property
    def views(self) -> Views:
        """The SQL views over all sources; column ``source`` holds the label."""
        return Views(run.labelled(label) for label, run in self.runs.items())

    def sql(self, query: str) -> "pd.DataFrame":
        """Answer of one query over the views of all sources, as a data frame."""
        return self.views.sql(query)

    def arrow(self, query: str) -> "pa.Table":
        """The same as an Arrow table."""
        return self.views.arrow(query)

    @property
    def outcomes(self) -> "pd.DataFrame":
        """All outcome tables below each other; a factor that a source has not is null there."""
        return self.sql("SELECT * FROM outcomes")

    def decisions(self) -> dict[str, Analysis]:
        """Label -> the whole analysis of that source alone."""
        return {label: run.decision() for label, run in self.runs.items()}


def open_runs(roots: Paths) -> Many:
    """Open several finished, replayed runs, each with its own plan."""
    return Many({label: open_run(path) for label, path in labelled(roots).items()})


def open_tables(tables: Paths, plan: object) -> Many:
    """Open several outcome tables against one plan's data, one stack each."""
    return Many({label: open_outcomes(path, plan) for label, path in labelled(tables).items()})


def labelled(paths: Paths) -> dict[str, Path]:
    """Label of each source: as given, else the shortest ending of its path that is unique.

    Raises ``AnalysisError`` where there is none or one is named twice.
    """
    if not paths:
        raise AnalysisError("sources", "", "there are none", "Name at least one.")
    if isinstance(paths, Mapping):
        named = {label: Path(path) for label, path in paths.items()}
    else:
        named = _shortest([Path(path) for path in paths])
    seen: dict[Path, str] = {}
    for label, path in named.items():
        if (first := seen.setdefault(path.resolve(), label)) != label:
            problem = f"named twice ({first}, {label})"
            raise AnalysisError(str(path), "", problem, "Name each source once.")
    return named


def _shortest(paths: Sequence[Path]) -> dict[str, Path]:
    whole = [path.resolve().parts for path in paths]
    if len(set(whole)) != len(whole):
        twice = next(
            path for path, parts in zip(paths, whole, strict=True) if whole.count(parts) > 1
        )
        raise AnalysisError(str(twice), "", "named twice", "Name each source once.")
    depth = 1
    while len({parts[-depth:] for parts in whole}) < len(whole):
        depth += 1
    return {"/".join(parts[-depth:]): path for path, parts in zip(paths, whole, strict=True)}
