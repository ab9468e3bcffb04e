"""The plan is balanced, blocked, random and reproducible; every difference from a lock is named."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.spec.freeze import differences, enumerate_rollouts, lock_content, make_lock
from orchestrator.spec.identity import Entry, Tree, request_seed
from orchestrator.spec.lock import Lock, LockedTask
from orchestrator.spec.study import Study
from tests.unit.test_spec_manifest import STUDY

SHA = "0" * 64


def study(**changes: Any) -> Study:
    return Study.model_validate({**STUDY, **changes})


def locked(task_id: str) -> LockedTask:
    return LockedTask(
        task_id=task_id,
        project="p",
        base_state_id=SHA,
        agent_commit="c",
        evaluator_commit="c",
        suites={"gate": SHA},
        gold_patch_sha256=SHA,
        source_id=SHA,
        relation="consecutive releases",
        eligibility_sha256=SHA,
        certificate_sha256=SHA,
        environment_id=SHA,
        statement_sha256=SHA,
        gate_overlap=False,
        variants_id=None,
    )


def lock(tasks: list[str], **changes: Any) -> Lock:
    return make_lock(
        study_path="s.yaml",
        study=study(**changes),
        stack={"name": "x", "kind": "planted"},
        simulated=True,
        sources={"s.yaml": SHA},
        prompts={"system.md": SHA},
        sandbox={"backend": "bwrap"},
        code=SHA,
        tasks=[locked(task) for task in tasks],
    )


@settings(deadline=None, max_examples=30)
@given(
    st.sets(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=12),
    st.integers(0, 5),
)
def test_plan_is_balanced_and_blocked(tasks: set[str], schedule_seed: int) -> None:
    plan = enumerate_rollouts(study(schedule_seed=schedule_seed), sorted(tasks))
    assert len(plan) == len(tasks) * 4 * 3
    assert len({r.rollout_id for r in plan}) == len(plan)
    assert [r.order for r in plan] == list(range(len(plan)))
    assert set(Counter((r.task_id, tuple(r.levels.items())) for r in plan).values()) == {3}
    for start in range(0, len(plan), 4):
        block = plan[start : start + 4]
        assert len({(r.task_id, r.seed, r.block) for r in block}) == 1
        assert len({tuple(r.levels.items()) for r in block}) == 4


def test_order_is_random_between_and_within_blocks() -> None:
    tasks = [f"t{number:02}" for number in range(24)]
    plan = enumerate_rollouts(study(), tasks)
    assert len(plan) == 288
    assert [r.task_id for r in plan[::12]] != tasks
    firsts = Counter(tuple(r.levels.values()) for r in plan[::4])
    assert len(firsts) == 4, "every arm comes first in some block"
    assert [r.rollout_id for r in plan] != [
        r.rollout_id for r in enumerate_rollouts(study(schedule_seed=1), tasks)
    ]


def test_freezing_twice_gives_the_same_lock_and_edits_change_its_id() -> None:
    first, second = lock(["a", "b"]), lock(["b", "a"])
    assert lock_content(first) == lock_content(second)
    assert Lock.model_validate_json(first.model_dump_json(by_alias=True)) == first
    assert lock(["a", "b"], seeds=[1]).lock_id != first.lock_id


def test_differences_name_place_and_both_values() -> None:
    before, after = lock_content(lock(["a"])), lock_content(lock(["a"], title="other"))
    assert differences(before, before) == ()
    assert differences(before, after) == ("study.title: frozen t, now other",)
    after["tasks"][0]["suites"]["gate"] = "1" * 64
    lines = differences(before, after)
    assert any(line.startswith("tasks[a].suites.gate: frozen 0000") for line in lines)
    after["prompts"] = {}
    assert any(
        "prompts.system.md" in line and "absent" in line for line in differences(before, after)
    )


paths = st.from_regex(r"[a-zé]{1,5}(/[a-z]{1,5}){0,2}", fullmatch=True)
entries = st.builds(Entry, st.sampled_from([0o100644, 0o100755, 0o120000]), st.sampled_from("abc"))
trees = st.dictionaries(paths, entries, max_size=6)


@given(trees, trees)
def test_state_ids_are_equal_exactly_for_equal_trees(
    a: dict[str, Entry], b: dict[str, Entry]
) -> None:
    shuffled = Tree(dict(reversed(list(a.items()))))
    assert Tree(a).state_id == shuffled.state_id
    assert (Tree(a).state_id == Tree(b).state_id) == (a == b)


@given(trees, paths, entries)
def test_replaced_sets_and_removes(a: dict[str, Entry], path: str, entry: Entry) -> None:
    changed = Tree(a).replaced({path: entry})
    assert changed.entries[path] == entry
    assert Tree(a).replaced({path: None}).state_id == changed.replaced({path: None}).state_id


def test_request_seed_depends_on_turn_and_seed_but_never_on_the_cell() -> None:
    seeds = {request_seed("s", "t", seed, turn) for seed in range(20) for turn in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**31 for seed in seeds)
