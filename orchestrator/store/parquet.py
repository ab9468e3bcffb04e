"""Rows to Parquet bytes and back, by the schemas of :mod:`orchestrator.store.schemas`.

Equal rows give equal bytes under one pyarrow version. Every file carries ``schema_version`` in its
metadata; a file of another version, or with other columns, is refused.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.records import Row
from orchestrator.store.rows import KEYS
from orchestrator.store.schemas import SCHEMA_VERSION, TABLES, Column, arrow_schema


def table_of(columns: Sequence[Column], rows: Sequence[Row]) -> pa.Table:
    """Arrow table of valid rows, in the order given."""
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))


def encode_small(table: pa.Table) -> bytes:
    """Parquet bytes for the few rows of one rollout.

    Without dictionaries, statistics and the descriptions of the columns, which at this size are
    most of the file and most of the time.
    """
    # Below this size compression costs more time than it saves space (measured: 60 columns, 1 row).
    compression = "zstd" if table.nbytes > 16_384 else "none"
    return _encode(table, compression, bare=True)


def encode_described(table: pa.Table) -> bytes:
    """Parquet bytes for a whole table, with each column's meaning in its field metadata."""
    return _encode(table, "zstd", bare=False)


def _encode(table: pa.Table, compression: str, *, bare: bool) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.parquet.ParquetWriter(
        sink,
        table.schema,
        compression=compression,
        store_schema=not bare,
        use_dictionary=not bare,
        write_statistics=not bare,
    ) as writer:
        writer.add_key_value_metadata({"schema_version": SCHEMA_VERSION})
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_file(path: Path, name: str) -> list[Row]:
    """Rows of one file of table ``name``. Raises IntegrityError if it is not such a file."""
    expected = arrow_schema(TABLES[name])
    try:
        file = pa.parquet.ParquetFile(path)
        table = file.read()
        version = (file.metadata.metadata or {}).get(b"schema_version", b"none").decode()
    except (OSError, pa.ArrowException) as error:
        raise IntegrityError(str(path), f"not readable as Parquet ({error})") from None
    if version != SCHEMA_VERSION:
        raise IntegrityError(str(path), f"schema version {version}, expected {SCHEMA_VERSION}")
    if [(f.name, f.type, f.nullable) for f in table.schema] != [
        (f.name, f.type, f.nullable) for f in expected
    ]:
        raise IntegrityError(str(path), f"its columns are not those of table {name}")
    rows: list[Row] = table.to_pylist()
    return rows


def read_files(paths: Iterable[Path], name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """One table over many files, sorted by rollout and key; ``columns`` selects, None = all.

    Raises IntegrityError for a file that is no Parquet, lacks a column or has nulls where the
    schema allows none.
    """
    schema = arrow_schema(TABLES[name])
    wanted = list(columns or schema.names)
    keys = [key for key in ("rollout_id", *KEYS[name]) if key not in wanted]
    try:
        files = pa.dataset.dataset([str(p) for p in paths], schema=schema, format="parquet")
        table = files.to_table(columns=[*wanted, *keys])
    except (OSError, pa.ArrowException) as error:
        raise IntegrityError(name, f"a stored file cannot be read ({error})") from None
    for field in table.schema:
        if not schema.field(field.name).nullable and table.column(field.name).null_count:
            raise IntegrityError(name, f"column {field.name} has missing values")
    return sort_table(table, name).select(wanted)


def sort_table(table: pa.Table, name: str) -> pa.Table:
    """Rows by rollout id and by the key within the rollout."""
    return table.sort_by([(key, "ascending") for key in ("rollout_id", *KEYS[name])])
