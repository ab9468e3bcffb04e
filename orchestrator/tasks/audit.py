"""Proves of a built task that nothing sealed can be read on the agent's side, and that its suites
behave the same in three repeats. Reads what lies on disk; returns findings, changes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import ObjectType

from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import load_bundle
from orchestrator.repo.files import Files, apply_delta
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.paths import is_test_path
from orchestrator.spec.ports import Delta, SuiteName
from orchestrator.tasks.classify import top_level_modules
from orchestrator.tasks.compartments import AGENT_BRANCH, Places, environments, require_built
from orchestrator.tasks.environment import distributions, importable
from orchestrator.tasks.mining import Bench, Job

TELLING_CHARS: Final = 20
"""Shorter added lines occur anywhere (``return None``) and prove nothing."""

COPY_SHARE: Final = 0.5
"""Share of a gold file's telling lines that makes a file of a foreign package a copy of it. Single
lines (``if not isinstance(name, str):``) are common property; the agent's side has no allowance.
"""

SMALL_BLOB: Final = 64
"""Blobs up to this many bytes (empty ``__init__.py``, one-line markers) are equal by chance."""


REPEATS: Final = 3
"""Protocol §1 "eligibility"."""


@dataclass(frozen=True)
class Finding:
    """One leak or disagreement: the rule that it breaks, where, and what."""

    task_id: str
    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.task_id}: {self.rule}: {self.where}: {self.what}"


def audit_task(out: Path, task_id: str) -> list[Finding]:
    """Everything that :data:`CHECKS` find, in their order; an empty list is a clean task."""
    built, places = require_built(out, task_id), Places(out, task_id)
    base = Mirror(places.agent / "repo.git").files(AGENT_BRANCH)
    bundle = load_bundle(out, task_id)
    gold = apply_patch(base, places.gold_patch.read_bytes())
    environment = environments(out) / built.environment_id
    secrets = gold_lines(base, gold)
    found = [
        *unreachable_objects(places.agent / "repo.git"),
        *sealed_blobs(base, places.agent / "repo.git", bundle.sealed),
        *gold_in_objects(places.agent / "repo.git", secrets),
        *gold_in_folder(places.agent, secrets, "agent compartment"),
        *gold_copies(environment, base, gold),
        *gold_objects(places.evaluator / "repo.git", base, gold),
        *project_in_environment(environment, built.project, base, bundle.ground.import_root),
    ]
    return [Finding(task_id, rule, where, what) for rule, where, what in found]


Leak = tuple[str, str, str]
"""Rule, where, what."""


# ------------------------------------------------------------------------------- git objects


def objects_of(repository: Path) -> dict[str, tuple[int, bytes]]:
    """Every object of a repository's database, loose or packed: id -> (type, content)."""
    database = pygit2.Odb(str(repository / "objects"))
    return {str(oid): database.read(oid) for oid in database}


def _reachable(objects: dict[str, tuple[int, bytes]], commit: str) -> Iterator[str]:
    pending = [commit]
    while pending:
        oid = pending.pop()
        yield oid
        kind, data = objects.get(oid, (ObjectType.BLOB, b""))
        if kind == ObjectType.COMMIT:
            heads = (line.split(b" ") for line in data.split(b"\n\n")[0].split(b"\n"))
            pending += [h[1].decode() for h in heads if h[0] in (b"tree", b"parent")]
        elif kind == ObjectType.TREE:
            pending += _children(data)


def _children(tree: bytes) -> list[str]:
    found = []
    while tree:
        _, _, rest = tree.partition(b"\0")
        found.append(rest[:20].hex())
        tree = rest[20:]
    return found


def unreachable_objects(repository: Path) -> Iterator[Leak]:
    """Objects that the mirror's one commit does not need, a second commit, or another reference."""
    rule = "one-commit"
    objects = objects_of(repository)
    head = Mirror(repository).commit_id(AGENT_BRANCH)
    for oid in sorted(set(objects) - set(_reachable(objects, head))):
        yield rule, "agent mirror", f"object {oid} belongs to no file of the base tree"
    for oid, (kind, data) in sorted(objects.items()):
        if kind == ObjectType.COMMIT and b"\nparent " in data.split(b"\n\n")[0]:
            yield rule, "agent mirror", f"commit {oid} has a history"
    allowed = {Path("refs/heads") / AGENT_BRANCH}
    for path in sorted(p for p in (repository / "refs").rglob("*") if p.is_file()):
        if path.relative_to(repository) not in allowed:
            yield rule, "agent mirror", f"reference {path.relative_to(repository)}"
    for name in ("packed-refs", "objects/info/alternates"):
        if (repository / name).exists():
            yield rule, "agent mirror", f"{name} leads elsewhere"


def sealed_blobs(base: Files, repository: Path, sealed: Files) -> Iterator[Leak]:
    """Test contents of the seal among the agent's objects.

    Only tests and their data count: test configuration that did not change between the releases is
    also in the agent's mirror. A test file whose content the base tree has as production is no
    secret, nor is one too small to say anything.
    """
    known = {data for path, (_, data) in base.items() if not is_test_path(path)}
    secret = {
        data: path
        for path, (_, data) in sealed.items()
        if is_test_path(path) and len(data) > SMALL_BLOB and data not in known
    }
    for oid, (kind, data) in sorted(objects_of(repository).items()):
        if kind == ObjectType.BLOB and data in secret:
            yield "no-sealed-test", "agent mirror", f"object {oid} is {secret[data]}"
    for path in sorted(filter(is_test_path, base)):
        yield "no-sealed-test", "agent mirror", f"{path} is a test path"


