"""Turns a finished rollout into its record: rows with the columns of the tables, and evidence.

Nothing is decided here; every value was counted by the contract or measured by the loop.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from orchestrator.agent.broker import Judged
from orchestrator.agent.budgets import Stopwatch
from orchestrator.agent.observations import Observation
from orchestrator.agent.setup import RolloutSetup
from orchestrator.agent.tools import Desk, Outcome, Proposal
from orchestrator.agent.workspace import Files
from orchestrator.contract import receipt
from orchestrator.contract.state import State
from orchestrator.spec.identity import prompt_digest, sha256_hex
from orchestrator.spec.ports import CoderReply, CoderRequest, Delta
from orchestrator.spec.records import RolloutRecord, Row

MakePatch = Callable[[Files, Delta], bytes]


@dataclass(frozen=True)
class Turn:
    """One action, from request to observation."""

    number: int
    kind: str
    request: CoderRequest
    reply: CoderReply
    outcome: Outcome
    observation: Observation
    before: str
    after: str


def record(
    setup: RolloutSetup, desk: Desk, turns: list[Turn], make_patch: MakePatch
) -> RolloutRecord:
    """The record of an ended rollout."""
    identity = {"lock_id": setup.lock_id, "rollout_id": setup.rollout.rollout_id}
    patches = [
        make_patch(setup.base_files, proposal.tree.delta_from(desk.broker.base))
        for proposal in desk.proposals
    ]
    issued = receipt.build(desk.broker.state, desk.broker.head)
    return RolloutRecord(
        rollout={
            **identity,
            **_plan(setup),
            **_outcome(desk.broker.state),
            **_spending(desk),
            "ledger_head": desk.broker.head.hash,
            "receipt_sha256": sha256_hex(issued),
            **_attempt(setup, desk.watch),
        },
        actions=[{**identity, **_action(turn)} for turn in turns],
        proposals=[
            {**identity, **_proposal(number, proposal, sha256_hex(patch))}
            for number, (proposal, patch) in enumerate(
                zip(desk.proposals, patches, strict=True), start=1
            )
        ],
        verdicts=[
            {**identity, **_verdict(number, judged)}
            for number, judged in enumerate(desk.broker.judged, start=1)
        ],
        ledger=list(desk.broker.lines),
        receipt=issued,
        patches={sha256_hex(patch): patch for patch in patches},
        blobs={
            turn.observation.sha256: turn.observation.full
            for turn in turns
            if turn.observation.truncated
        },
    )


# --------------------------------------------------------------------------------- rollout


def _plan(setup: RolloutSetup) -> Row:
    rollout = setup.rollout
    return {
        "study": setup.study,
        "task_id": rollout.task_id,
        "project": setup.project,
        "stack": setup.stack,
        "simulated": setup.simulated,
        "seed": rollout.seed,
        "block": rollout.block,
        "order": rollout.order,
        **rollout.arm.model_dump(),
        "gate_overlap": setup.gate_overlap,
    }


COUNTED = (
    "actions",
    "invalid_actions",
    "refused_actions",
    "revisions",
    "visible_tests",
    "test_deadline_hits",
    "interceptions_delivery",
    "interceptions_edit",
    "gate_passes",
    "gate_rejections",
    "rollbacks",
    "submissions",
    "rejected_submissions",
    "certifications",
    "flaky_certifications",
)
"""Columns that are the contract's own counts."""


def _outcome(state: State) -> Row:
    end = state.end
    assert end is not None  # a receipt has been issued
    return {
        "settled_as": "agent",
        "end_reason": end.reason,
        "accepted": end.accepted,
        "accepted_via": end.via,
        "accepted_state_id": end.state_id,
        "base_state_id": state.policy.base_state_id,
        "final_state_id": state.current,
        "checkpoint_state_id": state.checkpoint.state_id if state.checkpoint else None,
        "empty_submission": end.state_id == state.policy.base_state_id,
        "escalated": end.reason == "escalated",
        "actions_exhausted": end.reason == "actions",
        "wall_exhausted": end.reason == "wall",
        **{name: getattr(state.counts, name) for name in COUNTED},
    }


def _spending(desk: Desk) -> Row:
    return {
        **asdict(desk.tally),
        "tokens_prompt": desk.meter.prompt_tokens,
        "tokens_completion": desk.meter.completion_tokens,
        "tokens_served": desk.meter.tokens_served,
        "charged_seconds": desk.meter.seconds,
    }


def _attempt(setup: RolloutSetup, watch: Stopwatch) -> Row:
    elapsed, own = watch.read()
    return {
        "wall_seconds": elapsed,
        "own_seconds": own,
        "attempt_id": setup.attempt_id,
        "started_at": watch.started_at,
    }


# --------------------------------------------------------------------------------- the others


def _action(turn: Turn) -> Row:
    return {
        "turn": turn.number,
        "kind": turn.kind,
        "result": turn.outcome.result,
        "reason": turn.outcome.reason,
        "reply": turn.reply.text,
        "finish_reason": turn.reply.finish_reason,
        "request_seed": turn.request.request_seed,
        "prompt_sha256": prompt_digest((m.role, m.content) for m in turn.request.messages),
        "prompt_tokens": turn.reply.prompt_tokens,
        "completion_tokens": turn.reply.completion_tokens,
        "observation": turn.observation.text,
        "observation_sha256": turn.observation.sha256,
        "observation_truncated": turn.observation.truncated,
        "state_before": turn.before,
        "state_after": turn.after,
        "reply_source": turn.reply.source,
        "tokens_served": turn.reply.tokens_served,
        "latency_seconds": turn.reply.latency_seconds,
        "tool_seconds": turn.outcome.seconds,
    }


def _proposal(number: int, proposal: Proposal, patch_sha256: str) -> Row:
    return {
        "proposal": number,
        "turn": proposal.turn,
        "state_before": proposal.before,
        "state_id": proposal.tree.state_id,
        "patch_sha256": patch_sha256,
        "gate_passed": proposal.gate_passed,
        "retained": proposal.retained,
        "files_changed": len(proposal.changed),
        "evidence_state_id": proposal.evidence_state_id,
    }


def _verdict(number: int, judged: Judged) -> Row:
    verdict, payload = judged.verdict, judged.payload
    return {
        "sequence": number,
        "purpose": judged.purpose.value,
        "suite": verdict.suite.value,
        "suite_id": verdict.suite_id,
        "state_id": verdict.state_id,
        "execution_id": verdict.execution_id,
        "outcome": verdict.outcome.value,
        "void_reason": verdict.void_reason,
        "flags": list(verdict.flags),
        "payload_sha256": None if payload is None else sha256_hex(payload.encode()),
        "cached": verdict.cached,
        "duration_seconds": verdict.duration_seconds,
    }
