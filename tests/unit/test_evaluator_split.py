"""The split of a task's suites (protocol §1 "Suites")."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluator.suites import GUARD_LIMIT, function_of, split_suites
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.ports import SuiteName

D, G = SuiteName.DIAGNOSTIC, SuiteName.GATE

names = st.from_regex(r"test_[a-z]{1,4}", fullmatch=True)
parameters = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=6)
functions = st.builds(
    lambda file, owner, name: f"tests/{file}.py::{owner}{name}",
    names,
    st.sampled_from(["", "TestA::", "TestA::TestB::"]),
    names,
)
ids = st.one_of(functions, st.builds("{}[{}]".format, functions, parameters))


Task = tuple[str, list[str], list[str], list[str]]


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    judged = draw(st.lists(ids, unique=True, min_size=1, max_size=60))
    bugs = draw(st.integers(1, len(judged)))
    others = draw(st.lists(ids, unique=True, max_size=5))
    full = [*judged, *(other for other in others if other not in judged)]
    return draw(st.text(min_size=1, max_size=5)), judged[:bugs], judged[bugs:], full


def functions_of(chosen: object) -> set[str]:
    return {function_of(test_id) for test_id in chosen}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("test_id", "function"),
    [
        ("t.py::test_a", "t.py::test_a"),
        ("t.py::test_a[1]", "t.py::test_a"),
        ("t.py::A::test_a[x::y]", "t.py::A::test_a"),
        ("t.py::A::test_a[[x] y[0]]", "t.py::A::test_a"),
        ("t.py::test_a[]", "t.py::test_a"),
        ("d[1]/t.py::test_a[2]", "d[1]/t.py::test_a"),
        ("t.yaml::case [a] of b", "t.yaml::case [a] of b"),
    ],
)
def test_the_function_of_an_id(test_id: str, function: str) -> None:
    assert function_of(test_id) == function


@given(functions, parameters)
def test_parameters_never_change_the_function(function: str, parameter: str) -> None:
    assert function_of(f"{function}[{parameter}]") == function


@given(tasks())
def test_thirds_are_disjoint_whole_and_even(
    task: Task,
) -> None:
    suites, overlap = split_suites(*task)
    bugs = functions_of(task[1])
    shown, gated = functions_of(suites[D]) & bugs, functions_of(suites[G]) & bugs
    held_out = bugs - shown - gated
    assert overlap == (len(bugs) == 1)
    assert shown
    assert gated
    if overlap:
        assert shown == gated == bugs
    else:
        assert not shown & gated
        sizes = (len(shown), len(gated), len(held_out))
        assert sizes == tuple(sorted(sizes, reverse=True))
        assert sizes[0] - sizes[2] <= 1
    for suite, mine in ((D, shown), (G, gated)):
        wanted = {i for i in task[1] if function_of(i) in mine}
        assert {i for i in suites[suite] if i in task[1]} == wanted


@given(tasks())
def test_guards_are_disjoint_whole_functions_of_pass_to_pass(
    task: Task,
) -> None:
    _, fail_to_pass, pass_to_pass, _ = task
    suites, _ = split_suites(*task)
    shown = {i for i in suites[D] if i in pass_to_pass}
    gated = {i for i in suites[G] if i in pass_to_pass}
    pool = functions_of(pass_to_pass) - functions_of(fail_to_pass)
    assert {*suites[D], *suites[G]} <= {*fail_to_pass, *pass_to_pass}
    assert not functions_of(shown) & functions_of(gated)
    assert functions_of([*shown, *gated]) <= pool
    for chosen in (shown, gated):
        assert chosen == {i for i in pass_to_pass if function_of(i) in functions_of(chosen)}
    size, rest = max(1, len(pool) // 10), len(pool) - len(functions_of(gated))
    assert len(functions_of(gated)) == min(len(pool), size)
    assert len(functions_of(shown)) == min(rest, size)


@given(tasks(), st.randoms(use_true_random=False))
def test_the_split_depends_on_the_sets_alone(task: Task, random: object) -> None:
    name, *lists = task
    shuffled = [sorted(ids, key=lambda _: random.random()) for ids in lists]  # type: ignore[attr-defined]
    suites, _ = split_suites(name, *shuffled)
    assert split_suites(*task)[0] == suites
    assert all(list(ids) == sorted(ids) for ids in suites.values())


def test_adjudication_takes_everything() -> None:
    bugs = [f"t.py::test_{n}" for n in range(7)]
    kept = [f"t.py::test_k{n}" for n in range(900)]
    suites, overlap = split_suites("task", bugs, kept, [*bugs, *kept, "t.py::test_other"])
    assert not overlap
    assert suites[SuiteName.FAIL_TO_PASS] == tuple(sorted(bugs))
    assert suites[SuiteName.PASS_TO_PASS] == tuple(sorted(kept))
    assert "t.py::test_other" in suites[SuiteName.FULL]
    assert (len(suites[D]), len(suites[G])) == (3 + GUARD_LIMIT, 2 + GUARD_LIMIT)


def test_different_tasks_split_differently() -> None:
    bugs = [f"t.py::test_{n}" for n in range(12)]
    splits = {split_suites(f"task-{n}", bugs, [], bugs)[0][G] for n in range(5)}
    assert len(splits) > 1


@pytest.mark.parametrize(
    ("fail_to_pass", "pass_to_pass", "full", "problem"),
    [
        ([], ["a"], ["a"], "no fail-to-pass"),
        (["a"], ["a"], ["a"], "twice"),
        (["a", "a"], [], ["a"], "twice"),
        (["a"], [], ["a", "a"], "twice"),
        (["a"], ["b"], ["a"], "not in the full suite"),
    ],
)
def test_lists_that_contradict_each_other_are_refused(
    fail_to_pass: list[str], pass_to_pass: list[str], full: list[str], problem: str
) -> None:
    with pytest.raises(IntegrityError, match=problem):
        split_suites("task", fail_to_pass, pass_to_pass, full)
