"""Task manifests: historical bugs as data."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestrator.spec.manifest import Frozen, Misfit

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]


class Release(Frozen):
    """One source release of a package, pinned by the SHA-256 of its sdist."""

    version: str
    sha256: Sha256


class SdistSource(Frozen):
    """A bug between two consecutive releases; they stand for parent and child commit."""

    kind: Literal["sdist"]
    name: Slug
    buggy: Release
    fixed: Release


class Environment(Frozen):
    """The task's Python (``major.minor``) and a pip requirements file with hashes.

    ``requirements`` is relative to the manifest's folder. The project under test must not be in
    it: its fixed release would be importable.
    """

    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    requirements: str


class Task(Frozen):
    """One historical bug. ``import_root`` and ``test_paths`` are derived where they are absent."""

    id: Slug
    project: Slug
    source: SdistSource
    environment: Environment
    problem_statement: Annotated[str, Field(min_length=20)]
    import_root: str | None = None
    test_paths: tuple[str, ...] | None = Field(default=None, strict=False)
    pilot: bool = False


class TaskManifest(Frozen):
    """A list of tasks with unique ids."""

    schema_: Literal["factorial/tasks@1"] = Field(alias="schema")
    tasks: tuple[Task, ...] = Field(strict=False, min_length=1)

    @model_validator(mode="after")
    def _unique_ids(self) -> "TaskManifest":
        seen: set[str] = set()
        for task in self.tasks:
            if task.id in seen:
                raise Misfit("tasks", f"duplicate task id {task.id!r}")
            seen.add(task.id)
        return self
