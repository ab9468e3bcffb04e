"""Task manifests: historical bugs as data, whatever they were found in."""

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from orchestrator.spec.manifest import Frozen, Misfit

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
CommitId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Place = Annotated[str, Field(pattern=r"^[^\x00]+$")]


class Release(Frozen):
    """One source release of a package, pinned by the SHA-256 of its sdist."""

    version: str
    sha256: Sha256


class PinnedFile(Frozen):
    """A file beside the manifest: its path, relative to the manifest's folder, and its SHA-256."""

    path: Place
    sha256: Sha256


class SdistSource(Frozen):
    """A bug between two consecutive releases; they stand for parent and child commit."""

    kind: Literal["sdist"]
    name: Slug
    buggy: Release
    fixed: Release


class InGit(Frozen):
    """What every source in a git repository has.

    ``name``: of the distribution. ``url``: of the repository, or its path relative to the
    manifest's folder. ``path``: folder of a monorepo that is the project; nothing outside of it
    counts. ``version``: of the buggy tree, where it cannot be read from the tree itself.
    ``expected``: JSON file with the test ids that the source itself lists.
    """

    name: Slug
    url: Place
    path: Place | None = None
    version: Annotated[str, Field(min_length=1)] | None = None
    expected: PinnedFile | None = None

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str | None) -> str | None:
        if path is not None and {"", ".", ".."} & set(path.split("/")):
            raise ValueError("has to be a folder inside the repository, such as `packages/core`")
        return path


class GitSource(InGit):
    """A bug between a commit and its one child, by full commit ids."""

    kind: Literal["git"]
    buggy: CommitId
    fixed: CommitId


class PatchSource(InGit):
    """A bug as a commit and two patches on it: the fix, and the tests that prove it."""

    kind: Literal["patches"]
    base: CommitId
    patch: PinnedFile
    test_patch: PinnedFile


Source = Annotated[SdistSource | GitSource | PatchSource, Field(discriminator="kind")]


class Environment(Frozen):
    """The task's Python (``major.minor``) and a pip requirements file with hashes.

    ``requirements`` is relative to the manifest's folder. The project under test must not be in
    it: its fixed release would be importable.
    """

    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    requirements: str


class Task(Frozen):
    """One historical bug. ``import_root`` and ``test_paths`` are derived where they are absent.

    ``rejected_by`` makes it a standing negative case: it must be refused by that eligibility rule.
    """

    id: Slug
    project: Slug
    source: Source
    environment: Environment
    problem_statement: Annotated[str, Field(min_length=20)]
    import_root: str | None = None
    test_paths: tuple[str, ...] | None = Field(default=None, strict=False)
    pilot: bool = False
    rejected_by: Slug | None = None


class Requires(Frozen):
    """What a list of tasks has to satisfy as a whole (protocol §1 "tasks"); pilots and standing
    negative cases aside.

    ``min_fail_to_pass_functions`` is known only when the tasks are built; it is checked at the end
    of a build and at freezing.
    """

    max_per_project: Annotated[int, Field(ge=1)] | None = None
    min_projects: Annotated[int, Field(ge=1)] | None = None
    min_tasks: Annotated[int, Field(ge=1)] | None = None
    min_fail_to_pass_functions: Annotated[int, Field(ge=1)] = 1


class TaskManifest(Frozen):
    """A list of tasks with unique ids, and what the list has to satisfy."""

    schema_: Literal["factorial/tasks@1"] = Field(alias="schema")
    tasks: tuple[Task, ...] = Field(strict=False, min_length=1)
    requires: Requires = Requires()

    @model_validator(mode="after")
    def _as_required(self) -> "TaskManifest":
        counted = [task for task in self.tasks if not task.pilot and task.rejected_by is None]
        projects = Counter(task.project for task in counted)
        most, fewest = self.requires.max_per_project, self.requires.min_projects
        for project, number in projects.items():
            if most is not None and number > most:
                problem = f"{project} has {number} tasks, more than {most}"
                raise Misfit("requires.max_per_project", problem)
        if fewest is not None and len(projects) < fewest:
            raise Misfit("requires.min_projects", f"{len(projects)} projects, fewer than {fewest}")
        if self.requires.min_tasks is not None and len(counted) < self.requires.min_tasks:
            problem = f"{len(counted)} tasks, fewer than {self.requires.min_tasks}"
            raise Misfit("requires.min_tasks", problem)
        return self

    @model_validator(mode="after")
    def _unique_ids(self) -> "TaskManifest":
        seen: set[str] = set()
        for task in self.tasks:
            if task.id in seen:
                raise Misfit("tasks", f"duplicate task id {task.id!r}")
            seen.add(task.id)
        return self
