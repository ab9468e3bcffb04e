"""From inside the agent's sandbox nothing sealed can be read: files, git objects, /proc, packages.

The probe runs as the agent's shell runs, with every path it can reach. Negative controls plant a
sealed file, a gold line and a gold object where the probe has to find them.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pygit2
import pytest

from orchestrator.cluster.shell import SandboxShell
from orchestrator.evaluator.suites import load_bundle
from orchestrator.repo.files import Files, apply_delta
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import apply_patch
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import Limits
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.build import build_task
from tests.e2e.support import CHEAP, REPOSITORY, TASKS

PROBE = r"""
import base64, hashlib, importlib.util, json, os, subprocess, sys
secrets = json.loads(base64.b64decode(sys.stdin.read()))
digests, lines = set(secrets["digests"]), [line.encode() for line in secrets["lines"]]
sizes, found = set(secrets["sizes"]), []
def look(where, data, project):
    if len(data) in sizes and hashlib.sha256(data).hexdigest() in digests:
        found.append(f"file {where}")
    if project and any(line in data for line in lines):
        found.append(f"line {where}")
for top, folders, names in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(top, f) not in ("/proc", "/sys", "/dev")]
    for name in names:
        path = os.path.join(top, name)
        try:
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            inside = path.startswith(("/workspace", "/tmp", "/opt", "/root", "/home", "/var"))
            inside = inside and not path.startswith(sys.base_prefix) or "-packages" in path
            if inside or os.path.getsize(path) in sizes:
                look(path, open(path, "rb").read(), inside)
        except OSError:
            pass
git = ["git", "-C", "/workspace/repo", "cat-file", "--batch-all-objects", "--unordered"]
listed = subprocess.run([*git, "--batch-check=%(objectname) %(objecttype)"],
                        capture_output=True, text=True).stdout.split("\n")
for entry in filter(None, listed):
    name, kind = entry.split()
    data = subprocess.run(["git", "-C", "/workspace/repo", "cat-file", kind, name],
                          capture_output=True).stdout
    look(f"git {name}", data, True)
if not any(entry.endswith("commit") for entry in listed):
    found.append("the probe saw no git objects")
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "mountinfo", "maps"):
        try:
            text = open(f"/proc/{pid}/{name}", "rb").read()
        except OSError:
            continue
        found += [f"/proc/{pid}/{name}: {w}" for w in secrets["places"] if w.encode() in text]
found += [f"environment {k}" for k, v in os.environ.items()
          if any(w in v for w in secrets["places"])]
sys.path = [p for p in sys.path if p and not p.startswith(("/workspace/repo", "/tmp"))]
if importlib.util.find_spec(secrets["module"]):
    found.append("the project is importable")
print(json.dumps(sorted(set(found))))
"""


@dataclass(frozen=True)
class Sealed:
    """A built task and what must not be reachable."""

    git_directory: Path
    base: Files
    gold: Files
    tests: Files

    @property
    def lines(self) -> list[str]:
        """The five longest lines that only the gold tree has: shorter ones are common Python."""
        before = {line for _, data in self.base.values() for line in data.splitlines()}
        after = {line for _, data in self.gold.values() for line in data.splitlines()}
        return sorted((line.strip().decode() for line in after - before), key=len)[-5:]

    @property
    def secrets(self) -> dict[str, object]:
        known = {data for _, data in self.base.values()}
        blobs = [d for tree in (self.gold, self.tests) for _, d in tree.values()]
        blobs = [data for data in blobs if data and data not in known]
        return {
            "digests": sorted({sha256_hex(data) for data in blobs}),
            "sizes": sorted({len(data) for data in blobs}),
            "lines": self.lines,
            "places": ["tasks/gold", "tasks/evaluator"],
            "module": "xmltodict",
        }


@pytest.fixture(scope="module")
def sealed() -> Sealed:
    manifest = REPOSITORY / "manifests/tasks/quickstart.yaml"
    task = next(t for t in load(manifest, TaskManifest).tasks if t.id == CHEAP[0])
    build_task(task, manifest, TASKS)
    home = TASKS / "agent" / task.id / "repo.git"
    base = Mirror(home).files("main")
    delta = apply_patch(base, (TASKS / "gold" / task.id / "gold.patch").read_bytes())
    bundle = load_bundle(TASKS, task.id)
    return Sealed(home, base, apply_delta(base, delta), bundle.sealed)


@pytest.fixture
def probe(sealed: Sealed, tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    tmp_path.chmod(0o711)

    def run(extra: Files | None = None, git_directory: Path | None = None) -> list[str]:
        sandbox = BwrapSandbox(tmp_path, slot=7)
        limits = Limits(wall_seconds=240, cpu_seconds=240)
        shell = SandboxShell(
            sandbox, tmp_path, git_directory or sealed.git_directory, limits, sandbox.uid
        )
        # The probe's own list of secrets must not be what it finds, so it is encoded.
        secrets = b64encode(json.dumps(sealed.secrets).encode()).decode()
        command = f"{sandbox.interpreter} -c {quoted(PROBE)} <<'END'\n{secrets}\nEND"
        result = shell.run({**sealed.base, **(extra or {})}, command)
        assert result.exit_code == 0, result.output.decode()[-2000:]
        answer: list[str] = json.loads(result.output.decode().strip().splitlines()[-1])
        return answer

    yield run


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def test_nothing_sealed_is_reachable(sealed: Sealed, probe: Callable[..., list[str]]) -> None:
    assert len(sealed.lines) >= 3
    assert probe() == []


def test_the_probe_finds_a_sealed_file_and_a_gold_line(
    sealed: Sealed, probe: Callable[..., list[str]]
) -> None:
    mode, data = max(sealed.tests.values(), key=lambda file: len(file[1]))
    stray = {"notes.txt": (0o100644, b"see " + sealed.lines[0].encode()), "x.py": (mode, data)}
    found = probe(stray)
    assert "file /workspace/repo/x.py" in found
    assert "line /workspace/repo/notes.txt" in found


def test_the_probe_finds_a_gold_object_in_git(
    sealed: Sealed, probe: Callable[..., list[str]], tmp_path: Path
) -> None:
    leaky = Mirror.create(tmp_path / "leaky.git", {"main": sealed.base}, "base")
    assert leaky.commit_id("main")
    changed = next(data for path, (_, data) in sealed.gold.items() if sealed.base[path][1] != data)
    pygit2.Repository(str(tmp_path / "leaky.git")).create_blob(changed)
    assert any(entry.startswith("file git ") for entry in probe(None, tmp_path / "leaky.git"))
