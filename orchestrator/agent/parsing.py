"""A reply is one action or it is invalid: never a guess, never an exception.

The whole reply, but for surrounding white space, has to be one JSON object that matches exactly one
action; code fences, duplicate keys, a second object, unknown keys and wrong types are invalid.
"""

import json
from dataclasses import dataclass

from pydantic import ValidationError

from orchestrator.agent.actions import (
    Action,
    Edit,
    Escalate,
    Search,
    Shell,
    Submit,
    Test,
    View,
)

MAX_REPLY = 1_000_000
"""Longest reply that is looked at, in characters."""

_KINDS: dict[str, type[Action]] = {
    "search": Search,
    "view": View,
    "edit": Edit,
    "shell": Shell,
    "test": Test,
    "submit": Submit,
    "escalate": Escalate,
}


@dataclass(frozen=True)
class Invalid:
    """Why a reply is no action: a stable rule id, and a short sentence for the agent."""

    rule: str
    reason: str


class _Refused(ValueError):
    """Raised inside the JSON reader for what plain JSON readers let pass."""


def parse(text: str) -> Action | Invalid:
    """The one action that the reply is, or why it is none."""
    if len(text) > MAX_REPLY:
        return Invalid("reply.too-long", f"the reply is longer than {MAX_REPLY} characters")
    try:
        value = json.loads(
            text.strip(" \t\r\n"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except _Refused as refused:
        return Invalid("reply.not-json", str(refused))
    except (ValueError, RecursionError):
        return Invalid("reply.not-json", "the reply is not exactly one JSON object")
    return _typed(value)


def render(action: Action) -> str:
    """The canonical reply of an action; ``parse`` gives the action back."""
    return json.dumps(action.model_dump(exclude_none=True, mode="json"), ensure_ascii=False)


def kind_of(action: Action | Invalid) -> str:
    """The value of column ``kind``."""
    return "invalid" if isinstance(action, Invalid) else action.action


def _typed(value: object) -> Action | Invalid:
    if not isinstance(value, dict):
        return Invalid("reply.not-object", "the reply is not a JSON object")
    kind = value.get("action")
    if not isinstance(kind, str) or kind not in _KINDS:
        return Invalid("reply.unknown-action", f'"action" must be one of {", ".join(_KINDS)}')
    if None in value.values():
        return Invalid("reply.schema", "null is not allowed; leave the key out")
    try:
        # The JSON mode of a strict model takes a list for a tuple, and nothing else it shouldn't.
        return _KINDS[kind].model_validate_json(json.dumps(value, ensure_ascii=False), strict=True)
    except ValidationError as error:
        return Invalid("reply.schema", _problem(error))
    except RecursionError:
        return Invalid("reply.schema", "the reply is nested too deeply")


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:80]
    return f"{where}: {first['msg']}"[:200]


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused("a key is given twice")
    return value


def _no_constant(name: str) -> object:
    raise _Refused(f"{name} is not JSON")
