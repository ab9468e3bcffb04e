"""What an outside agent may say: one JSON object, ``{"action": NAME}``, nothing more.

The tree that an action is about is the worktree itself, never a claim in the message.
"""

import json
from enum import StrEnum


class Action(StrEnum):
    """``propose`` judges the worktree, ``test`` asks for evidence, ``complete`` declares the
    judged state final, ``escalate`` gives up."""

    PROPOSE = "propose"
    TEST = "test"
    COMPLETE = "complete"
    ESCALATE = "escalate"


def parse(message: bytes) -> Action | None:
    """The action that a message is, or None where it is none."""
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.keys() != {"action"}:
        return None
    name = value["action"]
    return Action(name) if isinstance(name, str) and name in set(Action) else None
