"""Each rule of eligibility refuses what it was made for, on scripted runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Bundle
from orchestrator.repo.files import delta_between
from orchestrator.spec.ports import ExitClass, SuiteName
from orchestrator.tasks.classify import Classification, Layout, PathClass, classify
from orchestrator.tasks.eligibility import RULES, Ineligible, check_patch
from orchestrator.tasks.mining import HIDDEN_API, Bench, Job, Mined, mine, unstable_functions
from tests.unit import evaluator_support as support

GOLD = delta_between(support.BASE, support.with_core(support.FIXED))
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

    ``alone``: what ids do on a tree when only their suite runs. ``asked``: (tree, whole, seed).
    """

    wall_seconds = 60.0

    def __init__(self, base: Sequence[TestRun], gold: Sequence[TestRun]) -> None:
        self.scripts = {"base": base, "gold": gold}
        self.alone: dict[str, dict[str, str]] = {"base": {}, "gold": {}}
        self.asked: list[tuple[str, bool, int]] = []

    def run(self, _bundle: Bundle, job: Job) -> TestRun:
        tree = "base" if job.tree == support.BASE else "gold"
        self.asked.append((tree, job.ids is None, job.hash_seed))
        runs = self.scripts[tree]
        if job.ids is None:
            return runs[min(job.hash_seed, len(runs) - 1)]
        outcomes = {**runs[0].outcomes, **self.alone[tree]}
        return run_of({test_id: outcomes[test_id] for test_id in job.ids})

    def pair(self, bundle: Bundle, first: Job, second: Job) -> tuple[TestRun, TestRun]:
        return self.run(bundle, first), self.run(bundle, second)

    def mine(self) -> Mined:
        return mine(bundle(), GOLD, cast(Bench, self))


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
    assert (found.gate_overlap, found.unstable, found.alone, found.hidden_api) == (True, (), (), ())


def test_gold_runs_first_and_each_tree_three_times_under_other_hash_seeds() -> None:
    bench = ScriptedBench([run_of(STABLE)], [run_of(FIXED)])
    bench.mine()
    whole = [(tree, seed) for tree, is_whole, seed in bench.asked if is_whole]
    assert whole[:4] == [("gold", 0), ("gold", 1), ("base", 0), ("base", 1)]
    assert whole[4:] == [("gold", 2), ("base", 2)]


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
    with pytest.raises(Ineligible, match="1 tests of gold do not exist on base") as caught:
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
    assert found.unstable == ("t.py::test_race",)
    assert found.suites[SuiteName.FULL] == ("t.py::test_bug", "t.py::test_kept")


def test_ids_that_change_are_unstable_on_either_tree() -> None:
    base = run_of({**STABLE, "t.py::test_clock[0]": "passed"})
    gold = [run_of({**FIXED, f"t.py::test_clock[{n}]": "passed"}) for n in range(3)]
    assert mined([base], gold).unstable == ("t.py::test_clock",)


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


@pytest.mark.parametrize("message", HONEST)
def test_honest_failures_are_not_taken_for_a_missing_name(message: str) -> None:
    assert HIDDEN_API.search(message) is None
    assert mined([run_of(STABLE, messages={"t.py::test_bug": message})], [run_of(FIXED)])


def test_a_test_that_behaves_otherwise_alone_is_dropped() -> None:
    base = {**STABLE, "t.py::test_order": "failed"}
    bench = ScriptedBench([run_of(base)], [run_of({**FIXED, "t.py::test_order": "passed"})])
    bench.alone["base"]["t.py::test_order"] = "passed"
    found = bench.mine()
    assert found.alone == ("t.py::test_order",)
    assert found.suites[SuiteName.FAIL_TO_PASS] == ("t.py::test_bug",)


# ------------------------------------------------------------------------------- static rules


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
        check_patch("t", change(paths, lines), Layout(".", tests))
    assert caught.value.rule == rule


def test_the_largest_patch_that_is_allowed() -> None:
    found = change(5, 196)
    check_patch("t", found, Layout(".", ("tests",)))
    assert (len(found.gold), found.gold_lines) == (5, 200)
    assert set(found.classes.values()) == {PathClass.GOLD}
