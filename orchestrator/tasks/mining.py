"""Runs a task's tests on base and gold and derives fail-to-pass, pass-to-pass and full ids.

Base is the buggy tree, gold is base + the gold patch, both with the sealed files laid down; each
is run three times under different hash seeds, gold first. A test *function* that is unstable in
ids or outcomes on either tree is dropped whole: a parameter that looks stable beside unstable
ones is so by chance.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from orchestrator.evaluator.runner import TestRun, run_tests
from orchestrator.evaluator.suites import Bundle, function_of, split_suites
from orchestrator.repo.files import Files, apply_delta
from orchestrator.repo.worktree import worktree
from orchestrator.spec.ports import Delta, Limits, Sandbox, SuiteName
from orchestrator.tasks.eligibility import Ineligible

HASH_SEEDS = (0, 1, 2)
ROUNDS = 3
SUITE_SECONDS = 300.0
FAILING = frozenset({"failed", "error"})
HIDDEN_API = re.compile(
    r"^(?:TypeError: .*unexpected keyword argument"
    r"|AttributeError: (?:partially initialized )?module .* has no attribute"
    r"|(?:ImportError|ModuleNotFoundError)\b)",
    re.MULTILINE,
)
"""How a test fails on base that calls what only the fixed release has: a feature, not a bug."""
ALONE = (SuiteName.FAIL_TO_PASS, SuiteName.GATE, SuiteName.DIAGNOSTIC)


@dataclass(frozen=True)
class Job:
    """One run to make: a candidate tree, the ids (None: all), PYTHONHASHSEED."""

    tree: Files
    ids: Sequence[str] | None = None
    hash_seed: int = 0


@dataclass(frozen=True)
class Bench:
    """Where suites run while tasks are curated: sandbox, scratch directory, limits of one run.

    With a ``twin`` (a sandbox of another user) two runs are made at the same time.
    """

    sandbox: Sandbox
    scratch: Path
    wall_seconds: float = SUITE_SECONDS
    limits: Limits | None = None
    twin: Sandbox | None = None

    def run(self, bundle: Bundle, job: Job, sandbox: Sandbox | None = None) -> TestRun:
        """Make one run, with the sealed files laid over the candidate last."""
        with worktree(bundle.laid_down(job.tree), self.scratch) as tree:
            return run_tests(
                sandbox or self.sandbox,
                bundle.ground,
                tree,
                job.ids,
                wall_seconds=self.wall_seconds,
                scratch=self.scratch,
                limits=self.limits,
                hash_seed=job.hash_seed,
            )

    def pair(self, bundle: Bundle, first: Job, second: Job) -> tuple[TestRun, TestRun]:
        """Make two runs, side by side where there is a twin."""
        if self.twin is None:
            return self.run(bundle, first), self.run(bundle, second)
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(self.run, bundle, second, self.twin)
            return self.run(bundle, first), other.result()


@dataclass(frozen=True)
class Mined:
    """What the runs showed. Suites and ids are sorted; ``seconds`` is the median whole gold run.

    ``unstable``: functions dropped for their ids or outcomes; ``alone``: functions dropped because
    they behave otherwise alone; ``hidden_api``: fail-to-pass functions dropped for review;
    ``uncollected``: per tree, what failed to collect.
    """

    suites: Mapping[SuiteName, tuple[str, ...]]
    gate_overlap: bool
    unstable: tuple[str, ...]
    alone: tuple[str, ...]
    hidden_api: tuple[str, ...]
    uncollected: Mapping[str, tuple[str, ...]]
    seconds: float


@dataclass
class Runs:
    """Repeats of the whole suite on both trees; ``dropped`` functions take no part any more."""

    gold: list[TestRun] = field(default_factory=list)
    base: list[TestRun] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)


def mine(bundle: Bundle, gold: Delta, bench: Bench) -> Mined:
    """Derive the suites of ``bundle`` (whose own suites are not read). Raises Ineligible."""
    fixed = apply_delta(bundle.base, gold)
    runs = _repeat(bundle, fixed, bench)
    unstable = frozenset(unstable_functions(runs.gold) | unstable_functions(runs.base))
    runs.dropped |= unstable
    alone = _drop_until_alone(bundle, fixed, bench, runs)
    failing, passing, full = _ids(bundle.task_id, runs)
    suites, overlap = split_suites(bundle.task_id, failing, passing, full)
    return Mined(
        suites=suites,
        gate_overlap=overlap,
        unstable=tuple(sorted(unstable)),
        alone=tuple(sorted(alone)),
        hidden_api=tuple(sorted(_hidden_api(runs))),
        uncollected={
            name: tuple(sorted(tree[0].collection_errors))
            for name, tree in (("base", runs.base), ("gold", runs.gold))
        },
        seconds=median(run.duration_seconds for run in runs.gold),
    )


def _repeat(bundle: Bundle, fixed: Files, bench: Bench) -> Runs:
    """Three whole runs per tree, gold first: without a passing test there, base is not run."""
    gold = [Job(fixed, None, seed) for seed in HASH_SEEDS]
    base = [Job(bundle.base, None, seed) for seed in HASH_SEEDS]
    runs = Runs()
    runs.gold += bench.pair(bundle, gold[0], gold[1])
    _check_ends(bundle.task_id, "gold", runs.gold, bench)
    _check_some_pass(bundle.task_id, runs.gold[0])
    runs.base += bench.pair(bundle, base[0], base[1])
    _check_ends(bundle.task_id, "base", runs.base, bench)
    _ids(bundle.task_id, runs)  # tells already whether anything can be left at the end
    last_gold, last_base = bench.pair(bundle, gold[2], base[2])
    runs.gold.append(last_gold)
    runs.base.append(last_base)
    _check_ends(bundle.task_id, "gold", runs.gold, bench)
    _check_ends(bundle.task_id, "base", runs.base, bench)
    return runs


def _check_ends(task_id: str, name: str, runs: Sequence[TestRun], bench: Bench) -> None:
    for run in runs:
        if run.timed_out:
            detail = f"{name}: not done within {bench.wall_seconds:.0f} s"
            raise Ineligible(task_id, "suite-finishes", detail)
        if run.malformed or not run.clean:
            last = (run.log_tail.strip().splitlines() or ["no output"])[-1]
            detail = f"{name}: ended as {run.exit_class.value} before pytest was done ({last})"
            raise Ineligible(task_id, "suite-finishes", detail)


def _check_some_pass(task_id: str, run: TestRun) -> None:
    if "passed" not in run.outcomes.values():
        errors = len(run.collection_errors)
        detail = f"{len(run.outcomes)} tests ran, {errors} modules failed to collect"
        raise Ineligible(task_id, "passes-on-gold", detail)


def unstable_functions(runs: Sequence[TestRun]) -> set[str]:
    """Functions whose ids or outcomes differ between repeats, or that report an id twice."""
    seen = [_by_function(run) for run in runs]
    names = {name for by_function in seen for name in by_function}
    differing = {n for n in names if len({by_function.get(n) for by_function in seen}) > 1}
    return differing | {function_of(test_id) for run in runs for test_id in run.repeated}


def _by_function(run: TestRun) -> dict[str, frozenset[tuple[str, str]]]:
    groups: dict[str, set[tuple[str, str]]] = {}
    for test_id, outcome in run.outcomes.items():
        groups.setdefault(function_of(test_id), set()).add((test_id, outcome))
    return {name: frozenset(pairs) for name, pairs in groups.items()}


# ------------------------------------------------------------------------------- ids


def _always(runs: Sequence[TestRun], wanted: Iterable[str], dropped: set[str]) -> set[str]:
    """Ids whose outcome is one of ``wanted`` in every run, without dropped functions."""
    allowed = frozenset(wanted)
    sets = [{i for i, outcome in run.outcomes.items() if outcome in allowed} for run in runs]
    return {i for i in set.intersection(*sets) if function_of(i) not in dropped}


def _hidden_api(runs: Runs) -> set[str]:
    """Functions that fail on base in the manner of :data:`HIDDEN_API` and pass on gold."""
    failing = _always(runs.base, FAILING, runs.dropped)
    candidates = failing & _always(runs.gold, {"passed"}, runs.dropped)
    messages = runs.base[0].messages
    return {function_of(i) for i in candidates if HIDDEN_API.search(messages.get(i, ""))}


def _ids(task_id: str, runs: Runs) -> tuple[list[str], list[str], list[str]]:
    """Fail-to-pass, pass-to-pass and full ids, sorted; Ineligible where one must not be empty.

    Ids that are absent on base (its module does not import there) are never fail-to-pass.
    """
    full = _always(runs.gold, {"passed"}, runs.dropped)
    candidates = full & _always(runs.base, FAILING, runs.dropped)
    hidden = _hidden_api(runs)
    failing = {i for i in candidates if function_of(i) not in hidden}
    passing = full & _always(runs.base, {"passed"}, runs.dropped)
    if not failing:
        raise _nothing_fails(task_id, runs, candidates)
    if not passing:
        raise Ineligible(task_id, "pass-to-pass", f"{len(full)} tests pass on gold, none on base")
    return sorted(failing), sorted(passing), sorted(full)


def _nothing_fails(task_id: str, runs: Runs, hidden: set[str]) -> Ineligible:
    if hidden:
        detail = f"all {len(hidden)} fail on base for want of a name, e.g. {min(hidden)}"
        return Ineligible(task_id, "hidden-api", detail)
    before = _always(runs.gold, {"passed"}, set()) & _always(runs.base, FAILING, set())
    if before:
        return Ineligible(task_id, "stable", f"every candidate is unstable, e.g. {min(before)}")
    absent = _always(runs.gold, {"passed"}, set()) - set(runs.base[0].outcomes)
    errors = len(runs.base[0].collection_errors)
    return Ineligible(
        task_id,
        "fail-to-pass",
        f"none; {len(absent)} tests of gold do not exist on base, where {errors} modules fail to "
        "collect",
    )


# ------------------------------------------------------------------------------- alone


def _drop_until_alone(bundle: Bundle, fixed: Files, bench: Bench, runs: Runs) -> set[str]:
    """Drop functions that behave otherwise when only their suite is run; returns them."""
    found: set[str] = set()
    for _ in range(ROUNDS):
        failing, passing, full = _ids(bundle.task_id, runs)
        suites, _ = split_suites(bundle.task_id, failing, passing, full)
        odd = set(_odd_alone(bundle, fixed, bench, suites, frozenset(failing)))
        if not odd:
            return found
        functions = {function_of(test_id) for test_id in odd}
        found |= functions
        runs.dropped |= functions
    raise Ineligible(bundle.task_id, "alone", f"still not after {ROUNDS} rounds: {min(odd)}")


def _odd_alone(
    bundle: Bundle,
    fixed: Files,
    bench: Bench,
    suites: Mapping[SuiteName, tuple[str, ...]],
    failing: frozenset[str],
) -> Iterator[str]:
    """Ids of the small suites that do not do alone what they do in the whole, on either tree."""
    for name in ALONE:
        gold, base = bench.pair(bundle, Job(fixed, suites[name]), Job(bundle.base, suites[name]))
        for run in (gold, base):
            if run.timed_out or run.void or not run.clean:
                raise Ineligible(bundle.task_id, "alone", f"suite {name.value} does not end")
        for test_id in suites[name]:
            fails = base.outcomes.get(test_id) in FAILING
            if gold.outcomes.get(test_id) != "passed" or fails != (test_id in failing):
                yield test_id
