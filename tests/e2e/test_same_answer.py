"""Same lock, same answer: on another root, and after SIGKILL at random moments."""

import random
import time
from pathlib import Path

import pytest

from orchestrator.store.integrity import compare, outcome_digest
from orchestrator.store.reading import attempts, owed, settled
from orchestrator.store.root import Root
from tests.e2e.support import Workspace, kill_tree, make_workspace, start_marked

STACK = {
    "rates": [
        {"when": {"evidence": "stale"}, "alpha": 0.3, "beta": 0.4, "overfit": 0.2},
        {"alpha": 0.5, "beta": 0.2, "overfit": 0.2},
    ],
    "submit": 0.4,
    "test": 0.5,
    "invalid": 0.1,
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make_workspace(tmp_path_factory.mktemp("same"), stack=STACK, seeds=[1, 2])


@pytest.fixture(scope="module")
def reference(workspace: Workspace) -> Root:
    workspace.run("freeze", str(workspace.study), "--out", "mini.lock.json")
    done = workspace.run("run", "mini.lock.json", "--root", "runs/reference")
    assert "SIMULATED" in done.stdout
    return Root.existing(workspace.path / "runs/reference")


def test_freezing_twice_gives_the_same_bytes(workspace: Workspace, reference: Root) -> None:
    workspace.run("freeze", str(workspace.study), "--out", "again.lock.json")
    assert (workspace.path / "again.lock.json").read_bytes() == (
        workspace.path / "mini.lock.json"
    ).read_bytes()


def test_a_second_run_gives_the_same_tables(workspace: Workspace, reference: Root) -> None:
    workspace.run("run", "mini.lock.json", "--root", "runs/second", "--workers", "1")
    second = Root.existing(workspace.path / "runs/second")
    assert compare(reference, second) == []
    decision = Path("analysis/decision.json")
    assert (second.path / decision).read_text() == (reference.path / decision).read_text()


def test_verify_accepts_the_run_and_finds_an_edited_ledger(
    workspace: Workspace, reference: Root
) -> None:
    workspace.run("verify", "runs/reference")
    rollout_id = sorted(settled(reference))[0]
    ledger = reference.record_path(rollout_id) / "ledger.jsonl"
    original = ledger.read_bytes()
    ledger.write_bytes(original.replace(b'"seq":1', b'"seq":9', 1))
    try:
        done = workspace.run("verify", "runs/reference", code=1)
        assert rollout_id in done.stdout
    finally:
        ledger.write_bytes(original)
    workspace.run("verify", "runs/reference")


def test_status_and_trace_are_readable(workspace: Workspace, reference: Root) -> None:
    assert "16 settled of 16" in workspace.run("status", "runs/reference").stdout
    rollout_id = sorted(settled(reference))[0]
    shown = workspace.run("trace", "runs/reference", rollout_id).stdout
    assert "SIMULATED" in shown
    assert "diagnostic" in shown


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_five_times_and_resumed_the_tables_are_the_same(
    workspace: Workspace, reference: Root
) -> None:
    rng = random.Random(5)
    home = workspace.path / "runs/killed"
    for _ in range(5):
        process, mark = start_marked(workspace, "run", "mini.lock.json", "--root", str(home))
        # From start-up (about 6 s) to the middle of replay: any moment may be hit.
        time.sleep(rng.uniform(3.0, 16.0))
        kill_tree(process, mark)
        if (home / "lock.json").exists():
            root = Root.existing(home)
            done = settled(root)
            assert len(done) + len(owed(root.lock(), root)) == 16
    workspace.run("run", "mini.lock.json", "--root", str(home))
    resumed = Root.existing(home)
    assert compare(reference, resumed) == []
    assert outcome_digest(reference) == outcome_digest(resumed)
    history = [attempt.end.outcome for attempt in attempts(resumed) if attempt.end]
    assert history.count("settled") == 16
    assert len(history) == len(attempts(resumed)), "every attempt has an end"
    workspace.run("verify", str(home))
