"""What each action does: it looks, or it puts an event to the contract; a table says what is told.

Every function takes the desk of the rollout and one action and gives the outcome of that action;
none of them decides anything that the contract decides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.agent import workspace as tree
from orchestrator.agent.actions import (
    Action,
    Edit,
    Escalate,
    Search,
    Shell,
    Submit,
    Test,
    View,
)
from orchestrator.agent.broker import Broker
from orchestrator.agent.budgets import Allowance, Meter, Stopwatch
from orchestrator.agent.edits import Edited, apply_edit
from orchestrator.agent.parsing import Invalid
from orchestrator.agent.prompt import Prompts
from orchestrator.agent.shell import Shell as ShellPort
from orchestrator.agent.shell import ShellResult
from orchestrator.agent.workspace import Refusal
from orchestrator.contract.events import (
    Answer,
    EditProposed,
    EscalateRequested,
    Looked,
    Malformed,
    Refused,
    SubmitRequested,
    TestRequested,
)
from orchestrator.contract.verdicts import Rule

MAX_WRITES_TOLD = 20


@dataclass
class ShellTally:
    """Columns of the rollout row that only the shell fills."""

    shell_commands: int = 0
    shell_code_runs: int = 0
    shell_write_attempts: int = 0
    shell_deadline_hits: int = 0


@dataclass(frozen=True)
class Proposal:
    """One source revision: where it started, what it changed and rested on, what became of it."""

    turn: int
    before: str
    tree: tree.Workspace
    changed: tuple[str, ...]
    evidence_state_id: str | None
    gate_passed: bool
    retained: bool


@dataclass
class Desk:
    """All that an action may touch."""

    broker: Broker
    allowance: Allowance
    prompts: Prompts
    shell: ShellPort
    watch: Stopwatch
    test_seconds: float
    meter: Meter = field(default_factory=Meter)
    tally: ShellTally = field(default_factory=ShellTally)
    proposals: list[Proposal] = field(default_factory=list)
    turn: int = 0
    shown_for: str | None = None
    """State that was current when evidence was last delivered: what the agent takes it for."""


@dataclass(frozen=True)
class Outcome:
    """``result``, ``reason``: as in the actions table; ``body``: told; ``seconds``: charged."""

    result: str
    body: str
    reason: str | None = None
    seconds: float = 0.0


TOLD: dict[Rule, tuple[str, str]] = {
    # rule: (result of the action, prompt file)
    Rule.EVIDENCE_DELIVERED: ("done", "test"),
    Rule.EVIDENCE_STALE_DELIVERY: ("stale", "stale"),
    Rule.EVIDENCE_STALE_EDIT: ("stale", "stale-edit"),
    Rule.PROPOSAL_APPLIED: ("done", "applied"),
    Rule.PROPOSAL_ADMITTED: ("accepted", "accepted"),
    Rule.PROPOSAL_REJECTED: ("rejected", "rejected"),
    Rule.COMPLETION_UNCHECKED: ("accepted", "completed"),
    Rule.COMPLETION_CERTIFIED: ("accepted", "completed"),
    Rule.COMPLETION_EMPTY: ("rejected", "not-completed"),
    Rule.COMPLETION_FAILED: ("rejected", "not-completed"),
    Rule.COMPLETION_FLAKY: ("rejected", "not-completed"),
    Rule.ABSTENTION_ESCALATED: ("done", "escalated"),
}
"""What the agent learns of a rule: the text of the file, with the evidence where it has any."""


def act(desk: Desk, action: Action | Invalid) -> Outcome:
    """Carry out one parsed reply."""
    if isinstance(action, Invalid):
        desk.broker.handle(Malformed(action.rule))
        return Outcome("invalid", desk.prompts.fill("invalid", reason=action.reason), action.reason)
    refusal = desk.allowance.refusal(action.action, desk.broker.state.counts, desk.meter)
    if refusal is not None:
        return _refuse(desk, action.action, refusal)
    return ACTIONS[type(action)](desk, action)


def _search(desk: Desk, action: Search) -> Outcome:
    return _looked(desk, "search", tree.search(desk.broker.working, action))


def _view(desk: Desk, action: View) -> Outcome:
    return _looked(desk, "view", tree.view(desk.broker.working, action))


def _looked(desk: Desk, kind: str, seen: str | Refusal) -> Outcome:
    if isinstance(seen, Refusal):
        return _refuse(desk, kind, seen)
    desk.broker.handle(Looked("search" if kind == "search" else "view"))
    return Outcome("done", seen)


def _edit(desk: Desk, action: Edit) -> Outcome:
    """Apply, propose, and keep the proposal if the contract let it through to the gate."""
    edited = apply_edit(desk.broker.working, action)
    if isinstance(edited, Refusal):
        return _refuse(desk, "edit", edited)
    before, revisions = desk.broker.state, desk.broker.state.counts.revisions
    desk.broker.propose(edited.workspace)
    answers = desk.broker.handle(EditProposed(edited.workspace.state_id))
    if desk.broker.state.counts.revisions > revisions:
        desk.proposals.append(_proposal(desk, before.current, edited))
    return _told(desk, answers)


def _proposal(desk: Desk, before: str, edited: Edited) -> Proposal:
    state = desk.broker.state
    return Proposal(
        turn=desk.turn,
        before=before,
        tree=edited.workspace,
        changed=edited.changed,
        # Nothing is delivered between an edit and its gate, so this is what the edit rested on.
        evidence_state_id=state.delivered.state_id if state.delivered else None,
        gate_passed=state.gate[-1].passed,
        retained=state.current == edited.workspace.state_id,
    )


def _shell(desk: Desk, action: Shell) -> Outcome:
    desk.broker.handle(Looked("shell"))
    with desk.watch.away():
        result = desk.shell.run(dict(desk.broker.working.files), action.command)
    desk.tally.shell_commands += 1
    desk.tally.shell_code_runs += int(result.started_python)
    desk.tally.shell_deadline_hits += int(result.timed_out)
    desk.tally.shell_write_attempts += len(result.writes)
    return Outcome("done", _shell_text(desk.prompts, result), seconds=result.seconds)


def _shell_text(prompts: Prompts, result: ShellResult) -> str:
    status = "the command was stopped at a limit"
    if result.exit_code is not None and not result.timed_out:
        status = f"exit code {result.exit_code}"
    output = result.output.decode(errors="replace").rstrip("\n")
    text = prompts.fill("shell", status=status, output=output)
    if not result.writes:
        return text
    more = len(result.writes) - MAX_WRITES_TOLD
    paths = ", ".join(result.writes[:MAX_WRITES_TOLD]) + (f" and {more} more" if more > 0 else "")
    return f"{text}\n{prompts.fill('shell-writes', paths=paths)}"


def _test(desk: Desk, _: Test) -> Outcome:
    """Charged: the duration of the execution shown, up to a visible test's deadline."""
    answers = desk.broker.handle(TestRequested())
    shown = answers[-1].envelope
    assert shown is not None  # a test always delivers evidence
    return _told(desk, answers, min(desk.broker.duration_of(shown), desk.test_seconds))


def _submit(desk: Desk, _: Submit) -> Outcome:
    return _told(desk, desk.broker.handle(SubmitRequested()))


def _escalate(desk: Desk, _: Escalate) -> Outcome:
    return _told(desk, desk.broker.handle(EscalateRequested()))


ACTIONS: dict[type[Action], Callable[..., Outcome]] = {
    Search: _search,
    View: _view,
    Edit: _edit,
    Shell: _shell,
    Test: _test,
    Submit: _submit,
    Escalate: _escalate,
}
"""One function per typed action."""


def _refuse(desk: Desk, kind: str, refusal: Refusal) -> Outcome:
    desk.broker.handle(Refused(kind, refusal.rule))
    body = desk.prompts.fill("refused", reason=refusal.reason)
    return Outcome("refused", body, refusal.reason)


def _told(desk: Desk, answers: tuple[Answer, ...], seconds: float = 0.0) -> Outcome:
    answer = answers[-1]
    if answer.envelope is not None:
        desk.shown_for = desk.broker.state.current
    result, name = TOLD[answer.rule]
    values = {} if answer.envelope is None else {"payload": answer.envelope.payload}
    reason = answer.rule.value if result == "stale" else None
    return Outcome(result, desk.prompts.fill(name, **values), reason, seconds)
