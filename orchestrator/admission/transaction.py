"""Drives the contract's unchanged machine for one session, with both ledgers.

An event is in the ledger before its commands are carried out. A verifier that twice in a row tells
of another execution than the one asked for, or whose reports the machine refuses, is not asked a
third time: the run is then void, which never is a pass.
"""

from collections import deque
from dataclasses import dataclass

from orchestrator.admission import rules
from orchestrator.admission.journal import Journal
from orchestrator.admission.objects import ObjectStore
from orchestrator.admission.records import Ran, encode
from orchestrator.admission.rules import Purpose
from orchestrator.admission.verifier import Execution, Request, Verifier
from orchestrator.contract import codec, machine
from orchestrator.contract.events import (
    Answer,
    CertificationReported,
    Command,
    DiagnosticReported,
    Envelope,
    Event,
    GateReported,
    Report,
    RunCertification,
    RunDiagnostic,
    RunGate,
)
from orchestrator.contract.policy import Policy
from orchestrator.contract.state import State
from orchestrator.contract.verdicts import Rule
from orchestrator.spec.identity import digest_json

Run = RunDiagnostic | RunGate | RunCertification
REPORTS_PER_RUN = 2
"""Reports that a run may have; a verifier that answers something else twice has no answer."""

PURPOSE_OF: dict[type[Run], Purpose] = {
    RunDiagnostic: "diagnostic",
    RunGate: "gate",
    RunCertification: "certification",
}
REFUSALS = frozenset({Rule.EVIDENCE_MISADDRESSED, Rule.EVIDENCE_REPLAYED})


@dataclass(frozen=True)
class Followed:
    """What followed from one event: the answer, and the refusal that left a run void, if any."""

    answer: Answer | None
    unusable: Rule | None


class Transaction:
    """The machine's state, its ledger, and the trees that its state ids stand for."""

    def __init__(
        self,
        session_id: str,
        policy: Policy,
        verifier: Verifier,
        store: ObjectStore,
        contract: Journal,
        admission: Journal,
    ) -> None:
        self._session_id, self._verifier, self._store = session_id, verifier, store
        self._contract, self._admission = contract, admission
        self._sequence = 0
        self.state: State
        self.state, commands = machine.start(policy)
        contract.append(*codec.encode_policy(policy))
        self._perform(commands)

    def handle(self, event: Event) -> Followed:
        """One event and all that follows from it.

        Retain and Restore are left to the session, which does with its worktree what the mode says.
        """
        return self._perform(self._step(event))

    def _perform(self, commands: tuple[Command, ...]) -> Followed:
        answer: Answer | None = None
        unusable: Rule | None = None
        refusals = 0
        waiting = deque(commands)
        while waiting:
            command = waiting.popleft()
            if isinstance(command, Answer) and command.rule in REFUSALS:
                refusals, refusal = refusals + 1, command.rule
            elif isinstance(command, Answer):
                answer = command
            elif isinstance(command, Run) and refusals == REPORTS_PER_RUN:
                unusable, refusals = unusable or refusal, 0
                waiting.extend(self._step(_event(command, self._void(command))))
            elif isinstance(command, Run):
                asked, ran = self._ask(command)
                if rules.was_asked(asked, ran.execution_id):
                    waiting.extend(self._step(_event(command, ran)))
                else:
                    refusals, refusal = refusals + 1, Rule.EVIDENCE_REPLAYED
                    waiting.append(command)
        return Followed(answer, unusable)

    def _step(self, event: Event) -> tuple[Command, ...]:
        self.state, commands = machine.step(self.state, event)
        self._contract.append(*codec.encode(event))
        return commands

    def _ask(self, command: Run) -> tuple[str, Execution]:
        """The id of the execution that was asked for, and the one that was told of."""
        files = self._store.get(command.state_id)
        purpose, asked = PURPOSE_OF[type(command)], self._next_id()
        ran = self._verifier.run(Request(purpose, command.state_id, files, asked))
        return asked, self._noted(ran)

    def _void(self, command: Run) -> Execution:
        """The broker's own statement that there is no evidence."""
        purpose, suite_id = PURPOSE_OF[type(command)], command.suite_id
        said = "no usable evidence"
        ran = Execution(purpose, command.state_id, suite_id, self._next_id(), "void", (), said)
        return self._noted(ran)

    def _next_id(self) -> str:
        self._sequence += 1
        return digest_json([self._session_id, self._sequence])

    def _noted(self, ran: Execution) -> Execution:
        """In the admission's ledger before the machine hears of it, whatever it then says."""
        record = Ran(
            ran.purpose, ran.state_id, ran.suite_id, ran.execution_id, ran.outcome, ran.results
        )
        self._admission.append(*encode(record))
        return ran


def _event(command: Run, ran: Execution) -> Event:
    """The execution as the machine's event, with exactly the identities that it claims."""
    state_id, suite_id, execution_id = ran.state_id, ran.suite_id, ran.execution_id
    if isinstance(command, RunDiagnostic):
        late = ran.outcome == "timeout"
        return DiagnosticReported(Envelope(state_id, suite_id, execution_id, ran.payload, late))
    report = Report(state_id, suite_id, execution_id, ran.outcome)
    return GateReported(report) if isinstance(command, RunGate) else CertificationReported(report)
