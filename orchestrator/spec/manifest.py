"""Reads manifests: YAML in, validated frozen model out, every mistake one sentence.

The one module of this room that touches the file system. Duplicate keys, unknown keys and wrong
types are refused with file, field and remedy; nothing is coerced silently.
"""

from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.spec.errors import BadInput


class Frozen(BaseModel):
    """Base of every manifest model: immutable, strict about types, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


Model = TypeVar("Model", bound=BaseModel)


class Misfit(ValueError):
    """Raised by a model's validator: the named field contradicts the rest of the manifest."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


class _UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys, which plain YAML loaders drop silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refused("a key has to be a plain word", key_node)
            if key_node.value in seen:
                raise _refused(f"duplicate key {key_node.value!r}", key_node)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def _refused(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def read_text(path: Path) -> str:
    """Text of a manifest file, or BadInput that names it."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(str(path), "", "no such file", "Check the path.") from None
    except IsADirectoryError:
        raise BadInput(str(path), "", "is a folder, not a file", "Name a file in it.") from None
    except UnicodeDecodeError:
        raise BadInput(str(path), "", "is not UTF-8 text", "Give a text file.") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise BadInput(str(path), "", problem, "Check the path and its permissions.") from None


def read_yaml(path: Path) -> Any:
    """Parse one YAML document with unique keys."""
    text = read_text(path)
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        field = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = f"not valid YAML: {error.problem or error.context}"
        raise BadInput(str(path), field, problem, "Mend the syntax.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise BadInput(str(path), "", f"not valid YAML: {problem}", "Mend the syntax.") from None


def validate(data: Any, model: type[Model], file: str) -> Model:
    """Validate parsed data; the first mistake becomes a BadInput naming file, field and remedy."""
    if not isinstance(data, dict):
        found = "is empty" if data is None else "expected a mapping at the top"
        raise BadInput(file, "", found, "Start with `schema: ...`.")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadInput(file, _field(first), _problem(first), _remedy(first)) from None


def load(path: Path, model: type[Model]) -> Model:
    """Read and validate one manifest."""
    return validate(read_yaml(path), model, str(path))


_REMEDIES = {
    "extra_forbidden": "Remove the key or correct its spelling.",
    "missing": "Add the key.",
    "literal_error": "Use one of the values named above.",
    "union_tag_invalid": "Use one of the kinds named above.",
    "union_tag_not_found": "Add `kind:`.",
}


def _field(error: Any) -> str:
    """Dotted place, with what a validator of the whole manifest names as wrong."""
    cause = error.get("ctx", {}).get("error")
    named = [cause.field] if isinstance(cause, Misfit) else []
    return ".".join(str(part) for part in [*error["loc"], *named])


def _problem(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    if error["type"] == "missing":
        return "required key is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message.replace("valid tuple", "valid list").replace("valid dictionary", "mapping")
    given = error.get("input")
    return message[:1].lower() + message[1:] + _shown(given)


def _shown(given: object) -> str:
    if isinstance(given, date):
        return f" (given: {given})"
    return f" (given: {given!r})" if isinstance(given, str | int | float | bool) else ""


def _remedy(error: Any) -> str:
    if error["type"] == "string_type" and isinstance(error.get("input"), bool | int | float | date):
        # YAML reads a bare ON, OFF, yes or no as a truth value, 0.10 as a number.
        return "Put the value in quotes."
    return _REMEDIES.get(error["type"], "Correct the value; docs/manifests.md describes the field.")
