"""The seven typed actions and the JSON Schema that constrains a decoder to them.

An action is one JSON object whose key ``action`` names it. ``ACTION_SCHEMA`` uses only keywords
that grammar-constrained decoders know (anyOf, const, bounds) and is narrower than the parser only
in the length of edit texts and lists: whatever the schema allows parses.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from orchestrator.spec.manifest import Frozen

MAX_PATTERN = 500
MAX_PATH = 300
MAX_COMMAND = 1000
MAX_REASON = 500
MAX_LINE = 1_000_000
MAX_TEXT = 400_000
MAX_CHANGES = 200

DECODED_TEXT = 2000
"""Longest edit text under constrained decoding (characters): the repetition limit of llama.cpp."""
DECODED_CHANGES = 8

Path = Annotated[str, Field(min_length=1, max_length=MAX_PATH)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
LineNumber = Annotated[int, Field(ge=1, le=MAX_LINE)]


def _true(value: bool) -> bool:
    if not value:
        raise ValueError("must be true")
    return value


class Replace(Frozen):
    """Replace the one occurrence of ``find`` in an existing file."""

    path: Path
    find: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    replace: Text


class Create(Frozen):
    """Create a file that does not exist yet."""

    path: Path
    create: Text


class Delete(Frozen):
    """Delete a file."""

    path: Path
    delete: Annotated[bool, AfterValidator(_true)]  # Literal[True] would take 1 as well


Change = Replace | Create | Delete


class Search(Frozen):
    """Find lines by an RE2 regular expression, in files whose path starts with ``path``."""

    action: Literal["search"] = "search"
    pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)]
    path: Path | None = None


class View(Frozen):
    """Show numbered lines of one file, both ends inclusive."""

    action: Literal["view"] = "view"
    path: Path
    start_line: LineNumber | None = None
    end_line: LineNumber | None = None


class Edit(Frozen):
    """One atomic change of one or more files: one source revision (protocol §1)."""

    action: Literal["edit"] = "edit"
    changes: tuple[Change, ...] = Field(min_length=1, max_length=MAX_CHANGES)


class Shell(Frozen):
    """Run a command on an overlay of the working tree that is thrown away afterwards."""

    action: Literal["shell"] = "shell"
    command: Annotated[str, Field(min_length=1, max_length=MAX_COMMAND)]


class Test(Frozen):
    """Ask for the visible test evidence."""

    __test__ = False

    action: Literal["test"] = "test"


class Submit(Frozen):
    """Declare the working state complete."""

    action: Literal["submit"] = "submit"


class Escalate(Frozen):
    """Abstain."""

    action: Literal["escalate"] = "escalate"
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)]


Action = Search | View | Edit | Shell | Test | Submit | Escalate

Schema = dict[str, object]

# --------------------------------------------------------------------------------- JSON Schema


def _text(longest: int, shortest: int = 0) -> Schema:
    bounds: Schema = {"minLength": shortest} if shortest else {}
    return {"type": "string", **bounds, "maxLength": longest}


def _object(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _action(kind: str, properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    return _object({"action": {"const": kind}, **properties}, optional)


_PATH = _text(MAX_PATH, 1)
_LINE: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_LINE}
_CHANGE: Schema = {
    "anyOf": [
        _object({"path": _PATH, "find": _text(DECODED_TEXT, 1), "replace": _text(DECODED_TEXT)}),
        _object({"path": _PATH, "create": _text(DECODED_TEXT)}),
        _object({"path": _PATH, "delete": {"const": True}}),
    ]
}
_CHANGES: Schema = {
    "type": "array",
    "items": _CHANGE,
    "minItems": 1,
    "maxItems": DECODED_CHANGES,
}

ACTION_SCHEMA: Schema = {
    "anyOf": [
        _action("search", {"pattern": _text(MAX_PATTERN, 1), "path": _PATH}, optional=("path",)),
        _action(
            "view",
            {"path": _PATH, "start_line": _LINE, "end_line": _LINE},
            optional=("start_line", "end_line"),
        ),
        _action("edit", {"changes": _CHANGES}),
        _action("shell", {"command": _text(MAX_COMMAND, 1)}),
        _action("test", {}),
        _action("submit", {}),
        _action("escalate", {"reason": _text(MAX_REASON, 1)}),
    ]
}
"""JSON Schema of one reply."""
