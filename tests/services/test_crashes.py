"""Single processes of a run are killed: no result is lost, doubled or changed, nothing is left."""

import contextlib
import os
import random
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store.integrity import compare, outcome_digest
from orchestrator.store.reading import attempts, settled
from orchestrator.store.root import Root
from tests.e2e.support import CHEAP, TASKS, Workspace, make_workspace, marked

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]
STACK = {"rates": [{"alpha": 0.5, "beta": 0.2, "overfit": 0.1}], "submit": 0.4, "test": 0.3}
ACTORS = ("ray::RolloutWorker", "ray::Evaluator", "ray::CoderHost")


def one_task(study: dict[str, Any]) -> None:
    study["tasks"]["include"] = [CHEAP[0]]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    # One attempt per rollout may be lost to each kind of kill below, and one more.
    path = tmp_path_factory.mktemp("crashes")
    workspace = make_workspace(path, stack=STACK, max_attempts=5, seeds=[1, 2, 3])
    workspace.edit("studies/mini.yaml", one_task)
    workspace.run("freeze", str(workspace.study), "--out", "mini.lock.json")
    return workspace


@dataclass
class Driver:
    """A run in the background, and the processes that belong to it."""

    workspace: Workspace
    home: Path
    process: "subprocess.Popen[bytes]"
    mark: str

    @classmethod
    def start(cls, workspace: Workspace, home: Path, *arguments: str) -> "Driver":
        mark = uuid.uuid4().hex
        environment = {**os.environ, "FACTORIAL_TASKS": str(TASKS), "FACTORIAL_TEST_MARK": mark}
        command = workspace.command("run", "mini.lock.json", "--root", str(home), *arguments)
        process = subprocess.Popen(
            # A test run in the background ignores SIGINT, and its children would inherit that.
            ["env", "--default-signal=INT", *command],
            cwd=workspace.path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return cls(workspace, home, process, mark)

    def await_more_settled(self, at_most: int = 99) -> None:
        """Until one more rollout has settled (or ``at_most`` have); the run must not end before."""
        wanted = min(at_most, self.records() + 1)
        while self.records() < wanted:
            assert self.process.poll() is None, self.process.communicate()[1].decode()
            time.sleep(0.1)

    def records(self) -> int:
        """How many rollouts have settled."""
        folder = self.home / "records"
        return len([*folder.iterdir()]) if folder.is_dir() else 0

    def kill_one(self, name: str, rng: random.Random) -> bool:
        """SIGKILL one process whose title or program contains ``name``."""
        found = [pid for pid in marked(self.mark) if name in title(pid)]
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(found), signal.SIGKILL)
        return True

    def end(self) -> tuple[int, str]:
        """Exit code and stderr; nothing that the run started is left."""
        try:
            _, stderr = self.process.communicate(timeout=300)
        finally:
            self.process.kill()
        deadline = time.monotonic() + 20
        while marked(self.mark) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert [title(pid) for pid in marked(self.mark)] == []
        assert [*self.home.glob("*/*/factorial-*")] == []
        return self.process.returncode, stderr.decode()


def title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def ends_in_one_sentence(driver: Driver, sentence: str) -> None:
    code, stderr = driver.end()
    assert code == 1, stderr
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith(f"error: {sentence}"), stderr
    assert len([line for line in stderr.splitlines() if line.startswith("error: ")]) == 1


def interrupt(driver: Driver) -> None:
    os.killpg(driver.process.pid, signal.SIGINT)


def terminate(driver: Driver) -> None:
    driver.process.terminate()


def end_ray(driver: Driver) -> None:
    assert driver.kill_one("raylet/raylet", random.Random(1))


STOPS: list[tuple[Callable[[Driver], None], str]] = [
    (interrupt, "interrupted"),
    (terminate, "interrupted"),
    (end_ray, "node: "),
]


def test_killed_one_by_one_the_tables_are_the_same(workspace: Workspace) -> None:
    workspace.run("run", "mini.lock.json", "--root", "runs/reference")
    reference = Root.existing(workspace.path / "runs/reference")
    home = workspace.path / "runs/killed"
    for stop, sentence in STOPS:
        driver = Driver.start(workspace, home, "--workers", "2")
        driver.await_more_settled()
        stop(driver)
        ends_in_one_sentence(driver, sentence)
    rng = random.Random(7)
    driver = Driver.start(workspace, home, "--workers", "2")
    kills = Counter[str]()
    for name in [*rng.sample(ACTORS, len(ACTORS)), "ray::Evaluator"]:
        driver.await_more_settled(at_most=11)
        kills[name] += driver.kill_one(name, rng)
        time.sleep(rng.uniform(0.0, 3.0))
    code, stderr = driver.end()
    assert code == 0, stderr
    assert kills.total() >= 2
    killed = Root.existing(home)
    assert compare(reference, killed) == []
    assert outcome_digest(reference) == outcome_digest(killed)
    tries = attempts(killed)
    outcomes = Counter(attempt.end.outcome for attempt in tries if attempt.end)
    assert outcomes["settled"] == 12
    assert outcomes.total() == len(tries), "every attempt has an end"
    assert outcomes["infrastructure"] + outcomes["unknown"] <= 2 * kills.total(), "no death burns"
    workspace.run("verify", str(home))


def test_used_up_attempts_settle_rows_that_only_worst_case_bounds_decide(
    tmp_path: Path,
) -> None:
    workspace = make_workspace(tmp_path / "w", stack=STACK, max_attempts=2)
    workspace.edit("studies/mini.yaml", one_task)
    workspace.run("freeze", str(workspace.study), "--out", "mini.lock.json")
    home = workspace.path / "runs/r"
    driver = Driver.start(workspace, home, "--workers", "2", "--through", "rollouts")
    rng = random.Random(3)
    while driver.process.poll() is None:
        driver.kill_one("ray::Evaluator.run", rng)
        time.sleep(0.05)
    code, stderr = driver.end()
    assert code == 0, stderr
    root = Root.existing(home)
    lost = [name for name, settled_as in settled(root).items() if settled_as == "infrastructure"]
    assert len(settled(root)) == 4
    assert lost
    assert "owed again (infrastructure: evaluator: its actor died" in stderr
    ends = [attempt.end for attempt in attempts(root) if attempt.rollout_id in lost]
    assert [end and end.outcome for end in ends] == ["infrastructure"] * 2 * len(lost)
    workspace.run("replay", str(home))
    done = workspace.run("analyze", str(home))
    assert "missing outcomes set against the claim" in " ".join(done.stdout.split())
    assert f"{len(lost)} infrastructure" in done.stdout
    workspace.run("verify", str(home))
