"""Carries a scan out: sends the probe into an interpreter, on this machine or inside the agent's
sandbox, and translates what it says into findings. Changes nothing on disk.
"""

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from orchestrator.repo.files import Files
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.ports import Command, Completed, ExitClass, Sandbox
from orchestrator.tasks.findings import Finding, Leak
from orchestrator.tasks.leaks import Compiled, Secrets
from orchestrator.tasks.probe.walk import FOREIGN, OWN, SYSTEM, Request

BOOT: Final = """\
import json, sys, types
said = json.loads(sys.stdin.buffer.read())
for name, text in said["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules["orchestrator.tasks.probe.walk"].main(said["kind"], said["question"])
"""
"""What an interpreter is started with; everything else comes over standard input."""

MODULES: Final = ("matching", "containers", "bytecode", "walk")
LOCAL_SECONDS: Final = 600.0
SANDBOX_SECONDS: Final = 1800.0
CLOSED: Final = ("/proc", "/sys", "/dev")
SHARED_MEMORY: Final = "/dev/shm"
PROBE_MEMORY: Final = 2 << 30
PROBE_OUTPUT: Final = 8 << 20

Question = dict[str, Any]
Answer = dict[str, Any]
AgentShell = Callable[[Sandbox, Files, Path], object]
"""Has the agent's own shell run any one command, by the given sandbox, on a base tree and a git
directory. The command is replaced by the probe; mounts and environment stay the shell's own."""


# ------------------------------------------------------------------------------- carrying out


def message(kind: str, question: Question) -> bytes:
    """Standard input of the probe: its own modules and one question."""
    package = "orchestrator.tasks.probe"
    home = Path(__file__).parent / "probe"
    modules = [[name, ""] for name in ("orchestrator", "orchestrator.tasks", package)]
    modules += [[f"{package}.{name}", (home / f"{name}.py").read_text()] for name in MODULES]
    return json.dumps({"modules": modules, "kind": kind, "question": question}).encode()


