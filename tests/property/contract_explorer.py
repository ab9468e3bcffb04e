"""Walks every state of the contract breadth-first and checks, on every transition, what must hold.

States that no property and no later step can tell apart are one: names of trees, execution ids and
the order of evidence are abstracted, and tallies where no budget limits them. Without budgets the
walk ends when nothing new is found, so that it covers histories of every length; with budgets it
drives the contract as the agent's loop does and shows that every path ends.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Literal

from orchestrator.agent.budgets import Allowance, Meter
from orchestrator.contract import events as ev
from orchestrator.contract.machine import ContractViolation, start, step
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import Phase, State

BASE, DIAGNOSTIC, GATE = "base", "suite-diagnostic", "suite-gate"
OUTCOMES: tuple[ev.Outcome, ...] = ("pass", "fail", "timeout", "void")
REASONS: tuple[ev.EndReason, ...] = ("actions", "wall", "tokens")
UNSPENT = Meter()

POLICIES = tuple(
    Policy(evidence, b, a, c, BASE, DIAGNOSTIC, GATE)  # type: ignore[arg-type]
    for evidence, b, a, c in product(("current", "stale"), *[(False, True)] * 3)
)

Origin = Literal["agent", "driver", "evaluator", "forger"]
Move = tuple[Origin, ev.Event]
Key = tuple[object, ...]


@dataclass(frozen=True)
class World:
    """One arm, the base tree and ``trees`` others; ``allowance`` None = no budgets."""

    policy: Policy
    trees: int = 3
    allowance: Allowance | None = None

    @cached_property
    def states(self) -> tuple[str, ...]:
        return (BASE, *(f"s{number}" for number in range(1, self.trees + 1)))


@dataclass(frozen=True)
class Transition:
    world: World
    before: State
    event: ev.Event
    after: State
    commands: tuple[ev.Command, ...]


@dataclass
class Violation(Exception):
    """A property that does not hold, and the shortest history that shows it."""

    claim: str
    history: tuple[ev.Event, ...]

    def __str__(self) -> str:
        lines = "\n".join(f"  {number}. {event}" for number, event in enumerate(self.history, 1))
        return f"{self.claim}\n{lines}"


Cell = tuple[Phase, type[ev.Event]]


@dataclass(frozen=True)
class Seen:
    """Where one cell of the table leads, which rules its answers quote, what it commands."""

    phases: set[str] = field(default_factory=set)
    rules: set[str] = field(default_factory=set)
    commands: set[str] = field(default_factory=set)

    def add(self, t: Transition) -> None:
        self.phases.add(t.after.phase.value)
        self.rules.update(c.rule.value for c in t.commands if isinstance(c, ev.Answer))
        self.commands.update(type(c).__name__ for c in t.commands if not isinstance(c, ev.Answer))


@dataclass(frozen=True)
class Explored:
    """``depth``: events on the longest of the shortest ways to a state; ``ends``: ended states;
    ``entries``: what was seen in each cell of the contract's table, forged reports left out.
    """

    states: int
    transitions: int
    depth: int
    ends: int
    entries: Mapping[Cell, Seen]


# ------------------------------------------------------------------------- moves


def moves(world: World, state: State) -> Iterator[Move]:
    """Everything that agent, driver, evaluator and a forger of reports can send."""
    if state.phase is Phase.READY:
        yield from _ready(world, state)
    elif state.phase is not Phase.ENDED:
        yield from (("evaluator", report) for report in honest(state))
        yield from (("forger", report) for report in forged(world, state))


def _ready(world: World, state: State) -> Iterator[Move]:
    """The loop's order: a spent budget ends it, else the agent acts, refused where it can't pay."""
    allowance = world.allowance
    if allowance and (spent := allowance.exhausted(state.counts, UNSPENT)):
        yield "driver", ev.BudgetEnded(spent)
        return
    for reason in REASONS:
        if reason != "actions" or allowance is None:
            yield "driver", ev.BudgetEnded(reason)
    for kind, event in _actions(world):
        refusal = allowance.refusal(kind, state.counts, UNSPENT) if allowance else None
        yield "agent", ev.Refused(kind, refusal.rule) if refusal else event


def _actions(world: World) -> Iterator[tuple[str, ev.Event]]:
    yield "invalid", ev.Malformed("reply.not-json")
    yield "edit", ev.Refused("edit", "edit.no-op")
    yield "view", ev.Looked("view")
    yield "shell", ev.Looked("shell")
    yield "test", ev.TestRequested()
    yield "submit", ev.SubmitRequested()
    yield "escalate", ev.EscalateRequested()
    yield from (("edit", ev.EditProposed(state_id)) for state_id in world.states)


def honest(state: State) -> Iterator[ev.Event]:
    """The answers to the pending request, each outcome once."""
    number = len(state.evidence) + len(state.gate) + len(state.certifications)
    yield from _reports(state, state.pending or "", f"x{number}", _suite(state))


def forged(world: World, state: State) -> Iterator[ev.Event]:
    """Answers of another state or suite, or with an execution that was reported before."""
    known = sorted(state.executions)
    for state_id in (*world.states, "elsewhere"):
        if state_id != state.pending:
            yield from _reports(state, state_id, "forged", _suite(state))
    for suite_id in ("another-suite", DIAGNOSTIC, GATE):
        if suite_id != _suite(state):
            yield from _reports(state, state.pending or "", "forged", suite_id)
    for execution_id in {*known[:1], *known[-1:]}:
        yield from _reports(state, state.pending or "", execution_id, _suite(state))


def _suite(state: State) -> str:
    return DIAGNOSTIC if state.phase is Phase.OBSERVING else GATE


def _reports(state: State, state_id: str, execution_id: str, suite_id: str) -> Iterator[ev.Event]:
    if state.phase is Phase.OBSERVING:
        for late in (False, True):
            envelope = ev.Envelope(state_id, suite_id, execution_id, f"of {state_id}", late)
            yield ev.DiagnosticReported(envelope)
        return
    gating = state.phase is Phase.GATING
    for outcome in OUTCOMES:
        report = ev.Report(state_id, suite_id, execution_id, outcome)
        yield ev.GateReported(report) if gating else ev.CertificationReported(report)


ANSWER_OF: dict[Phase, type[ev.Event]] = {
    Phase.OBSERVING: ev.DiagnosticReported,
    Phase.GATING: ev.GateReported,
    Phase.CERTIFYING_SUBMISSION: ev.CertificationReported,
    Phase.CERTIFYING_CHECKPOINT: ev.CertificationReported,
}
REPORT = ev.Report("s1", GATE, "stray", "pass")
ONE_OF_EACH: tuple[ev.Event, ...] = (
    ev.Malformed("reply.not-json"),
    ev.Refused("edit", "edit.no-op"),
    ev.Looked("search"),
    ev.TestRequested(),
    ev.EditProposed("s1"),
    ev.SubmitRequested(),
    ev.EscalateRequested(),
    ev.BudgetEnded("wall"),
    ev.DiagnosticReported(ev.Envelope("s1", DIAGNOSTIC, "stray", "")),
    ev.GateReported(REPORT),
    ev.CertificationReported(REPORT),
)


def misplaced(state: State) -> Iterator[ev.Event]:
    """Events that have no place in this phase; at the end that is every event."""
    for event in ONE_OF_EACH:
        report = isinstance(event, tuple(ANSWER_OF.values()))
        if state.phase is Phase.READY:
            placed = not report
        else:
            placed = type(event) is ANSWER_OF.get(state.phase)
        if not placed:
            yield event


# ------------------------------------------------------------------------- states as one


def key_of(world: World, state: State) -> Key:
    """What later steps and the properties can tell of a state, whatever its trees are called."""
    marks = [_marks(state, name) for name in world.states]
    counts = state.counts
    spent = (counts.actions, counts.revisions, counts.visible_tests) if world.allowance else ()
    end = state.end
    ended = (end.rule, end.reason, end.via, end.accepted) if end else ()
    unfit = tuple(e for e in state.evidence if e.state_id not in world.states)
    return (state.phase, state.budget, marks[0], tuple(sorted(marks[1:])), spent, ended, unfit)


def _marks(state: State, name: str) -> tuple[int, ...]:
    """The roles of one tree: everything that the contract knows of it."""
    verdicts = [report.outcome == "pass" for report in state.gate if report.state_id == name]
    return (
        state.current == name,
        state.previous == name,
        state.pending == name,
        state.delivered is not None and state.delivered.state_id == name,
        state.checkpoint is not None and state.checkpoint.state_id == name,
        state.envelope_of(name) is not None,
        int(verdicts[-1]) if verdicts else -1,
        state.end is not None and state.end.state_id == name,
    )


# ------------------------------------------------------------------------- properties


def genuine(t: Transition) -> bool:
    """Whether the event is the answer to what was asked, by its own fields."""
    event = t.event
    if type(event) is not ANSWER_OF.get(t.before.phase):
        return False
    report = event.envelope if isinstance(event, ev.DiagnosticReported) else event.report
    return (
        report.state_id == t.before.pending
        and report.suite_id == _suite(t.before)
        and report.execution_id not in t.before.executions
    )


def passed(t: Transition) -> str | None:
    """The state that this transition's gate run passed, or None."""
    fits = isinstance(t.event, ev.GateReported) and genuine(t)
    if fits and t.event.report.outcome == "pass":  # type: ignore[union-attr]
        return t.event.report.state_id  # type: ignore[union-attr]
    return None


