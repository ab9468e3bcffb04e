"""Runs a task's tests on base and gold and derives fail-to-pass, pass-to-pass and full ids.

Base is the buggy tree, gold is base + the gold patch's Python, both with the sealed files laid
down. Each is run three times under different hash seeds, gold first, and once in a shuffled order;
then the frozen suites are run by themselves, and the fixed end as a whole. A test *function* that
is unstable in ids or outcomes on either tree is dropped whole: a parameter that looks stable beside
unstable ones is so by chance.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Bundle, function_of, split_suites
from orchestrator.repo.files import Files
from orchestrator.spec.ports import SuiteName
from orchestrator.tasks.bench import Bench, Job
from orchestrator.tasks.eligibility import SUITE_LIMIT_SECONDS, Ineligible, Sheet, some
from orchestrator.tasks.observed import (
    FAILING,
    NOT_RUN,
    Runs,
    functions_of,
    hidden_api,
    ids_of,
    not_python_alone,
    told_api,
    unstable_functions,
)

HASH_SEEDS: Final = (0, 1, 2)
"""One repeat each: protocol §1 "eligibility" wants three."""
ORDER_SEED: Final = 1
ROUNDS: Final = 3
ALONE: Final = (SuiteName.FAIL_TO_PASS, SuiteName.GATE, SuiteName.DIAGNOSTIC)


@dataclass(frozen=True)
class Trees:
    """The trees that are compared: the bundle's base, base + gold, and the fixed end without its
    tests, which the seal brings, and with base's version stamps.
    """

    base: Files
    gold: Files
    fixed: Files


@dataclass(frozen=True)
class Mined:
    """What the runs showed. Suites and ids are sorted; ``seconds`` is the median whole gold run.

    ``functions``: number of fail-to-pass functions. ``dropped``: function -> the rule that it
    would break. ``hidden_api``: fail-to-pass functions dropped for review; ``not_python_alone``:
    functions that pass on the fixed end, but not with the gold Python alone; ``uncollected``: per
    tree, what failed to collect; ``residue``: paths that the full suite writes on gold, where it
    may.
    """

    suites: Mapping[SuiteName, tuple[str, ...]]
    gate_overlap: bool
    functions: int
    dropped: Mapping[str, str]
    hidden_api: tuple[str, ...]
    not_python_alone: tuple[str, ...]
    uncollected: Mapping[str, tuple[str, ...]]
    residue: tuple[str, ...]
    seconds: float


def mine(bundle: Bundle, trees: Trees, bench: Bench, sheet: Sheet, statement: str) -> Mined:
    """Derive the suites of ``bundle`` (whose own suites are not read). Raises Ineligible.

    ``statement``: what the agent is told of the bug.
    """
    _check_offline(bundle, bench, sheet)
    runs = Runs(statement)
    _repeat(bundle, trees, bench, sheet, runs)
    ended = _shuffle(bundle, trees, bench, runs)
    _rule_on_repeats(runs, sheet, ended)
    try:
        _settle(bundle, trees, bench, runs)
        failing, passing, full = ids_of(bundle.task_id, runs)
    except Ineligible as refusal:
        raise _for_want_of_files(refusal, bundle, trees, bench, runs) from None
    suites, overlap = split_suites(bundle.task_id, failing, passing, full)
    _rule_on_suites(suites, runs, sheet)
    fixed, (_, residue) = bench.both(
        lambda: bench.run(bundle, Job(trees.fixed)),
        lambda: bench.residue(bundle, Job(trees.gold, suites[SuiteName.FULL])),
    )
    lacking = not_python_alone(fixed, runs, failing)
    _rule_on_looks(lacking, residue, failing, sheet)
    return Mined(
        suites=suites,
        gate_overlap=overlap,
        functions=len(functions_of(failing)),
        dropped=dict(sorted(runs.dropped.items())),
        hidden_api=tuple(sorted(hidden_api(runs))),
        not_python_alone=tuple(sorted(lacking)),
        uncollected={
            name: tuple(sorted(tree[0].collection_errors))
            for name, tree in (("base", runs.base), ("gold", runs.gold))
        },
        residue=residue,
        seconds=median(run.duration_seconds for run in runs.gold[: len(HASH_SEEDS)]),
    )


def _check_offline(bundle: Bundle, bench: Bench, sheet: Sheet) -> None:
    found = bench.network(bundle.ground)
    if set(found) - {"lo"}:
        raise Ineligible(bundle.task_id, "offline", f"within reach: {', '.join(found)}")
    sheet.passes("offline", "the sandbox has a loopback and no other network")


# ------------------------------------------------------------------------------- repeats


def _repeat(bundle: Bundle, trees: Trees, bench: Bench, sheet: Sheet, runs: Runs) -> None:
    """Three whole runs per tree, gold first: without a passing test there, base is not run."""
    gold = [Job(trees.gold, None, seed) for seed in HASH_SEEDS]
    base = [Job(trees.base, None, seed) for seed in HASH_SEEDS]
    runs.gold += bench.pair(bundle, gold[0], gold[1])
    _check_ends(bundle.task_id, "gold", runs.gold, bench)
    _check_some_pass(bundle.task_id, runs.gold[0], sheet)
    if max(run.duration_seconds for run in runs.gold) > SUITE_LIMIT_SECONDS:
        runs.gold.append(bench.run(bundle, gold[2]))  # by itself: its twin may have slowed it down
        _check_ends(bundle.task_id, "gold", runs.gold, bench)
    _check_duration(bundle.task_id, runs.gold, sheet)
    runs.base += bench.pair(bundle, base[0], base[1])
    _check_ends(bundle.task_id, "base", runs.base, bench)
    try:
        ids_of(bundle.task_id, runs)  # tells already whether anything can be left at the end
    except Ineligible as refusal:
        raise _for_want_of_files(refusal, bundle, trees, bench, runs) from None
    if len(runs.gold) < len(HASH_SEEDS):
        last_gold, last_base = bench.pair(bundle, gold[2], base[2])
        runs.gold.append(last_gold)
        runs.base.append(last_base)
    else:
        runs.base.append(bench.run(bundle, base[2]))
    _check_ends(bundle.task_id, "gold", runs.gold, bench)
    _check_ends(bundle.task_id, "base", runs.base, bench)


def _shuffle(bundle: Bundle, trees: Trees, bench: Bench, runs: Runs) -> bool:
    """One more run per tree in another order; drops what differs between repeats, and then what
    differs in the other order.

    False where such a run does not come to its own end: the tests depend on their order as a whole,
    and nothing can be said of single ones. Suites always run in their frozen order.
    """
    runs.drop(unstable_functions(runs.gold) | unstable_functions(runs.base), "stable")
    jobs = (Job(tree, None, 0, ORDER_SEED) for tree in (trees.gold, trees.base))
    gold, base = bench.pair(bundle, *jobs)
    if not all(_ended(run) for run in (gold, base)):
        return False
    runs.gold.append(gold)
    runs.base.append(base)
    runs.drop(unstable_functions(runs.gold) | unstable_functions(runs.base), "shuffled")
    return True


def _ended(run: TestRun) -> bool:
    return run.clean and not (run.timed_out or run.malformed)


def _check_ends(task_id: str, name: str, runs: Sequence[TestRun], bench: Bench) -> None:
    for run in runs:
        if _ended(run):
            continue
        if run.timed_out:
            detail = f"{name}: not done within {bench.wall_seconds:.0f} s"
        else:
            last = (run.log_tail.strip().splitlines() or ["no output"])[-1]
            detail = f"{name}: ended as {run.exit_class.value} before pytest was done ({last})"
        raise Ineligible(task_id, "suite-finishes", detail, log=run.log_tail)


def _check_some_pass(task_id: str, run: TestRun, sheet: Sheet) -> None:
    passed = sum(outcome == "passed" for outcome in run.outcomes.values())
    errors = some(len(run.collection_errors), "module")
    if not passed:
        detail = f"{some(len(run.outcomes), 'test')} ran, {errors} failed to collect"
        raise Ineligible(task_id, "passes-on-gold", detail, log=run.log_tail)
    sheet.passes("passes-on-gold", f"{some(passed, 'test')} of {len(run.outcomes)}")


def _check_duration(task_id: str, runs: Sequence[TestRun], sheet: Sheet) -> None:
    seconds = median(run.duration_seconds for run in runs)
    if seconds > SUITE_LIMIT_SECONDS:
        detail = f"median {seconds:.0f} s of {SUITE_LIMIT_SECONDS:.0f} s"
        raise Ineligible(task_id, "suite-duration", detail)
    sheet.passes("suite-duration", f"median within {SUITE_LIMIT_SECONDS:.0f} s")


# ------------------------------------------------------------------------------- the fixed end


def _for_want_of_files(
    refusal: Ineligible, bundle: Bundle, trees: Trees, bench: Bench, runs: Runs
) -> Ineligible:
    """Where no test fails on base and passes with the gold Python: do some pass on the fixed end?

    Then what they lack is not Python, and the refusal says so.
    """
    if refusal.rule != "fail-to-pass":
        return refusal
    lacking = not_python_alone(bench.run(bundle, Job(trees.fixed)), runs, ())
    if not lacking:
        return refusal
    detail = f"none of {some(len(lacking), 'fail-to-pass function')}, e.g. {min(lacking)}"
    return Ineligible(bundle.task_id, "gold-python-alone", detail)


# ------------------------------------------------------------------------------- suites alone


def _settle(bundle: Bundle, trees: Trees, bench: Bench, runs: Runs) -> None:
    """Drop functions that behave otherwise when only their suite is run, until none does."""
    for _ in range(ROUNDS):
        failing, passing, full = ids_of(bundle.task_id, runs)
        suites, _ = split_suites(bundle.task_id, failing, passing, full)
        odd = dict(_odd_alone(bundle, trees, bench, suites))
        odd = odd or dict(_odd_listed(bundle, trees, bench, suites))
        if not odd:
            return
        for test_id, rule in odd.items():
            runs.drop([function_of(test_id)], rule)
    first = min(odd)
    raise Ineligible(bundle.task_id, odd[first], f"still not after {ROUNDS} rounds: {first}")


def _odd_alone(
    bundle: Bundle, trees: Trees, bench: Bench, suites: Mapping[SuiteName, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """Ids of the small suites that do not do alone what they do in the whole, on either tree."""
    failing = frozenset(suites[SuiteName.FAIL_TO_PASS])
    for name in ALONE:
        ids = suites[name]
        gold, base = bench.pair(bundle, Job(trees.gold, ids), Job(trees.base, ids))
        for run in (gold, base):
            if run.timed_out or run.void or not run.clean:
                detail = f"suite {name.value} does not end"
                raise Ineligible(bundle.task_id, "alone", detail, log=run.log_tail)
        for test_id in ids:
            fails = base.outcomes.get(test_id) in FAILING
            if gold.outcomes.get(test_id) != "passed" or fails != (test_id in failing):
                yield test_id, "alone"


def _odd_listed(
    bundle: Bundle, trees: Trees, bench: Bench, suites: Mapping[SuiteName, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """Ids of the large suites that are not collected, do not run, or do not do what is promised,
    when exactly the listed ids are asked for; each with the rule that it breaks.
    """
    failing = frozenset(suites[SuiteName.FAIL_TO_PASS])
    full = suites[SuiteName.FULL]
    judged = tuple(sorted({*failing, *suites[SuiteName.PASS_TO_PASS]}))
    gold, base = bench.pair(bundle, Job(trees.gold, full), Job(trees.base, judged))
    _check_ends(bundle.task_id, "gold, full suite", [gold], bench)
    _check_ends(bundle.task_id, "base, judged tests", [base], bench)
    for test_id in full:
        outcome = gold.outcomes.get(test_id)
        if outcome is None or outcome in NOT_RUN:
            yield test_id, "no-ignored-oracle"
        elif outcome != "passed":
            yield test_id, "gold-passes"
    for test_id in judged:
        outcome = base.outcomes.get(test_id)
        expected = FAILING if test_id in failing else {"passed"}
        if outcome not in expected:
            yield test_id, "base-fails"


# ------------------------------------------------------------------------------- rulings


def _rule_on_repeats(runs: Runs, sheet: Sheet, shuffled: bool) -> None:
    """``shuffled``: whether the runs in another order came to their own end."""
    repeats = len(HASH_SEEDS)
    whole = len(runs.gold) + len(runs.base)
    sheet.passes("suite-finishes", f"{whole} whole runs ended by themselves")
    dropped = some(runs.dropped_by("stable"), "function")
    sheet.passes("stable", f"{repeats} of {repeats} repeats alike, {dropped} dropped")
    dropped = some(runs.dropped_by("shuffled"), "function")
    if shuffled:
        sheet.passes("shuffled", f"alike in another order, {dropped} dropped")
    else:
        sheet.flags("shuffled", "not judged: in another order the run does not come to its end")


def _rule_on_suites(suites: Mapping[SuiteName, tuple[str, ...]], runs: Runs, sheet: Sheet) -> None:
    failing, passing = suites[SuiteName.FAIL_TO_PASS], suites[SuiteName.PASS_TO_PASS]
    full, functions = suites[SuiteName.FULL], len(functions_of(failing))
    figure = f"{some(functions, 'function')}, {some(len(failing), 'id')}"
    overlap = ": gate and diagnostic overlap" if functions == 1 else ""
    sheet.notes("fail-to-pass", figure + overlap, functions == 1)
    hidden, told = len(hidden_api(runs)), len(told_api(runs))
    figure = f"{some(hidden, 'function')} dropped"
    named = f", {told} for want of a name that the statement gives" if told else ""
    sheet.notes("hidden-api", figure + named, bool(hidden or told))
    sheet.passes("pass-to-pass", some(len(passing), "id"))
    dropped = some(runs.dropped_by("alone"), "function")
    sheet.passes("alone", f"{len(ALONE)} suites on both trees, {dropped} dropped")
    ignored = sum(outcome in NOT_RUN for outcome in runs.gold[0].outcomes.values())
    sheet.passes(
        "no-ignored-oracle",
        f"{len(full)} of {some(len(full), 'listed id')} run; {ignored} skipped or expected to "
        f"fail are in no suite; {runs.dropped_by('no-ignored-oracle')} dropped",
    )
    sheet.passes("base-fails", f"{len(failing)} fail, {len(passing)} pass")
    sheet.passes("gold-passes", f"{len(full)} of {len(full)} pass")


def _rule_on_looks(
    lacking: set[str], residue: Sequence[str], failing: Iterable[str], sheet: Sheet
) -> None:
    found = len(functions_of(failing))
    figure = f"{found} of {some(found + len(lacking), 'fail-to-pass function')} of the fixed end"
    sheet.notes("gold-python-alone", figure, bool(lacking))
    sheet.notes("residue", some(len(residue), "path"), bool(residue))
