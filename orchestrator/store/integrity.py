"""Whether a root's files are what the lock planned and what their digests say; and comparisons.

Nothing is unsealed before :func:`validate_matrix` has no finding (protocol §1 "Evaluator replay").
What a ledger and a receipt mean is the contract's knowledge: its checks come in as functions.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.spec.errors import FactorialError, IntegrityError
from orchestrator.spec.identity import canonical_json, sha256_file, sha256_hex
from orchestrator.spec.lock import Lock
from orchestrator.spec.records import Row
from orchestrator.store.parquet import read_file
from orchestrator.store.planned import ARM, planned_rows, receipt_without_outcome
from orchestrator.store.reading import read_table
from orchestrator.store.root import Root
from orchestrator.store.rows import KEYS, RECORD_TABLES, evaluation_problems, record_problems
from orchestrator.store.schemas import TABLES, outcome_columns

LEDGER, RECEIPT = "ledger.jsonl", "receipt.json"
RECORD_FILES = frozenset({*(f"{name}.parquet" for name in RECORD_TABLES), LEDGER, RECEIPT})

LedgerCheck = Callable[[list[bytes]], None]
"""Raises IntegrityError or ValueError unless the events (lines, in order) form a valid chain."""

ReceiptCheck = Callable[[list[bytes], bytes], None]
"""Raises IntegrityError or ValueError unless the receipt follows from the events."""


RowCheck = Callable[[Mapping[str, Sequence[Row]], bytes], list[str]]
"""What contradicts the receipt in the rows (table -> rows) of one rollout settled as agent."""


@dataclass(frozen=True)
class Checks:
    """What this room cannot know: how ledgers, receipts and rows follow from each other."""

    ledger: LedgerCheck
    receipt: ReceiptCheck
    rows: RowCheck


def validate_matrix(lock: Lock, root: Root, checks: Checks) -> list[str]:
    """Every finding against the matrix, ``<rollout id or matrix>: <what>``; empty = valid.

    Valid: every planned rollout is settled exactly once and no other is; cells are as planned; rows
    agree with the lock, the schemas and each other; patches, observations, ledgers and receipts
    match their digests.
    """
    planned = planned_rows(lock)
    present = {path.name for path in root.records.iterdir()}
    findings = [f"{name}: is not settled" for name in planned if name not in present]
    findings += [f"{name}: is not in the lock" for name in sorted(present - planned.keys())]
    known = _Digests()
    settled: list[Row] = []
    for rollout_id in (name for name in planned if name in present):
        rows, problems = _examine(planned[rollout_id], root, checks, known)
        settled += rows.get("rollout", [])
        findings += [f"{rollout_id}: {problem}" for problem in problems]
    return findings + _cell_findings(list(planned.values()), settled)


def record_findings(lock: Lock, root: Root, rollout_id: str, checks: Checks) -> list[str]:
    """What :func:`validate_matrix` finds against one settled rollout, without its id."""
    return _examine(planned_rows(lock)[rollout_id], root, checks, _Digests())[1]


def _examine(
    planned: Row, root: Root, checks: Checks, known: "_Digests"
) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of a settled rollout (none where they cannot be read) and what is wrong with it."""
    directory = root.record_path(planned["rollout_id"])
    try:
        rows = _read_record(directory)
    except IntegrityError as error:
        return {}, [str(error)]
    return rows, record_problems(rows, planned) or [
        *_evidence_problems(directory, rows, planned, checks),
        *_kept_problems(root, rows, known),
    ]


def validate_evaluations(lock: Lock, root: Root) -> list[str]:
    """Findings after replay: every rollout has its evaluation, and each fits its proposals."""
    findings: list[str] = []
    for rollout_id in planned_rows(lock):
        try:
            record = _read_record(root.record_path(rollout_id))
            rows = read_file(root.evaluation_path(rollout_id), "evaluations")
            problems = evaluation_problems(rows, record["rollout"][0], record["proposals"])
        except IntegrityError as error:
            problems = [str(error)]
        findings += [f"{rollout_id}: {problem}" for problem in problems]
    return findings


def _read_record(directory: Path) -> dict[str, list[Row]]:
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if odd := sorted(names ^ RECORD_FILES):
        raise IntegrityError(str(directory), f"missing or unexpected: {', '.join(odd)}")
    return {name: read_file(directory / f"{name}.parquet", name) for name in RECORD_TABLES}


def _evidence_problems(
    directory: Path, rows: Mapping[str, Sequence[Row]], planned: Row, checks: Checks
) -> Iterator[str]:
    """The ledger's chain and head, the receipt's digest and derivation, the rows' agreement."""
    rollout = rows["rollout"][0]
    receipt = (directory / RECEIPT).read_bytes()
    if sha256_hex(receipt) != rollout["receipt_sha256"]:
        yield "receipt.json does not match receipt_sha256"
    if rollout["settled_as"] != "agent":
        yield from _no_outcome_problems(directory, rollout, planned, receipt)
        return
    try:
        ledger = whole_lines(directory / LEDGER)
        checks.ledger(ledger)
        checks.receipt(ledger, receipt)
        yield from checks.rows(rows, receipt)
        if _head(ledger) != rollout["ledger_head"]:
            yield "ledger_head is not the hash of the last event"
    except (FactorialError, ValueError) as error:
        yield str(error)


