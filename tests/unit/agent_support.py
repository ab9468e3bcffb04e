"""A small repository, a scripted coder and an evaluator in memory for tests of the agent's loop."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.agent.actions import Action
from orchestrator.agent.loop import RolloutPorts, RolloutSetup, run_rollout
from orchestrator.agent.parsing import render
from orchestrator.agent.prompt import load_prompts
from orchestrator.agent.shell import ShellResult
from orchestrator.agent.workspace import Files
from orchestrator.repo.patch import apply_delta, make_patch
from orchestrator.spec.identity import digest_json, sha256_hex
from orchestrator.spec.lock import PlannedRollout
from orchestrator.spec.ports import (
    CoderReply,
    CoderRequest,
    Purpose,
    SuiteName,
    SuiteOutcome,
    SuiteRequest,
    SuiteVerdict,
)
from orchestrator.spec.records import RolloutRecord, Row
from orchestrator.spec.study import Arm, Budgets, Sampling
from orchestrator.store.rows import record_problems

PROMPTS = Path(__file__).parents[2] / "manifests" / "prompts" / "repository-agent"

BASE: Files = {
    "README.md": (0o100644, b"calc\n"),
    "calc/__init__.py": (0o100644, b""),
    "calc/core.py": (
        0o100644,
        b"def add(a, b):\n    return a - b\n\n\ndef neg(a):\n    return -a\n",
    ),
    "calc/link.py": (0o120000, b"core.py"),
    "calc/data.bin": (0o100644, b"\xff\xfe\x00"),
    "run.sh": (0o100755, b"echo calc\n"),
    "tests/test_core.py": (0o100644, b"def test_add(): ...\n"),
}
CORE = "calc/core.py"
LOCK_ID, ROLLOUT_ID = sha256_hex(b"lock"), sha256_hex(b"rollout")


def edit(old: str, new: str, path: str = CORE) -> str:
    """The reply that replaces one text."""
    return render_raw({"action": "edit", "changes": [{"path": path, "find": old, "replace": new}]})


def render_raw(value: object) -> str:
    return json.dumps(value)


FIX = edit("a - b", "a + b")
BREAK = edit("a - b", "a * b")
TEST, SUBMIT = '{"action":"test"}', '{"action":"submit"}'
ESCALATE = '{"action":"escalate","reason":"too hard"}'
VIEW = '{"action":"view","path":"calc/core.py"}'
SHELL = '{"action":"shell","command":"ls"}'


@dataclass
class ScriptedCoder:
    """Says its lines in order, then escalates. Keeps the requests."""

    lines: Sequence[str | Action]
    latency_seconds: float = 1.0
    requests: list[CoderRequest] = field(default_factory=list)

    def reply(self, request: CoderRequest) -> CoderReply:
        self.requests.append(request)
        line = self.lines[request.turn - 1] if request.turn <= len(self.lines) else ESCALATE
        text = line if isinstance(line, str) else render(line)
        return CoderReply(text, 100, 10, 110, self.latency_seconds, "stop", "model")


Judge = Callable[[SuiteRequest, str], SuiteOutcome]


def correct_adds(request: SuiteRequest, core: str) -> SuiteOutcome:
    """Both suites pass where ``add`` adds."""
    return SuiteOutcome.PASS if "a + b" in core else SuiteOutcome.FAIL


@dataclass
class FakeVerifier:
    """Judges the text of ``calc/core.py``; the payload names it. Keeps the requests."""

    judge: Judge = correct_adds
    seconds: float = 7.0
    requests: list[SuiteRequest] = field(default_factory=list)

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        self.requests.append(request)
        content = apply_delta(BASE, request.delta)[CORE][1]
        outcome = self.judge(request, content.decode())
        one_bit = request.purpose is not Purpose.DIAGNOSTIC
        return SuiteVerdict(
            task_id=request.task_id,
            suite=request.suite,
            suite_id=self.suite_id(request.task_id, request.suite),
            state_id=request.state_id,
            execution_id=request.execution_id,
            outcome=outcome,
            expected=2,
            passed=2 if outcome is SuiteOutcome.PASS else 1,
            failed_ids=(),
            payload="" if one_bit else f"{outcome.value} on {content.decode()[:40]!r}",
            duration_seconds=self.seconds,
            cached=False,
            void_reason="void.residue" if outcome is SuiteOutcome.VOID else "",
        )

    def suite_id(self, task_id: str, suite: SuiteName) -> str:
        return digest_json([task_id, suite.value])

    def runs(self, purpose: Purpose) -> list[SuiteRequest]:
        return [request for request in self.requests if request.purpose is purpose]


@dataclass
class FakeShell:
    """Answers every command with one result."""

    result: ShellResult = field(
        default_factory=lambda: ShellResult(b"ok\n", 0, False, (), False, 2)
    )
    seen: list[tuple[Files, str]] = field(default_factory=list)

    def run(self, files: Files, command: str) -> ShellResult:
        self.seen.append((files, command))
        return self.result


@dataclass
class Rollout:
    """One rollout of a script in one arm, and everything it touched."""

    record: RolloutRecord
    coder: ScriptedCoder
    verifier: FakeVerifier
    shell: FakeShell
    journal: list[bytes]

    @property
    def row(self) -> Row:
        return self.record.rollout

    @property
    def observations(self) -> list[str]:
        return [row["observation"] for row in self.record.actions]

    @property
    def results(self) -> list[str]:
        return [row["result"] for row in self.record.actions]


def planned(arm: str, evidence: str, cap: int) -> PlannedRollout:
    """A planned rollout; ``arm`` names the components that are on, like ``BAC``."""
    return PlannedRollout(
        rollout_id=ROLLOUT_ID,
        task_id="calc-1",
        seed=7,
        levels={"evidence": evidence, "contract": "ON" if arm == "BAC" else "OFF"},
        arm=Arm(
            evidence="stale" if evidence == "stale" else "current",
            binding="B" in arm,
            admission="A" in arm,
            certification="C" in arm,
            revision_cap=cap,
        ),
        block=0,
        order=3,
    )


def setup_of(
    arm: str = "", evidence: str = "current", cap: int = 3, **changes: Any
) -> RolloutSetup:
    """A setup with the project's own prompts and the protocol's budgets."""
    values: dict[str, Any] = {
        "lock_id": LOCK_ID,
        "study": "unit",
        "stack": "scripted",
        "simulated": False,
        "privileged": False,
        "rollout": planned(arm, evidence, cap),
        "project": "calc",
        "gate_overlap": False,
        "base_files": BASE,
        "statement": "add(2, 1) gives 1 and should give 3.",
        "prompts": load_prompts(PROMPTS),
        "budgets": Budgets(),
        "sampling": Sampling(),
        "context_tokens": None,
        "suite_seconds": 300.0,
        "attempt_id": "attempt-1",
    }
    return RolloutSetup(**{**values, **changes})


def roll(
    lines: Sequence[str | Action],
    arm: str = "",
    evidence: str = "current",
    cap: int = 3,
    *,
    judge: Judge = correct_adds,
    verifier: FakeVerifier | None = None,
    shell: FakeShell | None = None,
    latency_seconds: float = 1.0,
    **changes: Any,
) -> Rollout:
    """Run a script; the record is checked against the table schemas."""
    coder = ScriptedCoder(lines, latency_seconds)
    verifier, shell, journal = verifier or FakeVerifier(judge), shell or FakeShell(), list[bytes]()
    setup = setup_of(arm, evidence, cap, **changes)
    record = run_rollout(setup, RolloutPorts(coder, verifier, shell, journal.append, make_patch))
    rows = {
        "rollout": [record.rollout],
        "actions": record.actions,
        "proposals": record.proposals,
        "verdicts": record.verdicts,
    }
    assert record_problems(rows, {"lock_id": LOCK_ID, "rollout_id": ROLLOUT_ID}) == []
    return Rollout(record, coder, verifier, shell, journal)
