"""The outcome table: one row per planned rollout, whatever the results came from.

Both sources, the records of a run (:mod:`analysis.data`) and a table from elsewhere
(:mod:`analysis.external`), end here. Null in an outcome column means that the rollout settled
without an outcome; null in any other column means that the source does not report it.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from analysis.costs import COSTS

STR, INT, BOOL = pa.string(), pa.int64(), pa.bool_()

KEYS: dict[str, pa.DataType] = {
    "rollout_id": STR,
    "task_id": STR,
    "project": STR,
    "stack": STR,
    "seed": INT,
    "gate_overlap": BOOL,
    "settled_as": STR,
}
OUTCOMES: dict[str, pa.DataType] = {
    "accepted": BOOL,
    "resolved": BOOL,  # of the accepted state; null where nothing was accepted
    "unsafe": BOOL,  # accepted and not resolved
    "sound": BOOL,  # accepted and resolved
    "discovered": BOOL,  # some proposal resolves
    "admitted": BOOL,  # some resolving proposal passed the gate
    "retained": BOOL,  # some resolving proposal is final state or checkpoint at the end
    "final_correct": BOOL,  # the final working state resolves
    "empty_submission": BOOL,  # the accepted state is the base tree
}
BEHAVIOUR: dict[str, pa.DataType] = {
    "invalid_actions": INT,
    "deadline_hits": INT,  # visible tests shown that their deadline had ended
    "suite_deadline_hits": INT,  # diagnostic, gate and certification runs that it ended
    "interceptions": INT,
    "shell_code_runs": INT,
    "actions_exhausted": BOOL,
    "wall_exhausted": BOOL,
    "tokens_exhausted": BOOL,
    "escalated": BOOL,
}
COLUMNS = {**KEYS, **OUTCOMES, **BEHAVIOUR, **COSTS}
RESERVED = frozenset(COLUMNS)
"""Names that a factor's column cannot have."""

SETTLED = "agent"
OWED = ("infrastructure", "unknown")
"""Reasons for which a row has null outcomes (docs/protocol.md, "what is infrastructure")."""

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Outcomes:
    """``table``: the columns above plus one per factor, in plan order.

    ``proposals``: rollout_id, proposal, before, after, gate_passed, retained (``before`` and
    ``after``: whether the state the edit met, and the one it made, resolve); None where the source
    has no proposals.
    """

    table: pa.Table
    proposals: pa.Table | None

    def rows(self) -> list[Row]:
        """Rows as dictionaries, in the plan's order."""
        rows: list[Row] = self.table.to_pylist()
        return rows


def outcome_schema(factors: tuple[str, ...]) -> pa.Schema:
    """Arrow schema of the outcome table of a plan with these factors."""
    fields = [*KEYS.items(), *((name, STR) for name in factors)]
    fields += [*OUTCOMES.items(), *BEHAVIOUR.items(), *COSTS.items()]
    return pa.schema(fields)
