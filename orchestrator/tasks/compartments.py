"""The three compartments of built tasks, their places, and the facts that the lock takes from them.

``agent/`` is for the agent, ``evaluator/`` and ``gold/`` (mode 0700) never are; ``built/`` says
what is complete. ``built/<task_id>.json`` is written last: a task without it is not built. A
candidate that was refused has ``rejected/<task_id>.json`` instead.
"""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from orchestrator.repo.files import disk_faults
from orchestrator.repo.worktree import remove
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import canonical_json
from orchestrator.spec.manifest import Frozen
from orchestrator.spec.task import Sha256, Slug
from orchestrator.tasks.eligibility import Ruling

AGENT_BRANCH = "main"
PRIVATE, PASSABLE, PUBLIC = 0o700, 0o711, 0o755


Record = TypeVar("Record", bound=Frozen)


class BuiltTask(Frozen):
    """Facts of one built task. ``input_digest``: what it came from."""

    schema_: Literal["factorial/built@2"] = Field(alias="schema")
    task_id: Slug
    project: Slug
    input_digest: Sha256
    base_state_id: Sha256
    agent_commit: str
    evaluator_commit: str
    environment_id: Sha256
    suites: dict[str, Sha256]
    gate_overlap: bool
    fail_to_pass_functions: Annotated[int, Field(ge=1)]
    gold_patch_sha256: Sha256
    statement_sha256: Sha256
    source_id: Sha256
    relation: str
    eligibility_sha256: Sha256
    certificate_sha256: Sha256


class Eligibility(Frozen):
    """What every rule said of an eligible task. No times: equal on every machine."""

    schema_: Literal["factorial/eligibility@1"] = Field(alias="schema")
    task_id: Slug
    project: Slug
    source_id: Sha256
    relation: str
    rulings: tuple[Ruling, ...] = Field(strict=False)


class Rejected(Frozen):
    """A refused candidate: its row, the rule, and what every rule said until then.

    ``row``: its entry in the manifest. ``log``: end of the output of the run that decided it.
    """

    schema_: Literal["factorial/rejected@1"] = Field(alias="schema")
    task_id: Slug
    project: Slug
    input_digest: Sha256
    row: dict[str, object]
    rule: str
    detail: str
    rulings: tuple[Ruling, ...] = Field(strict=False)
    log: str


class Measured(Frozen):
    """What differs from one build to the next and is part of no identity.

    ``suite_seconds``: median of the whole suite on gold, None where it was not judged.
    ``suite_peak_memory_bytes``: of the largest run, 0 where it is not measured. ``residue``: paths
    that the full suite writes where it may.
    """

    schema_: Literal["factorial/measured@1"] = Field(alias="schema")
    task_id: Slug
    input_digest: Sha256
    build_seconds: float
    suite_seconds: float | None
    suite_peak_memory_bytes: int
    residue: tuple[str, ...] = Field(strict=False)


@dataclass(frozen=True)
class Places:
    """Where the parts of one task lie below the folder of built tasks."""

    out: Path
    task_id: str

    @property
    def agent(self) -> Path:
        return self.out / "agent" / self.task_id

    @property
    def evaluator(self) -> Path:
        return self.out / "evaluator" / self.task_id

    @property
    def gold(self) -> Path:
        return self.out / "gold" / self.task_id

    @property
    def built(self) -> Path:
        return self.out / "built" / f"{self.task_id}.json"

    @property
    def rejected(self) -> Path:
        return self.out / "rejected" / f"{self.task_id}.json"

    @property
    def measured(self) -> Path:
        return self.out / "measured" / f"{self.task_id}.json"

    @property
    def log(self) -> Path:
        return self.out / "logs" / f"{self.task_id}.log"

    @property
    def gold_patch(self) -> Path:
        return self.gold / "gold.patch"

    @property
    def facts(self) -> Path:
        return self.gold / "facts.json"

    @property
    def eligibility(self) -> Path:
        return self.gold / "eligibility.json"

    @property
    def certificate(self) -> Path:
        return self.gold / "certificate.json"

    @property
    def variants(self) -> Path:
        return self.gold / "variants.json"