def _no_outcome_problems(
    directory: Path, rollout: Row, planned: Row, receipt: bytes
) -> Iterator[str]:
    """A rollout without an outcome has no events, and a statement that follows from its row."""
    if (directory / LEDGER).read_bytes() or rollout["ledger_head"]:
        yield "has a ledger but no outcome"
    reason = rollout["end_reason"]
    if receipt != receipt_without_outcome(planned, rollout["settled_as"], reason):
        yield "receipt.json does not say what the row says"


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a committed ledger, without newlines; unlike a journal it has no torn end.

    Raises IntegrityError where the file does not end with its last line's newline.
    """
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        raise IntegrityError(f"ledger line {len(lines) + 1}", "does not end in a newline")
    return lines


def _head(ledger: list[bytes]) -> object:
    """The ``hash`` that the last event carries; an event is a JSON object. None without events."""
    event = json.loads(ledger[-1]) if ledger else None
    return event.get("hash") if isinstance(event, dict) else None


class _Digests:
    """SHA-256 of files, each read once though many rollouts share it."""

    def __init__(self) -> None:
        self._known: dict[Path, str | None] = {}

    def matches(self, path: Path, sha256: str) -> bool:
        if path not in self._known:
            self._known[path] = sha256_file(path) if path.is_file() else None
        return self._known[path] == sha256


def _kept_problems(root: Root, rows: Mapping[str, Sequence[Row]], known: _Digests) -> Iterator[str]:
    """The settling attempt, all proposals' patches, the whole of every observation that was cut."""
    yield from _attempt_problems(root, rows["rollout"][0])
    for row in rows["proposals"]:
        sha = row["patch_sha256"]
        if not known.matches(root.patch_path(sha), sha):
            yield f"proposal {row['proposal']}: patch {sha} is missing or damaged"
    for row in rows["actions"]:
        sha = row["observation_sha256"]
        if row["observation_truncated"] and not known.matches(root.blob_path(sha), sha):
            yield f"turn {row['turn']}: observation {sha} is missing or damaged"


def _attempt_problems(root: Root, rollout: Row) -> Iterator[str]:
    """The ledger was written twice: event by event before what it announced, and with the record.

    A record that was cut or made anew as a whole, rows included, differs from what was journalled.
    """
    attempt_id = rollout["attempt_id"]
    if not root.attempt_path(attempt_id).exists():
        yield f"attempt {attempt_id} that settled it is not recorded"
    if rollout["settled_as"] != "agent":
        return
    journal = root.journal_path(attempt_id)
    if not journal.is_file():
        yield f"the journal of attempt {attempt_id} is missing"
    elif journal.read_bytes() != (root.record_path(rollout["rollout_id"]) / LEDGER).read_bytes():
        yield f"ledger.jsonl is not what attempt {attempt_id} journalled"


def _cell_findings(planned: Sequence[Row], settled: Sequence[Row]) -> list[str]:
    """Rollouts per (task, arm) as planned."""
    names = ("task_id", *ARM)
    expected = Counter(tuple(row[name] for name in names) for row in planned)
    found = Counter(tuple(row[name] for name in names) for row in settled)
    return [
        f"matrix: cell {_cell(names, cell)}: {found[cell]} of {expected[cell]} settled"
        for cell in {**expected, **found}
        if found[cell] != expected[cell]
    ]


def _cell(names: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def outcome_digest(root: Root) -> str:
    """SHA-256 over the non-volatile columns of all tables: equal for two runs of one lock."""
    digest = hashlib.sha256()
    for name in TABLES:
        digest.update(name.encode() + b"\n")
        for row in read_table(root, name, columns=outcome_columns(name)).to_pylist():
            digest.update(canonical_json(row) + b"\n")
    return digest.hexdigest()


def compare(root_a: Root, root_b: Root) -> list[str]:
    """Differences of two runs in non-volatile columns, by table, row and column; empty = equal."""
    return [line for name in TABLES for line in _compare_table(root_a, root_b, name)]


def _compare_table(root_a: Root, root_b: Root, name: str) -> Iterator[str]:
    a, b = _keyed(root_a, name), _keyed(root_b, name)
    for key in sorted(a.keys() | b.keys()):
        label = f"{name} {_cell(('rollout', *KEYS[name]), key)}"
        if key not in a or key not in b:
            yield f"{label}: only in the {'first' if key in a else 'second'}"
            continue
        for column, value in a[key].items():
            if value != b[key][column]:
                yield f"{label}: {column} is {value!r:.80} and {b[key][column]!r:.80}"


def _keyed(root: Root, name: str) -> dict[tuple[object, ...], Row]:
    rows = read_table(root, name, columns=outcome_columns(name)).to_pylist()
    return {tuple(row[key] for key in ("rollout_id", *KEYS[name])): row for row in rows}
