"""One session of an outside agent under the contract: it proposes a tree, the broker decides.

The agent has a worktree and four actions. The broker takes the tree, asks the guards, lets the
transaction run the project's commands, and does with the worktree what verdict and mode say. It
never reads a claim of the agent about a tree, and keeps the checkpoint where no agent can reach.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.admission import actions, receipt, rules, snapshot
from orchestrator.admission.actions import Action
from orchestrator.admission.files import write_once
from orchestrator.admission.journal import Journal
from orchestrator.admission.objects import ObjectStore
from orchestrator.admission.project import Project, load_project
from orchestrator.admission.records import AgentEnded, Closed, Decided, Opened, encode
from orchestrator.admission.rules import AdmissionRule, Attempt, Boundary
from orchestrator.admission.transaction import Followed, Transaction
from orchestrator.admission.verifier import Execution, Request, Verifier
from orchestrator.contract import modes
from orchestrator.contract import receipt as contract_receipt
from orchestrator.contract.events import (
    BudgetEnded,
    EditProposed,
    EscalateRequested,
    Event,
    Malformed,
    Refused,
    SubmitRequested,
    TestRequested,
)
from orchestrator.contract.modes import Disposition
from orchestrator.contract.policy import Policy
from orchestrator.contract.verdicts import VERDICT_OF, Rule, Verdict
from orchestrator.repo.files import Files, write_directory
from orchestrator.spec.errors import BadInput, FactorialError
from orchestrator.spec.identity import digest_json, sha256_hex


@dataclass(frozen=True)
class Decision:
    """What the agent is told: verdict, stable rule id, what is done about it, evidence if asked."""

    verdict: Verdict
    rule: str
    disposition: Disposition
    state_id: str | None
    payload: str = ""
    ended: bool = False


class Session:
    """``manifest`` and ``source`` are the owner's, ``root`` (new) is the broker's.

    ``root/worktree`` is what the agent may change; nothing else of ``root`` is for it. ``clock``
    counts seconds. ``owner``: uid of the agent's processes, where it is not this one's. BadInput
    where ``root`` holds something or the source is no tree. A fault of the verifier ends a session:
    every later action raises it again, and no receipt is issued.
    """

    def __init__(
        self,
        manifest: Path,
        source: Path,
        root: Path,
        verifier: Verifier,
        clock: Callable[[], float] = time.monotonic,
        owner: int | None = None,
    ) -> None:
        self.project: Project = load_project(manifest)
        self.root, self.worktree = root, root / "worktree"
        self.last: Decision | None = None
        self._clock, self._away = clock, 0.0
        self._base: Files = snapshot.capture(source, self.project.ignored)
        _create(root)
        self.store = ObjectStore(root / "objects")
        self._attempts: list[Attempt] = []
        self._candidates = 0
        self._fault: FactorialError | None = None
        self._contract = Journal(root / receipt.CONTRACT_LEDGER)
        self._admission = Journal(root / receipt.LEDGER)
        self._open(_Timed(verifier, self))
        write_directory(self._base, self.worktree, uid=owner)
        self._started, self._away = clock(), 0.0

    def _open(self, verifier: Verifier) -> None:
        identities, base = verifier.identities(), self.store.put(self._base)
        # No two sessions ask for one execution, so no earlier one's evidence answers this one.
        bound = [self.project.name, base, identities.gate_suite, secrets.token_hex(16)]
        session_id = digest_json(bound)
        opened = Opened(session_id, self.project.name, self.project.mode, base, identities)
        self._admission.append(*encode(opened))
        policy = Policy(
            evidence="current",
            binding=True,
            admission=True,
            certification=True,
            base_state_id=base,
            diagnostic_suite_id=identities.diagnostic_suite,
            gate_suite_id=identities.gate_suite,
        )
        self._transaction = Transaction(
            session_id, policy, verifier, self.store, self._contract, self._admission
        )

    # ----------------------------------------------------------------------- what is known

    @property
    def ended(self) -> bool:
        """Whether both receipts are issued."""
        return self._transaction.state.end is not None

    @property
    def checkpoint(self) -> str | None:
        """State id of the last tree that passed, which the store holds."""
        held = self._transaction.state.checkpoint
        return held.state_id if held else None

    @property
    def current(self) -> str:
        """State id of the tree that the contract holds to be the working one."""
        return self._transaction.state.current

    @property
    def wall_left(self) -> float:
        """Seconds of the agent's budget; verification is not charged."""
        used = self._clock() - self._started - self._away
        return rules.wall_left(self.project.wall_s, used)

    def now(self) -> float:
        """The session's clock (s)."""
        return self._clock()

    def not_charged(self, seconds: float) -> None:
        """Time that is not the agent's."""
        self._away += seconds

    # ----------------------------------------------------------------------- actions

    def act(self, message: bytes) -> Decision:
        """One message of the agent; whatever is no action changes nothing and costs one."""
        action = actions.parse(message)
        if action is None:
            return self._over() or self._malformed("message", AdmissionRule.MALFORMED_ACTION)
        return ACTIONS[action](self)

    def propose(self, boundary: Boundary = "action") -> Decision:
        """Judge the worktree. ``terminal``: the agent's steps were not seen, only this end."""
        if (over := self._over()) is not None:
            return over
        if not rules.within_budget(self._candidates, self.project.candidates):
            return self._budget_ended("actions")
        if (files := self._candidate()) is None:
            return self._malformed("propose", AdmissionRule.UNREADABLE_TREE)
        state_id = self.store.put(files)
        protected = (*self.project.suite, *self.project.protected)
        violation = rules.tree_violation(self._base, files, protected)
        if violation is not None:
            self._transaction.handle(Refused("propose", violation))
            decision = self._decided(
                "propose", violation, rules.VERDICT_OF[violation], state_id, boundary
            )
        else:
            decision = self._followed("propose", EditProposed(state_id), state_id, boundary)
        if decision.rule != Rule.EVIDENCE_STALE_EDIT:  # not judged yet
            self._candidates += 1
            return self._counted(decision, state_id)
        return decision

    def test(self) -> Decision:
        """Evidence on the working state."""
        return self._over() or self._followed("test", TestRequested(), self.current)

    def complete(self) -> Decision:
        """Declare the judged state final: it is certified afresh, or the action is refused."""
        if (over := self._over()) is not None:
            return over
        if (files := self._candidate()) is None:
            return self._malformed("complete", AdmissionRule.UNREADABLE_TREE)
        state_id = self.store.put(files)
        if not rules.is_current(state_id, self.current):
            drifted = AdmissionRule.STATE_DRIFTED
            self._transaction.handle(Refused("complete", drifted))
            return self._decided("complete", drifted, rules.VERDICT_OF[drifted], state_id)
        return self._counted(self._followed("complete", SubmitRequested(), state_id), state_id)

    def escalate(self) -> Decision:
        """Give up; nothing is delivered, the checkpoint stays in the store."""
        return self._over() or self._followed("escalate", EscalateRequested(), None)

    def agent_ended(self, exit_class: str, exit_code: int | None) -> None:
        """Note how a process of the agent ended."""
        if not self.ended:
            self._admission.append(*encode(AgentEnded(exit_class, exit_code)))

    def close(self) -> Decision:
        """The agent will not act again: what passed is certified afresh and delivered."""
        return self._over() or self._budget_ended("actions")

    # ----------------------------------------------------------------------- parts

    def _over(self) -> Decision | None:
        """The last word where there is nothing more to decide; the fault that left none."""
        if self._fault is not None:
            raise self._fault
        if self.ended:
            return self.last
        return self._budget_ended("wall") if self.wall_left <= 0 else None

    def _candidate(self) -> Files | None:
        try:
            return snapshot.capture(self.worktree, self.project.ignored)
        except (BadInput, OSError):
            return None  # a device, a name that is not UTF-8, a folder made unreadable or removed

    def _malformed(self, action: str, rule: AdmissionRule) -> Decision:
        self._transaction.handle(Malformed(rule))
        return self._decided(action, rule, rules.VERDICT_OF[rule], None)

    def _counted(self, decision: Decision, state_id: str) -> Decision:
        """Note what was judged; end where the agent goes round in circles."""
        self._attempts.append(Attempt(state_id, decision.verdict is Verdict.ADMITTED))
        rule = None if self.ended else self._circle()
        if rule is None:
            return decision
        self._transaction.handle(EscalateRequested())
        return self._decided("escalate", rule, rules.VERDICT_OF[rule], None)

    def _circle(self) -> AdmissionRule | None:
        """Why further attempts are pointless, if they are."""
        if rules.repeats(self._attempts, self.project.repeat_limit):
            return AdmissionRule.REPEATED_REJECTION
        if rules.oscillates(self._attempts, self.project.oscillation_limit):
            return AdmissionRule.OSCILLATION
        return None

    def _budget_ended(self, reason: str) -> Decision:
        event = BudgetEnded("wall" if reason == "wall" else "actions")
        return self._followed(f"budget-{reason}", event, self.checkpoint)

    def _followed(
        self, action: str, event: Event, state_id: str | None, boundary: Boundary = "action"
    ) -> Decision:
        followed = self._handled(event)
        rule, verdict = self._verdict(followed)
        payload = ""
        if followed.answer is not None and followed.answer.envelope is not None:
            payload = followed.answer.envelope.payload
        return self._decided(action, rule, verdict, state_id, boundary, payload)

    def _handled(self, event: Event) -> Followed:
        """A run that cannot be had ends the session without a receipt: nothing has authority."""
        try:
            return self._transaction.handle(event)
        except FactorialError as fault:
            self._fault = fault
            raise

    def _verdict(self, followed: Followed) -> tuple[str, Verdict]:
        """The transaction's answer, but for runs without evidence or, by policy, a verdict."""
        assert followed.answer is not None  # every action of an agent is answered
        rule = followed.answer.rule
        if followed.unusable is not None and VERDICT_OF[rule] is not Verdict.ADMITTED:
            return followed.unusable, VERDICT_OF[followed.unusable]
        abstains = rule is Rule.PROPOSAL_REJECTED and self.project.on_timeout == "abstain"
        if abstains and self._transaction.state.gate[-1].outcome == "timeout":
            late = AdmissionRule.VERIFIER_TIMEOUT
            return late, rules.VERDICT_OF[late]
        return rule, VERDICT_OF[rule]

    def _decided(
        self,
        action: str,
        rule: str,
        verdict: Verdict,
        state_id: str | None,
        boundary: Boundary = "action",
        payload: str = "",
    ) -> Decision:
        """Record a decision, then carry it out: a blocked proposal leaves no trace."""
        done = modes.disposition(verdict, self.project.mode)
        self._admission.append(*encode(Decided(action, boundary, state_id, rule, verdict, done)))
        if action == "propose" and not done.goes_on and rule != Rule.EVIDENCE_STALE_EDIT:
            snapshot.restore(self.worktree, self.store.get(self.current))
        self.last = Decision(verdict, rule, done, state_id, payload, self.ended)
        if self.ended:
            self._issue()
        return self.last

    def _issue(self) -> None:
        """Both receipts; the admission's is derived from the ledgers alone."""
        own = contract_receipt.build(self._transaction.state, self._contract.head)
        write_once(self.root / receipt.CONTRACT_RECEIPT, own)
        self._admission.append(*encode(Closed(sha256_hex(own))))
        body = receipt.build(self._admission.lines, self._contract.lines)
        write_once(self.root / receipt.RECEIPT, body)
        self._contract.close()
        self._admission.close()


ACTIONS: dict[Action, Callable[[Session], Decision]] = {
    Action.PROPOSE: Session.propose,
    Action.TEST: Session.test,
    Action.COMPLETE: Session.complete,
    Action.ESCALATE: Session.escalate,
}


class _Timed:
    """A verifier whose runs are not charged to the agent."""

    def __init__(self, verifier: Verifier, session: Session) -> None:
        self._verifier, self._session = verifier, session
        self.identities = verifier.identities

    def run(self, request: Request) -> Execution:
        started = self._session.now()
        try:
            return self._verifier.run(request)
        finally:
            self._session.not_charged(self._session.now() - started)


def _create(root: Path) -> None:
    if root.exists() and any(root.iterdir()):
        raise BadInput(str(root), "", "holds files already", "Give a new folder.")
    root.mkdir(parents=True, exist_ok=True)
