"""The ledger: events in canonical bytes, each line linked to the one before by its hash.

A line is ``{"data", "hash", "kind", "prev", "seq"}`` in canonical JSON, without a newline; ``hash``
is the SHA-256 of the canonical JSON of the other four. No line holds a time, so two runs of one
lock have the same ledger.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, sha256_hex

Data = dict[str, object]


@dataclass(frozen=True)
class Head:
    """The end of a chain: how many lines it has and the hash of the last one."""

    length: int
    hash: str


@dataclass(frozen=True)
class Line:
    """One checked line."""

    kind: str
    data: Data


GENESIS = Head(0, "0" * 64)


def append(head: Head, kind: str, data: Data) -> tuple[bytes, Head]:
    """The next line of the chain and the new head."""
    body: Data = {"seq": head.length, "prev": head.hash, "kind": kind, "data": data}
    digest = sha256_hex(canonical_json(body))
    return canonical_json({**body, "hash": digest}), Head(head.length + 1, digest)


def check(lines: Iterable[bytes]) -> None:
    """Raise IntegrityError naming the first line that breaks the chain; lines count from 1."""
    read(lines)


def read(lines: Iterable[bytes]) -> tuple[tuple[Line, ...], Head]:
    """The checked lines and the head they end in. Raises IntegrityError as :func:`check`."""
    head, checked = GENESIS, list[Line]()
    for number, raw in enumerate(lines, start=1):
        line = _parse(raw, number)
        try:
            expected, head = append(head, line.kind, line.data)
        except ValueError:  # NaN or a lone surrogate: no canonical line holds one
            raise IntegrityError(f"ledger line {number}", "is not canonical") from None
        if raw != expected:
            raise IntegrityError(f"ledger line {number}", "does not continue the chain")
        checked.append(line)
    if not checked:
        raise IntegrityError("ledger", "has no lines")
    return tuple(checked), head


def _parse(raw: bytes, number: int) -> Line:
    try:
        value = json.loads(raw)
        kind, data = value["kind"], value["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IntegrityError(f"ledger line {number}", "is not a ledger line") from None
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise IntegrityError(f"ledger line {number}", "is not a ledger line")
    return Line(kind, data)
