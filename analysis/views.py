"""SQL over finished runs and outcome tables: documented, read-only views for one source or many.

Comes in: labelled sources, each an outcome table and, where it is a run, its root. Goes out: a
DuckDB connection whose views carry the label in their first column, ``source``. The connection can
reach no file of its own: queries see the views, change nothing and write nothing.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from analysis.errors import AnalysisError
from analysis.outcomes import Outcomes

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow.dataset as ds

FILES = {
    "rollouts": "records/*/rollout.parquet",
    "actions": "records/*/actions.parquet",
    "proposals": "records/*/proposals.parquet",
    "verdicts": "records/*/verdicts.parquet",
    "evaluations": "evaluations/*.parquet",
}
VIEWS = (*FILES, "attempts", "outcomes")
"""``outcomes`` exists for every source; the others for runs (columns: docs/tables.md)."""

ATTEMPTS = pa.schema(
    [
        ("lock_id", pa.string()),
        ("rollout_id", pa.string()),
        ("attempt_id", pa.string()),
        ("number", pa.int64()),
        ("began_at", pa.float64()),
        ("ended_at", pa.float64()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
    ]
)
_BEGUN = re.compile(r".+\.a[1-9]\d*\.json")


@dataclass(frozen=True, eq=False)
class Source:
    """One run or table; ``root`` is None for a table from elsewhere: ``outcomes`` only."""

    label: str
    outcomes: Outcomes
    root: Path | None


class Views:
    """The views over some sources, opened at the first query."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = tuple(sources)
        self._opened: duckdb.DuckDBPyConnection | None = None

    def sql(self, query: str) -> "pd.DataFrame":
        """Answer of one SQL query as a pandas data frame. Raises ``AnalysisError``."""
        return self.arrow(query).to_pandas()

    def arrow(self, query: str) -> pa.Table:
        """The same as an Arrow table."""
        known = f"Views of this source: {', '.join(self.names())}."
        try:
            answer = self._connection().sql(query)
            if answer is None:
                raise AnalysisError("query", "", "the statement has no answer", "Use SELECT.")
            return answer.to_arrow_table()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            problem = " ".join(str(error).split())
            raise AnalysisError("query", "", problem, known) from None

    def names(self) -> tuple[str, ...]:
        """The views that these sources have, in the order of :data:`VIEWS`."""
        return tuple(name for name in VIEWS if any(_has(s, name) for s in self._sources))

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._opened is None:
            self._opened = connect(self._sources)
        return self._opened


def connect(sources: Iterable[Source]) -> duckdb.DuckDBPyConnection:
    """An in-memory connection with the views, locked: no file access, no change of settings."""
    con = duckdb.connect()
    sources = tuple(sources)
    for name in VIEWS:
        parts = [
            _part(con, f"{name}_{place}", source, name)
            for place, source in enumerate(sources)
            if _has(source, name)
        ]
        if parts:
            con.execute(f"CREATE VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}")
    for setting in ("enable_external_access=false", "python_enable_replacements=false"):
        con.execute(f"SET {setting}")
    con.execute("SET lock_configuration=true")
    return con


def _part(con: duckdb.DuckDBPyConnection, relation: str, source: Source, name: str) -> str:
    """Register one source's table and return the SELECT that labels it."""
    con.register(relation, _table(source, name))
    label = source.label.replace("'", "''")
    return f"SELECT '{label}' AS source, * FROM {relation}"


def _has(source: Source, name: str) -> bool:
    if name == "outcomes":
        return True
    if source.root is None:
        return False
    return name == "attempts" or any(_paths(source.root, name))


def _table(source: Source, name: str) -> "pa.Table | ds.Dataset":
    if name == "outcomes" or source.root is None:
        return source.outcomes.table
    if name == "attempts":
        return read_attempts(source.root)
    return _dataset(source.root, name)


def _paths(root: Path, name: str) -> list[str]:
    return sorted(str(path) for path in root.glob(FILES[name]))


def _dataset(root: Path, name: str) -> "ds.Dataset":
    """Files of one table as they are on disk; a column that older files lack is null in them.

    Paths are handed over as a list, so that quotes and glob characters in them mean nothing.
    """
    import pyarrow.dataset as ds
    from pyarrow import fs

    files = [str(Path(path).absolute()) for path in _paths(root, name)]
    try:
        factory = ds.FileSystemDatasetFactory(fs.LocalFileSystem(), files, ds.ParquetFileFormat())
        return factory.finish(factory.inspect())
    except (pa.ArrowException, OSError) as error:
        problem = " ".join(str(error).split())
        raise AnalysisError(str(root / FILES[name]), "", problem, "Restore the files.") from None


def read_attempts(root: Path) -> pa.Table:
    """Every attempt of a run, by rollout id and number; the end is null where none was written."""
    begun = [path for path in (root / "attempts").glob("*.json") if _BEGUN.fullmatch(path.name)]
    rows = [_attempt(path) for path in begun]
    table = pa.Table.from_pylist(rows, schema=ATTEMPTS)
    return table.sort_by([("rollout_id", "ascending"), ("number", "ascending")])


def _attempt(path: Path) -> dict[str, object]:
    end = path.with_name(path.name.removesuffix(".json") + ".end.json")
    facts = _read(path) | (_read(end) if end.exists() else {})
    return {name: facts.get(name) for name in ATTEMPTS.names}


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        problem = f"not readable JSON ({error})"
        raise AnalysisError(str(path), "", problem, "Restore the file.") from None
    if not isinstance(content, dict):
        raise AnalysisError(str(path), "", "no JSON object", "Restore the file.")
    return content
