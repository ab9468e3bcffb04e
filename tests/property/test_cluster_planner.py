"""Whatever happens to attempts, each rollout settles at most once and none is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.planner import AttemptOutcome, Settle, dispatch, drain, ended, plan

OUTCOMES = st.lists(st.sampled_from(list(AttemptOutcome)), max_size=200)


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 4),
    OUTCOMES,
    st.randoms(use_true_random=False),
)
def test_every_rollout_settles_exactly_once(
    count: int, slots: int, max_attempts: int, outcomes: list[AttemptOutcome], rng: object
) -> None:
    ids = [f"r{number}" for number in range(count)]
    state, settles = plan(ids, {}, slots, max_attempts)
    assert settles == []
    settled: list[str] = []
    started: list[str] = []
    script = iter(outcomes)
    while not state.done:
        state, starts = dispatch(state)
        started += [start.rollout_id for start in starts]
        assert 0 < len(state.running) <= slots
        assert not set(settled) & state.running
        rollout_id = rng.choice(sorted(state.running))  # type: ignore[attr-defined]
        outcome = next(script, AttemptOutcome.SETTLED)
        state, settles = ended(state, rollout_id, outcome)
        if outcome is AttemptOutcome.SETTLED:
            settled.append(rollout_id)
        settled += [settle.rollout_id for settle in settles]
    assert sorted(settled) == sorted(ids)
    assert started[: min(count, slots)] == ids[: min(count, slots)], "dispatch follows the lock"


def test_tries_are_used_up_and_named_by_the_last_reason() -> None:
    state, _ = plan(["a"], {}, 1, 2)
    state, _ = dispatch(state)
    state, settles = ended(state, "a", AttemptOutcome.INFRASTRUCTURE)
    assert settles == []
    state, _ = dispatch(state)
    state, settles = ended(state, "a", AttemptOutcome.UNKNOWN)
    assert settles == [Settle("a", "unknown")]
    assert state.done


def test_a_dead_driver_uses_up_no_try_and_earlier_tries_are_remembered() -> None:
    state, _ = plan(["a"], {"a": [AttemptOutcome.UNKNOWN]}, 1, 2)
    state, _ = dispatch(state)
    state, settles = ended(state, "a", AttemptOutcome.ABANDONED)
    assert settles == []
    assert state.failed == {"a": 1}


@given(
    st.lists(st.sampled_from([AttemptOutcome.INFRASTRUCTURE, AttemptOutcome.UNKNOWN]), min_size=1)
)
def test_a_restart_before_the_row_was_written_settles_it_as_without_one(
    tries: list[AttemptOutcome],
) -> None:
    state, _ = plan(["a"], {}, 1, len(tries))
    undisturbed: list[Settle] = []
    for outcome in tries:
        state, _ = dispatch(state)
        state, undisturbed = ended(state, "a", outcome)
    state, restarted = plan(["a", "b"], {"a": tries}, 1, len(tries))
    assert restarted == undisturbed
    assert state.queue == ("b",)


def test_draining_starts_nothing_more() -> None:
    state, _ = plan(["a", "b"], {}, 1, 2)
    state, _ = dispatch(state)
    state = drain(state)
    state, _ = ended(state, "a", AttemptOutcome.SETTLED)
    state, starts = dispatch(state)
    assert starts == []
    assert state.done
