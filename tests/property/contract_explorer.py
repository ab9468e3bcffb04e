"""Walks every state of the contract breadth-first and checks, on every transition, what must hold.

States that no property and no later step can tell apart are one: names of trees, execution ids and
the order of evidence are abstracted, and tallies where no budget limits them. Without budgets the
walk ends when nothing new is found, so that it covers histories of every length; with budgets it
drives the contract as the agent's loop does and shows that every path ends.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.contract import events as ev
from orchestrator.contract.machine import ContractViolation, start, step
from orchestrator.contract.state import Phase, State
from tests.property.contract_moves import Origin, World, misplaced, moves
from tests.property.contract_properties import PROPERTIES, Transition

Key = tuple[object, ...]


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