def environments(out: Path) -> Path:
    """Folder of the environments, which tasks share."""
    return out / "environments"


COMPARTMENTS = {
    "agent": PUBLIC,
    "environments": PUBLIC,
    "built": PUBLIC,
    "tmp": PASSABLE,
    "evaluator": PRIVATE,
    "gold": PRIVATE,
    "pool": PRIVATE,
    "rejected": PRIVATE,
    "measured": PRIVATE,
    "logs": PRIVATE,
}
"""Folder -> mode. What may tell of sealed tests is closed to every other user."""


def prepare(out: Path) -> None:
    """Make the compartments; sealed ones are closed to every other user."""
    with disk_faults():
        for name, mode in COMPARTMENTS.items():
            (out / name).mkdir(parents=True, exist_ok=True)
            (out / name).chmod(mode)
        workroom(out)


def workroom(out: Path) -> Path:
    """Where this machine's builders work; on the same file system as ``out``.

    Each machine has its own, since what a dead process left is known by its process id.
    """
    place = out / "tmp" / platform.node()
    place.mkdir(parents=True, exist_ok=True)
    for folder in (place.parent, place):
        folder.chmod(PASSABLE)
    return place


def write_json(path: Path, value: object) -> None:
    """Canonical JSON with a line end; the file appears whole or not at all."""
    write_whole(path, canonical_json(value) + b"\n")


def write_whole(path: Path, data: bytes) -> None:
    """One file by temporary name, fsync and rename, mode 0644."""
    with disk_faults():
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(descriptor)
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def temporary_folder(parent: Path, purpose: str) -> Path:
    """A fresh directory, mode 0700, whose name tells a reaper which process it belongs to."""
    return Path(tempfile.mkdtemp(prefix=f"factorial-{os.getpid()}-{purpose}-", dir=parent))


@contextmanager
def replacing(out: Path, target: Path, mode: int) -> Iterator[Path]:
    """A fresh directory below ``out`` that takes the target's place if the block ends well."""
    with disk_faults():
        building = temporary_folder(workroom(out), "building")
        try:
            yield building
            building.chmod(mode)
            remove(target)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)


def read_built(out: Path, task_id: str) -> BuiltTask | None:
    """The facts of a built task, or None where it is not built (or was torn)."""
    return _read(Places(out, task_id).built, BuiltTask)


def read_rejected(out: Path, task_id: str) -> Rejected | None:
    """The record of a refused candidate, or None where there is none (or it was torn)."""
    return _read(Places(out, task_id).rejected, Rejected)


def read_measured(out: Path, task_id: str) -> Measured | None:
    """What the last build measured, or None."""
    return _read(Places(out, task_id).measured, Measured)


def _read(path: Path, model: type[Record]) -> Record | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def read_eligibility(out: Path, task_id: str) -> Eligibility:
    """What every rule said of a built task. IntegrityError where the record cannot be read."""
    path = Places(out, task_id).eligibility
    found = _read(path, Eligibility)
    if found is None:
        raise IntegrityError(str(path), "cannot be read")
    return found


def write_record(path: Path, record: Frozen) -> None:
    """A record as canonical JSON; the file appears whole or not at all."""
    write_json(path, record.model_dump(mode="json", by_alias=True))


def require_built(out: Path, task_id: str) -> BuiltTask:
    """The facts of a built task; BadInput where it is not built."""
    built = read_built(out, task_id)
    if built is None:
        raise BadInput(
            str(out), task_id, "this task is not built", "Run `factorial tasks build` first."
        )
    return built


def read_facts(out: Path, task_id: str) -> dict[str, object]:
    """What curation noted about a task beside its gold patch."""
    path = Places(out, task_id).facts
    try:
        facts: dict[str, object] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise IntegrityError(str(path), f"cannot be read ({error})") from None
    return facts
