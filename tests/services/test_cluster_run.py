"""The same study on a Ray cluster reached by address gives the tables of a local run."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store.integrity import compare
from orchestrator.store.root import Root
from tests.e2e.support import kill_tree, make_workspace, marked

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]
STACK = {"rates": [{"alpha": 0.5, "beta": 0.2, "overfit": 0.1}], "submit": 0.4, "test": 0.3}
MARK = "factorial-cluster-test"


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A head node with token authentication, which Ray asks of clusters."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", uuid.uuid4().hex + uuid.uuid4().hex)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray = Path(sys.executable).parent / "ray"
    process = subprocess.Popen(
        [str(ray), "start", "--head", "--block", f"--port={port}", "--num-cpus=2",
         '--resources={"evaluator": 2}', "--include-dashboard=false",
         "--object-store-memory=200000000"],
        env={**os.environ, "FACTORIAL_TEST_MARK": MARK, "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert process.poll() is None, "ray start ended"
        time.sleep(0.5)
    time.sleep(3)
    yield f"127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
    if marked(MARK):
        kill_tree(process, MARK)


def test_cluster_and_local_runs_agree(head: str, tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", stack=STACK)
    workspace.run("freeze", str(workspace.study), "--out", "mini.lock.json")
    workspace.run("run", "mini.lock.json", "--root", "runs/local")
    workspace.run("run", "mini.lock.json", "--root", "runs/cluster", "--address", head)
    runs = workspace.path / "runs"
    assert compare(Root.existing(runs / "local"), Root.existing(runs / "cluster")) == []


def test_an_absent_cluster_is_one_sentence(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", stack=STACK)
    done = workspace.run(
        "run", str(workspace.study), "--root", "runs/r", "--address", "127.0.0.1:1", code=2
    )
    assert "--address" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
