"""A small real study in a folder of its own, driven through the command line as a user would."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
TASKS = REPOSITORY / "build" / "tasks"
CHEAP = ("xmltodict-0.15.0-0.15.1", "xmltodict-1.0.2-1.0.3")
"""Real bugs whose whole suite takes well under a second."""


@dataclass(frozen=True)
class Workspace:
    """A copy of the manifests with one study; every command runs here."""

    path: Path

    @property
    def study(self) -> Path:
        return self.path / "manifests" / "studies" / "mini.yaml"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "orchestrator.cli.main", *arguments]

    def run(
        self, *arguments: str, code: int = 0, seconds: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run ``factorial ARGUMENTS`` for at most ``seconds`` and require its exit code."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.path,
            env={**os.environ, "FACTORIAL_TASKS": str(TASKS)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def edit(self, name: str, change: Any) -> None:
        """Rewrite a YAML manifest through ``change(data)``."""
        path = self.path / "manifests" / name
        data = yaml.safe_load(path.read_text())
        change(data)
        path.write_text(yaml.safe_dump(data, sort_keys=False))


def make_workspace(path: Path, *, stack: dict[str, Any], **study: Any) -> Workspace:
    """Copy the manifests to ``path`` and write ``studies/mini.yaml`` and ``stacks/mini.yaml``."""
    shutil.copytree(REPOSITORY / "manifests", path / "manifests")
    workspace = Workspace(path)
    base = yaml.safe_load((path / "manifests/studies/quickstart.yaml").read_text())
    base["name"] = "mini"
    base["tasks"]["include"] = list(CHEAP)
    base["stack"] = "../stacks/mini.yaml"
    workspace.study.write_text(yaml.safe_dump({**base, **study}, sort_keys=False))
    planted = {"schema": "factorial/stack@1", "kind": "planted", "name": "mini", "privileged": True}
    (path / "manifests/stacks/mini.yaml").write_text(yaml.safe_dump({**planted, **stack}))
    return workspace


def kill_tree(process: subprocess.Popen[bytes], mark: str) -> int:
    """SIGKILL the process and everything that inherited ``mark`` in its environment."""
    killed = 0
    for _ in range(50):
        victims = [*marked(mark)]
        if process.poll() is None:
            victims.append(process.pid)
        if not victims:
            return killed
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
        process.poll()
        time.sleep(0.05)
    raise AssertionError(f"processes survive SIGKILL: {[*marked(mark)]}")


def marked(mark: str) -> list[int]:
    """Processes whose environment holds ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def start_marked(workspace: Workspace, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start ``factorial ARGUMENTS`` in the background with a mark for :func:`kill_tree`."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        workspace.command(*arguments),
        cwd=workspace.path,
        env={**os.environ, "FACTORIAL_TASKS": str(TASKS), "FACTORIAL_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process, mark


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
