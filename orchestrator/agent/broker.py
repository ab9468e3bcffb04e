"""Drives the contract of one rollout: each event goes to the ledger, then its commands are done.

The one place of this room that talks to the evaluator. A verdict that does not answer the request
it was asked for is the evaluator's fault and ends the attempt; no text of the agent reaches it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.agent.budgets import Stopwatch
from orchestrator.agent.observations import storable
from orchestrator.agent.workspace import Workspace
from orchestrator.contract import codec, ledger, machine
from orchestrator.contract.events import (
    Answer,
    CertificationReported,
    Command,
    DiagnosticReported,
    Envelope,
    Event,
    GateReported,
    Report,
    Restore,
    Retain,
    RunCertification,
    RunDiagnostic,
    RunGate,
)
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import State
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.identity import digest_json
from orchestrator.spec.ports import (
    Purpose,
    SuiteName,
    SuiteOutcome,
    SuiteRequest,
    SuiteVerdict,
    Verifier,
)

Run = RunDiagnostic | RunGate | RunCertification
Journal = Callable[[bytes], None]

SUITE_OF: dict[type[Run], tuple[SuiteName, Purpose]] = {
    RunDiagnostic: (SuiteName.DIAGNOSTIC, Purpose.DIAGNOSTIC),
    RunGate: (SuiteName.GATE, Purpose.GATE),
    RunCertification: (SuiteName.GATE, Purpose.CERTIFICATION),
}
"""The completion suite is the gate suite, never an adjudication suite (protocol §1 "Suites")."""


@dataclass(frozen=True)
class Case:
    """Whose rollout it is, and the deadlines of its suite runs (s)."""

    rollout_id: str
    task_id: str
    diagnostic_seconds: float
    suite_seconds: float


@dataclass(frozen=True)
class Judged:
    """One suite run of this rollout. ``payload`` is None for gate and certification."""

    purpose: Purpose
    verdict: SuiteVerdict
    payload: str | None


class Broker:
    """The contract's state, its ledger, and the trees that its state ids stand for."""

    def __init__(
        self,
        case: Case,
        policy: Policy,
        base: Workspace,
        verifier: Verifier,
        journal: Journal,
        watch: Stopwatch,
    ) -> None:
        self.state: State
        self.head = ledger.GENESIS
        self.lines: list[bytes] = []
        self.judged: list[Judged] = []
        self.base = self.working = base
        self._trees = {base.state_id: base}
        self._case, self._verifier, self._journal, self._watch = case, verifier, journal, watch
        self.state, commands = machine.start(policy)
        self._record(*codec.encode_policy(policy))
        self._perform(commands)

    def propose(self, tree: Workspace) -> None:
        """Make a tree known, before the event that names it."""
        self._trees[tree.state_id] = tree

    def handle(self, event: Event) -> tuple[Answer, ...]:
        """One event and all that follows from it; the answers are for the agent."""
        return self._perform(self._step(event))

    def duration_of(self, envelope: Envelope) -> float:
        """Seconds that the execution behind an envelope took."""
        ids = {j.verdict.execution_id: j.verdict.duration_seconds for j in self.judged}
        return ids[envelope.execution_id]

    def _perform(self, commands: tuple[Command, ...]) -> tuple[Answer, ...]:
        answers: list[Answer] = []
        waiting = deque(commands)
        while waiting:
            command = waiting.popleft()
            if isinstance(command, Answer):
                answers.append(command)
            elif isinstance(command, Retain | Restore):
                self.working = self._trees[command.state_id]
            else:
                waiting.extend(self._step(self._run(command)))
        return tuple(answers)

    def _step(self, event: Event) -> tuple[Command, ...]:
        """The transition, in the ledger before any of its commands is done."""
        self.state, commands = machine.step(self.state, event)
        self._record(*codec.encode(event))
        return commands

    def _record(self, kind: str, data: ledger.Data) -> None:
        line, self.head = ledger.append(self.head, kind, data)
        self.lines.append(line)
        self._journal(line)

    def _run(self, command: Run) -> Event:
        suite, purpose = SUITE_OF[type(command)]
        verdict = self._ask(suite, purpose, command)
        state_id, suite_id, execution_id = verdict.state_id, verdict.suite_id, verdict.execution_id
        if isinstance(command, RunDiagnostic):
            payload = _payload(verdict)
            self.judged.append(Judged(purpose, verdict, payload))
            late = verdict.outcome is SuiteOutcome.TIMEOUT
            return DiagnosticReported(Envelope(state_id, suite_id, execution_id, payload, late))
        self.judged.append(Judged(purpose, verdict, None))
        report = Report(state_id, suite_id, execution_id, verdict.outcome.value)
        return GateReported(report) if purpose is Purpose.GATE else CertificationReported(report)

    def _ask(self, suite: SuiteName, purpose: Purpose, command: Run) -> SuiteVerdict:
        case, diagnostic = self._case, suite is SuiteName.DIAGNOSTIC
        request = SuiteRequest(
            task_id=case.task_id,
            suite=suite,
            purpose=purpose,
            state_id=command.state_id,
            delta=self._trees[command.state_id].delta_from(self.base),
            execution_id=execution_id(case.rollout_id, len(self.judged) + 1),
            wall_seconds=case.diagnostic_seconds if diagnostic else case.suite_seconds,
        )
        with self._watch.away():
            verdict = self._verifier.run(request)
        _require_answer(request, command.suite_id, verdict)
        return verdict


def execution_id(rollout_id: str, sequence: int) -> str:
    """Identity of a rollout's ``sequence``-th suite run (from 1); the same in every attempt."""
    return digest_json([rollout_id, sequence])


def _payload(verdict: SuiteVerdict) -> str:
    """What the diagnostic run says, or at least how it ended."""
    return storable(verdict.payload.strip("\n") or f"outcome: {verdict.outcome.value}")


def _require_answer(request: SuiteRequest, suite_id: str, verdict: SuiteVerdict) -> None:
    asked = {
        "task_id": request.task_id,
        "suite": request.suite,
        "suite_id": suite_id,
        "state_id": request.state_id,
        "execution_id": request.execution_id,
    }
    for name, value in asked.items():
        if getattr(verdict, name) != value:
            raise InfrastructureFault(
                "evaluator", f"verdict {request.execution_id[:12]} has another {name} than asked"
            )
    if request.purpose is Purpose.CERTIFICATION and verdict.cached:
        raise InfrastructureFault("evaluator", "a certification was answered from the cache")
