"""Replays the replies of an earlier run from its own tables; nothing is asked of any model.

Keyed by rollout id and turn. A rollout that the source lacks, and a turn past its last record,
escalate with ``finish_reason`` ``no_record``.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.coders import scripted
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import prompt_digest
from orchestrator.spec.ports import CoderReply, CoderRequest
from orchestrator.spec.stack import RecordedStack

COLUMNS = [
    "turn",
    "reply",
    "prompt_sha256",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "latency_seconds",
]

NO_RECORD = CoderReply(
    scripted.escalate("no recorded reply for this turn"), 0, 0, 0, 0.0, "no_record", "recorded"
)


class RecordedCoder:
    """The Coder port over ``ROOT/records``. A relative root is relative to the working directory.

    With ``on_divergence: refuse`` a prompt that differs from the recorded one raises
    IntegrityError, which stops the rollout without settling it as an outcome.
    """

    def __init__(self, stack: RecordedStack) -> None:
        self._stack = stack
        self._records = Path(stack.root) / "records"
        if not self._records.is_dir():
            raise BadInput(
                f"stack {stack.name}",
                "root",
                f"{stack.root} has no records",
                "Name the root of an earlier run.",
            )

    def reply(self, request: CoderRequest) -> CoderReply:
        """The recorded reply of this rollout and turn, charged as it was then."""
        row = self._row(request)
        if row is None:
            return NO_RECORD
        if self._stack.on_divergence == "refuse":
            _require_same_prompt(row, request)
        return CoderReply(
            text=str(row["reply"]),
            prompt_tokens=int(row["prompt_tokens"]),
            completion_tokens=int(row["completion_tokens"]),
            tokens_served=0,
            latency_seconds=float(row["latency_seconds"]),
            finish_reason=str(row["finish_reason"]),
            source="recorded",
        )

    def _row(self, request: CoderRequest) -> Mapping[str, Any] | None:
        if Path(request.rollout_id).name != request.rollout_id:
            raise IntegrityError(f"rollout {request.rollout_id!r}", "is no plain directory name")
        path = self._records / request.rollout_id / "actions.parquet"
        return _turns(path).get(request.turn) if path.is_file() else None


def _require_same_prompt(row: Mapping[str, Any], request: CoderRequest) -> None:
    present = prompt_digest((m.role, m.content) for m in request.messages)
    if present != row["prompt_sha256"]:
        raise IntegrityError(
            f"rollout {request.rollout_id}, turn {request.turn}",
            f"prompt {present[:12]} differs from the recorded {str(row['prompt_sha256'])[:12]} "
            "(`on_divergence: continue` replies by turn whatever the prompt)",
        )


@lru_cache(maxsize=256)
def _turns(path: Path) -> Mapping[int, Mapping[str, Any]]:
    """Rows by turn. A settled record never changes, so reading it once is enough."""
    try:
        rows = pq.read_table(path, columns=COLUMNS).to_pylist()
        turns = {int(row["turn"]): row for row in rows}
    except (pa.ArrowException, OSError, KeyError) as error:
        raise IntegrityError(str(path), f"cannot be read as actions ({error})") from None
    if len(turns) != len(rows):
        raise IntegrityError(str(path), "holds a turn twice")
    return turns
