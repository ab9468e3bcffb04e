"""Finds, by real suite runs, what the planted coder may propose: correct, wrong and overfit states.

Correct states resolve, wrong ones fail the gate, overfit ones pass the gate and do not resolve.
Computed only on request, kept beside the gold patch; candidates are tried in a fixed order, so the
same task has the same variants anywhere. A class for which none is found is recorded as empty.
"""

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator.evaluator.ground import SUITE_LIMITS
from orchestrator.evaluator.suites import load_bundle
from orchestrator.evaluator.verifier import ADJUDICATION, LocalVerifier
from orchestrator.repo.files import Files, apply_delta, delta_between, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import apply_patch, make_patch
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import digest_json, sha256_hex
from orchestrator.spec.ports import Delta, Purpose, SuiteName, SuiteRequest
from orchestrator.tasks.bench import Bench
from orchestrator.tasks.build import Say, sandbox_bench
from orchestrator.tasks.classify import is_production
from orchestrator.tasks.compartments import (
    AGENT_BRANCH,
    Places,
    environments,
    require_built,
    write_json,
    write_whole,
)
from orchestrator.tasks.hunks import without_each_hunk

CLASSES = ("correct", "overfit", "wrong")
SCHEMA = "factorial/variants@1"
CANDIDATES = 25
"""Overfit candidates tried before a task counts as having none."""

OpenBench = Callable[[Path, Path], AbstractContextManager[Bench]]


@dataclass(frozen=True)
class TaskVariants:
    """Verified states of one task: class -> ((state id, delta from base), ...), and the base."""

    base_state_id: str
    base_files: Files
    classes: Mapping[str, tuple[tuple[str, Delta], ...]]


@dataclass(frozen=True)
class Judge:
    """Asks the evaluator about whole trees of one task."""

    verifier: LocalVerifier
    task_id: str
    base: Files
    wall_seconds: float

    def resolves(self, files: Files) -> bool:
        """Passes fail-to-pass, pass-to-pass and full; stops at the first that it does not pass."""
        return all(self._passes(files, suite) for suite in ADJUDICATION)

    def passes_gate(self, files: Files) -> bool:
        return self._passes(files, SuiteName.GATE)

    def is_overfit(self, files: Files) -> bool:
        """Passes the gate and does not resolve."""
        return self.passes_gate(files) and not self.resolves(files)

    def _passes(self, files: Files, suite: SuiteName) -> bool:
        state_id = tree_of(files).state_id
        delta = delta_between(self.base, files)
        execution = digest_json(["variants", self.task_id, suite, state_id])
        request = SuiteRequest(
            self.task_id, suite, Purpose.AUDIT, state_id, delta, execution, self.wall_seconds
        )
        return self.verifier.judgement(request)[0].outcome == "pass"


# ------------------------------------------------------------------------------- on disk


def ensure_variants(
    out: Path,
    task_id: str,
    say: Say = lambda _line: None,
    *,
    open_bench: OpenBench = sandbox_bench,
) -> str:
    """Find the variants of a built task unless that was done; returns their identity."""
    built, places = require_built(out, task_id), Places(out, task_id)
    record = _read(places)
    if record is None or record.get("gold_patch_sha256") != built.gold_patch_sha256:
        say(f"{task_id}: looking for variants")
        environment = environments(out) / built.environment_id
        with open_bench(out, environment) as bench:
            found = find_variants(out, task_id, bench)
        record = _store(places, built.gold_patch_sha256, _base(places), found)
        counts = ", ".join(f"{len(found[name])} {name}" for name in CLASSES)
        say(f"{task_id}: variants found ({counts})")
    return digest_json(record)


def load_variants(out: Path, task_id: str) -> TaskVariants:
    """The variants of a task. BadInput where they were not looked for; IntegrityError where a patch
    is not the one that was verified.
    """
    places = Places(out, task_id)
    record = _read(places)
    if record is None:
        raise BadInput(
            str(places.variants), "", "variants of this task were not looked for", "Freeze again."
        )
    base = _base(places)
    classes = {
        name: tuple(_load_one(places, base, entry) for entry in record["classes"][name])
        for name in CLASSES
    }
    return TaskVariants(tree_of(base).state_id, base, classes)


def _base(places: Places) -> Files:
    return Mirror(places.agent / "repo.git").files(AGENT_BRANCH)


def _read(places: Places) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(places.variants.read_bytes())
    except FileNotFoundError:
        return None
    return record if record.get("schema") == SCHEMA else None


def _patch_path(places: Places, sha256: str) -> Path:
    return places.gold / "variants" / f"{sha256}.patch"


def _load_one(places: Places, base: Files, entry: Mapping[str, str]) -> tuple[str, Delta]:
    path = _patch_path(places, entry["patch_sha256"])
    try:
        patch = path.read_bytes()
    except OSError:
        patch = b""
    delta = apply_patch(base, patch) if sha256_hex(patch) == entry["patch_sha256"] else None
    if delta is None or tree_of(apply_delta(base, delta)).state_id != entry["state_id"]:
        raise IntegrityError(str(path), "is not the variant that was verified")
    return entry["state_id"], delta


def _store(
    places: Places, gold_patch_sha256: str, base: Files, found: Mapping[str, Sequence[Files]]
) -> dict[str, Any]:
    (places.gold / "variants").mkdir(exist_ok=True)
    classes: dict[str, list[dict[str, str]]] = {}
    for name in CLASSES:
        classes[name] = []
        for files in found[name]:
            patch = make_patch(base, delta_between(base, files))
            write_whole(_patch_path(places, sha256_hex(patch)), patch)
            state_id = tree_of(files).state_id
            classes[name].append({"state_id": state_id, "patch_sha256": sha256_hex(patch)})
    record = {"schema": SCHEMA, "gold_patch_sha256": gold_patch_sha256, "classes": classes}
    write_json(places.variants, record)
    return record


