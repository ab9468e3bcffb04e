"""The schema from the result's own types, so that the two cannot drift apart.

``python -m analysis.schema.generate > analysis/schema/decision.schema.json``. A dataclass becomes
an object that has exactly its fields, its docstring the description; a fraction becomes the pair of
its exact form and its value.
"""

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from inspect import getdoc
from typing import Any, Union, get_args, get_origin, get_type_hints

from analysis.operating import NearestCase
from analysis.results import SCHEMA, Analysis

Json = dict[str, Any]
EXACT: Json = {
    "type": "object",
    "description": "A probability or a difference of two, exactly and as a number of 12 digits.",
    "properties": {
        "exact": {"type": "string", "pattern": "^-?[0-9]+/[1-9][0-9]*$"},
        "value": {"type": "number"},
    },
    "required": ["exact", "value"],
    "additionalProperties": False,
}
SCALARS: dict[object, Json] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    types.NoneType: {"type": "null"},
    Fraction: {"$ref": "#/$defs/Exact"},
}


def schema() -> Json:
    """The whole schema."""
    definitions: Json = {"Exact": EXACT}
    body = _object(Analysis, definitions)
    properties = {
        "schema": {"const": SCHEMA},
        **body["properties"],
        "operating": _of(NearestCase, definitions),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA.replace('/', ':').replace('@', ':')}",
        "title": "decision.json: one analysis of one stack's outcome table",
        **body,
        "properties": properties,
        "required": sorted(properties),
        "$defs": dict(sorted(definitions.items())),
    }


def render() -> str:
    """The file's text."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _of(kind: Any, definitions: Json) -> Json:
    """Schema of a type; dataclasses are defined once and referred to."""
    if kind in SCALARS:
        return SCALARS[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(one, definitions) for one in arguments]}
    if origin is tuple:
        return _array(arguments, definitions)
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise TypeError(f"no JSON form is known for {kind!r}")
    name = f"{kind.__module__.rsplit('.', maxsplit=1)[-1]}.{kind.__name__}"
    if name not in definitions:
        definitions[name] = {}  # a place first: a type may refer to itself
        definitions[name] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _array(arguments: tuple[Any, ...], definitions: Json) -> Json:
    if arguments[-1] is Ellipsis:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    items = [_of(one, definitions) for one in arguments]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _object(kind: Any, definitions: Json) -> Json:
    hints = get_type_hints(kind)
    shown = [field.name for field in fields(kind) if field.metadata.get("json", True)]
    return {
        "type": "object",
        "description": " ".join((getdoc(kind) or "").split()),
        "properties": {name: _of(hints[name], definitions) for name in shown},
        "required": sorted(shown),
        "additionalProperties": False,
    }


if __name__ == "__main__":
    print(render(), end="")
