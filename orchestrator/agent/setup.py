"""What a rollout starts from and is given: its setup, its ports, and the desk made of them."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.agent.broker import Broker, Case, Journal
from orchestrator.agent.budgets import Allowance, Stopwatch
from orchestrator.agent.prompt import Bounds, Prompts, bounds_for, opening
from orchestrator.agent.shell import Shell
from orchestrator.agent.tools import Desk
from orchestrator.agent.workspace import Files, Workspace, listing
from orchestrator.contract.policy import Context, Policy
from orchestrator.spec.lock import PlannedRollout
from orchestrator.spec.ports import Coder, Delta, Message, SuiteName, Verifier
from orchestrator.spec.study import Budgets, Sampling


@dataclass(frozen=True)
class RolloutSetup:
    """One planned rollout with everything it starts from.

    ``study`` and ``stack`` are names; ``privileged`` lets the coder see the contract's state and is
    only for simulated ones; ``context_tokens`` is the coder's window (None = unlimited);
    ``suite_seconds`` is the deadline of gate and certification; ``verifier_id`` names what runs
    the suites, None where nothing does.
    """

    lock_id: str
    study: str
    stack: str
    simulated: bool
    privileged: bool
    rollout: PlannedRollout
    project: str
    gate_overlap: bool
    base_files: Files
    statement: str
    prompts: Prompts
    budgets: Budgets
    sampling: Sampling
    context_tokens: int | None
    suite_seconds: float
    attempt_id: str
    verifier_id: str | None = None

    @property
    def bounds(self) -> Bounds:
        """Longest prompt and longest observation."""
        return bounds_for(self.context_tokens, self.sampling.max_new_tokens)


@dataclass(frozen=True)
class RolloutPorts:
    """The outside world. ``journal`` is given each ledger line before what it announces is done;
    ``make_patch(base files, delta)`` gives the bytes of a patch.
    """

    coder: Coder
    verifier: Verifier
    shell: Shell
    journal: Journal
    make_patch: Callable[[Files, Delta], bytes]


def make_desk(setup: RolloutSetup, ports: RolloutPorts, watch: Stopwatch) -> Desk:
    """Start the contract on the base tree; the first diagnostic runs here."""
    rollout, budgets = setup.rollout, setup.budgets
    base = Workspace.of(setup.base_files)
    case = Case(
        rollout.rollout_id, rollout.task_id, budgets.visible_test_seconds, setup.suite_seconds
    )
    policy = policy_of(setup, base.state_id, ports.verifier)
    return Desk(
        broker=Broker(case, policy, base, ports.verifier, ports.journal, watch),
        allowance=Allowance(budgets, rollout.arm.revision_cap),
        prompts=setup.prompts,
        shell=ports.shell,
        watch=watch,
        test_seconds=budgets.visible_test_seconds,
    )


def policy_of(setup: RolloutSetup, base_state_id: str, verifier: Verifier) -> Policy:
    """The arm of a rollout, bound to its task's base tree and suites, its verifier and itself."""
    rollout, arm = setup.rollout, setup.rollout.arm
    return Policy(
        evidence=arm.evidence,
        binding=arm.binding,
        admission=arm.admission,
        certification=arm.certification,
        base_state_id=base_state_id,
        diagnostic_suite_id=verifier.suite_id(rollout.task_id, SuiteName.DIAGNOSTIC),
        gate_suite_id=verifier.suite_id(rollout.task_id, SuiteName.GATE),
        verifier_id=setup.verifier_id,
        context=Context(setup.lock_id, rollout.rollout_id, rollout.task_id),
    )


def first_messages(setup: RolloutSetup, desk: Desk) -> tuple[Message, Message]:
    """System prompt and task, the same in every arm."""
    files = listing(desk.broker.base, setup.bounds.observation)
    left = desk.allowance.left(desk.broker.state.counts)
    return opening(setup.prompts, setup.statement, files, left)
