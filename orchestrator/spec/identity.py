"""Identities: state, suite, prompt and manifest are named by a SHA-256 over canonical bytes."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def sha256_hex(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256 of ``data`` (64 characters)."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: Any) -> bytes:
    """The one byte representation of a JSON value: sorted keys, no spaces, UTF-8, no NaN."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest_json(value: Any) -> str:
    """SHA-256 of :func:`canonical_json`."""
    return sha256_hex(canonical_json(value))


def request_seed(study: str, task_id: str, seed: int, turn: int) -> int:
    """Seed of one model call, in [0, 2**31): H(study, task, seed, turn), never cell or attempt.

    Arms of one task and seed therefore share common random numbers (protocol §1 "Seeds").
    """
    return int(digest_json([study, task_id, seed, turn])[:8], 16) & 0x7FFF_FFFF


def prompt_digest(messages: Iterable[tuple[str, str]]) -> str:
    """Identity of a prompt: SHA-256 over the canonical JSON of ``[[role, content], ...]``."""
    return digest_json([[role, content] for role, content in messages])


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree. ``mode`` is a git mode: 0o100644, 0o100755 or 0o120000."""

    mode: int
    sha256: str


@dataclass(frozen=True)
class Tree:
    """A state as a value: POSIX path -> :class:`Entry`. Two trees are equal iff their ids are."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def state_id(self) -> str:
        """SHA-256 over the sorted (mode, path, SHA-256 of content) lines."""
        digest = hashlib.sha256()
        for path in sorted(self.entries, key=str.encode):
            entry = self.entries[path]
            digest.update(f"{entry.mode:06o} {entry.sha256} {len(path.encode())}:".encode())
            digest.update(path.encode() + b"\n")
        return digest.hexdigest()

    def replaced(self, changes: Mapping[str, Entry | None]) -> "Tree":
        """A new tree with entries set, or removed where the change is None."""
        merged: dict[str, Entry] = dict(self.entries)
        for path, entry in changes.items():
            if entry is None:
                merged.pop(path, None)
            else:
                merged[path] = entry
        return Tree(merged)
