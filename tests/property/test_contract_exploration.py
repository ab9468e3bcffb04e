"""Every state of the contract within small budgets, and of any length with two trees: no violation.

Figures of the whole exploration stand in docs/validation; here it is kept small. A contract with
one guard taken out has to be caught by it (negative controls).
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.budgets import Allowance
from orchestrator.contract import events as ev
from orchestrator.contract import machine, rules
from orchestrator.contract.machine import TABLE, start, step
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import End, Phase, State
from orchestrator.contract.verdicts import Rule
from orchestrator.spec.study import Budgets
from tests.property.contract_explorer import Cell, Key, Seen, Violation, explore, key_of
from tests.property.contract_moves import ONE_OF_EACH, POLICIES, World, moves

SMALL = Allowance(Budgets(actions=4, visible_tests=1), revision_cap=2)
SMALLEST = Allowance(Budgets(actions=3, visible_tests=1), revision_cap=2)


def arm_name(policy: Policy) -> str:
    return f"{policy.evidence}-B{policy.binding:d}A{policy.admission:d}C{policy.certification:d}"


@pytest.mark.parametrize("policy", POLICIES, ids=arm_name)
def test_no_property_is_violated_within_small_budgets(policy: Policy) -> None:
    """Three trees, 4 actions, 2 revisions, 1 test: all histories, to their ends."""
    found = explore(World(policy, 3, SMALL))
    assert found.states > 200 and found.ends > 100 and found.transitions > 1500
    assert found.depth >= 10


@pytest.mark.parametrize("policy", POLICIES, ids=arm_name)
def test_no_property_is_violated_in_histories_of_any_length(policy: Policy) -> None:
    """One tree beside the base, no budgets: until nothing new is found."""
    found = explore(World(policy, 1))
    assert found.states > 50 and found.transitions > 500


PAGE = Path(__file__).parents[2] / "docs" / "contract.md"


def test_the_page_says_what_each_cell_of_the_table_does() -> None:
    """Rows, next states, rules and commands of docs/contract.md, against all arms explored."""
    found: dict[Cell, Seen] = {cell: Seen() for cell in TABLE}
    for policy in POLICIES:
        for cell, seen in explore(World(policy, 1)).entries.items():
            found[cell].phases.update(seen.phases)
            found[cell].rules.update(seen.rules)
            found[cell].commands.update(seen.commands)
    assert said_by_the_page() == {
        (phase.value, event.__name__): (seen.phases, seen.rules, seen.commands)
        for (phase, event), seen in found.items()
    }


def said_by_the_page() -> dict[tuple[str, str], tuple[set[str], ...]]:
    said = {}
    text = PAGE.read_text(encoding="utf-8")
    for state, event, rest in re.findall(r"^\| `([a-z-]+)` \| `([A-Z]\w+)` \|(.*)\|$", text, re.M):
        does, *cells = rest.split("|")
        assert does.strip() and (state, event) not in said
        said[state, event] = tuple(set(re.findall(r"`([^`]+)`", cell)) for cell in cells)
    return said


def test_the_page_names_every_rule() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{rule.value}`" in text for rule in Rule)


def test_one_of_each_event_is_tried_out_of_place() -> None:
    assert {type(event) for event in ONE_OF_EACH} == {event for _, event in TABLE}


# ------------------------------------------------------------------------- is one state one?


def concrete(world: World, most: int) -> list[State]:
    """The first ``most`` states breadth-first, as they are: nothing abstracted.

    Left out is what only counts: idle actions, forged reports, the outcomes that are no pass twice.
    """
    first, _ = start(world.policy)
    found, waiting = {first: None}, deque([first])
    while waiting and len(found) < most:
        state = waiting.popleft()
        for origin, event in moves(world, state):
            idle = isinstance(event, ev.Malformed | ev.Refused | ev.Looked | ev.BudgetEnded)
            if origin == "forger" or idle or "timeout" in str(event) or "void" in str(event):
                continue
            after, _ = step(state, event)
            if after not in found:
                found[after] = None
                waiting.append(after)
    return list(found)


@pytest.mark.parametrize("policy", POLICIES[::5], ids=arm_name)
def test_states_that_count_as_one_go_on_alike(policy: Policy) -> None:
    """The abstraction hides nothing: states with one key have the same keys after every move."""
    world = World(policy, 2)
    together: dict[Key, list[State]] = {}
    for state in concrete(world, 1500):
        together.setdefault(key_of(world, state), []).append(state)
    merged = [states for states in together.values() if len(states) > 1]
    assert len(merged) > 30
    for states in merged:
        wanted, *others = (successors(world, state) for state in (*states[:3], states[-1]))
        assert all(other == wanted for other in others)


def successors(world: World, state: State) -> set[Key]:
    return {key_of(world, step(state, event)[0]) for _, event in moves(world, state)}


# ------------------------------------------------------------------------- negative controls

Patch = Callable[[pytest.MonkeyPatch], None]


def without(guard: str, instead: Callable[..., object]) -> Patch:
    return lambda patch: patch.setattr(rules, guard, instead)


def entry(phase: Phase, event: type[ev.Event], handler: machine.Handler) -> Patch:
    return lambda patch: patch.setitem(TABLE, (phase, event), handler)


def wrapped(phase: Phase, event: type[ev.Event], change: Callable[[State, State], State]) -> Patch:
    """The real transition, then ``change(before, after)``."""
    real = TABLE[phase, event]

    def handler(state: State, sent: ev.Event) -> machine.Step:
        after, commands = real(state, sent)
        return change(state, after), commands

    return entry(phase, event, handler)


def complete_uncertified(state: State, event: ev.BudgetEnded) -> machine.Step:
    kept = state.checkpoint.state_id if state.checkpoint else None
    end = End(Rule.COMPLETION_CERTIFIED, event.reason, "checkpoint", kept)
    return replace(state, phase=Phase.ENDED, end=end), (ev.Answer(end.rule),)


def complete_unasked(state: State, event: ev.BudgetEnded) -> machine.Step:
    end = End(Rule.COMPLETION_UNCHECKED, event.reason, "submission", state.current)
    return replace(state, phase=Phase.ENDED, end=end), (ev.Answer(end.rule),)


def ask_again(state: State, event: ev.GateReported) -> machine.Step:
    """With A = 1 a void run is repeated instead of being a rejection."""
    if event.report.outcome != "void" or not state.policy.admission:
        return machine._gated(state, event)
    return state, (ev.RunGate(event.report.state_id, state.policy.gate_suite_id),)


def timeouts_pass(patch: pytest.MonkeyPatch) -> None:
    passes = property(lambda report: report.outcome in ("pass", "timeout"))
    patch.setattr(ev.Report, "passed", passes)


def no_refusals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Allowance, "refusal", lambda *_: None)


MUTANTS: dict[str, tuple[Patch, str]] = {
    "evidence is never checked": (
        without("is_bound", lambda *_: True), "with_binding_"),
    "any report is an answer": (
        without("answers", lambda *_: True), "nothing_moves_on_evidence"),
    "executions may be reported twice": (
        without("is_fresh", lambda *_: True), "checkpoint_moves_only"),
    "rejected proposals stay": (
        without("retains", lambda *_: True), "with_admission_a_rejected"),
    "the checkpoint moves without a pass": (
        without("moves_checkpoint", lambda *_: True), "checkpoint_moves_only"),
    "the base tree is a candidate": (
        without("is_empty", lambda *_: False), "with_certification_acceptance"),
    "the fresh run alone certifies": (
        without("certify", lambda _, fresh: rules.CERTIFICATION[fresh, fresh]),
        "with_certification_acceptance"),
    "a timeout passes": (timeouts_pass, "checkpoint_moves_only"),
    "a checkpoint completes uncertified": (
        entry(Phase.READY, ev.BudgetEnded, complete_uncertified), "_acceptance_is_"),
    "a budget's end completes": (
        entry(Phase.READY, ev.BudgetEnded, complete_unasked), "_acceptance_is_"),
    "a submission is never certified": (
        entry(Phase.READY, ev.SubmitRequested, lambda s, _: machine._ended(
            s, End(Rule.COMPLETION_UNCHECKED, "submitted", "submission", s.current))),
        "with_certification_acceptance"),
    "a malformed reply loses the checkpoint": (
        wrapped(Phase.READY, ev.Malformed, lambda _, after: replace(after, checkpoint=None)),
        "checkpoint_moves_only"),
    "a refused action moves the tree": (
        wrapped(Phase.READY, ev.Refused, lambda _, after: replace(
            after, retained=(*after.retained, "s1"))), "a_proposal_is_retained_only"),
    "escalation accepts": (
        entry(Phase.READY, ev.EscalateRequested, lambda s, _: machine._ended(
            s, End(Rule.ABSTENTION_ESCALATED, "escalated", "submission", s.current))),
        "acceptance_is_"),
    "an ended rollout goes on": (
        entry(Phase.ENDED, ev.SubmitRequested, lambda s, _: (s, ())), "has a place"),
    "a proposal may be made while one is judged": (
        entry(Phase.GATING, ev.EditProposed, lambda s, e: (replace(s, pending=e.state_id), ())),
        "has a place"),
    "looking costs nothing": (
        entry(Phase.READY, ev.Looked, lambda s, _: (s, ())), "goes round for ever"),
    "a void gate run is repeated for ever": (
        entry(Phase.GATING, ev.GateReported, ask_again), "goes round for ever"),
    "revisions are not limited": (no_refusals, "budgets_are_never_overdrawn"),
    "stale evidence is the current one": (
        lambda patch: patch.setattr(State, "previous", property(lambda s: s.current)),
        "stale_evidence"),
}  # fmt: skip
"""What is broken -> how, and the property that says so."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_contract_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, claim = MUTANTS[mutant]
    patch(monkeypatch)
    with pytest.raises(Violation) as caught:
        for policy in POLICIES:
            explore(World(policy, 2, SMALLEST))
    assert claim in caught.value.claim, caught.value
    assert caught.value.history


def test_every_guard_is_among_the_mutants() -> None:
    guards = {n for n, v in vars(rules).items() if getattr(v, "__module__", "") == rules.__name__}
    functions = {name for name in guards if callable(getattr(rules, name))}
    assert functions == {
        "is_bound", "answers", "is_fresh", "retains", "moves_checkpoint", "is_empty", "certify",
    }  # fmt: skip
