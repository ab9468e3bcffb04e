"""The frozen suites of a task: how they are split, and how a sealed bundle of them is read.

A bundle is ``DIR/evaluator/<task_id>/``: ``bundle.json`` and the git mirror ``repo.git`` with the
branches ``base`` (the agent's base tree) and ``sealed`` (tests, configuration, metadata).
Everything is recomputed on loading; what does not match its digest is refused.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from orchestrator.evaluator.ground import Ground, top_module
from orchestrator.evaluator.redaction import Redaction, redact
from orchestrator.repo.files import Files, parents, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json, sha256_file
from orchestrator.spec.manifest import Frozen, read_text, validate
from orchestrator.spec.paths import is_test_path
from orchestrator.spec.ports import SuiteName
from orchestrator.spec.task import Sha256, Slug

BASE_BRANCH, SEALED_BRANCH = "base", "sealed"
GUARD_SHARE = 10
"""Diagnostic and gate each take a tenth of the pass-to-pass functions ..."""
GUARD_LIMIT = 40
"""... but at most this many, so that the gate stays quick where a suite has thousands."""

# --------------------------------------------------------------------------------- split


def function_of(test_id: str) -> str:
    """The test function of a node id: without its parameters, which may hold ``::`` and ``[``.

    >>> function_of("tests/test_a.py::TestA::test_b[x::y[0]]")
    'tests/test_a.py::TestA::test_b'
    """
    path, separator, name = test_id.partition("::")
    if name.endswith("]"):
        name = name.partition("[")[0]
    return path + separator + name


def split_suites(
    task_id: str,
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    full: Sequence[str],
) -> tuple[dict[SuiteName, tuple[str, ...]], bool]:
    """The five suites of a task, each sorted, and whether diagnostic and gate overlap.

    Protocol §1 "Suites": fail-to-pass functions in the order of SHA-256(task ‖ function) go in
    thirds to diagnostic, gate and held out; where k is no multiple of three, the first function
    left over goes to the diagnostic, the second to the gate (k = 4: 2, 1, 1; k = 5: 2, 2, 1). With
    two functions each gets one, with one both have it. Of the pass-to-pass functions, in the same
    order and without those that also have fail-to-pass ids, the gate takes the first tenth and the
    diagnostic the next (rounded down, at least one where there is one, at most 40 each).

    Raises IntegrityError where the lists contradict each other: no fail-to-pass id, an id twice or
    in both lists, an id that is not in the full suite.
    """
    _check_lists(task_id, fail_to_pass, pass_to_pass, full)
    bugs = _by_function(task_id, fail_to_pass)
    seen, gated = _thirds(list(bugs))
    guards = [f for f in _by_function(task_id, pass_to_pass) if f not in bugs]
    size = min(GUARD_LIMIT, max(1, len(guards) // GUARD_SHARE))
    guarded, shown = guards[:size], guards[size : 2 * size]
    ids = {**_by_function(task_id, pass_to_pass), **bugs}
    suites = {
        SuiteName.DIAGNOSTIC: [i for function in [*seen, *shown] for i in ids[function]],
        SuiteName.GATE: [i for function in [*gated, *guarded] for i in ids[function]],
        SuiteName.FAIL_TO_PASS: fail_to_pass,
        SuiteName.PASS_TO_PASS: pass_to_pass,
        SuiteName.FULL: full,
    }
    return {name: tuple(sorted(chosen)) for name, chosen in suites.items()}, len(bugs) == 1


def _check_lists(
    task_id: str, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str], full: Sequence[str]
) -> None:
    judged = [*fail_to_pass, *pass_to_pass]
    problems = {
        "no fail-to-pass id": not fail_to_pass,
        "an id is listed twice, or in fail-to-pass and pass-to-pass": len({*judged}) < len(judged),
        "an id of the full suite is listed twice": len({*full}) < len(full),
        "an id is not in the full suite": not {*judged} <= {*full},
    }
    for problem, holds in problems.items():
        if holds:
            raise IntegrityError(f"suites of task {task_id}", problem)


def _by_function(task_id: str, ids: Sequence[str]) -> dict[str, list[str]]:
    """Ids grouped by function, functions in the order of SHA-256(task ‖ function)."""
    groups: dict[str, list[str]] = {}
    for test_id in ids:
        groups.setdefault(function_of(test_id), []).append(test_id)
    return dict(sorted(groups.items(), key=lambda group: digest_json([task_id, group[0]])))


def _thirds(functions: list[str]) -> tuple[list[str], list[str]]:
    """Functions of the diagnostic and of the gate; the rest is held out."""
    if len(functions) == 1:
        return functions, functions
    third, left_over = divmod(len(functions), 3)
    first = third + (left_over > 0)
    second = first + third + (left_over > 1)
    return functions[:first], functions[first:second]


# --------------------------------------------------------------------------------- bundle


def _relative(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts:
        raise ValueError("must be a path inside the tree")
    return path


RelativePath = Annotated[str, AfterValidator(_relative)]
Ids = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]


class BundleFile(Frozen):
    """``bundle.json``, as curation writes it. Suites are lists of node ids, none empty.

    What curation found that hardening must not do with this task's own honest code, on base or on
    gold: ``untwinned`` functions whose twin passes, ``unconfirmed`` functions that do not pass by
    themselves, ``unwatched`` rules of the watcher that are broken, ``unredacted`` sealed files that
    a diagnostic run needs whole. All are empty where nothing of the kind is known.
    """

    schema_: Literal["factorial/bundle@1"] = Field(alias="schema")
    task_id: Slug
    project: Slug
    base_state_id: Sha256
    environment_id: Slug
    import_root: RelativePath
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    test_paths: tuple[RelativePath, ...] = Field(strict=False)
    suites: dict[Annotated[SuiteName, Field(strict=False)], Ids]
    overlay_sha256: Sha256
    removed: tuple[RelativePath, ...] = Field(strict=False)
    untwinned: Names = ()
    unconfirmed: Names = ()
    unwatched: Names = ()
    unredacted: Names = ()


@dataclass(frozen=True)
class Suite:
    """One enumerated suite: sorted ids, and the identity of everything that decides its verdict."""

    name: SuiteName
    ids: tuple[str, ...]
    suite_id: str


@dataclass(frozen=True)
class Bundle:
    """A task as the evaluator knows it, with contents. ``sealed`` never leaves the evaluator."""

    task_id: str
    project: str
    base_state_id: str
    environment_id: str
    ground: Ground
    suites: Mapping[SuiteName, Suite]
    base: Files
    sealed: Files
    removed: frozenset[str]
    untwinned: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    unwatched: tuple[str, ...] = ()
    unredacted: tuple[str, ...] = ()

    @cached_property
    def redaction(self) -> Redaction:
        """What of the sealed files a diagnostic run does without."""
        full, shown = (
            {function_of(test_id) for test_id in self.suites[name].ids}
            for name in (SuiteName.FULL, SuiteName.DIAGNOSTIC)
        )
        return redact(self.sealed, full, shown, self.unredacted)

    def laid_down(self, candidate: Files, *, protected: bool = True) -> Files:
        """The candidate's production files with the suite's files laid down last.

        The candidate's test paths go, whatever they are, and so does anything that stands in the
        way of a sealed path (a file or link named like one of its directories, or below it) or is
        new and would be imported in a sealed module's place (``test_a/`` beside ``test_a.py``).
        With ``protected`` off only what stands in the way of a sealed path goes.
        """
        directories = {above for path in self.sealed for above in parents(path)}
        modules = {path.removesuffix(".py") for path in self.sealed if path.endswith(".py")}
        kept = {
            path: file
            for path, file in candidate.items()
            if path not in directories
            and not any(above in self.sealed for above in parents(path))
            and not (protected and self._taken_over(path, modules))
        }
        laid = {**kept, **self.sealed}
        # Compiled tests that an archive ships would tell an altered test from the real one.
        return {path: file for path, file in laid.items() if "__pycache__" not in path.split("/")}

    def _taken_over(self, path: str, modules: set[str]) -> bool:
        """Whether a candidate's path is a test's, was removed with the tests, or is new and has the
        place of one of the sealed ``modules``.
        """
        shadowing = path not in self.base and bool(modules & _module_places(path))
        return is_test_path(path) or path in self.removed or shadowing

    def shadows(self, path: str) -> bool:
        """Whether ``path`` is new at the top of an import path and has the name of a module of the
        standard library, the environment or the tests: it would be imported in that one's place,
        by the runner too. Names that the base tree has there already are its own.
        """
        for root in {"", "" if self.ground.import_root == "." else self.ground.import_root + "/"}:
            name = top_module(path.removeprefix(root)) if path.startswith(root) else None
            if name in self._taken and name not in _tops(self.base, root):
                return True
        return False

    @cached_property
    def _taken(self) -> frozenset[str]:
        names = self.ground.modules() | sys.stdlib_module_names | _tops(self.sealed, "")
        return frozenset(names)


def _tops(files: Files, root: str) -> set[str]:
    inside = (path.removeprefix(root) for path in files if path.startswith(root))
    return {name for path in inside if (name := top_module(path))}


def _module_places(path: str) -> set[str]:
    """Every module (``a/b`` for ``a/b.py``) whose place the file or a folder above it can take."""
    head, slash, name = path.rpartition("/")
    module = top_module(name)
    return {*parents(path), *([head + slash + module] if module else [])}


def read_bundle(path: Path) -> BundleFile:
    """Parse and validate one ``bundle.json``; BadInput names the first mistake."""
    try:
        data = json.loads(read_text(path))
    except ValueError as error:
        raise BadInput(str(path), "", f"not valid JSON: {error}", "Build the task again.") from None
    return validate(data, BundleFile, str(path))


def load_bundle(tasks_dir: Path, task_id: str) -> Bundle:
    """Read and check the sealed bundle of a task.

    BadInput names a mistake in ``bundle.json``; IntegrityError a mirror whose state ids differ
    from those recorded, a missing suite, or an environment that is absent or of another Python.
    """
    home = tasks_dir / "evaluator" / task_id
    record = read_bundle(home / "bundle.json")
    mirror = Mirror(home / "repo.git")
    base, sealed = mirror.files(BASE_BRANCH), mirror.files(SEALED_BRANCH)
    _check_identity(task_id, "task_id", record.task_id, task_id)
    _check_identity(task_id, "base_state_id", record.base_state_id, tree_of(base).state_id)
    _check_identity(task_id, "overlay_sha256", record.overlay_sha256, tree_of(sealed).state_id)
    environment = tasks_dir / "environments" / record.environment_id
    _check_environment(environment, record.python)
    ground = Ground(environment, record.import_root, record.test_paths, record.python)
    return Bundle(
        task_id=task_id,
        project=record.project,
        base_state_id=record.base_state_id,
        environment_id=record.environment_id,
        ground=ground,
        suites={name: _suite(record, ground, name) for name in SuiteName},
        base=base,
        sealed=sealed,
        removed=frozenset(record.removed),
        untwinned=record.untwinned,
        unconfirmed=record.unconfirmed,
        unwatched=record.unwatched,
        unredacted=record.unredacted,
    )


def _check_identity(task_id: str, name: str, recorded: str, found: str) -> None:
    if recorded != found:
        raise IntegrityError(f"bundle of task {task_id}", f"{name} is {found}, not {recorded}")


def _check_environment(environment: Path, python: str) -> None:
    try:
        settings = (environment / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise IntegrityError(f"environment {environment.name}", "is no environment") from None
    versions = [
        value.strip()
        for name, _, value in (line.partition("=") for line in settings.splitlines())
        if name.strip() in ("version", "version_info")
    ]
    if not any(version == python or version.startswith(python + ".") for version in versions):
        raise IntegrityError(f"environment {environment.name}", f"is not of Python {python}")


def _suite(record: BundleFile, ground: Ground, name: SuiteName) -> Suite:
    ids = record.suites.get(name)
    if ids is None or len({*ids}) < len(ids):
        problem = "is missing" if ids is None else "lists an id twice"
        raise IntegrityError(f"bundle of task {record.task_id}", f"suite {name} {problem}")
    identity = digest_json(
        {
            "environment_id": record.environment_id,
            "ground": ground.description(),
            "ids": sorted(ids),
            "name": name,
            "overlay": record.overlay_sha256,
            "removed": sorted(record.removed),
            "runner_id": runner_id(),
            "unconfirmed": sorted(record.unconfirmed),
            "unredacted": sorted(record.unredacted),
            "untwinned": sorted(record.untwinned),
            "unwatched": sorted(record.unwatched),
        }
    )
    return Suite(name, tuple(sorted(ids)), identity)


@cache
def runner_id() -> str:
    """Identity of the evaluator's own source files, the plugin included."""
    return sources_id(Path(__file__).parent)


def sources_id(home: Path) -> str:
    """SHA-256 over the (path, SHA-256) pairs of every ``*.py`` below ``home``."""
    sources = sorted(home.rglob("*.py"))
    return digest_json([[p.relative_to(home).as_posix(), sha256_file(p)] for p in sources])


def bundle_bytes(record: BundleFile) -> bytes:
    """The canonical bytes of ``bundle.json``: curation writes them, :func:`load_bundle` reads."""
    return canonical_json(record.model_dump(mode="json", by_alias=True)) + b"\n"
