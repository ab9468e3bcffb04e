"""Tables from elsewhere as encoded columns: distinct values, and which of them each row has.

Comes in: a CSV file, a Parquet file, or rows in memory. Goes out: :class:`Table`, values as they
are stored, types not yet judged. Rules about a value are then asked once per distinct value and not
once per row, so that a million rows cost little more than a thousand.
"""

import csv
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analysis.errors import AnalysisError

if TYPE_CHECKING:
    import pyarrow as pa

Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Column:
    """Row r holds ``values[codes[r]]``; every one of the distinct ``values`` occurs."""

    values: list[object]
    codes: Codes

    def first_rows(self) -> Codes:
        """Number of the first row (from 1) that holds each of the values."""
        return np.unique(self.codes, return_index=True)[1].astype(np.int64) + 1


@dataclass(frozen=True, eq=False)
class Table:
    """``columns`` by name, all of ``rows`` rows. ``text``: every value is text or None (CSV)."""

    file: str
    rows: int
    columns: dict[str, Column]
    text: bool


def shown(value: object) -> str:
    """A value as it is shown in an error: bounded, whatever it is."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return "a very large number"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}... ({len(text)} characters)"


def read_table(path: Path) -> Table:
    """The table of a ``.csv`` (UTF-8, comma, header) or ``.parquet`` file.

    Raises ``AnalysisError`` for another name, an unreadable file, a ragged row, a repeated column.
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise AnalysisError(str(path), "", "neither .csv nor .parquet", "Convert the table.")
    if not path.is_file():
        raise AnalysisError(str(path), "", "no such file", "Check the path.")
    return readers[path.suffix.lower()](path)


def table_of(rows: Sequence[dict[str, object]], file: str) -> Table:
    """The same from rows in memory; a column that a row does not give is null there."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _encoded(row.get(name) for row in rows) for name in names}
    return Table(file, len(rows), columns, text=False)


@dataclass
class _Encoder:
    """Grows a column value by value; equal values of unequal types (1, True) stay apart."""

    places: dict[object, int] = field(default_factory=dict)
    values: list[object] = field(default_factory=list)
    codes: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, value: object, key: object) -> None:
        place = self.places.setdefault(key, len(self.values))
        if place == len(self.values):
            self.values.append(value)
        self.codes.append(place)

    def column(self) -> Column:
        return Column(self.values, np.array(self.codes, dtype=np.int64))


def _encoded(values: Iterable[object]) -> Column:
    encoder = _Encoder()
    for value in values:
        encoder.add(value, _key(value))
    return encoder.column()


def _key(value: object) -> object:
    """What tells values apart: text itself, else type and value; NaN is equal to itself."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return float, repr(value)
    return type(value), value if isinstance(value, int) else id(value)


def _read_csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.reader(stream, strict=True)
            header = next(lines, [])
            _check_header(header, str(path))
            encoders = [_Encoder() for _ in header]
            for number, line in enumerate(lines, 1):
                if len(line) != len(header):
                    problem = f"row {number} has {len(line)} values for {len(header)} columns"
                    raise AnalysisError(str(path), f"row {number}", problem, "Mend the row.")
                for encoder, value in zip(encoders, line, strict=True):
                    encoder.add(value or None, value)
    except (OSError, UnicodeError, csv.Error) as error:
        problem, remedy = f"not readable CSV ({error})", "Save it as UTF-8 with commas."
        raise AnalysisError(str(path), "", problem, remedy) from None
    columns = [encoder.column() for encoder in encoders]
    rows = len(columns[0].codes) if columns else 0
    return Table(str(path), rows, dict(zip(header, columns, strict=True)), text=True)


def _read_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as stored:
            table = stored.read()
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        problem = " ".join(str(error).split())
        raise AnalysisError(str(path), "", problem, "Give a Parquet file.") from None
    _check_header(table.column_names, str(path))
    columns = {name: _from_arrow(table[name], name, str(path)) for name in table.column_names}
    return Table(str(path), table.num_rows, columns, text=False)


def _from_arrow(stored: "pa.ChunkedArray", name: str, file: str) -> Column:
    """Dictionary encoding; a type that no column of an outcome table can have is refused."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(stored.type):
        stored = stored.cast(stored.type.value_type)
    known = [kinds.is_boolean, kinds.is_integer, kinds.is_floating, kinds.is_null]
    known += [kinds.is_string, kinds.is_large_string]
    if not any(test(stored.type) for test in known):
        problem, remedy = f"has type {stored.type}", "Store text, whole numbers or true/false."
        raise AnalysisError(file, name, problem, remedy)
    if kinds.is_null(stored.type):
        return Column([None] * bool(len(stored)), np.zeros(len(stored), dtype=np.int64))
    try:
        encoded = stored.combine_chunks().dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist()
    except UnicodeError as error:
        raise AnalysisError(file, name, f"is not UTF-8 ({error})", "Save it as UTF-8.") from None
    return Column(values, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64))


def _check_header(names: Sequence[str], file: str) -> None:
    if len(set(names)) != len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise AnalysisError(file, twice, "the header repeats a column", "Name each once.")
