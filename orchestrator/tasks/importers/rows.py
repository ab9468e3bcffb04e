"""Reads rows from JSON, JSON lines or Parquet, one at a time, each with its number from 1.

A line that is not JSON comes out as a refusal of that row; a file that cannot be read at all is
BadInput.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import read_text
from orchestrator.tasks.importers.drafts import Refusal

Row = object | Refusal
BATCH_ROWS = 64
FILE_BYTES = 1 << 30


def read_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    """Every row of a file; its ending says its format. Of Parquet only ``columns`` are read."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        problem = f"the ending {path.suffix or '(none)'} is unknown"
        raise BadInput(str(path), "", problem, f"Use one of {', '.join(READERS)}.")
    if path.is_file() and path.stat().st_size > FILE_BYTES:
        raise BadInput(str(path), "", f"is larger than {FILE_BYTES >> 30} GiB", "Split it.")
    return enumerate(reader(path, columns), 1)


def _json(path: Path, _columns: tuple[str, ...]) -> Iterator[Row]:
    try:
        rows = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        remedy = "Mend it; a file with one row per line is called .jsonl."
        raise BadInput(str(path), "", f"is not JSON ({error})", remedy) from None
    if not isinstance(rows, list):
        raise BadInput(str(path), "", "is no list of rows", "Write `[{...}, ...]`.")
    yield from rows


def _json_lines(path: Path, _columns: tuple[str, ...]) -> Iterator[Row]:
    lines = read_text(path).split("\n")  # other line ends may stand within texts
    for number, line in enumerate((line for line in lines if line.strip()), 1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Refusal(f"row {number}", "", f"is not JSON ({error})", "Mend the line.")


def _parquet(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    try:
        with pq.ParquetFile(path) as file:
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=present):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise BadInput(str(path), "", "no such file", "Check the path.") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or ["damaged"])[0]
        raise BadInput(str(path), "", f"is no Parquet file ({reason})", "Give another.") from None


READERS: dict[str, Callable[[Path, tuple[str, ...]], Iterator[Row]]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
}
