"""What one rollout hands to the writer: rows as plain dicts, evidence as bytes, no file handles."""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class RolloutRecord:
    """Everything a settled rollout leaves; ``store`` commits it by one directory rename.

    ``rollout`` lacks ``ledger_head`` and ``receipt_sha256`` only if it lacks a ledger; rows carry
    the columns of ``orchestrator.store.schemas``. ``patches``: SHA-256 -> patch bytes.
    ``blobs``: SHA-256 -> unbounded observation bytes.
    """

    rollout: Row
    actions: list[Row]
    proposals: list[Row]
    verdicts: list[Row]
    ledger: list[bytes]
    receipt: bytes
    patches: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