# ------------------------------------------------------------------------------- search


def find_variants(out: Path, task_id: str, bench: Bench) -> dict[str, list[Files]]:
    """At least two states per class where they exist; ``overfit`` may be empty.

    Raises IntegrityError where gold does not resolve or base passes the gate: then the task is not
    as it was built.
    """
    places = Places(out, task_id)
    base = _base(places)
    gold = apply_patch(base, places.gold_patch.read_bytes())
    fixed, import_root = apply_delta(base, gold), load_bundle(out, task_id).ground.import_root
    target = comment_target(base, fixed, gold, import_root)
    correct = [fixed, commented(fixed, target, "reviewed")]
    wrong = [commented(base, target, text) for text in ("reviewed", "checked")]
    judges = _judges(out, task_id, bench, base)
    if not all(_asked(judges, Judge.resolves, correct)):
        raise IntegrityError(f"task {task_id}", "gold does not resolve")
    if any(_asked(judges, Judge.passes_gate, wrong)):
        raise IntegrityError(f"task {task_id}", "the base tree passes the gate")
    tried = islice(candidates(task_id, base, gold, import_root), CANDIDATES)
    overfit = _overfit(judges, tried, target)
    return {"correct": correct, "overfit": overfit, "wrong": wrong}


def _judges(out: Path, task_id: str, bench: Bench, base: Files) -> list[Judge]:
    """One per sandbox: a verifier is not for use by two threads."""
    limits, verdicts = bench.limits or SUITE_LIMITS, bench.scratch / "verdicts"
    sandboxes = [bench.sandbox, *([bench.twin] if bench.twin is not None else [])]
    return [
        Judge(
            LocalVerifier(out, verdicts, sandbox, bench.scratch, limits),
            task_id,
            base,
            bench.wall_seconds,
        )
        for sandbox in sandboxes
    ]


def _asked(
    judges: Sequence[Judge], question: Callable[[Judge, Files], bool], trees: Sequence[Files]
) -> list[bool]:
    """Answers about at most as many trees as there are judges are sought side by side."""
    answers: list[bool] = []
    with ThreadPoolExecutor(len(judges)) as pool:
        for start in range(0, len(trees), len(judges)):
            answers += pool.map(question, judges, trees[start : start + len(judges)])
    return answers


def _overfit(judges: Sequence[Judge], tried: Iterator[Files], target: str) -> list[Files]:
    """The first candidate that is overfit, plain and with a comment; empty where there is none."""
    while pair := list(islice(tried, 2)):
        answers = _asked(judges, Judge.is_overfit, pair)
        if any(answers):
            found = pair[answers.index(True)]
            second = commented(found, target, "reviewed")
            return [found, second] if judges[0].is_overfit(second) else [found]
    return []


def comment_target(base: Files, fixed: Files, gold: Delta, import_root: str) -> str:
    """The file that comments are added to: one of gold that both trees have, or else another."""
    shared = sorted(path for path in base.keys() & fixed.keys() if is_production(path, import_root))
    return next((path for path in shared if path in gold), shared[0])


def commented(files: Files, path: str, text: str) -> Files:
    """The tree with a comment line at the end of one Python file: another state, same behaviour."""
    mode, data = files[path]
    end = b"" if not data or data.endswith(b"\n") else b"\n"
    return {**files, path: (mode, data + end + f"# {text}\n".encode())}


def candidates(task_id: str, base: Files, gold: Delta, import_root: str) -> Iterator[Files]:
    """Trees that may be overfit: gold without a file, gold without a hunk, gold with one production
    function broken (functions in the order of SHA-256(task ‖ path ‖ name)).
    """
    fixed = apply_delta(base, gold)
    if len(gold) > 1:
        for path in sorted(gold):
            yield apply_delta(base, {p: change for p, change in gold.items() if p != path})
    for path in sorted(gold):
        for content in without_each_hunk(_content(base, path), _content(fixed, path)):
            yield {**fixed, path: (fixed[path][0], content)}
    for path, function in _functions(task_id, fixed, import_root):
        yield {**fixed, path: (fixed[path][0], broken(fixed[path][1], function))}


def _content(files: Files, path: str) -> bytes:
    return files[path][1] if path in files else b""


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(task_id: str, files: Files, import_root: str) -> list[tuple[str, Function]]:
    found = [
        (path, node)
        for path, (_, data) in files.items()
        if is_production(path, import_root)
        for node in functions_of(data)
    ]
    return sorted(found, key=lambda f: digest_json([task_id, f[0], f[1].name, f[1].lineno]))


def functions_of(source: bytes) -> list[Function]:
    """Functions of a module that :func:`broken` can break; none where it does not parse."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return []
    return [
        node for node in nodes if isinstance(node, Function) and node.body[0].lineno > node.lineno
    ]


def broken(source: bytes, function: Function) -> bytes:
    """The module with the function's body replaced by ``raise RuntimeError``."""
    lines = source.splitlines(keepends=True)
    first, last = function.body[0], function.body[-1]
    indent = lines[first.lineno - 1][: first.col_offset]
    replacement = indent + b"raise RuntimeError\n"
    return b"".join([*lines[: first.lineno - 1], replacement, *lines[last.end_lineno :]])
