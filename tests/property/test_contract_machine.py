"""The contract over random and over all short histories: what holds in every arm, after every step.

Each guard switched off has to break one of the invariants (negative controls at the end).
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.contract import events as ev
from orchestrator.contract import rules
from orchestrator.contract.machine import ContractViolation, step
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import Phase, State
from orchestrator.contract.verdicts import Rule
from tests.property.contract_support import ARMS, GATE, Move, Trace, begin, play

# ------------------------------------------------------------------------- random histories

OUTCOMES = st.sampled_from(("pass", "fail", "timeout", "void"))
AGENT_EVENTS = st.one_of(
    st.builds(ev.EditProposed, st.sampled_from(("s0", "s1", "s2", "s3"))),
    st.builds(ev.EditProposed, st.sampled_from(("s1", "s2", "s3"))),
    st.builds(ev.TestRequested),
    st.builds(ev.SubmitRequested),
    st.builds(ev.Malformed, st.just("reply.not-json")),
    st.builds(ev.Refused, st.just("edit"), st.just("edit.no-op")),
    st.builds(ev.Looked, st.sampled_from(("search", "view", "shell"))),
)
LAST = st.one_of(
    st.builds(ev.BudgetEnded, st.sampled_from(("actions", "wall", "tokens"))),
    st.builds(ev.EscalateRequested),
)


@given(
    st.sampled_from(ARMS),
    st.lists(st.builds(Move, AGENT_EVENTS, OUTCOMES), max_size=14),
    st.builds(Move, LAST, OUTCOMES),
)
@settings(max_examples=300, deadline=None)
def test_invariants_hold_over_random_histories(
    policy: Policy, moves: list[Move], last: Move
) -> None:
    trace, state = begin(policy)
    for move in (*moves, last):
        if state.end is None:
            trace, state = play(trace, state, move)
    assert state.end is not None and state.phase is Phase.ENDED


@given(st.sampled_from(ARMS), st.lists(st.builds(Move, AGENT_EVENTS, OUTCOMES), max_size=6))
@settings(max_examples=100, deadline=None)
def test_events_outside_the_table_are_the_drivers_defect(policy: Policy, moves: list[Move]) -> None:
    """While a report is awaited nothing else is an event; at the end nothing is."""
    trace, state = begin(policy)
    stray = ev.GateReported(ev.Report("s1", GATE, "stray", "pass"))
    for move in moves:
        with pytest.raises(ContractViolation):
            step(state, stray)
        after, _ = step(state, move.event)
        if after.pending is not None:
            for event in (move.event, ev.SubmitRequested(), ev.BudgetEnded("wall")):
                with pytest.raises(ContractViolation):
                    step(after, event)
        trace, state = play(trace, state, move)
        if state.end is not None:
            with pytest.raises(ContractViolation):
                step(state, move.event)
            break


# ------------------------------------------------------------------------- all short histories

EVERY_MOVE = (
    *(Move(ev.EditProposed(s), o) for s in ("s0", "s1", "s2") for o in ("pass", "fail")),
    Move(ev.TestRequested()),
    Move(ev.SubmitRequested(), "pass"),
    Move(ev.SubmitRequested(), "fail"),
    Move(ev.BudgetEnded("actions"), "pass"),
    Move(ev.BudgetEnded("wall"), "fail"),
    Move(ev.EscalateRequested()),
    Move(ev.Malformed("reply.not-json")),
)
CORE_MOVES = (
    Move(ev.EditProposed("s1"), "pass"),
    Move(ev.EditProposed("s2"), "fail"),
    Move(ev.TestRequested()),
    Move(ev.SubmitRequested(), "pass"),
    Move(ev.BudgetEnded("actions"), "pass"),
)


def explore(policy: Policy, moves: tuple[Move, ...], depth: int) -> int:
    """Play every sequence of ``depth`` moves; returns how many histories were visited."""

    def visit(trace: Trace, state: State, left: int) -> int:
        if left == 0 or state.end is not None:
            return 1
        return 1 + sum(visit(*play(trace, state, move), left - 1) for move in moves)

    return visit(*begin(policy), depth)


def arm_name(policy: Policy) -> str:
    return f"{policy.evidence}-B{policy.binding:d}A{policy.admission:d}C{policy.certification:d}"


@pytest.mark.parametrize("policy", ARMS, ids=arm_name)
def test_invariants_hold_over_all_short_histories(policy: Policy) -> None:
    assert explore(policy, EVERY_MOVE, 3) > 700
    assert explore(policy, CORE_MOVES, 5) > 400


# ------------------------------------------------------------------------- negative controls

GUARDS_OFF: dict[str, Callable[..., object]] = {
    "is_bound": lambda *_: True,
    "answers": lambda *_: True,
    "is_fresh": lambda *_: True,
    "retains": lambda *_: True,
    "moves_checkpoint": lambda *_: True,
    "is_empty": lambda *_: False,
    "certify": lambda _, fresh: Rule.COMPLETION_CERTIFIED if fresh else Rule.COMPLETION_FAILED,
}


@pytest.mark.parametrize("guard", GUARDS_OFF)
def test_a_guard_switched_off_breaks_an_invariant(
    guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, guard, GUARDS_OFF[guard])
    with pytest.raises(AssertionError):
        for policy in ARMS:
            explore(policy, EVERY_MOVE, 3)


def test_every_guard_has_a_negative_control() -> None:
    functions = {
        name
        for name, value in vars(rules).items()
        if callable(value) and getattr(value, "__module__", "") == rules.__name__
    }
    assert functions == set(GUARDS_OFF)
