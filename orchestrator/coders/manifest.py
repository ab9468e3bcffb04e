"""Reads a stack manifest: the YAML holds the stack's keys at the top, dispatched on ``kind``."""

from pathlib import Path

from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import read_yaml, validate
from orchestrator.spec.stack import Stack, StackManifest


def load_stack(path: Path) -> Stack:
    """Read and validate one stack file. Raises BadInput naming file, field and remedy."""
    data = read_yaml(path)
    if not isinstance(data, dict):
        return validate(data, StackManifest, str(path)).stack
    try:
        return validate({"stack": data}, StackManifest, str(path)).stack
    except BadInput as error:
        field = own_field(data, error.field)
        raise BadInput(error.file, field, error.problem, error.remedy) from None


def own_field(data: object, location: str) -> str:
    """The field as the file spells it, without the wrapper and the kinds that unions add.

    ``stack.chat.server.llama-cpp.weights.wheel.sha256`` becomes ``server.weights.sha256``.
    """
    kept: list[str] = []
    here = data
    for part in location.split(".")[1:]:
        if isinstance(here, dict):
            if part not in here and here.get("kind") == part:
                continue
            here = here.get(part)
        elif isinstance(here, list):
            here = here[int(part)] if part.isdigit() and int(part) < len(here) else None
        kept.append(part)
    return ".".join(kept)
