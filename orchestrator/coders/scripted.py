"""Action replies that coders without a model write: the exact JSON of the typed actions."""

import json
from collections.abc import Mapping, Sequence

SUBMIT = '{"action": "submit"}'
TEST = '{"action": "test"}'
MALFORMED = "The fault is clear to me now, I will mend it next."
"""A reply that is no action at all."""


def escalate(reason: str) -> str:
    """The reply that abstains."""
    return json.dumps({"action": "escalate", "reason": reason})


def edit(changes: Sequence[Mapping[str, str | bool]]) -> str:
    """The reply that proposes ``changes`` (see :mod:`orchestrator.coders.edit_script`)."""
    return json.dumps({"action": "edit", "changes": list(changes)}, ensure_ascii=False)
