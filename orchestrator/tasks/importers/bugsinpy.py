"""A checkout of BugsInPy becomes tasks: a buggy and a fixed commit per bug.

The folder's shell files are read as text and never run. BugsInPy has no problem statements; they
come from a file, or name the failing test modules where that is asked for.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field

from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import Frozen, read_text, read_yaml, validate
from orchestrator.tasks.importers.drafts import (
    REPO,
    Draft,
    Refusal,
    Request,
    refusal,
    repository_url,
)
from orchestrator.tasks.sources.endpoints import Expected
from orchestrator.tasks.sources.expected import expected_bytes
from orchestrator.tasks.sources.objects import local_repository

ASSIGNMENT = re.compile(r"""^\s*(\w+)\s*=\s*["']?(.*?)["']?\s*;?\s*$""")
PYTHON = re.compile(r"^(3\.\d+)(?:\.\d+)?$")


Abbreviated = Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")]


class BugInfo(Frozen):
    """``bug.info``. ``test_file``: paths, separated by ``;``."""

    model_config = ConfigDict(extra="ignore")

    buggy_commit_id: Abbreviated
    fixed_commit_id: Abbreviated
    python_version: Annotated[str, Field(pattern=PYTHON.pattern)]
    test_file: Annotated[str, Field(min_length=1)]

    @property
    def test_files(self) -> tuple[str, ...]:
        parts = (part.strip() for part in re.split(r"[;,\s]+", self.test_file))
        return tuple(part for part in parts if part)


class ProjectInfo(Frozen):
    """``project.info``."""

    model_config = ConfigDict(extra="ignore")

    github_url: Annotated[str, Field(pattern=r"^https?://[^/\s@]+/[^\s?#]+$")]

    @property
    def repo(self) -> str:
        """``owner/name``."""
        parts = urlsplit(self.github_url).path.strip("/").removesuffix(".git").split("/")
        return "/".join(parts[-2:])


@dataclass(frozen=True)
class BugsinpyOptions:
    """``statements``: task id -> problem statement; ``name_test_files``: those without one say
    which test modules fail, and nothing more."""

    statements: Mapping[str, str] = field(default_factory=dict)
    name_test_files: bool = False


def read_statements(path: Path) -> dict[str, str]:
    """Task id -> text, from a YAML (or JSON) mapping."""
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise BadInput(str(path), "", "is no mapping", "Write `black-1: What goes wrong ...`.")
    for name, text in data.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise BadInput(str(path), str(name), "is no text", "Put name and text in quotes.")
    return data


def bugsinpy_drafts(
    checkout: Path, request: Request, options: BugsinpyOptions = BugsinpyOptions()
) -> Iterator[Draft | Refusal]:
    """A draft or refusal per bug that ``request`` wants, by project and number.

    A bug is called ``<project>-<number>``.
    """
    projects = checkout / "projects"
    if not projects.is_dir():
        problem = "has no folder `projects`"
        raise BadInput(str(checkout), "", problem, "Give a checkout of BugsInPy.")
    for project in sorted(path for path in projects.iterdir() if path.is_dir()):
        for bug in sorted(_bugs(project), key=lambda path: int(path.name)):
            label = f"{project.name}/bugs/{bug.name}"
            if not request.wants(_task_id(project, bug)):
                continue
            try:
                yield _draft(label, project, bug, request, options)
            except BadInput as error:
                yield refusal(label, error)


def _bugs(project: Path) -> Iterator[Path]:
    folder = project / "bugs"
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if re.fullmatch("[0-9]{1,6}", path.name))


def _task_id(project: Path, bug: Path) -> str:
    return f"{project.name}-{bug.name}"


def _draft(
    label: str, project: Path, bug: Path, request: Request, options: BugsinpyOptions
) -> Draft:
    info = validate(assignments(bug / "bug.info"), BugInfo, f"{label}/bug.info")
    about = validate(assignments(project / "project.info"), ProjectInfo, f"{label}/project.info")
    if not REPO.fullmatch(about.repo):
        raise BadInput(label, "github_url", "names no repository", "Write https://host/owner/name.")
    origin = about.github_url.removesuffix("/")
    url = repository_url(about.repo, origin, request, label)
    ids = (info.buggy_commit_id, info.fixed_commit_id)
    buggy, fixed = (_full(label, commit, url, request) for commit in ids)
    expected = Expected(fail_to_pass=listed_tests(bug / "run_test.sh", info.test_files))
    listed = {"expected": ("expected.json", expected_bytes(expected))}
    python = PYTHON.sub(r"\1", info.python_version)
    return Draft(
        row=label,
        task_id=_task_id(project, bug),
        project=project.name,
        python=request.python or python,
        source={
            "kind": "git",
            "name": project.name,
            "url": url,
            "buggy": buggy,
            "fixed": fixed,
        },
        statement=_statement(label, _task_id(project, bug), info, options),
        files=listed if expected.fail_to_pass else {},
        requirements=bug / "requirements.txt",
        keys=(_task_id(project, bug), project.name),
    )


def _full(label: str, commit: str, url: str, request: Request) -> str:
    """A commit's full id; some bugs have it shortened, which only a clone can undo."""
    if len(commit) == 40:
        return commit
    if request.mirrors is None:
        problem = f"{commit} is no full commit id"
        raise BadInput(label, "commit_id", problem, "Give --mirrors with a clone to look it up in.")
    return local_repository((request.out.parent / url).resolve(), label, "commit_id").full_id(
        commit
    )


def _statement(label: str, task_id: str, info: BugInfo, options: BugsinpyOptions) -> str:
    """What the agent is told. The commit's message would give the fix away, so it is not used."""
    if task_id in options.statements:
        return options.statements[task_id]
    if not options.name_test_files:
        problem = "BugsInPy has no problem statements and none is given"
        remedy = (
            f"Write one for {task_id} into the file of --statements, or give --name-test-files."
        )
        raise BadInput(label, "problem_statement", problem, remedy)
    names = ", ".join(f"`{path}`" for path in info.test_files)
    return (
        f"The project has a defect that its maintainers later found and covered with tests in "
        f"{names}. Find what is wrong in the code that these tests exercise, and repair it."
    )


def assignments(path: Path) -> dict[str, str]:
    """``name="value"`` lines of a shell file as text; other lines say nothing. Nothing is run."""
    found = (ASSIGNMENT.match(line) for line in read_text(path).splitlines())
    return {match[1]: match[2].strip() for match in found if match}


def listed_tests(script: Path, test_files: tuple[str, ...]) -> tuple[str, ...]:
    """Test ids that ``run_test.sh`` names, as pytest writes them; whole modules are not ids.

    unittest's dotted names are translated where they lie in one of ``test_files``.
    """
    try:
        text = read_text(script)
    except BadInput:
        return ()
    words = [word for line in text.splitlines() for word in _words(line)]
    found = (_test_id(word, test_files) for word in words)
    return tuple(dict.fromkeys(name for name in found if name))


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # an open quote
        return []


def _test_id(word: str, test_files: tuple[str, ...]) -> str | None:
    path, colons, _ = word.partition("::")
    if colons and path.endswith(".py"):
        return word
    for file in test_files:
        module = file.removesuffix(".py").replace("/", ".")
        if word.startswith(f"{module}."):
            return "::".join([file, *word.removeprefix(f"{module}.").split(".")])
    return None
