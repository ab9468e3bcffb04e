"""The Ray actors: rollout workers, evaluators and the coder's host, and the ports that reach them.

Sealed data lives only where :class:`Evaluator` runs: a worker is given the agent's
compartment and handles, never a sealed path. Every wait on another actor has a deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from orchestrator.cluster.rollouts import AgentSide, perform_rollout
from orchestrator.cluster.stage import build_coder, build_verifier
from orchestrator.evaluator.replay import BaseAudit, Evaluation, audit_base, evaluate_state
from orchestrator.repo.patch import apply_patch
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.identity import digest_json
from orchestrator.spec.lock import Lock, PlannedRollout
from orchestrator.spec.ports import (
    Coder,
    CoderReply,
    CoderRequest,
    SuiteName,
    SuiteRequest,
    SuiteVerdict,
)
from orchestrator.spec.records import RolloutRecord
from orchestrator.spec.study import Study

QUEUE_SECONDS = 1800.0
"""How long a call may wait for its turn at a busy actor before it is called a fault."""


def await_result(reference: Any, boundary: str, seconds: float) -> Any:
    """``ray.get`` with a deadline; a lost or silent actor is a fault of its boundary.

    Errors raised inside the actor come out as themselves, not as Ray's wrapper.
    """
    try:
        return ray.get(reference, timeout=seconds)
    except GetTimeoutError:
        raise InfrastructureFault(boundary, f"no answer within {seconds:.0f} s") from None
    except RayTaskError as error:
        raise error.cause from None
    except RayActorError as error:
        raise InfrastructureFault(boundary, f"its actor died ({type(error).__name__})") from None


@dataclass(frozen=True)
class RemoteVerifier:
    """The Verifier port over evaluator actors.

    Requests for one tree go to one evaluator, so that equal requests meet its cache instead of
    running twice side by side; different trees spread over all of them.
    """

    evaluators: Sequence[Any]
    suites: dict[str, dict[str, str]]

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        key = digest_json([request.task_id, request.suite, request.state_id])
        evaluator = self.evaluators[int(key[:8], 16) % len(self.evaluators)]
        verdict: SuiteVerdict = await_result(
            evaluator.run.remote(request), "evaluator", request.wall_seconds + QUEUE_SECONDS
        )
        return verdict

    def suite_id(self, task_id: str, suite: SuiteName) -> str:
        return self.suites[task_id][suite]


@dataclass(frozen=True)
class RemoteCoder:
    """The Coder port over the host actor."""

    host: Any

    def reply(self, request: CoderRequest) -> CoderReply:
        answer: CoderReply = await_result(
            self.host.reply.remote(request), "server", request.deadline_seconds + QUEUE_SECONDS
        )
        return answer


class Evaluator:
    """Runs frozen suites on evaluator ground; the only place with a path to sealed data."""

    def __init__(self, lock_json: str, tasks_dir: str, cache_dir: str, slot: int) -> None:
        lock = Lock.model_validate_json(lock_json)
        self._verifier = build_verifier(lock, Path(tasks_dir), Path(cache_dir), slot)
        self._wall = Study.model_validate(lock.study).sandbox.suite_seconds

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        return self._verifier.run(request)

    def evaluate(self, task_id: str, state_id: str, patch: bytes) -> Evaluation:
        """Replay one candidate, given as its patch, through the three adjudication suites."""
        delta = apply_patch(self._verifier.bundle(task_id).base, patch)
        return evaluate_state(self._verifier, task_id, state_id, delta, wall_seconds=self._wall)

    def audit(self, task_id: str) -> BaseAudit:
        """The base tree on every suite, never from the cache."""
        return audit_base(self._verifier, task_id, wall_seconds=self._wall)


class CoderHost:
    """Holds the coder of the study's stack and, for a served model, its server."""

    def __init__(self, lock_json: str, tasks_dir: str, root: str) -> None:
        self._coder: Coder = build_coder(
            Lock.model_validate_json(lock_json), Path(tasks_dir), Path(root)
        )

    def ready(self) -> bool:
        """Answers once the constructor is through (weights fetched, server ready)."""
        return True

    def reply(self, request: CoderRequest) -> CoderReply:
        return self._coder.reply(request)

    def stop(self) -> None:
        """End the server, if there is one."""
        close = getattr(self._coder, "close", None)
        if close is not None:
            close()


class RolloutWorker:
    """Runs one rollout at a time on the agent's side."""

    def __init__(self, side: AgentSide, host: Any, evaluators: Sequence[Any]) -> None:
        self._side = side
        scratch = Path(side.scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        spec = Study.model_validate(side.lock.study).sandbox
        self._sandbox = BwrapSandbox(scratch, cpus=spec.cpus, slot=side.slot)
        suites = {task.task_id: task.suites for task in side.lock.tasks}
        self._verifier = RemoteVerifier(evaluators, suites)
        self._coder = RemoteCoder(host)

    def run(self, planned: PlannedRollout, attempt_id: str, journal: str) -> RolloutRecord:
        """One attempt; InfrastructureFault ends it without a record."""
        return perform_rollout(
            self._side,
            self._sandbox,
            planned,
            attempt_id,
            Path(journal),
            self._coder,
            self._verifier,
        )


EvaluatorActor: Any = ray.remote(max_restarts=-1)(Evaluator)
CoderHostActor: Any = ray.remote(max_restarts=-1, max_concurrency=32)(CoderHost)
RolloutWorkerActor: Any = ray.remote(max_restarts=0)(RolloutWorker)