def gold_objects(repository: Path, base: Files, gold: Delta) -> Iterator[Leak]:
    """Whole gold files in the evaluator's mirror, which has no use for them."""
    known = {data for _, data in base.values()}
    wanted = {c.content: p for p, c in gold.items() if c is not None and c.content not in known}
    for oid, (kind, data) in sorted(objects_of(repository).items()):
        if kind == ObjectType.BLOB and data in wanted and len(data) > SMALL_BLOB:
            yield "no-gold-object", "evaluator mirror", f"object {oid} is gold's {wanted[data]}"


# ------------------------------------------------------------------------------- gold lines


def gold_lines(base: Files, gold: Delta) -> frozenset[bytes]:
    """Lines of at least 20 characters that gold adds and no file of the base tree has."""
    fixed = apply_delta(base, gold)
    old = {line.strip() for _, data in base.values() for line in data.splitlines()}
    new = {line.strip() for path in gold if path in fixed for line in fixed[path][1].splitlines()}
    return frozenset(line for line in new - old if len(line) >= TELLING_CHARS)


def _lines_in(data: bytes, secrets: frozenset[bytes]) -> list[bytes]:
    return sorted(secrets.intersection(line.strip() for line in data.splitlines()))


def _shown(lines: list[bytes]) -> str:
    return f"{len(lines)} line(s) of gold, e.g. {lines[0].decode('utf-8', 'replace')[:60]!r}"


def gold_in_objects(repository: Path, secrets: frozenset[bytes]) -> Iterator[Leak]:
    """Lines of gold in any object of a repository, reachable or not."""
    for oid, (_, data) in sorted(objects_of(repository).items()):
        lines = _lines_in(data, secrets)
        if lines:
            yield "no-gold-line", "agent mirror", f"object {oid} has {_shown(lines)}"


def gold_in_folder(folder: Path, secrets: frozenset[bytes], name: str) -> Iterator[Leak]:
    """Lines of gold in any file of a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            lines = _lines_in(path.read_bytes(), secrets)
            if lines:
                yield "no-gold-line", name, f"{path.relative_to(folder)} has {_shown(lines)}"


def gold_copies(environment: Path, base: Files, gold: Delta) -> Iterator[Leak]:
    """Files of the environment that hold at least half of what gold adds to one of its files."""
    by_file = {path: gold_lines(base, {path: change}) for path, change in gold.items()}
    wanted = {path: lines for path, lines in by_file.items() if lines}
    for path in sorted(environment.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        data = path.read_bytes()
        for source, secrets in wanted.items():
            lines = _lines_in(data, secrets)
            if len(lines) >= COPY_SHARE * len(secrets):
                where = f"{path.relative_to(environment)} has {_shown(lines)}"
                yield "no-gold-line", "environment", f"{where} ({source})"


def project_in_environment(
    environment: Path, project: str, base: Files, import_root: str
) -> Iterator[Leak]:
    """Any release of the project in the interpreter that runs its tests."""
    rule = "project-not-installed"
    if project.lower() in distributions(environment):
        yield rule, "environment", f"distribution {project}"
    for module in importable(environment, top_level_modules(base, import_root)):
        yield rule, "environment", f"module {module}"


# ------------------------------------------------------------------------------- signatures


@dataclass(frozen=True)
class Signature:
    """What one suite does on one tree (``base``, ``gold``) in every repeat: id -> outcome."""

    suite: SuiteName
    tree: str
    outcomes: dict[str, str]


def audit_signatures(
    out: Path, task_id: str, bench: Bench, suites: Iterable[SuiteName] = SuiteName
) -> tuple[list[Signature], list[Finding]]:
    """Run each frozen suite three times on base and on gold.

    Protocol §1 "eligibility": the signature of every suite is identical in three repeats, no listed
    test is left out, gold passes everything, base fails fail-to-pass and passes pass-to-pass.
    """
    places, bundle = Places(out, task_id), load_bundle(out, task_id)
    gold = apply_delta(bundle.base, apply_patch(bundle.base, places.gold_patch.read_bytes()))
    failing = frozenset(bundle.suites[SuiteName.FAIL_TO_PASS].ids)
    signatures: list[Signature] = []
    findings: list[Finding] = []
    for suite in suites:
        ids = bundle.suites[suite].ids
        jobs = Job(bundle.base, ids), Job(gold, ids)
        pairs = [bench.pair(bundle, *jobs) for _ in range(REPEATS)]
        for tree, runs in zip(("base", "gold"), zip(*pairs, strict=True), strict=True):
            signatures.append(Signature(suite, tree, runs[0].outcomes))
            problems = _disagreements(runs, ids, tree, failing, suite)
            where = f"suite {suite.value} on {tree}"
            findings += [Finding(task_id, rule, where, what) for rule, what in problems]
    return signatures, findings


def _disagreements(
    runs: Sequence[TestRun],
    ids: tuple[str, ...],
    tree: str,
    failing: frozenset[str],
    suite: SuiteName,
) -> Iterator[tuple[str, str]]:
    if any(not run.clean or run.void for run in runs):
        yield "signature", "a repeat did not come to its own end"
    for test_id in ids:
        outcomes = {run.outcomes.get(test_id, "absent") for run in runs}
        if len(outcomes) > 1:
            yield "signature", f"{test_id} differs between repeats ({', '.join(sorted(outcomes))})"
        elif tree == "gold" and outcomes != {"passed"}:
            yield "gold-passes", f"{test_id} is {min(outcomes)}"
        elif tree == "base" and suite is not SuiteName.FULL:
            passed = outcomes == {"passed"}
            if "absent" in outcomes or passed == (test_id in failing):
                yield "base-signature", f"{test_id} is {min(outcomes)}"
