"""The Ray actors: rollout workers, evaluators and the coder's host, and the ports that reach them.

Sealed data lives only where :class:`Evaluator` runs: a worker is given the agent's
compartment and handles, never a sealed path. Every wait on another actor has a deadline. Actors
build what they need at their first call, since of an error in a constructor Ray keeps only a text.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from orchestrator.cluster.code import require_code
from orchestrator.cluster.rollouts import AgentSide, perform_rollout
from orchestrator.cluster.stage import build_coder, build_verifier
from orchestrator.evaluator.replay import BaseAudit, Evaluation, audit_base, evaluate_state
from orchestrator.evaluator.verifier import LocalVerifier
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
from orchestrator.store.files import disk_faults

QUEUE_SECONDS = 1800.0
"""How long a call may wait for its turn at a busy actor before it is called a fault."""
RESTART_SECONDS = 300.0
"""How long a caller waits for a lost actor's successor before it reports the loss."""
RESTART_POLL_SECONDS = 0.5
HEAD = frozenset({"gcs_server", "raylet"})
"""Processes of a local Ray that it cannot do without."""


def await_result(reference: Any, boundary: str, seconds: float, actor: Any = None) -> Any:
    """``ray.get`` with a deadline; a lost or silent actor is a fault of its boundary.

    Errors raised inside the actor come out as themselves, not as Ray's wrapper. ``actor``: the one
    that was asked, if Ray restarts it. A silent one is then ended, so that it has a successor, and
    a loss is reported once the successor answers: what is owed again then meets a living actor,
    instead of using up all its attempts on one death.
    """
    try:
        return ray.get(reference, timeout=seconds)
    except GetTimeoutError:
        problem = f"no answer within {seconds:.0f} s"
        if actor is not None:
            ray.kill(actor, no_restart=False)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        problem = f"its actor died ({type(error).__name__})"
    if actor is not None:
        _await_successor(actor)
    raise InfrastructureFault(boundary, problem)


def require_node() -> None:
    """Raise InfrastructureFault (boundary ``node``) where no node of Ray is left.

    Without this, actors would wait for a place for ever, and each wait would use up an attempt.
    A dead head (GCS) of a local Ray cannot be asked: after a minute Ray would end this process.
    """
    started = getattr(ray._private.worker, "_global_node", None)
    dead = {name for name, _ in started.dead_processes()} if started is not None else set()
    for name in sorted(HEAD & dead):
        raise InfrastructureFault("node", f"Ray's {name} died; run again to go on")
    if not any(node["Alive"] for node in ray.nodes()):
        raise InfrastructureFault("node", "Ray's last node died; run again to go on")


def _await_successor(actor: Any) -> None:
    deadline = time.monotonic() + RESTART_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        require_node()
        try:
            ray.get(actor.ready.remote(), timeout=left)
        except RayTaskError:
            return  # it lives, and will say itself what is wrong
        except RayError:
            time.sleep(RESTART_POLL_SECONDS)
        else:
            return


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
            evaluator.run.remote(request),
            "evaluator",
            request.wall_seconds + QUEUE_SECONDS,
            evaluator,
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
            self.host.reply.remote(request),
            "server",
            request.deadline_seconds + QUEUE_SECONDS,
            self.host,
        )
        return answer


class Evaluator:
    """Runs frozen suites on evaluator ground; the only place with a path to sealed data."""

    def __init__(self, lock_json: str, tasks_dir: str, cache_dir: str, slot: int) -> None:
        self._lock = Lock.model_validate_json(lock_json)
        self._places = Path(tasks_dir), Path(cache_dir), slot
        self._wall = Study.model_validate(self._lock.study).sandbox.suite_seconds

    @cached_property
    def _verifier(self) -> LocalVerifier:
        require_code(self._lock)
        return build_verifier(self._lock, *self._places)

    def ready(self) -> bool:
        """Answers once suites can run."""
        return self._verifier is not None

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
        self._places = Lock.model_validate_json(lock_json), Path(tasks_dir), Path(root)
        self._building = threading.Lock()
        self._built: Coder | None = None

    def _coder(self) -> Coder:
        with self._building:  # calls run side by side, but there is one server
            if self._built is None:
                require_code(self._places[0])
                self._built = build_coder(*self._places)
            return self._built

    def ready(self) -> bool:
        """Answers once the coder can reply (weights fetched, server ready)."""
        return self._coder() is not None

    def reply(self, request: CoderRequest) -> CoderReply:
        return self._coder().reply(request)

    def stop(self) -> None:
        """End the server, if there is one."""
        close = getattr(self._built, "close", None)
        if close is not None:
            close()


class RolloutWorker:
    """Runs one rollout at a time on the agent's side."""

    def __init__(self, side: AgentSide, host: Any, evaluators: Sequence[Any]) -> None:
        self._side = side
        suites = {task.task_id: task.suites for task in side.lock.tasks}
        self._verifier = RemoteVerifier(evaluators, suites)
        self._coder = RemoteCoder(host)

    @cached_property
    def _sandbox(self) -> BwrapSandbox:
        require_code(self._side.lock)
        scratch = Path(self._side.scratch)
        with disk_faults(scratch):
            scratch.mkdir(parents=True, exist_ok=True)
            spec = Study.model_validate(self._side.lock.study).sandbox
            return BwrapSandbox(scratch, cpus=spec.cpus, slot=self._side.slot)

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
