"""The loop of one rollout: ask, parse, act, observe, until it is submitted, given up or spent.

Everything comes in through :class:`RolloutSetup` and :class:`RolloutPorts`; everything goes out as
one :class:`~orchestrator.spec.records.RolloutRecord`. An InfrastructureFault of a port passes
through and ends the attempt; nothing else here ends it.
"""

from dataclasses import replace

from orchestrator.agent import rows
from orchestrator.agent.budgets import Stopwatch
from orchestrator.agent.observations import Observation, observe, storable
from orchestrator.agent.parsing import kind_of, parse
from orchestrator.agent.prompt import Exchange, conversation
from orchestrator.agent.setup import RolloutPorts, RolloutSetup, first_messages, make_desk
from orchestrator.agent.tools import Desk, act
from orchestrator.contract.events import BudgetEnded
from orchestrator.spec.identity import request_seed
from orchestrator.spec.ports import Coder, CoderRequest, Message, PrivilegedView
from orchestrator.spec.records import RolloutRecord

__all__ = ["RolloutPorts", "RolloutSetup", "run_rollout"]


def run_rollout(setup: RolloutSetup, ports: RolloutPorts) -> RolloutRecord:
    """Run one rollout from an empty history to its end. Raises InfrastructureFault."""
    watch = Stopwatch()
    desk = make_desk(setup, ports, watch)
    opened = first_messages(setup, desk)
    history: list[Exchange] = []
    turns: list[rows.Turn] = []
    while desk.broker.state.end is None:
        spent = desk.allowance.exhausted(desk.broker.state.counts, desk.meter)
        if spent is not None:
            desk.broker.handle(BudgetEnded(spent))
            break
        messages = conversation(setup.prompts, opened, history, setup.bounds.prompt)
        turn = _take_turn(setup, ports.coder, desk, messages)
        history.append(Exchange(turn.reply.text, turn.observation.text))
        turns.append(turn)
    return rows.record(setup, desk, turns, ports.make_patch)


def _take_turn(
    setup: RolloutSetup, coder: Coder, desk: Desk, messages: tuple[Message, ...]
) -> rows.Turn:
    """One request, one action, one observation."""
    desk.turn += 1
    request = _request(setup, desk, messages)
    with desk.watch.away():
        reply = coder.reply(request)
    desk.meter = desk.meter.replied(reply)
    action = parse(reply.text)
    before = desk.broker.state.current
    outcome = act(desk, action)
    desk.meter = desk.meter.charged(outcome.seconds)
    return rows.Turn(
        number=desk.turn,
        kind=kind_of(action),
        request=request,
        reply=replace(reply, text=storable(reply.text)),
        outcome=outcome,
        observation=_observation(setup, desk, outcome.body),
        before=before,
        after=desk.broker.state.current,
    )


def _request(setup: RolloutSetup, desk: Desk, messages: tuple[Message, ...]) -> CoderRequest:
    rollout, sampling = setup.rollout, setup.sampling
    tokens_left = desk.allowance.tokens_left(desk.meter)
    new_tokens = sampling.max_new_tokens
    return CoderRequest(
        rollout_id=rollout.rollout_id,
        task_id=rollout.task_id,
        seed=rollout.seed,
        turn=desk.turn,
        request_seed=request_seed(setup.study, rollout.task_id, rollout.seed, desk.turn),
        messages=messages,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_new_tokens=new_tokens if tokens_left is None else min(new_tokens, tokens_left),
        deadline_seconds=desk.allowance.seconds_left(desk.meter),
        privileged=_privileged(setup, desk) if setup.privileged else None,
    )


def _privileged(setup: RolloutSetup, desk: Desk) -> PrivilegedView:
    state = desk.broker.state
    told = state.checkpoint if state.policy.admission else None
    return PrivilegedView(
        state_id=state.current,
        levels=setup.rollout.levels,
        revisions_left=desk.allowance.left(state.counts).revisions,
        delivered_for=desk.shown_for,
        checkpoint_told=told.state_id if told else None,
    )


def _observation(setup: RolloutSetup, desk: Desk, body: str) -> Observation:
    """The body, bounded, and what is left of the budgets."""
    left = vars(desk.allowance.left(desk.broker.state.counts))
    footer = len(setup.prompts.fill("observation", body="", **left))
    bounded = observe(body, setup.bounds.observation - footer)
    text = setup.prompts.fill("observation", body=bounded.text, **left)
    full = setup.prompts.fill("observation", body=bounded.full.decode(), **left)
    return Observation(text, full.encode(), bounded.truncated)
