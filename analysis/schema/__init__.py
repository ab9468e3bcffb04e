"""The published JSON Schema of ``decision.json``, as a file beside this module."""

import json
from pathlib import Path

FILE = Path(__file__).with_name("decision.schema.json")


def decision_schema() -> dict[str, object]:
    """The schema (draft 2020-12) as JSON data; any validator can apply it."""
    schema: dict[str, object] = json.loads(FILE.read_text(encoding="utf-8"))
    return schema
