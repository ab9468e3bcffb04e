"""Sets the stage of a lock: which sandbox, coder and verifier its data stand for."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from orchestrator.agent.actions import ACTION_SCHEMA
from orchestrator.coders.chat import ChatCoder
from orchestrator.coders.llama_server import LlamaServer
from orchestrator.coders.planted import PlantedCoder
from orchestrator.coders.recorded import RecordedCoder
from orchestrator.coders.replies import ReplyStore, SharedCoder
from orchestrator.coders.variants import TaskVariants, Variant
from orchestrator.coders.weights import fetch_weights
from orchestrator.evaluator.verifier import LocalVerifier
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.identity import digest_json
from orchestrator.spec.lock import Lock
from orchestrator.spec.ports import Coder, CoderReply, CoderRequest, Limits
from orchestrator.spec.stack import ChatStack, LlamaCppServer, PlantedStack, StackManifest
from orchestrator.spec.study import SandboxSpec, Study
from orchestrator.store.files import disk_faults
from orchestrator.tasks.download import cache_home
from orchestrator.tasks.variants import load_variants

MIB = 1 << 20
EVALUATOR_SLOT = 500
"""Evaluators' sandbox users start here, so that they never share a user with an agent's sandbox."""


def shell_limits(spec: SandboxSpec) -> Limits:
    """Limits of one agent shell command."""
    return _limits(spec, spec.shell_seconds)


def suite_limits(spec: SandboxSpec) -> Limits:
    """Limits of one suite run."""
    return _limits(spec, spec.suite_seconds)


def _limits(spec: SandboxSpec, seconds: float) -> Limits:
    return Limits(
        wall_seconds=seconds,
        cpu_seconds=max(1, int(seconds * max(1.0, spec.cpus))),
        memory_bytes=spec.memory_mib * MIB,
        processes=spec.processes,
        file_bytes=spec.file_mib * MIB,
        scratch_bytes=spec.scratch_mib * MIB,
    )


def build_verifier(lock: Lock, tasks_dir: Path, cache_dir: Path, slot: int) -> LocalVerifier:
    """The evaluator of one actor, with its own scratch space and sandbox user."""
    study = Study.model_validate(lock.study)
    scratch = cache_dir / f"scratch-{slot}"
    with disk_faults(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    return LocalVerifier(
        tasks_dir=tasks_dir,
        cache_dir=cache_dir / "verdicts",
        sandbox=BwrapSandbox(
            scratch,
            python=task_interpreter(lock, tasks_dir),
            cpus=study.sandbox.cpus,
            slot=EVALUATOR_SLOT + slot,
        ),
        scratch=scratch,
        limits=suite_limits(study.sandbox),
    )


def task_interpreter(lock: Lock, tasks_dir: Path) -> Path:
    """The interpreter that all tasks' environments share; the evaluators' sandbox shows just it."""
    found = {
        (tasks_dir / "environments" / task.environment_id / "bin" / "python").resolve()
        for task in lock.tasks
    }
    if len(found) > 1:
        raise BadInput(
            lock.study_path,
            "tasks",
            f"their environments use {len(found)} different Python interpreters",
            "Put tasks of different Python versions into different studies.",
        )
    return found.pop()


def build_coder(lock: Lock, tasks_dir: Path, root: Path) -> Coder:
    """The coder of the lock's stack; starts its server where it has one of its own."""
    stack = StackManifest.model_validate({"stack": lock.stack}).stack
    if isinstance(stack, PlantedStack):
        ids = [task.task_id for task in lock.tasks]
        return PlantedCoder(
            stack, {task_id: planted_variants(tasks_dir, task_id) for task_id in ids}
        )
    if not isinstance(stack, ChatStack):
        return RecordedCoder(stack)
    coder: Coder = ServedCoder(stack, root)
    if lock.study.get("reply_sharing"):
        coder = SharedCoder(coder, ReplyStore(root / "replies"), digest_json(dict(lock.stack)))
    return coder


def planted_variants(tasks_dir: Path, task_id: str) -> TaskVariants:
    """A task's verified variants in the shape that the planted coder wants."""
    found = load_variants(tasks_dir, task_id)

    def variants(kind: str) -> tuple[Variant, ...]:
        return tuple(Variant(state_id, delta) for state_id, delta in found.classes[kind])

    return TaskVariants(
        found.base_state_id,
        found.base_files,
        variants("correct"),
        variants("overfit"),
        variants("wrong"),
    )


class ServedCoder:
    """A chat coder together with the server it talks to; restarts a server that has died.

    The request that met the dead server still fails, as an infrastructure fault: its attempt is
    owed again and meets the new server.
    """

    def __init__(self, stack: ChatStack, root: Path) -> None:
        self._stack = stack
        self._log = root / "servers"
        self._server: LlamaServer | None = None
        self._restart = threading.Lock()
        self._coder = self._start()

    def reply(self, request: CoderRequest) -> CoderReply:
        try:
            return self._coder.reply(request)
        except InfrastructureFault:
            self._revive()
            raise

    def close(self) -> None:
        """Stop the server; nothing of it is left."""
        self._coder.close()
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _revive(self) -> None:
        """Start the server again if it died; of several requests that met it dead, one does."""
        with self._restart:
            if self._server is not None and not self._server.alive():
                self.close()
                self._coder = self._start()

    def _start(self) -> ChatCoder:
        server = self._stack.server
        if isinstance(server, LlamaCppServer):
            weights = fetch_weights(server.weights, cache_home())
            self._log.mkdir(parents=True, exist_ok=True)
            self._server = LlamaServer(server, weights, self._log)
            self._server.start()
            return ChatCoder(
                self._stack, self._server.base_url, None, ACTION_SCHEMA, self._server.alive
            )
        return ChatCoder(
            self._stack, server.base_url, _api_key(server.api_key_env, os.environ), ACTION_SCHEMA
        )


def _api_key(variable: str | None, environment: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    if not environment.get(variable):
        raise BadInput(
            "environment", variable, "is not set", "Export the endpoint's API key under this name."
        )
    return environment[variable]
