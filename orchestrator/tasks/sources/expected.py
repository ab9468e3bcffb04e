"""Files beside a task manifest that are pinned by their digest, and the id lists among them."""

import json
from pathlib import Path

from pydantic import Field

from orchestrator.spec.errors import BadInput
from orchestrator.spec.identity import canonical_json, sha256_hex
from orchestrator.spec.manifest import Frozen, validate
from orchestrator.spec.task import GitSource, PatchSource, PinnedFile
from orchestrator.tasks.sources.endpoints import Expected

PINNED_BYTES = 64 << 20


class ExpectedFile(Frozen):
    """``{"fail_to_pass": [id, ...], "pass_to_pass": [id, ...]}``; either may be left out."""

    fail_to_pass: tuple[str, ...] = Field(default=(), strict=False)
    pass_to_pass: tuple[str, ...] = Field(default=(), strict=False)


def expected_bytes(expected: Expected) -> bytes:
    """The file that :func:`read_expected` reads."""
    lists = {"fail_to_pass": expected.fail_to_pass, "pass_to_pass": expected.pass_to_pass}
    return canonical_json(lists) + b"\n"


def read_expected(source: GitSource | PatchSource, manifest: Path, field: str) -> Expected | None:
    """The id lists of a source, or None where it has none."""
    if source.expected is None:
        return None
    data = read_pinned(source.expected, manifest, f"{field}.expected")
    place = str(manifest.parent / source.expected.path)
    try:
        lists = json.loads(data)
    except (ValueError, RecursionError):
        raise BadInput(place, "", "is not JSON", "Write it as docs/sources.md shows.") from None
    ids = validate(lists, ExpectedFile, place)
    return Expected(ids.fail_to_pass, ids.pass_to_pass)


def read_pinned(pinned: PinnedFile, manifest: Path, field: str) -> bytes:
    """Content of a pinned file; BadInput where it is absent, too large or another."""
    path = manifest.parent / pinned.path
    try:
        if path.stat().st_size > PINNED_BYTES:
            problem = f"{path} is larger than {PINNED_BYTES >> 20} MiB"
            raise BadInput(str(manifest), f"{field}.path", problem, "Use a smaller file.")
        data = path.read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise BadInput(str(manifest), f"{field}.path", problem, "Correct the path.") from None
    found = sha256_hex(data)
    if found != pinned.sha256:
        problem = f"hash mismatch: wanted {pinned.sha256}, {path} has {found}"
        remedy = "Restore the file or correct the digest."
        raise BadInput(str(manifest), f"{field}.sha256", problem, remedy)
    return data
