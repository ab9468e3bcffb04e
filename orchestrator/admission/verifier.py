"""Runs a project's own commands on a copy of a candidate, outside the agent's processes.

Each command gets a fresh copy of the tree with the owner's suite files laid over it, an environment
of allowed variables alone, and a sandbox of which no process is left. What was asked and what was
run are stated separately: the identities in an execution are those of the moment it ran.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Protocol

from orchestrator.admission import rules
from orchestrator.admission.identities import Identities, command_id, identify
from orchestrator.admission.project import Check, Gate, Project, load_project
from orchestrator.admission.rules import GateResult, Purpose
from orchestrator.admission.snapshot import capture, suite_of, with_suite
from orchestrator.contract.events import Outcome
from orchestrator.repo.files import Files, tree_of
from orchestrator.repo.worktree import worktree
from orchestrator.spec.errors import BadInput
from orchestrator.spec.ports import Command, Completed, Limits, Mount, Sandbox

REPO = "/workspace/repo"
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
PAYLOAD_CHARS = 8_000
SCRATCH_BYTES = 512 << 20


@dataclass(frozen=True)
class Request:
    """What a session asks for."""

    purpose: Purpose
    state_id: str
    files: Files
    execution_id: str


@dataclass(frozen=True)
class Execution:
    """What was run, on what, and how it ended. ``payload`` is for diagnostics alone."""

    purpose: Purpose
    state_id: str
    suite_id: str
    execution_id: str
    outcome: Outcome
    results: tuple[GateResult, ...]
    payload: str = ""


class Verifier(Protocol):
    """What a session knows of verification."""

    def identities(self) -> Identities:
        """The identities that evidence has from now on."""
        ...

    def run(self, request: Request) -> Execution:
        """Run a suite. InfrastructureFault where the sandbox failed; never a guess."""
        ...


@dataclass(frozen=True)
class _Now:
    """The project as its owner has it at this moment."""

    project: Project
    suite: Files
    environment: dict[str, str]
    identities: Identities


class CommandVerifier:
    """The verifier of a project: ``manifest`` and ``source`` are the owner's, read for every run.

    ``sandbox``: where commands run; ``interpreter``: folder that comes first on PATH; ``scratch``:
    where copies are made; ``host``: the variables of which the manifest may pass some on.
    """

    def __init__(
        self,
        manifest: Path,
        source: Path,
        sandbox: Sandbox,
        scratch: Path,
        interpreter: str = "",
        host: Mapping[str, str] | None = None,
        owner: int | None = None,
    ) -> None:
        self._manifest, self._source, self._scratch = manifest, source, scratch
        self._sandbox, self._interpreter = sandbox, interpreter
        self._host, self._owner = host or {}, owner
        self._known: dict[tuple[str, str], Execution] = {}

    def identities(self) -> Identities:
        """As :meth:`Verifier.identities`."""
        return self._now().identities

    def run(self, request: Request) -> Execution:
        """As :meth:`Verifier.run`; a gate's earlier verdict on an equal state may answer."""
        now = self._now()
        if request.purpose == "diagnostic":
            return self._diagnose(now, request)
        key = request.state_id, now.identities.gate_suite
        if (known := self._known.get(key)) is not None and rules.may_reuse(request.purpose):
            outcome, results = known.outcome, known.results
        else:
            results = tuple(self._judge(now, gate, request.files) for gate in now.project.gates)
            outcome = rules.suite_outcome(results)
        execution = Execution(
            request.purpose,
            tree_of(request.files).state_id,
            now.identities.gate_suite,
            request.execution_id,
            outcome,
            results,
        )
        self._known[key] = execution
        return execution

    def _now(self) -> _Now:
        project = load_project(self._manifest)
        _check_tools(self._manifest, project)
        suite = suite_of(capture(self._source, project.ignored), project.suite)
        variables = rules.environment(project.environment, project.pass_environment, self._host)
        identities = identify(project, suite, variables, self._sandbox.identity())
        return _Now(project, suite, variables, identities)

    def _judge(self, now: _Now, gate: Gate, files: Files) -> GateResult:
        ended = self._command(now, gate, files)
        return GateResult(
            gate.name,
            gate.layer,
            gate.binding,
            command_id(gate),
            rules.outcome_of(ended.exit_class),
            ended.exit_code,
        )

    def _diagnose(self, now: _Now, request: Request) -> Execution:
        """Evidence for the agent; without diagnostics, at least what was looked at."""
        runs = [
            (check, self._command(now, check, request.files)) for check in now.project.diagnostics
        ]
        said = _payload(runs) or f"state {request.state_id}: {len(request.files)} files"
        outcomes = {rules.outcome_of(ended.exit_class) for _, ended in runs}
        outcome: Outcome = "timeout" if "timeout" in outcomes else "pass"
        return Execution(
            "diagnostic",
            tree_of(request.files).state_id,
            now.identities.diagnostic_suite,
            request.execution_id,
            outcome,
            (),
            said,
        )

    def _command(self, now: _Now, check: Check, files: Files) -> Completed:
        shown = with_suite(files, now.suite, now.project.suite)
        owner = self._owner if check.writable else None
        with worktree(shown, self._scratch, uid=owner) as tree:
            tools = [Mount(Path(source), target) for target, source in now.project.tools.items()]
            return self._sandbox.run(
                Command(
                    argv=check.argv,
                    cwd=f"{REPO}/{check.cwd}".removesuffix("/."),
                    env=variables(now.environment, self._interpreter),
                    mounts=(Mount(tree, REPO, writable=check.writable), *tools),
                    limits=limits(check.timeout_s, check.memory_mib),
                )
            )


def _check_tools(manifest: Path, project: Project) -> None:
    for target, source in project.tools.items():
        if not Path(source).is_dir():
            problem = f"{source} is not a folder"
            raise BadInput(str(manifest), f"tools.{target}", problem, "Name an existing folder.")


def variables(own: Mapping[str, str], interpreter: str) -> dict[str, str]:
    """The whole environment of a command: four fixed variables, then the project's."""
    fixed = {
        "HOME": "/tmp/home",
        "LANG": "C.UTF-8",
        "PATH": f"{interpreter}:{SEARCH_PATH}" if interpreter else SEARCH_PATH,
        "TZ": "UTC",
    }
    return {**fixed, **own}


def limits(wall_seconds: float, memory_mib: int) -> Limits:
    """Limits of one command: its deadline, and processor time of two processors for that long."""
    return Limits(
        wall_seconds=wall_seconds,
        cpu_seconds=max(1, 2 * ceil(wall_seconds)),
        memory_bytes=memory_mib << 20,
        processes=256,
        scratch_bytes=SCRATCH_BYTES,
        output_bytes=256 << 10,
    )


def _payload(runs: Sequence[tuple[Check, Completed]]) -> str:
    parts = [f"$ {check.name}: {end.exit_class}\n{_text(end)}" for check, end in runs]
    return "\n".join(parts)[-PAYLOAD_CHARS:]


def _text(ended: Completed) -> str:
    return (ended.stdout + ended.stderr).decode("utf-8", "replace").replace("\0", "�")
