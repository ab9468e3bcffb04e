"""An executable protocol: docs/protocol.md "Evidence" and "Contract components" as one plain class.

It is written from the text alone and shares nothing with the machine; random histories of all
sixteen arms have to end alike in both, step by step.
"""

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.contract import events as ev
from orchestrator.contract import rules
from orchestrator.contract.machine import start, step
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import State

BASE, DIAGNOSTIC, GATE = "base", "h-diagnostic", "h-gate"
Told = tuple[str, str | None]
"""The rule an answer quotes, and the state whose evidence comes with it."""


@dataclass
class Protocol:
    """One rollout. ``now``: the working tree; ``older``: the one before the last retained edit."""

    stale: bool
    b: bool
    a: bool
    c: bool
    now: str = BASE
    older: str = BASE
    seen: str | None = None
    checkpoint: str | None = None
    gate: dict[str, bool] = field(default_factory=dict)
    runs: list[tuple[str, str]] = field(default_factory=lambda: [("diagnostic", BASE)])
    tally: dict[str, int] = field(default_factory=dict)
    end: tuple[str, str | None, str | None] | None = None

    def count(self, *names: str) -> None:
        for name in names:
            self.tally[name] = self.tally.get(name, 0) + 1

    def test(self, _: bool) -> Told:
        self.count("actions", "visible_tests")
        self.seen = self.older if self.stale else self.now
        if not (self.b and self.seen != self.now):
            return "evidence.delivered", self.seen
        self.count("interceptions_delivery")
        self.seen = self.now
        return "evidence.stale-at-delivery", self.now

    def edit(self, state: str, passes: bool) -> Told:
        self.count("actions")
        if state == self.now:
            self.count("refused_actions")
            return "action.refused", None
        if self.b and self.seen is not None and self.seen != self.now:
            self.count("interceptions_edit")
            self.seen = self.now
            return "evidence.stale-at-edit", self.now
        self.count("revisions", "gate_passes" if passes else "gate_rejections")
        self.runs.append(("gate", state))
        if ("diagnostic", state) not in self.runs:
            self.runs.append(("diagnostic", state))
        self.gate[state] = passes
        if passes:
            self.checkpoint = state
        if self.a and not passes:
            self.count("rollbacks")
            return "proposal.rejected", None
        self.older, self.now = self.now, state
        return "proposal.admitted" if self.a else "proposal.applied", None

    def certify(self, state: str, passes: bool) -> str:
        if state == BASE:
            return "completion.empty-candidate"
        self.runs.append(("certification", state))
        self.count("certifications")
        if passes != self.gate[state]:
            self.count("flaky_certifications")
            return "completion.flaky"
        return "completion.certified" if passes else "completion.failed"

    def submit(self, passes: bool) -> Told:
        self.count("actions", "submissions")
        rule = self.certify(self.now, passes) if self.c else "completion.unchecked"
        if rule in ("completion.unchecked", "completion.certified"):
            self.end = "submitted", "submission", self.now
        else:
            self.count("rejected_submissions")
        return rule, None

    def escalate(self, _: bool) -> Told:
        self.count("actions")
        self.end = "escalated", None, None
        return "abstention.escalated", None

    def spent(self, passes: bool) -> Told:
        self.end = "actions", None, None
        if not self.c or self.checkpoint is None:
            return "abstention.budget-ended", None
        rule = self.certify(self.checkpoint, passes)
        if rule == "completion.certified":
            self.end = "actions", "checkpoint", self.checkpoint
        return rule, None


EVENTS = {
    "test": ev.TestRequested(),
    "submit": ev.SubmitRequested(),
    "escalate": ev.EscalateRequested(),
    "spent": ev.BudgetEnded("actions"),
}
RUNS = {ev.RunDiagnostic: "diagnostic", ev.RunGate: "gate", ev.RunCertification: "certification"}
Move = tuple[str, bool]
"""A key of EVENTS or the state an edit gives, and whether the suite that is asked says pass."""


