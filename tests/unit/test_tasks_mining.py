"""Each rule of eligibility refuses what it was made for, on scripted runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import pytest

from orchestrator.evaluator.ground import Ground
from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Bundle
from orchestrator.repo.files import Files
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.ports import ExitClass, SuiteName
from orchestrator.tasks.bench import Bench, Job
from orchestrator.tasks.classify import Classification, Layout, PathClass, classify
from orchestrator.tasks.eligibility import (
    RULES,
    Ineligible,
    Sheet,
    Verdict,
    check_patch,
    check_statement,
)
from orchestrator.tasks.listed import check_listed
from orchestrator.tasks.mining import Mined, Trees, mine
from orchestrator.tasks.observed import is_hidden, unstable_functions
from orchestrator.tasks.sources import Expected
from tests.unit import evaluator_support as support

FIXED_END = {**support.with_core(support.FIXED), "src/calc/words.txt": (0o100644, b"new")}
TREES = Trees(support.BASE, support.with_core(support.FIXED), FIXED_END)
First, Second = TypeVar("First"), TypeVar("Second")
Outcomes = Mapping[str, str]
STABLE = {"t.py::test_kept": "passed", "t.py::test_bug": "failed"}
FIXED = {"t.py::test_kept": "passed", "t.py::test_bug": "passed"}


def run_of(outcomes: Outcomes, **changes: object) -> TestRun:
    fields: dict[str, object] = {
        "outcomes": dict(outcomes),
        "messages": {},
        "collection_errors": {},
        "finished": True,
        "exit_class": ExitClass.OK,
        "timed_out": False,
        "duration_seconds": 1.0,
        "peak_memory_bytes": None,
        "log_tail": "",
    }
    return TestRun(**{**fields, **changes})  # type: ignore[arg-type]


class ScriptedBench:
    """Plays one list of runs per tree; runs of enumerated ids repeat the first, restricted.

    ``alone``: what ids do on a tree when only listed ids run. ``asked``: (tree, whole, hash seed,
    shuffled). ``shuffled``: outcomes that are otherwise in another order; ``lost``: whether such a
    run is killed before its end.
    """

    wall_seconds = 60.0

    def __init__(self, base: Sequence[TestRun], gold: Sequence[TestRun]) -> None:
        self.scripts = {"base": base, "gold": gold, "fixed": gold}
        self.alone: dict[str, dict[str, str | None]] = {"base": {}, "gold": {}}
        self.shuffled: dict[str, dict[str, str]] = {"base": {}, "gold": {}}
        self.lost = False
        self.interfaces: tuple[str, ...] = ("lo",)
        self.left: tuple[str, ...] = ()
        self.asked: list[tuple[str, bool, int, bool]] = []
        self.sheet = Sheet(support.TASK)
        self.statement = "The sum is wrong."

    def run(self, _bundle: Bundle, job: Job) -> TestRun:
        tree = self._name(job.tree)
        shuffled = job.order_seed is not None
        self.asked.append((tree, job.ids is None, job.hash_seed, shuffled))
        runs = self.scripts[tree]
        if shuffled:
            outcomes = {**runs[0].outcomes, **self.shuffled[tree]}
            return run_of(outcomes, finished=not self.lost)
        if job.ids is None:
            return runs[min(job.hash_seed, len(runs) - 1)]
        outcomes = {**runs[0].outcomes, **self.alone[tree]}
        return run_of({i: found for i in job.ids if (found := outcomes[i]) is not None})

    def _name(self, tree: Files) -> str:
        return "base" if tree == TREES.base else "gold" if tree == TREES.gold else "fixed"

    def pair(self, bundle: Bundle, first: Job, second: Job) -> tuple[TestRun, TestRun]:
        return self.run(bundle, first), self.run(bundle, second)

    def both(
        self, first: Callable[[], First], second: Callable[[], Second]
    ) -> tuple[First, Second]:
        return first(), second()

    def residue(self, bundle: Bundle, job: Job) -> tuple[TestRun, tuple[str, ...]]:
        return self.run(bundle, job), self.left

    def network(self, _ground: Ground) -> tuple[str, ...]:
        return self.interfaces

    def mine(self) -> Mined:
        return mine(bundle(), TREES, cast(Bench, self), self.sheet, self.statement)

    def ruled(self, rule: str) -> tuple[Verdict, str]:
        (ruling,) = (ruling for ruling in self.sheet.rulings() if ruling.rule == rule)
        return ruling.verdict, ruling.figure

    def refused(self) -> Ineligible:
        with pytest.raises(Ineligible) as caught:
            self.mine()
        return caught.value


def bundle() -> Bundle:
    ground = support.ground(Path("/nowhere"))
    return Bundle(
        support.TASK, "calc", "0" * 64, "env", ground, {}, support.BASE, support.SEALED, frozenset()
    )


def mined(base: Sequence[TestRun], gold: Sequence[TestRun]) -> Mined:
    return ScriptedBench(base, gold).mine()


def refused(base: Sequence[TestRun], gold: Sequence[TestRun]) -> str:
    with pytest.raises(Ineligible) as caught:
        mined(base, gold)
    assert support.TASK in str(caught.value) and RULES[caught.value.rule] in str(caught.value)
    return caught.value.rule


def test_a_sound_task_has_its_suites() -> None:
    found = mined([run_of(STABLE)], [run_of(FIXED)])
    assert found.suites[SuiteName.FAIL_TO_PASS] == ("t.py::test_bug",)
    assert found.suites[SuiteName.PASS_TO_PASS] == ("t.py::test_kept",)
    assert found.suites[SuiteName.FULL] == ("t.py::test_bug", "t.py::test_kept")
    assert (found.gate_overlap, found.functions, found.dropped, found.hidden_api) == (
        True, 1, {}, ()
    )  # fmt: skip


def test_gold_runs_first_each_tree_three_times_and_once_in_another_order() -> None:
    bench = ScriptedBench([run_of(STABLE)], [run_of(FIXED)])
    bench.mine()
    whole = [(tree, seed, other) for tree, is_whole, seed, other in bench.asked if is_whole]
    plain = [(tree, seed) for tree, seed, other in whole if not other]
    assert plain[:4] == [("gold", 0), ("gold", 1), ("base", 0), ("base", 1)]
    assert plain[4:] == [("gold", 2), ("base", 2), ("fixed", 0)]
    assert [tree for tree, _, other in whole if other] == ["gold", "base"]


def test_without_a_passing_test_on_gold_base_is_not_even_run() -> None:
    bench = ScriptedBench([run_of(STABLE)], [run_of({"t.py::test_kept": "failed"})])
    with pytest.raises(Ineligible) as caught:
        bench.mine()
    assert (caught.value.rule, len(bench.asked)) == ("passes-on-gold", 2)


def test_a_hang_or_a_crash_on_either_tree_is_refused() -> None:
    hang = run_of(STABLE, timed_out=True, exit_class=ExitClass.TIMEOUT)
    crash = run_of(STABLE, finished=False, exit_class=ExitClass.FAILED)
    forged = run_of(STABLE, malformed="line 1")
    for bad in (hang, crash, forged):
        assert refused([bad], [run_of(FIXED)]) == "suite-finishes"
        assert refused([run_of(STABLE)], [bad]) == "suite-finishes"


def test_what_is_not_collected_on_base_is_no_failing_test() -> None:
    base = run_of({"t.py::test_kept": "passed"}, collection_errors={"new.py": "ImportError"})
    gold = run_of({"t.py::test_kept": "passed", "new.py::test_bug": "passed"})
    with pytest.raises(Ineligible, match="absent on base: 1 test of gold") as caught:
        mined([base], [gold])
    assert caught.value.rule == "fail-to-pass"


def test_uncollected_tests_stay_in_the_full_suite_and_are_reported() -> None:
    base = run_of(STABLE, collection_errors={"new.py": "ImportError"})
    gold = run_of({**FIXED, "new.py::test_other": "passed"})
    found = mined([base], [gold])
    assert "new.py::test_other" in found.suites[SuiteName.FULL]
    assert found.suites[SuiteName.FAIL_TO_PASS] == ("t.py::test_bug",)
    assert found.uncollected == {"base": ("new.py",), "gold": ()}


def test_without_pass_to_pass_a_task_is_refused() -> None:
    assert (
        refused([run_of({"t.py::t": "failed"})], [run_of({"t.py::t": "passed"})]) == "pass-to-pass"
    )


def test_one_unstable_parameter_drops_the_whole_function() -> None:
    bug = {"t.py::test_bug": "failed", "t.py::test_race[a]": "failed", "t.py::test_kept": "passed"}
    fixed = dict.fromkeys(bug, "passed")
    base = [
        run_of({**bug, "t.py::test_race[b]": outcome}) for outcome in ("failed", "passed", "failed")
    ]
    found = mined(base, [run_of({**fixed, "t.py::test_race[b]": "passed"})])
    assert found.dropped == {"t.py::test_race": "stable"}
    assert found.suites[SuiteName.FULL] == ("t.py::test_bug", "t.py::test_kept")


def test_ids_that_change_are_unstable_on_either_tree() -> None:
    base = run_of({**STABLE, "t.py::test_clock[0]": "passed"})
    gold = [run_of({**FIXED, f"t.py::test_clock[{n}]": "passed"}) for n in range(3)]
    assert mined([base], gold).dropped == {"t.py::test_clock": "stable"}


def test_only_unstable_candidates_are_refused_as_such() -> None:
    base = [run_of({**STABLE, "t.py::test_bug[x]": outcome}) for outcome in ("failed", "passed")]
    gold = [run_of({**FIXED, "t.py::test_bug[x]": "passed"})]
    assert refused(base, gold) == "stable"


def test_an_id_that_is_reported_twice_is_dropped() -> None:
    twice = run_of(STABLE, repeated=("t.py::test_kept",))
    assert unstable_functions([twice, run_of(STABLE)]) == {"t.py::test_kept"}
    assert unstable_functions([run_of(STABLE), run_of(STABLE)]) == set()


HIDDEN = [
    "TypeError: scale() got an unexpected keyword argument 'offset'",
    "AttributeError: module 'tally' has no attribute 'new'",
    "ImportError: cannot import name 'new' from 'tally'",
    "ModuleNotFoundError: No module named 'tally.new'",
]
HONEST = [
    "AssertionError: assert 1 == 2",
    "AttributeError: 'ClassScope' object has no attribute 'names'",
    "TypeError: wrapper() got multiple values for argument 'func'",
]


@pytest.mark.parametrize("message", HIDDEN)
def test_tests_of_what_base_lacks_are_no_bug(message: str) -> None:
    only = run_of(STABLE, messages={"t.py::test_bug": message})
    assert refused([only], [run_of(FIXED)]) == "hidden-api"
    more = {**STABLE, "t.py::test_other": "failed"}
    base = run_of(more, messages={"t.py::test_bug": message})
    found = mined([base], [run_of({**FIXED, "t.py::test_other": "passed"})])
    assert found.hidden_api == ("t.py::test_bug",)
    assert found.suites[SuiteName.FAIL_TO_PASS] == ("t.py::test_other",)
    assert "t.py::test_bug" in found.suites[SuiteName.FULL]


@pytest.mark.parametrize("message", HIDDEN)
def test_a_name_that_the_statement_gives_is_not_hidden_but_a_keyword_is_a_feature(
    message: str,
) -> None:
    base = run_of(STABLE, messages={"t.py::test_bug": message})
    bench = ScriptedBench([base], [run_of(FIXED)])
    bench.statement = "Since 1.0 the public name `tally.new`, like offset, is gone."
    if "keyword" in message:
        assert bench.refused().rule == "hidden-api"
        return
    assert bench.mine().hidden_api == ()
    assert bench.ruled("hidden-api") == (
        Verdict.FLAG, "0 functions dropped, 1 for want of a name that the statement gives"
    )  # fmt: skip


@pytest.mark.parametrize("message", HONEST)
def test_honest_failures_are_not_taken_for_a_missing_name(message: str) -> None:
    assert not is_hidden(message, ())
    assert mined([run_of(STABLE, messages={"t.py::test_bug": message})], [run_of(FIXED)])


def test_a_test_that_behaves_otherwise_alone_is_dropped() -> None:
    base = {**STABLE, "t.py::test_order": "failed"}
    bench = ScriptedBench([run_of(base)], [run_of({**FIXED, "t.py::test_order": "passed"})])
    bench.alone["base"]["t.py::test_order"] = "passed"
    found = bench.mine()
    assert found.dropped == {"t.py::test_order": "alone"}
    assert found.suites[SuiteName.FAIL_TO_PASS] == ("t.py::test_bug",)


# ------------------------------------------------------------------------------- every rule


MORE = {**STABLE, "t.py::test_other": "failed"}
MORE_FIXED = {**FIXED, "t.py::test_other": "passed"}


def bench_of(
    base: Outcomes = MORE, gold: Outcomes = MORE_FIXED, **changes: object
) -> ScriptedBench:
    return ScriptedBench([run_of(base)], [run_of(gold, **changes)])


def test_each_rule_that_runs_gives_its_figure() -> None:
    bench = bench_of()
    bench.mine()
    figures = {r.rule: (r.verdict.value, r.figure) for r in bench.sheet.rulings()}
    assert list(figures) == list(RULES), "a ruling per rule, in the table's order"
    assert figures["fail-to-pass"] == ("pass", "2 functions, 2 ids")
    assert figures["stable"] == ("pass", "3 of 3 repeats alike, 0 functions dropped")
    assert figures["gold-python-alone"][1] == "2 of 2 fail-to-pass functions of the fixed end"
    assert figures["gold-lines"] == ("not reached", "")


def test_one_function_is_flagged_since_gate_and_diagnostic_share_it() -> None:
    bench = bench_of(STABLE, FIXED)
    assert bench.mine().gate_overlap
    assert bench.ruled("fail-to-pass")[0] is Verdict.FLAG


def test_what_changes_in_another_order_is_dropped() -> None:
    bench = bench_of()
    bench.shuffled["gold"]["t.py::test_other"] = "failed"
    assert bench.mine().dropped == {"t.py::test_other": "shuffled"}
    assert bench.ruled("shuffled")[1] == "alike in another order, 1 function dropped"
    bench = bench_of(STABLE, FIXED)
    bench.shuffled["base"]["t.py::test_bug"] = "passed"
    assert bench.refused().rule == "shuffled"


def test_a_run_that_does_not_end_in_another_order_says_nothing_of_single_functions() -> None:
    bench = bench_of()
    bench.lost = True
    bench.shuffled["gold"]["t.py::test_other"] = "failed"
    assert bench.mine().dropped == {}
    assert bench.ruled("shuffled")[0] is Verdict.FLAG


def test_a_long_suite_is_refused_by_the_median_of_its_repeats() -> None:
    bench = bench_of(duration_seconds=61.0)
    assert (bench.refused().rule, len(bench.asked)) == ("suite-duration", 3)
    slow, quick = (run_of(FIXED, duration_seconds=seconds) for seconds in (99.0, 9.0))
    assert ScriptedBench([run_of(STABLE)], [slow, quick, quick]).mine().seconds == 9.0


def test_a_fix_that_is_not_in_python_alone_is_told_from_no_fix() -> None:
    bench = bench_of(MORE, {**MORE_FIXED, "t.py::test_other": "failed"})
    bench.scripts["fixed"] = [run_of(MORE_FIXED)]
    assert bench.mine().not_python_alone == ("t.py::test_other",)
    assert bench.ruled("gold-python-alone") == (
        Verdict.FLAG, "1 of 2 fail-to-pass functions of the fixed end"
    )  # fmt: skip
    bench = bench_of(MORE, STABLE)
    bench.scripts["fixed"] = [run_of(FIXED)]
    assert bench.refused().rule == "gold-python-alone"
    assert bench_of(STABLE, STABLE).refused().rule == "fail-to-pass"


@pytest.mark.parametrize(
    ("tree", "outcome", "rule"),
    [
        ("gold", "skipped", "no-ignored-oracle"),
        ("gold", "xfailed", "no-ignored-oracle"),
        ("gold", None, "no-ignored-oracle"),
        ("gold", "failed", "gold-passes"),
        ("base", "failed", "base-fails"),
        ("base", None, "base-fails"),
    ],
)
def test_a_listed_test_that_does_not_do_what_is_promised_is_dropped(
    tree: str, outcome: str | None, rule: str
) -> None:
    quiet = {f"t.py::test_{n:02}": "passed" for n in range(30)}
    bench = bench_of({**MORE, **quiet}, {**MORE_FIXED, **quiet})
    judged = bench.mine().suites
    small = (SuiteName.GATE, SuiteName.DIAGNOSTIC, SuiteName.FAIL_TO_PASS)
    victim = min({*quiet} - {i for name in small for i in judged[name]})
    bench = bench_of({**MORE, **quiet}, {**MORE_FIXED, **quiet})
    bench.alone[tree][victim] = outcome
    found = bench.mine()
    assert found.dropped == {victim: rule}
    assert all(victim not in ids for ids in found.suites.values())


def test_skipped_and_expected_failures_are_counted_and_in_no_suite() -> None:
    extra = {"t.py::test_skip": "skipped", "t.py::test_x": "xfailed"}
    bench = bench_of({**MORE, **extra}, {**MORE_FIXED, **extra})
    assert not {*extra} & {*bench.mine().suites[SuiteName.FULL]}
    figure = bench.ruled("no-ignored-oracle")[1]
    assert figure.startswith("3 of 3 listed ids run; 2 skipped or expected to fail")


def test_a_sandbox_with_a_network_proves_nothing() -> None:
    bench = bench_of()
    bench.interfaces = ("eth0", "lo")
    assert bench.refused().rule == "offline"
    assert not bench.asked


def test_residue_is_recorded_and_flagged() -> None:
    bench = bench_of()
    bench.left = (".hypothesis/", "tests/out.toml")
    assert bench.mine().residue == bench.left
    assert bench.ruled("residue") == (Verdict.FLAG, "2 paths")


LISTED = [
    (None, Verdict.PASS, "the source lists no tests"),
    (
        Expected(("t.py::test_bug",), ("t.py::test_kept[1]", "t.py::T::test_m")),
        Verdict.PASS,
        "1 of 1 fail-to-pass, 2 of 2 pass-to-pass as listed",
    ),
    (Expected(("t.py::test_bug",), ("t.py::test_kept", "t.py::T", "t.py")), Verdict.PASS, "3 of 3"),
    (Expected(("t.py::test_bug", "t.py::test_none"), ()), Verdict.FLAG, "1 of 2 fail-to-pass"),
    (Expected(("t.py::test_bug",), ("other.py",)), Verdict.FLAG, "0 of 1 pass-to-pass"),
]


@pytest.mark.parametrize(("expected", "verdict", "figure"), LISTED)
def test_what_a_source_lists_is_compared(
    expected: Expected | None, verdict: Verdict, figure: str
) -> None:
    sheet = Sheet("t")
    kept = ["t.py::test_kept[1]", "t.py::test_kept[a::b]", "t.py::T::test_m"]
    check_listed(expected, ["t.py::test_bug"], kept, sheet)
    (ruling,) = (r for r in sheet.rulings() if r.rule == "listed-oracles")
    assert ruling.verdict is verdict and figure in ruling.figure


def test_a_source_none_of_whose_bugs_is_found_is_refused() -> None:
    with pytest.raises(Ineligible, match="0 of 1 fail-to-pass"):
        check_listed(Expected(("t.py::test_none",)), ["t.py::test_bug"], [], Sheet("t"))


def test_a_sheet_takes_one_ruling_per_rule() -> None:
    sheet = Sheet("t")
    sheet.passes("stable", "yes")
    for again in (lambda: sheet.passes("stable", "yes"), lambda: sheet.passes("no-rule", "")):
        with pytest.raises(IntegrityError):
            again()
    sheet.fails("stable", "in the end not")
    assert {r.rule: r.verdict for r in sheet.rulings()}["stable"] is Verdict.FAIL


# ------------------------------------------------------------------------------- static rules


@pytest.mark.parametrize(
    ("statement", "holds"),
    [
        ("The upper end is ignored by clamp.", True),
        ("Write `return  min(high,\n max(low, value))` instead.", False),
        ("Too short.", False),
    ],
)
def test_a_statement_says_something_and_not_the_fix(statement: str, holds: bool) -> None:
    lines, sheet = frozenset({b"return min(high, max(low, value))"}), Sheet("t")
    if holds:
        check_statement(statement, lines, sheet)
        return
    with pytest.raises(Ineligible) as caught:
        check_statement(statement, lines, sheet)
    assert caught.value.rule == "statement"


def change(paths: int, lines: int) -> Classification:
    text = b"".join(b"x = %d\n" % n for n in range(lines))
    fixed = {f"p{n}.py": (0o100644, text if n == 0 else b"y\n") for n in range(paths)}
    return classify({}, fixed, Layout(".", ("tests",)))


@pytest.mark.parametrize(
    ("paths", "lines", "tests", "rule"),
    [
        (0, 0, ("tests",), "gold-present"),
        (6, 1, ("tests",), "gold-files"),
        (1, 201, ("tests",), "gold-lines"),
        (1, 1, (), "tests-present"),
    ],
)
def test_static_rules(paths: int, lines: int, tests: tuple[str, ...], rule: str) -> None:
    with pytest.raises(Ineligible) as caught:
        check_patch(change(paths, lines), Layout(".", tests), Sheet("t"))
    assert caught.value.rule == rule


def test_the_largest_patch_that_is_allowed() -> None:
    found = change(5, 196)
    check_patch(found, Layout(".", ("tests",)), Sheet("t"))
    assert (len(found.gold), found.gold_lines) == (5, 200)
    assert set(found.classes.values()) == {PathClass.GOLD}
