"""Attempts as facts: one file when an attempt begins, a second one when it ends, neither changed.

An attempt without its second file was running when everything around it died. Attempts never
settle a rollout; only records do.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json
from orchestrator.spec.records import Row
from orchestrator.store.files import write_exclusive
from orchestrator.store.root import Root

OUTCOMES = ("settled", "infrastructure", "unknown", "abandoned")
_BEGUN = re.compile(r"(?P<rollout_id>.+)\.a(?P<number>[1-9]\d*)\.json")


@dataclass(frozen=True)
class AttemptEnd:
    """How an attempt ended: one of :data:`OUTCOMES`, why in words, when (Unix s), JSON facts."""

    outcome: str
    reason: str
    ended_at: float
    facts: Mapping[str, object]


@dataclass(frozen=True)
class Attempt:
    """One attempt of a rollout; ``number`` counts from 1, ``end`` is None while it has no end."""

    attempt_id: str
    rollout_id: str
    number: int
    lock_id: str
    began_at: float
    facts: Mapping[str, object]
    end: AttemptEnd | None

    def row(self) -> Row:
        """The attempt as a row of ``tables/attempts.parquet``."""
        return {
            "lock_id": self.lock_id,
            "rollout_id": self.rollout_id,
            "attempt_id": self.attempt_id,
            "number": self.number,
            "began_at": self.began_at,
            "ended_at": self.end.ended_at if self.end else None,
            "outcome": self.end.outcome if self.end else None,
            "reason": self.end.reason if self.end else None,
        }


def attempt_id(rollout_id: str, number: int) -> str:
    """``<rollout_id>.a<number>``."""
    return f"{rollout_id}.a{number}"


def numbers(root: Root) -> dict[str, int]:
    """Rollout id -> highest attempt number so far, from file names alone."""
    highest: dict[str, int] = {}
    for rollout_id, number in _begun(root):
        highest[rollout_id] = max(number, highest.get(rollout_id, 0))
    return highest


def _begun(root: Root) -> Iterator[tuple[str, int]]:
    for path in root.attempts.iterdir():
        if match := _BEGUN.fullmatch(path.name):
            yield match["rollout_id"], int(match["number"])


def write_begin(root: Root, attempt: Attempt) -> None:
    """Durable before it returns. Raises FileExistsError if that attempt has begun already."""
    content = {
        "schema": "factorial/attempt@1",
        "attempt_id": attempt.attempt_id,
        "rollout_id": attempt.rollout_id,
        "number": attempt.number,
        "lock_id": attempt.lock_id,
        "began_at": attempt.began_at,
        "facts": dict(attempt.facts),
    }
    _write(root, root.attempt_path(attempt.attempt_id), content)


def write_end(root: Root, attempt_id: str, end: AttemptEnd) -> None:
    """Durable before it returns. Raises FileExistsError if that attempt has ended already."""
    content = {
        "schema": "factorial/attempt-end@1",
        "attempt_id": attempt_id,
        "outcome": end.outcome,
        "reason": end.reason,
        "ended_at": end.ended_at,
        "facts": dict(end.facts),
    }
    _write(root, root.attempt_end_path(attempt_id), content)


def _write(root: Root, path: Path, content: Mapping[str, object]) -> None:
    write_exclusive(path, canonical_json(content) + b"\n", scratch=root.scratch)


def read_attempt(root: Root, rollout_id: str, number: int) -> Attempt:
    """One attempt with its end, if it has one. Raises IntegrityError for a damaged file."""
    name = attempt_id(rollout_id, number)
    begun = _read(root.attempt_path(name))
    if begun.get("attempt_id") != name or begun.get("rollout_id") != rollout_id:
        raise IntegrityError(
            str(root.attempt_path(name)), "names another attempt than its file name"
        )
    try:
        return Attempt(
            name,
            rollout_id,
            number,
            str(begun["lock_id"]),
            float(begun["began_at"]),
            begun["facts"],
            read_end(root, name),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(str(root.attempt_path(name)), f"not an attempt ({error!r})") from None


def read_end(root: Root, attempt_id: str) -> AttemptEnd | None:
    """How an attempt ended, or None."""
    path = root.attempt_end_path(attempt_id)
    if not path.exists():
        return None
    end = _read(path)
    try:
        return AttemptEnd(
            str(end["outcome"]), str(end["reason"]), float(end["ended_at"]), end["facts"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(str(path), f"not the end of an attempt ({error!r})") from None


def _read(path: Path) -> Row:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise IntegrityError(str(path), f"cannot be read ({error})") from None
    if not isinstance(content, dict):
        raise IntegrityError(str(path), "is no JSON object")
    return content


def read_attempts(root: Root) -> list[Attempt]:
    """All attempts, by rollout id and number."""
    return [read_attempt(root, rollout_id, number) for rollout_id, number in sorted(_begun(root))]


def abandoned(root: Root) -> list[str]:
    """Ids of attempts that began and have no end, sorted; never call it beside a running writer
    and take the result for the dead: those that run now are among them.
    """
    ids = (attempt_id(rollout_id, number) for rollout_id, number in sorted(_begun(root)))
    return [name for name in ids if not root.attempt_end_path(name).exists()]
