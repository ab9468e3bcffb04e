"""Cases about what candidate and agent can touch: paths, links, environment, processes, caches.

SB013, SB017 to SB020 and SB024.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from orchestrator.admission.agent import Agent, run_agent
from orchestrator.admission.conformance.bench import Bench, Desk
from orchestrator.admission.conformance.cases_transaction import lenient
from orchestrator.admission.conformance.fixtures import NODE, PYTHON
from orchestrator.admission.conformance.observation import Observation
from orchestrator.contract.verdicts import Rule, Verdict
from orchestrator.repo.files import REGULAR, SYMLINK, Files, read_directory, tree_of

SECRET = "correct-horse-battery-staple"


def protected(bench: Bench) -> Observation:
    """SB013: sound changes beside an edited test, an edited release script, or a link out."""
    desk = bench.desk(NODE, protected=["ci"])
    session = desk.open()
    (test,) = [path for path in desk.good if path.startswith("tests/")]
    injected: dict[str, Files] = {
        "admission.protected-path": {**desk.good, test: (REGULAR, b"\n")},
        "admission.protected-path ": {**desk.good, "ci/release.sh": (REGULAR, b"exit 1\n")},
        "admission.escaping-symlink": {**desk.good, "docs": (SYMLINK, b"src/../../../etc")},
    }
    decisions, restored = [], []
    for files in injected.values():
        _lay(desk, files)
        decisions.append(session.propose())
        restored.append(desk.worktree_is(desk.fixture.files))
    checkpoint = session.checkpoint
    body = desk.receipt()
    return Observation(
        verdict={
            "each is REJECTED": {d.verdict for d in decisions} == {Verdict.REJECTED},
            "each by its rule": [d.rule for d in decisions] == [rule.strip() for rule in injected],
        },
        state={
            "there is no checkpoint": checkpoint is None,
            "each worktree was restored": all(restored),
        },
        evidence={"no gate ran on them": not any(r["purpose"] == "gate" for r in body["evidence"])},
        receipt={
            "both rules are stated": {rule.strip() for rule in injected} <= set(body["rules"]),
            "nothing was delivered": body["delivery"]["delivered"] is False,
        },
    )


def file_as_directory(bench: Bench) -> Observation:
    """SB017: the gate's working directory is a file, and its command would pass anywhere."""
    gate = PYTHON.gate(argv=["true"], cwd="README")
    desk = bench.desk(PYTHON, gates=[gate])
    session = desk.open()
    desk.leave(desk.good)
    first = session.propose()
    desk.leave(desk.bad())
    second = session.propose()
    body = desk.receipt()
    codes = [result["exit_code"] for ran in body["evidence"] for result in ran["results"]]
    return Observation(
        verdict={"both are REJECTED": {first.verdict, second.verdict} == {Verdict.REJECTED}},
        state={"there is no checkpoint": session.checkpoint is None},
        evidence={"the exit code is 126 both times": codes == [126, 126]},
        receipt={"nothing was delivered": body["delivery"]["delivered"] is False},
    )


def secret(bench: Bench) -> Observation:
    """SB018: the broker's and the agent's environment hold a secret; one other name is allowed."""
    told = "import os; print(sorted(os.environ.items()))"
    looks = f"import os, sys; sys.exit({SECRET!r} in str(dict(os.environ)))"
    allowed = "import os, sys; sys.exit(os.environ.get('REGION') != 'north')"
    desk = bench.desk(
        PYTHON,
        gates=[
            PYTHON.gate(name="no-secret", argv=["python3", "-c", looks]),
            PYTHON.gate(name="region", argv=["python3", "-c", allowed]),
        ],
        diagnostics=[{"name": "variables", "argv": ["python3", "-c", told]}],
        pass_environment=["REGION"],
    )
    session = desk.open(host={"API_TOKEN": SECRET, "REGION": "north"})
    desk.leave(desk.good)
    decision = session.propose()
    said = session.test().payload
    session.complete()
    body = desk.receipt()
    ledgers = b"".join(path.read_bytes() for path in session.root.glob("*.jsonl"))
    return Observation(
        verdict={"a gate that looks for it passes": decision.verdict is Verdict.ADMITTED},
        state={
            "the candidate is the checkpoint": session.checkpoint == tree_of(desk.good).state_id
        },
        evidence={
            "the verifier does not have it": SECRET not in said and "API_TOKEN" not in said,
            "it has what is allowed": "'REGION', 'north'" in said,
        },
        receipt={
            "no ledger holds it": SECRET.encode() not in ledgers,
            "the candidate is accepted": body["accepted_state_id"] == tree_of(desk.good).state_id,
        },
    )


