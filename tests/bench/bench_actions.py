"""Own time per view, search and edit action, and per rollout, against plain Python.

Run ``python tests/bench/bench_actions.py``. The baseline of an action is what a script without any
contract would do on the same files: ``re`` over every line, splitting one file into lines,
``str.replace`` and hashing every file again. Model, suites and shell cost nothing here, so a
rollout's time is our own.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

from orchestrator.agent.actions import Edit, Replace, Search, View
from orchestrator.agent.edits import apply_edit
from orchestrator.agent.loop import RolloutPorts, RolloutSetup, run_rollout
from orchestrator.agent.prompt import load_prompts
from orchestrator.agent.shell import ShellResult
from orchestrator.agent.workspace import Files, Workspace, search, view
from orchestrator.repo.patch import make_patch
from orchestrator.spec.identity import digest_json
from orchestrator.spec.lock import PlannedRollout
from orchestrator.spec.ports import (
    CoderReply,
    CoderRequest,
    SuiteName,
    SuiteOutcome,
    SuiteRequest,
    SuiteVerdict,
)
from orchestrator.spec.study import Arm, Budgets, Sampling

PROMPTS = Path(__file__).parents[2] / "manifests" / "prompts" / "repository-agent"
TARGET = "pkg/m100.py"
PATTERN = r"def function_1[05]\b"
REPEATS = 20


def repository(modules: int = 300, functions: int = 40) -> Files:
    """About 1 MB of source in ``modules`` files."""
    body = "".join(
        f"def function_{n}(a, b):\n    # adds what it is given\n    return a + b + {n}\n\n\n"
        for n in range(functions)
    )
    return {f"pkg/m{n}.py": (0o100644, f"# module {n}\n{body}".encode()) for n in range(modules)}


def seconds(function: Callable[[], object]) -> float:
    """Median of several calls."""
    taken = []
    for _ in range(REPEATS):
        start = perf_counter()
        function()
        taken.append(perf_counter() - start)
    return median(taken)


# ------------------------------------------------------------------------- plain Python


def plain_search(files: Files) -> list[str]:
    """Every matching line of every file, found line by line with ``re``."""
    pattern = re.compile(PATTERN)
    return [
        f"{path}:{number}: {line}"
        for path in sorted(files)
        for number, line in enumerate(files[path][1].decode().splitlines(), 1)
        if pattern.search(line)
    ]


def plain_view(files: Files) -> str:
    """One file with line numbers."""
    lines = files[TARGET][1].decode().splitlines()
    return "\n".join(f"{number:5}  {line}" for number, line in enumerate(lines, 1))


def plain_edit(files: Files) -> str:
    """One replacement, and the identity of the whole tree afterwards."""
    text = files[TARGET][1].decode().replace("a + b + 7", "a - b + 7", 1)
    after = {**files, TARGET: (files[TARGET][0], text.encode())}
    digest = hashlib.sha256()
    for path in sorted(after):
        digest.update(path.encode() + hashlib.sha256(after[path][1]).digest())
    return digest.hexdigest()


# ------------------------------------------------------------------------- one rollout


@dataclass
class Script:
    """A coder that costs nothing."""

    lines: list[str]

    def reply(self, request: CoderRequest) -> CoderReply:
        return CoderReply(self.lines[request.turn - 1], 0, 0, 0, 0.0, "stop", "simulated")


@dataclass
class Instant:
    """An evaluator that passes everything at once, and a shell that says nothing."""

    runs: list[str] = field(default_factory=list)

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        self.runs.append(request.execution_id)
        return SuiteVerdict(
            task_id=request.task_id,
            suite=request.suite,
            suite_id=self.suite_id(request.task_id, request.suite),
            state_id=request.state_id,
            execution_id=request.execution_id,
            outcome=SuiteOutcome.PASS,
            expected=1,
            passed=1,
            failed_ids=(),
            payload="1 of 1 tests passed.",
            duration_seconds=0.0,
            cached=False,
        )

    def suite_id(self, task_id: str, suite: SuiteName) -> str:
        return digest_json([task_id, suite.value])


class NoShell:
    """Never used by the script."""

    def run(self, files: Files, command: str) -> ShellResult:
        raise AssertionError(command)


def replacement(number: int) -> dict[str, object]:
    change = {"path": TARGET, "find": f"a + b + {number}\n", "replace": f"b + a + {number}\n"}
    return {"action": "edit", "changes": [change]}


ROUND: list[dict[str, object]] = [
    {"action": "search", "pattern": PATTERN},
    {"action": "view", "path": TARGET},
    {"action": "view", "path": TARGET, "start_line": 50, "end_line": 90},
    {"action": "test"},
]
ACTIONS = [*ROUND, replacement(7), *ROUND, replacement(8), *ROUND, {"action": "submit"}]


def rollout(files: Files) -> tuple[float, float]:
    """(own seconds, elapsed seconds) of one rollout of 15 actions with the contract ON."""
    planned = PlannedRollout(
        rollout_id="r",
        task_id="t",
        seed=1,
        levels={},
        arm=Arm(
            evidence="current", binding=True, admission=True, certification=True, revision_cap=3
        ),
        block=0,
        order=0,
    )
    setup = RolloutSetup(
        lock_id="l",
        study="bench",
        stack="script",
        simulated=True,
        privileged=False,
        rollout=planned,
        project="p",
        gate_overlap=False,
        base_files=files,
        statement="Something is wrong.",
        prompts=load_prompts(PROMPTS),
        budgets=Budgets(),
        sampling=Sampling(),
        context_tokens=None,
        suite_seconds=300.0,
        attempt_id="a",
    )
    script = Script([json.dumps(action) for action in ACTIONS])
    ports = RolloutPorts(script, Instant(), NoShell(), lambda _: None, make_patch)
    row = run_rollout(setup, ports).rollout
    assert (row["accepted"], row["actions"], row["revisions"]) == (True, 15, 2), row
    return row["own_seconds"], row["wall_seconds"]


def main() -> None:
    """Print one line per action and one per rollout."""
    files = repository()
    tree = Workspace.of(files)
    change = Replace(path=TARGET, find="a + b + 7\n", replace="a - b + 7\n")
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "search": (lambda: search(tree, Search(pattern=PATTERN)), lambda: plain_search(files)),
        "view": (lambda: view(tree, View(path=TARGET)), lambda: plain_view(files)),
        "edit": (lambda: _state_id(tree, Edit(changes=(change,))), lambda: plain_edit(files)),
    }
    plain_total = 0.0
    for name, (ours, plain) in pairs.items():
        own, baseline = seconds(ours), seconds(plain)
        plain_total += baseline * sum(action["action"] == name for action in ACTIONS)
        print(f"{name}: {1e3 * own:.2f} ms, {own / baseline:.2f} x plain Python", end=" ")
        print(f"({1e3 * baseline:.2f} ms)")
    own = median(rollout(files)[0] for _ in range(REPEATS))
    print(
        f"rollout of {len(ACTIONS)} actions: {1e3 * own:.1f} ms of its own, "
        f"{own / plain_total:.2f} x plain Python ({1e3 * plain_total:.1f} ms) for the same looks "
        f"and edits, on {len(files)} files"
    )


def _state_id(tree: Workspace, edit: Edit) -> str:
    edited = apply_edit(tree, edit)
    assert not hasattr(edited, "rule")
    return edited.workspace.state_id  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