def checkpoint_moves_only_by_a_gate_pass_of_the_pending_state(t: Transition) -> bool:
    state_id = passed(t)
    if state_id is None:
        return t.after.checkpoint == t.before.checkpoint
    kept = t.after.checkpoint
    return kept is not None and kept.state_id == state_id == t.before.pending


def nothing_moves_on_evidence_of_something_else(t: Transition) -> bool:
    """A report that is no answer changes tallies only, and is asked for again."""
    if not isinstance(t.event, tuple(ANSWER_OF.values())) or genuine(t):
        return True
    same = replace(t.after, counts=t.before.counts, rules=t.before.rules) == t.before
    return same and len(t.commands) == 2 and t.commands[-1] == _asked(t.before)


def a_proposal_is_retained_only_by_its_own_gate_run(t: Transition) -> bool:
    if t.after.retained == t.before.retained:
        return True
    fits = isinstance(t.event, ev.GateReported) and genuine(t)
    return fits and t.after.retained == (*t.before.retained, t.before.pending)


def with_admission_a_rejected_proposal_is_rolled_back(t: Transition) -> bool:
    if not (isinstance(t.event, ev.GateReported) and genuine(t)):
        return True
    kept = passed(t) is not None or not t.before.policy.admission
    wanted = t.event.report.state_id if kept else t.before.current
    return t.after.current == wanted


