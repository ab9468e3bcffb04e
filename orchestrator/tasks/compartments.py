"""The three compartments of built tasks, their places, and the facts that the lock takes from them.

``agent/`` is for the agent, ``evaluator/`` and ``gold/`` (mode 0700) never are; ``built/`` says
what is complete. ``built/<task_id>.json`` is written last: a task without it is not built.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from orchestrator.repo.files import disk_faults
from orchestrator.repo.worktree import remove
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import canonical_json
from orchestrator.spec.manifest import Frozen
from orchestrator.spec.task import Sha256, Slug

AGENT_BRANCH = "main"
PRIVATE, PUBLIC = 0o700, 0o755


class BuiltTask(Frozen):
    """Facts of one built task. ``input_digest``: what it came from."""

    schema_: Literal["factorial/built@1"] = Field(alias="schema")
    task_id: Slug
    project: Slug
    input_digest: Sha256
    base_state_id: Sha256
    agent_commit: str
    evaluator_commit: str
    environment_id: Sha256
    suites: dict[str, Sha256]
    gate_overlap: bool
    gold_patch_sha256: Sha256
    statement_sha256: Sha256
    buggy_sdist_sha256: Sha256
    fixed_sdist_sha256: Sha256


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
    def gold_patch(self) -> Path:
        return self.gold / "gold.patch"

    @property
    def facts(self) -> Path:
        return self.gold / "facts.json"

    @property
    def variants(self) -> Path:
        return self.gold / "variants.json"


def environments(out: Path) -> Path:
    """Folder of the environments, which tasks share."""
    return out / "environments"


def prepare(out: Path) -> None:
    """Make the compartments; sealed ones are closed to every other user."""
    modes = {"agent": PUBLIC, "evaluator": PRIVATE, "gold": PRIVATE, "built": PUBLIC}
    with disk_faults():
        for name, mode in {**modes, "environments": PUBLIC}.items():
            (out / name).mkdir(parents=True, exist_ok=True)
            (out / name).chmod(mode)


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
        building = temporary_folder(out, "building")
        try:
            yield building
            building.chmod(mode)
            remove(target)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)


def read_built(out: Path, task_id: str) -> BuiltTask | None:
    """The facts of a built task, or None where it is not built (or was torn)."""
    try:
        return BuiltTask.model_validate_json(Places(out, task_id).built.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


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
