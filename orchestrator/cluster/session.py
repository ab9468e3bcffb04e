"""Opens a Ray session for one lock: local by default, or an existing cluster by address.

Local Ray is bounded in memory and reports nothing to the outside. On a cluster, ROOT and the task
folder have to be reachable under the same paths on every node that runs actors.
"""

import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from orchestrator.cluster.actors import (
    CoderHostActor,
    EvaluatorActor,
    RolloutWorkerActor,
    await_result,
)
from orchestrator.cluster.rollouts import AgentSide
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.lock import Lock

OBJECT_STORE_BYTES = 200 << 20
EVALUATOR_RESOURCE = "evaluator"
EVALUATOR_READY_SECONDS = 300.0
CONNECT_SECONDS = 5.0
CODER_READY_SECONDS = 1800.0
"""Includes a first download of weights."""
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """How a lock is carried out; none of it changes an outcome."""

    root: Path
    tasks_dir: Path
    prompts_dir: Path
    address: str | None
    workers: int


@dataclass(frozen=True)
class Session:
    """Handles of a running session."""

    lock: Lock
    settings: Settings
    evaluators: tuple[Any, ...]
    host: Any | None

    def make_worker(self, slot: int) -> Any:
        """A new rollout worker; it is given the agent's compartment and no sealed path."""
        side = AgentSide(
            lock=self.lock,
            agent_dir=str(self.settings.tasks_dir / "agent"),
            prompts_dir=str(self.settings.prompts_dir),
            scratch=str(self.settings.root / "tmp" / f"worker-{slot}"),
            slot=slot,
        )
        return RolloutWorkerActor.options(num_cpus=1).remote(side, self.host, self.evaluators)


@contextmanager
def session(lock: Lock, settings: Settings, *, coder: bool) -> Iterator[Session]:
    """Actors of one lock, ended on exit. ``coder=False`` starts evaluators only (replay)."""
    try:
        connect(settings.address, settings.workers)
        opened = _open(lock, settings, coder)
        yield opened
        if opened.host is not None:
            # One that just died is not worth failing a finished run: its server ends with it.
            with suppress(InfrastructureFault):
                await_result(opened.host.stop.remote(), "server", STOP_SECONDS)
    finally:
        ray.shutdown()


def connect(address: str | None, cpus: int) -> None:
    """Join the cluster at ``address``, or start a local Ray with so many CPUs where it is None.

    End it with ``ray.shutdown()``. BadInput where the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # One process per actor and no accelerator here: keep Ray from touching CUDA variables.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        options |= {
            "address": "local",
            "num_cpus": cpus,
            "resources": {EVALUATOR_RESOURCE: cpus},
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    else:
        _require_listening(address)
        options["address"] = address
    # Ray prints what it has to say of lost processes to stdout, where a decision may be piped from.
    ray._private.worker._worker_logs_enabled = False
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(**options)
    except (ConnectionError, ValueError) as error:
        problem = " ".join(str(error).split())[:200]
        raise _unreachable(problem) from None
    finally:
        # Ray's own handler of SIGTERM aborts with a dump of the stack and leaves its actors behind.
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _require_listening(address: str) -> None:
    """Ray waits for minutes where nothing listens; ``auto`` and client addresses are Ray's own."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise _unreachable(f"nothing answers at {address} ({error.strerror or error})") from None


def _unreachable(problem: str) -> BadInput:
    remedy = "Start it (`ray start --head`); if it asks for a token, export RAY_AUTH_MODE=token."
    return BadInput("command line", "--address", problem, remedy)


def _open(lock: Lock, settings: Settings, coder: bool) -> Session:
    resources: Mapping[str, float] = ray.cluster_resources()
    if resources.get("CPU", 0) < settings.workers:
        raise BadInput(
            "command line",
            "--workers",
            f"{settings.workers} workers on a cluster of {resources.get('CPU', 0):.0f} CPUs",
            "Ask for fewer workers or add nodes.",
        )
    text = lock.model_dump_json(by_alias=True)
    tasks, root = str(settings.tasks_dir), str(settings.root)
    host = CoderHostActor.options(num_cpus=0).remote(text, tasks, root) if coder else None
    place = {EVALUATOR_RESOURCE: 1} if resources.get(EVALUATOR_RESOURCE) else {}
    count = min(settings.workers, int(resources.get(EVALUATOR_RESOURCE, settings.workers)))
    cache = str(settings.root / "cache")
    evaluators = tuple(
        EvaluatorActor.options(num_cpus=0, resources=place).remote(text, tasks, cache, slot)
        for slot in range(count)
    )
    for evaluator in evaluators:
        await_result(evaluator.ready.remote(), "evaluator", EVALUATOR_READY_SECONDS)
    if host is not None:
        await_result(host.ready.remote(), "server", CODER_READY_SECONDS)
    return Session(lock, settings, evaluators, host)