def with_binding_no_edit_rests_on_another_states_evidence(t: Transition) -> bool:
    shown = t.before.delivered
    stale = shown is not None and shown.state_id != t.before.current
    if not (isinstance(t.event, ev.EditProposed) and t.before.policy.binding and stale):
        return True
    idle = t.after.phase is Phase.READY and t.after.retained == t.before.retained
    return idle and t.after.counts.revisions == t.before.counts.revisions


def with_binding_no_evidence_of_another_state_is_shown(t: Transition) -> bool:
    shown = [c.envelope for c in t.commands if isinstance(c, ev.Answer) and c.envelope]
    if not t.before.policy.binding:
        return True
    return all(e.state_id == t.after.current and e.suite_id == DIAGNOSTIC for e in shown)


def stale_evidence_is_of_the_previous_retained_state(t: Transition) -> bool:
    """Never a rejected proposal's; before the first retained revision it is the base's."""
    policy = t.before.policy
    if not isinstance(t.event, ev.TestRequested) or policy.binding or policy.evidence == "current":
        return True
    answer = t.commands[0]
    assert isinstance(answer, ev.Answer) and answer.envelope is not None
    retained = t.before.retained
    return answer.envelope.state_id == (retained[-2] if len(retained) > 1 else retained[-1])


def with_certification_acceptance_is_freshly_certified_and_never_of_the_base(
    t: Transition,
) -> bool:
    end = t.after.end
    if end is None or not end.accepted or not t.before.policy.certification:
        return True
    fits = isinstance(t.event, ev.CertificationReported) and genuine(t)
    if not fits or t.event.report.outcome != "pass":  # type: ignore[union-attr]
        return False
    gates = [report.outcome for report in t.before.gate if report.state_id == end.state_id]
    return end.state_id == t.event.report.state_id != BASE and gates[-1:] == ["pass"]  # type: ignore[union-attr]


