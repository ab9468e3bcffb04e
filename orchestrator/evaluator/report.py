"""Reads the report that a run left: authenticated lines in, facts out, anything odd named.

The report was writable by candidate code, so it is opened without following links, read up to a
bound, and every line must carry the MAC of its number and text. A MAC proves that a line came from
the launcher's process, not that the candidate, which lives in that process, stayed honest.
"""

import hashlib
import hmac
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

REPORT_BYTES: Final = 32 << 20
LINE_BYTES: Final = 1 << 18
"""Longest line, far above an honest one (an id and 2,000 characters)."""
OUTCOMES: Final = frozenset({"passed", "failed", "error", "skipped", "xfailed", "xpassed"})
FINISHED_STATUS: Final = frozenset({0, 1, 5})
"""pytest's own end: all passed, some failed, none collected; not interrupted, not broken."""

_FIELDS: Final[dict[str, dict[str, type]]] = {
    "collected": {"id": str},
    "outcome": {"id": str, "outcome": str, "message": str},
    "collection_error": {"id": str, "message": str},
    "finished": {"status": int},
    "tampered": {"rule": str, "detail": str},
}


@dataclass
class Report:
    """Facts of one report. ``malformed`` says what is wrong with it, or is empty; ``tampered``:
    the rules of the watcher that were broken, and by what.
    """

    collected: dict[str, None] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    collection_errors: dict[str, str] = field(default_factory=dict)
    repeated: set[str] = field(default_factory=set)
    status: int | None = None
    malformed: str = ""
    tampered: dict[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """The last line is there, and pytest came to its own end."""
        return not self.malformed and self.status in FINISHED_STATUS


def read_report(
    path: Path, key: bytes, limit: int = REPORT_BYTES, *, authentic: bool = True
) -> Report:
    """Parse the report; stops at the first line that is not well-formed.

    A last line without a line end was cut by the end of the run and is ignored. With ``authentic``
    off every line that reads like a fact counts, whoever wrote it, and nothing is named.
    """
    report = Report()
    data = _read_regular(path, limit)
    if data is None:
        report.malformed = "the report is not a regular file within its size"
        return report
    for number, line in enumerate(data.split(b"\n")[:-1]):
        problem = _take(report, number, line, key, authentic)
        if problem and authentic:
            report.malformed = f"line {number + 1}: {problem}"
            break
    return report


def _read_regular(path: Path, limit: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(limit + 1)
    return data if len(data) <= limit else None


def _take(report: Report, number: int, line: bytes, key: bytes, authentic: bool) -> str:
    """Add one line to the report; returns what is wrong with it, or an empty string."""
    if len(line) > LINE_BYTES:
        return "too long"
    mac, _, payload = line.partition(b" ")
    expected = hashlib.blake2b(b"%d " % number + payload, key=key, digest_size=16).hexdigest()
    if authentic and not hmac.compare_digest(mac, expected.encode()):
        return "not written by the launcher"
    fact = _fact(payload)
    if fact is None:
        return "not a known fact"
    if report.status is not None and authentic:
        return "written after the end"
    return _record(report, fact)


def _fact(payload: bytes) -> dict[str, object] | None:
    try:
        fact = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fact, dict):
        return None
    kind = fact.get("kind")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None or set(fact) != {"kind", *fields}:
        return None
    return fact if all(type(fact[name]) is kind_ for name, kind_ in fields.items()) else None


def _record(report: Report, fact: dict[str, object]) -> str:
    test_id, outcome = str(fact.get("id", "")), str(fact.get("outcome", ""))
    match fact["kind"]:
        case "collected":
            if test_id in report.collected:
                report.repeated.add(test_id)
            report.collected[test_id] = None
        case "collection_error":
            report.collection_errors[test_id] = str(fact["message"])
        case "tampered":
            report.tampered.setdefault(str(fact["rule"]), str(fact["detail"]))
        case "finished":
            report.status = int(str(fact["status"]))
        case _ if outcome not in OUTCOMES:
            return "unknown outcome"
        case _:
            if test_id in report.outcomes:
                report.repeated.add(test_id)
            report.outcomes[test_id] = outcome
            if fact["message"]:
                report.messages[test_id] = str(fact["message"])
    return ""
