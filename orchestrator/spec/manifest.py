"""Reads manifests: YAML in, validated frozen model out, every mistake one sentence.

The one module of this room that touches the file system. Duplicate keys, unknown keys and wrong
types are refused with file, field and remedy; nothing is coerced silently.
"""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.spec.errors import BadInput


class Frozen(BaseModel):
    """Base of every manifest model: immutable, strict about types, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


Model = TypeVar("Model", bound=BaseModel)


class _UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys, which plain YAML loaders drop silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key!r}", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_text(path: Path) -> str:
    """Text of a manifest file, or BadInput that names it."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(str(path), "", "no such file", "Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), "", f"cannot be read ({error})", "Give a UTF-8 file.") from None


def read_yaml(path: Path) -> Any:
    """Parse one YAML document with unique keys."""
    text = read_text(path)
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise BadInput(str(path), "", f"not valid YAML: {problem}", "Mend the syntax.") from None


def validate(data: Any, model: type[Model], file: str) -> Model:
    """Validate parsed data; the first mistake becomes a BadInput naming file, field and remedy."""
    if not isinstance(data, dict):
        raise BadInput(file, "", "expected a mapping at the top", "Start with `schema: ...`.")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInput(file, field, _problem(first), _remedy(first)) from None


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


def _problem(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    if error["type"] == "missing":
        return "required key is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    given = error.get("input")
    shown = f" (given: {given!r})" if isinstance(given, str | int | float | bool) else ""
    return message[:1].lower() + message[1:] + shown


def _remedy(error: Any) -> str:
    return _REMEDIES.get(error["type"], "Correct the value; docs/manifests.md describes the field.")