def without_certification_acceptance_is_an_explicit_submission(t: Transition) -> bool:
    end = t.after.end
    if end is None or not end.accepted or t.before.policy.certification:
        return True
    submitted = isinstance(t.event, ev.SubmitRequested) and end.via == "submission"
    return submitted and end.state_id == t.before.current


def abstention_accepts_nothing(t: Transition) -> bool:
    escalated = isinstance(t.event, ev.EscalateRequested)
    return not escalated or (t.after.end is not None and not t.after.end.accepted)


def budgets_are_never_overdrawn(t: Transition) -> bool:
    """Tallies only grow, one action an event, and none beyond its budget."""
    before, after = vars(t.before.counts), vars(t.after.counts)
    grown = all(after[name] >= before[name] >= 0 for name in before)
    allowance, counts = t.world.allowance, t.after.counts
    if not grown or counts.actions > t.before.counts.actions + 1 or allowance is None:
        return grown and counts.actions <= t.before.counts.actions + 1
    return (
        counts.actions <= allowance.budgets.actions
        and counts.revisions <= allowance.revision_cap
        and counts.visible_tests <= allowance.budgets.visible_tests
    )


def every_request_is_of_the_pending_state(t: Transition) -> bool:
    runs = (ev.RunDiagnostic, ev.RunGate, ev.RunCertification)
    asked = [command for command in t.commands if isinstance(command, runs)]
    if t.after.phase not in ANSWER_OF:
        return not asked and t.after.pending is None
    return asked == [_asked(t.after)]


def _asked(state: State) -> ev.Command:
    assert state.pending is not None
    if state.phase is Phase.OBSERVING:
        return ev.RunDiagnostic(state.pending, DIAGNOSTIC)
    run = ev.RunGate if state.phase is Phase.GATING else ev.RunCertification
    return run(state.pending, GATE)


PROPERTIES: tuple[Callable[[Transition], bool], ...] = (
    checkpoint_moves_only_by_a_gate_pass_of_the_pending_state,
    nothing_moves_on_evidence_of_something_else,
    a_proposal_is_retained_only_by_its_own_gate_run,
    with_admission_a_rejected_proposal_is_rolled_back,
    with_binding_no_edit_rests_on_another_states_evidence,
    with_binding_no_evidence_of_another_state_is_shown,
    stale_evidence_is_of_the_previous_retained_state,
    with_certification_acceptance_is_freshly_certified_and_never_of_the_base,
    without_certification_acceptance_is_an_explicit_submission,
    abstention_accepts_nothing,
    budgets_are_never_overdrawn,
    every_request_is_of_the_pending_state,
)
"""Checked on every transition; that every path ends is checked on the whole graph."""

# ------------------------------------------------------------------------- the walk


