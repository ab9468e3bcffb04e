"""A real language model drives the real loop, twice, to the same tables; a dead server is owed."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from orchestrator.store.integrity import compare
from orchestrator.store.reading import attempts, read_table
from orchestrator.store.root import Root
from tests.e2e.support import CHEAP, Workspace, make_workspace, start_marked

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = make_workspace(
        tmp_path_factory.mktemp("chat"),
        stack={"rates": [{"alpha": 0.0, "beta": 0.0}]},
        budgets={"actions": 4, "revisions": 2, "visible_tests": 2, "wall_seconds": 900},
        sampling={"max_new_tokens": 64},
        tasks={"manifest": "../tasks/quickstart.yaml", "include": [CHEAP[0]]},
    )
    smol = (made.path / "manifests/stacks/smollm2-135m-cpu.yaml").read_text()
    (made.path / "manifests/stacks/mini.yaml").write_text(smol)
    made.run("freeze", str(made.study), "--out", "mini.lock.json")
    return made


@pytest.fixture(scope="module")
def first(workspace: Workspace) -> Root:
    done = workspace.run("run", "mini.lock.json", "--root", "runs/first")
    assert "SIMULATED" not in done.stdout
    assert "Decision on contract" in done.stdout
    return Root.existing(workspace.path / "runs/first")


def test_the_model_acts_and_tokens_add_up(first: Root) -> None:
    actions = read_table(first, "actions").to_pylist()
    rollouts = read_table(first, "rollout").to_pylist()
    assert len(rollouts) == 4
    assert any(action["kind"] != "invalid" for action in actions)
    assert {action["reply_source"] for action in actions} == {"model", "shared"}
    for row in rollouts:
        own = [a for a in actions if a["rollout_id"] == row["rollout_id"]]
        assert row["tokens_completion"] == sum(a["completion_tokens"] for a in own) > 0
        assert row["tokens_served"] == sum(a["tokens_served"] for a in own)
    assert not any(row["simulated"] for row in rollouts)


def test_a_second_run_and_a_killed_server_give_the_same_tables(
    workspace: Workspace, first: Root
) -> None:
    """The server is killed under the first requests; the attempts it fails are owed again."""
    process, _ = start_marked(workspace, "run", "mini.lock.json", "--root", "runs/second")
    killed = threading.Event()
    deadline = time.monotonic() + 300
    while not killed.is_set() and process.poll() is None and time.monotonic() < deadline:
        servers = [pid for pid in _servers() if _asked(workspace.path / "runs/second")]
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
            killed.set()
        time.sleep(0.2)
    assert killed.is_set(), "no server was seen"
    assert process.wait(900) == 0
    second = Root.existing(workspace.path / "runs/second")
    assert compare(first, second) == []
    ends = [attempt.end.outcome for attempt in attempts(second) if attempt.end]
    assert ends.count("settled") == 4
    assert "infrastructure" in ends, "the killed server cost an attempt"
    assert _servers() == [], "no server is left"


def _servers() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"llama_server_main" in command:
                found.append(int(entry.name))
    return found


def _asked(root: Path) -> bool:
    """Whether an attempt has begun, so that the server has requests in flight or soon will."""
    return any((root / "attempts").glob("*.json"))