@dataclass
class Machine:
    """The real thing, its requests answered."""

    state: State
    runs: list[tuple[str, str]] = field(default_factory=list)

    def settle(self, commands: tuple[ev.Command, ...], passes: bool) -> list[Told]:
        told = [
            (c.rule.value, c.envelope.payload if c.envelope else None)
            for c in commands
            if isinstance(c, ev.Answer)
        ]
        for command in commands:
            if isinstance(command, ev.RunDiagnostic | ev.RunGate | ev.RunCertification):
                self.runs.append((RUNS[type(command)], command.state_id))
                told += self.settle(self.take(self.report(command, passes)), passes)
        return told

    def report(
        self, run: ev.RunDiagnostic | ev.RunGate | ev.RunCertification, ok: bool
    ) -> ev.Event:
        name = f"x{len(self.runs)}"
        if isinstance(run, ev.RunDiagnostic):
            return ev.DiagnosticReported(ev.Envelope(run.state_id, DIAGNOSTIC, name, run.state_id))
        report = ev.Report(run.state_id, GATE, name, "pass" if ok else "fail")
        gate = isinstance(run, ev.RunGate)
        return ev.GateReported(report) if gate else ev.CertificationReported(report)

    def take(self, event: ev.Event) -> tuple[ev.Command, ...]:
        self.state, commands = step(self.state, event)
        return commands


def compare(arm: tuple[bool, ...], moves: list[Move]) -> None:
    """Play the moves in both, and compare everything the protocol speaks of after each."""
    ours = Protocol(*arm)
    evidence, switches = ("stale" if arm[0] else "current"), arm[1:]
    state, commands = start(Policy(evidence, *switches, BASE, DIAGNOSTIC, GATE))  # type: ignore[arg-type]
    real = Machine(state)
    real.settle(commands, True)
    for name, passes in moves:
        if ours.end is not None:
            break
        event = EVENTS.get(name) or ev.EditProposed(name)
        wanted = getattr(ours, name)(passes) if name in EVENTS else ours.edit(name, passes)
        assert real.settle(real.take(event), passes) == [wanted]
        now, kept, end = real.state, real.state.checkpoint, real.state.end
        assert (now.current, now.previous) == (ours.now, ours.older)
        assert (now.delivered.state_id if now.delivered else None) == ours.seen
        assert (kept.state_id if kept else None) == ours.checkpoint
        assert (end and (end.reason, end.via, end.state_id)) == ours.end
        assert {name: n for name, n in vars(now.counts).items() if n} == ours.tally
        assert real.runs == ours.runs


ARMS = tuple(product((False, True), repeat=4))
MOVES = st.tuples(
    st.sampled_from((BASE, "s1", "s2", "s3", "test", "test", "submit")), st.booleans()
)
LAST = st.tuples(st.sampled_from(("spent", "escalate")), st.booleans())


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: "".join(str(int(x)) for x in arm))
@given(st.lists(MOVES, max_size=15), LAST)
@settings(max_examples=60, deadline=None)
def test_the_machine_is_the_protocol(arm: tuple[bool, ...], moves: list[Move], last: Move) -> None:
    compare(arm, [*moves, last])


SHORT = [
    list(moves)
    for moves in product(
        (
            ("s1", True),
            ("s2", False),
            ("test", True),
            ("submit", True),
            ("spent", True),
            (BASE, True),
        ),
        repeat=4,
    )
]


@pytest.mark.parametrize(
    ("guard", "broken"),
    [
        ("is_bound", lambda *_: True),
        ("retains", lambda *_: True),
        ("moves_checkpoint", lambda passed: True),
        ("is_empty", lambda *_: False),
        ("certify", lambda earlier, fresh: rules.CERTIFICATION[fresh, fresh]),
    ],
)
def test_a_machine_without_a_guard_is_not(
    guard: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, guard, broken)
    with pytest.raises((AssertionError, KeyError)):
        for arm in ARMS:
            for moves in SHORT:
                compare(arm, moves)