def ask(python: Path, kind: str, question: Question) -> Answer:
    """Ask the probe on this machine. InfrastructureFault where the interpreter does not answer."""
    argv = [str(python.absolute()), "-I", "-S", "-c", BOOT]
    try:
        done = subprocess.run(
            argv,
            input=message(kind, question),
            capture_output=True,
            timeout=LOCAL_SECONDS + 60,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureFault("node", f"{python} does not run the scanner: {error}") from None
    return _parsed(f"the scanner under {python}", done.returncode, done.stdout, done.stderr)


def _parsed(who: str, code: int | None, output: bytes, errors: bytes) -> Answer:
    try:
        answer: Answer = json.loads(output)
    except ValueError:
        said = errors.decode(errors="replace").strip().splitlines()
        detail = said[-1] if said else f"exit code {code}"
        raise InfrastructureFault("node", f"{who} did not finish ({detail})") from None
    return answer


def compile_news(python: Path, sources: Mapping[str, tuple[bytes, bytes]]) -> Compiled:
    """What only the second of two versions of each module compiles to, by that interpreter.

    Nothing of them is run or imported.
    """
    return _compile_news(python.resolve(), tuple(sorted(sources.items())))


@lru_cache(maxsize=64)
def _compile_news(python: Path, sources: tuple[tuple[str, tuple[bytes, bytes]], ...]) -> Compiled:
    texts = {path: [text.decode("latin-1") for text in pair] for path, pair in sources}
    answer = ask(python, "compile", texts) if texts else {}
    return {
        path: (tuple(names), tuple(line.encode("latin-1") for line in constants))
        for path, (names, constants) in answer.items()
    }


# ------------------------------------------------------------------------------- questions


class Table:
    """Secrets by the numbers that stand for them in a question and its answer.

    Needles of the own side are one task's, everything else is looked for on behalf of all.
    """

    def __init__(self, task: Secrets, others: Iterable[Secrets] = ()) -> None:
        self.task = task
        everybody = (task, *(one for one in others if one.task_id != task.task_id))
        self.own = [(task.task_id, secret) for secret in task.own]
        self.foreign = [(one.task_id, secret) for one in everybody for secret in one.foreign]
        self.checks = frozenset[int]().union(*(one.checks for one in everybody))
        self.files = _grouped(
            (key, (one.task_id, *what)) for one in everybody for key, what in one.files.items()
        )
        self.codes = _grouped(
            (name, (one.task_id, path)) for one in everybody for name, path in one.codes.items()
        )
        self.names = _grouped((n, one.task_id) for one in everybody for n in sorted(one.names))
        self.modules = _grouped((n, one.task_id) for one in everybody for n in one.modules)

    def question(self, where: "Where") -> Question:
        """Fields of the probe's request."""
        return Request(
            roots=list(where.roots),
            kinds=dict(where.kinds),
            closed=[*CLOSED, *where.closed],
            own=[secret.needle for _, secret in self.own],
            foreign=[secret.needle for _, secret in self.foreign],
            checks=sorted(self.checks),
            files=list(self.files),
            codes=list(self.codes),
            names=list(self.names),
            modules=list(self.modules),
            places=list(where.hidden),
            process=where.process,
            read_system=where.read_system,
            known=list(where.known),
            seconds=where.seconds,
        )._asdict()

    def leaks(self, answer: Answer, where: "Where") -> list[tuple[str, str, str, str]]:
        """(task, rule, path, what) of every hit; single lines of one file together."""
        several: dict[tuple[str, str, str], list[str]] = {}
        for kind, number, path in answer["hits"]:
            for task_id, rule, what in self._meaning(kind, number, where):
                if task_id == self.task.task_id or where.kind(path) != OWN:
                    several.setdefault((task_id, rule, path), []).append(what)
        return [(*key, _shown(whats)) for key, whats in sorted(several.items())]

    def _meaning(self, kind: str, number: int, where: "Where") -> list[tuple[str, str, str]]:
        mine = self.task.task_id
        if kind in ("line", "hunk"):
            task_id, secret = (self.own if kind == "line" else self.foreign)[number]
            return [(task_id, secret.rule, secret.what)]
        if kind == "file":
            return list(self.files.values())[number]
        if kind == "code":
            found = list(self.codes.values())[number]
            return [(t, "no-gold-bytecode", f"compiled code of {path}") for t, path in found]
        if kind in ("name", "module"):
            table, noun = (
                (self.names, "distribution") if kind == "name" else (self.modules, "module")
            )
            name, tasks = list(table.items())[number]
            return [(task_id, "project-not-installed", f"{noun} {name}") for task_id in tasks]
        if kind == "place":
            return [(mine, "no-sealed-path", f"the place of a sealed compartment ({number})")]
        return [(mine, "readable", "something that cannot be looked into")]


Key = TypeVar("Key")
Value = TypeVar("Value")


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _shown(whats: list[str]) -> str:
    rest = f" and {len(whats) - 2} more" if len(whats) > 2 else ""
    return ", ".join(whats[:2]) + rest


@dataclass(frozen=True)
class Where:
    """Where to look: the request's fields that do not depend on the secrets."""

    roots: tuple[str, ...]
    kinds: Mapping[str, str]
    closed: tuple[str, ...] = ()
    process: bool = False
    read_system: bool = True
    known: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    seconds: float = LOCAL_SECONDS

    def kind(self, path: str) -> str:
        """As the probe sees it: the longest prefix decides."""
        above = [p for p in self.kinds if path == p or path.startswith(p.rstrip("/") + "/")]
        return self.kinds[max(above, key=len)] if above else FOREIGN


# ------------------------------------------------------------------------------- on this machine


@dataclass(frozen=True)
class Folders:
    """Folders of this machine to look through: path -> (``own`` or ``foreign``, shown name)."""

    folders: Mapping[Path, tuple[str, str]]

    def leaks(self, python: Path, secrets: Secrets) -> list[Leak]:
        """What of one task lies in them, read by ``python``."""
        where = Where(
            tuple(str(path) for path in self.folders),
            {str(path): kind for path, (kind, _) in self.folders.items()},
        )
        table = Table(secrets)
        answer = ask(python, "scan", table.question(where))
        found = [self._leak(rule, path, what) for _, rule, path, what in table.leaks(answer, where)]
        return [*found, *_unfinished(answer)]

    def _leak(self, rule: str, path: str, what: str) -> Leak:
        for folder, (_, name) in self.folders.items():
            if path.startswith(f"{folder}/"):
                return rule, name, f"{path.removeprefix(f'{folder}/')} has {what}"
        return rule, "scan", f"{path} has {what}"


def _unfinished(answer: Answer) -> list[Leak]:
    if answer["finished"]:
        return []
    return [("readable", "scan", "the time allowed was over before everything was read")]


# ------------------------------------------------------------------------------- in the sandbox


@dataclass
class Instead:
    """A sandbox that runs the probe in the place of the command it is given, and keeps the answer.

    Mounts, working directory, environment and user stay those of the command.
    """

    sandbox: Sandbox
    argv: Sequence[str]
    question: Callable[[Command], bytes]
    seconds: float
    completed: Completed | None = None

    def identity(self) -> Mapping[str, str]:
        return self.sandbox.identity()

    def run(self, command: Command) -> Completed:
        limits = replace(
            command.limits,
            wall_seconds=self.seconds + 60,
            cpu_seconds=int(self.seconds) + 60,
            memory_bytes=max(command.limits.memory_bytes, PROBE_MEMORY),
            output_bytes=PROBE_OUTPUT,
        )
        stdin = self.question(command)
        probe = replace(command, argv=tuple(self.argv), stdin=stdin, limits=limits)
        self.completed = self.sandbox.run(probe)
        return self.completed


class Depth(StrEnum):
    """How much of the system's folders is looked at: nothing, whole files as large as a secret one,
    or every line. Everything else in the sandbox is always read.
    """

    OWN = "own"
    SIZES = "sizes"
    ALL = "all"


@dataclass
class SandboxScan:
    """Looks for the secrets of many tasks in the sandbox that their agents have.

    ``sandbox``, ``interpreter``: whose file system it is, and a Python inside. ``shell``: see
    :data:`AgentShell`. ``system_folders``: what is the same for all tasks; it is read once, for the
    secrets of all, as long as no file in it changes (``known``). ``hidden``: paths that no process
    may name. ``closed``: folders that are not entered. ``seconds``: for one task.
    """

    sandbox: Sandbox
    interpreter: str
    shell: AgentShell
    secrets: tuple[Secrets, ...]
    system_folders: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    depth: Depth = Depth.ALL
    seconds: float = SANDBOX_SECONDS
    known: set[str] = field(default_factory=set)

    def look(self, task: Secrets, base: Files, git_directory: Path) -> list[Finding]:
        """What of ``task`` can be reached in its sandbox, and of any task in what tasks share.

        What lies in the system's folders is told by the look that reads them, of all tasks.

        InfrastructureFault where the scan cannot be carried out.
        """
        table = Table(task, self.secrets)
        asked: list[Where] = []

        def question(command: Command) -> bytes:
            asked.append(self._where(command))
            return message("scan", table.question(asked[-1]))

        argv = (self.interpreter, "-I", "-c", BOOT)
        instead = Instead(self.sandbox, argv, question, self.seconds)
        self.shell(instead, base, git_directory)
        answer = _said(instead.completed)
        found = table.leaks(answer, asked[-1])
        if self.depth is Depth.ALL and answer["finished"]:
            self.known.add(answer["system"])
        findings = [Finding(t, rule, "sandbox", f"{path}: {what}") for t, rule, path, what in found]
        return findings + [Finding(task.task_id, *leak) for leak in _unfinished(answer)]

    def _where(self, command: Command) -> Where:
        own = {mount.target: OWN for mount in command.mounts}
        system = dict.fromkeys(self.system_folders, SYSTEM)
        return Where(
            roots=("/", SHARED_MEMORY),
            kinds={**system, "/tmp": OWN, SHARED_MEMORY: OWN, "/proc": OWN, **own},
            closed=(*self.closed, *(self.system_folders if self.depth is Depth.OWN else ())),
            process=True,
            read_system=self.depth is Depth.ALL,
            known=tuple(sorted(self.known)),
            hidden=self.hidden,
            seconds=self.seconds,
        )


def _said(completed: Completed | None) -> Answer:
    if completed is None:
        raise InfrastructureFault("node", "the agent's shell ran nothing")
    if completed.exit_class is not ExitClass.OK:
        raise InfrastructureFault(
            "node", f"the scanner ended in the sandbox as {completed.exit_class.value}: "
            + completed.stderr.decode(errors="replace").strip()[-300:],
        )  # fmt: skip
    return _parsed("the scanner in the sandbox", completed.exit_code, completed.stdout, b"")