@dataclass
class Graph:
    """States by number in the order found; for each, the way to it and its edges."""

    world: World
    numbers: dict[Key, int] = field(default_factory=dict)
    way: list[tuple[int, ev.Event | None]] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    ended: list[bool] = field(default_factory=list)
    edges: list[list[tuple[Origin, int]]] = field(default_factory=list)
    entries: dict[Cell, Seen] = field(default_factory=lambda: defaultdict(Seen))

    def number(self, state: State, parent: int, event: ev.Event | None) -> tuple[int, bool]:
        """The number of a state, and whether it is new."""
        key = key_of(self.world, state)
        known = self.numbers.get(key)
        if known is not None:
            return known, False
        number = self.numbers[key] = len(self.way)
        self.way.append((parent, event))
        self.depths.append(self.depths[parent] + 1 if event else 0)
        self.ended.append(state.phase is Phase.ENDED)
        self.edges.append([])
        return number, True

    def violation(self, claim: str, number: int, event: ev.Event | None = None) -> Violation:
        history = [event] if event else []
        while (arrived := self.way[number])[1] is not None:
            number, by = arrived
            history.append(by)
        return Violation(claim, tuple(reversed(history)))  # type: ignore[arg-type]


def explore(world: World, depth: int | None = None) -> Explored:
    """Walk all states (or those up to ``depth`` events away) and check everything.

    Raises Violation with a shortest history. That every path ends is checked on a whole walk only.
    """
    graph = Graph(world)
    first, _ = start(world.policy)
    graph.number(first, 0, None)
    waiting, transitions = deque([(0, first)]), 0
    while waiting:
        number, state = waiting.popleft()
        if depth is not None and graph.depths[number] >= depth:
            continue
        _check_misplaced(graph, number, state)
        for origin, event in moves(world, state):
            after, commands = step(state, event)
            transitions += 1
            transition = Transition(world, state, event, after, commands)
            if origin != "forger":
                graph.entries[state.phase, type(event)].add(transition)
            _check(graph, number, transition)
            target, new = graph.number(after, number, event)
            graph.edges[number].append((origin, target))
            if new:
                waiting.append((target, after))
    if depth is None:
        _check_ends(graph)
    return Explored(
        len(graph.way),
        transitions,
        max(graph.depths),
        sum(graph.ended),
        graph.entries,
    )


def _check(graph: Graph, number: int, transition: Transition) -> None:
    for holds in PROPERTIES:
        if not holds(transition):
            raise graph.violation(holds.__name__, number, transition.event)


def _check_misplaced(graph: Graph, number: int, state: State) -> None:
    for event in misplaced(state):
        try:
            step(state, event)
        except ContractViolation:
            continue
        raise graph.violation("an event has a place where it has none", number, event)


def _check_ends(graph: Graph) -> None:
    """Every path ends: no state is a dead end, and no honest path goes round.

    Without budgets the agent may go on for ever; then the driver alone must be able to end it.
    """
    bounded = graph.world.allowance is not None
    moving = {"driver", "evaluator", "agent"} if bounded else {"driver", "evaluator"}
    steps = [[to for origin, to in edges if origin in moving] for edges in graph.edges]
    for number, targets in enumerate(steps):
        if not targets and not graph.ended[number]:
            raise graph.violation("a state is a dead end", number)
    stuck = _on_a_circle(steps)
    if stuck is not None:
        raise graph.violation("a path goes round for ever", stuck)


def _on_a_circle(steps: list[list[int]]) -> int | None:
    """A state that a path leads back to, or None where all paths end.

    Ends are taken away until none is left; what then remains leads to a circle.
    """
    left = [len(set(targets)) for targets in steps]
    sources: list[list[int]] = [[] for _ in steps]
    for number, targets in enumerate(steps):
        for target in set(targets):
            sources[target].append(number)
    free = [number for number, count in enumerate(left) if count == 0]
    while free:
        for source in sources[free.pop()]:
            left[source] -= 1
            if left[source] == 0:
                free.append(source)
    here = next((number for number, count in enumerate(left) if count), None)
    passed_by: set[int] = set()
    while here is not None and here not in passed_by:
        passed_by.add(here)
        here = next(target for target in steps[here] if left[target])
    return here