def background(bench: Bench) -> Observation:
    """SB019: the gate passes and leaves a child in a session of its own."""
    marker = f"{30 + os.getpid() / 1e7:.7f}"  # a length of sleep that nothing else on the host has
    leaves = f"setsid sleep {marker} >/dev/null 2>&1 & exit 0"
    desk = bench.desk(PYTHON, gates=[PYTHON.gate(argv=["sh", "-c", leaves])])
    session = desk.open()
    desk.leave(desk.good)
    decision = session.propose()
    survivors = _running(marker)
    for process in survivors:  # a negative control leaves none either
        os.kill(process, signal.SIGKILL)
    session.complete()
    later = _running(marker)
    for process in later:
        os.kill(process, signal.SIGKILL)
    body = desk.receipt()
    return Observation(
        verdict={"the gate's exit decides": decision.verdict is Verdict.ADMITTED},
        state={"no child is left": not survivors and not later},
        evidence={
            "gate and certification ended": [
                r["outcome"] for r in body["evidence"] if r["purpose"] != "diagnostic"
            ]
            == ["pass", "pass"]
        },
        receipt={"shared processes are a risk": "risk.same-process" in body["residual_risks"]},
    )


def wall_budget(bench: Bench) -> Observation:
    """SB020: after an admitted candidate the agent goes on beyond its wall budget."""
    desk = bench.desk(PYTHON, gates=[lenient(PYTHON)], wall_s=0.6)
    clock = _Clock()
    session = desk.open(clock=clock)
    desk.leave(desk.good)
    session.propose()
    clock.start()
    slow = Agent(["sh", "-c", "sleep 2; echo late >late.txt"], {}, {})
    ended, decision = run_agent(session, desk.sandbox, slow)
    late = (session.worktree / "late.txt").exists()
    body = desk.receipt()
    return Observation(
        verdict={
            "the checkpoint is ADMITTED": decision.verdict is Verdict.ADMITTED,
            "by a certification": decision.rule == Rule.COMPLETION_CERTIFIED,
        },
        state={
            "its processes stopped": ended.exit_class == "timeout" and not late,
            "the checkpoint is the admitted tree": session.checkpoint
            == tree_of(desk.good).state_id,
        },
        evidence={"it was certified afresh": body["freshness"]["fresh"] is True},
        receipt={
            "it was accepted from the checkpoint": body["accepted_via"] == "checkpoint",
            "nothing late was judged": body["delivery"]["candidates"] == 1,
        },
    )


def caches(bench: Bench) -> Observation:
    """SB024: a sandboxed agent builds: into a cache folder, and into caches inside the tree."""
    desk = bench.desk(PYTHON, ignored=["__pycache__", ".build"])
    session, cache = desk.open(), bench.folder("cache")
    script = (
        "import os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(sys.argv[2])\n"
        "pathlib.Path(os.environ['BUILD_CACHE'], 'object').write_text('built')\n"
        "for folder in ('.build', 'cart/__pycache__'):\n"
        "    pathlib.Path(folder).mkdir()\n"
        "    pathlib.Path(folder, 'part').write_text('built')\n"
    )
    argv = ["python3", "-c", script, desk.fixture.code, desk.fixture.good]
    agent = Agent(argv, {}, {"BUILD_CACHE": cache}, desk.interpreter)
    ended, decision = run_agent(session, desk.sandbox, agent)
    in_tree = ".build/part" in read_directory(session.worktree)
    session.complete()
    body = desk.receipt()
    good = tree_of(desk.good).state_id
    return Observation(
        verdict={"the candidate is ADMITTED": decision.verdict is Verdict.ADMITTED},
        state={
            "the caches were writable": ended.exit_class == "ok"
            and in_tree
            and (cache / "object").exists(),
            "the identity is that of the tree without them": decision.state_id == good,
        },
        evidence={
            "what ran was the tree without them": {
                r["state_id"] for r in body["evidence"] if r["purpose"] == "gate"
            }
            == {good}
        },
        receipt={"that tree is accepted": body["accepted_state_id"] == good},
    )


# --------------------------------------------------------------------------------- parts


class _Clock:
    """Stands at zero until it is started: what a bench needs is not charged to its agent."""

    def __init__(self) -> None:
        self._started: float | None = None

    def start(self) -> None:
        """From now on it counts seconds."""
        self._started = time.monotonic()

    def __call__(self) -> float:
        return 0.0 if self._started is None else time.monotonic() - self._started


def _lay(desk: Desk, files: Files) -> None:
    """As :meth:`Desk.leave`, for trees with links."""
    links = {path: data for path, (mode, data) in files.items() if mode == SYMLINK}
    desk.leave({path: file for path, file in files.items() if path not in links})
    for path, target in links.items():
        (desk.session.worktree / path).symlink_to(os.fsdecode(target))


def _running(marker: str) -> list[int]:
    """Processes of this machine that have the marker among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            if marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
