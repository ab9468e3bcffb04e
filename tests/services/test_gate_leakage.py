"""A whole study by an agent that does nothing but look for sealed tests: it never sees one.

Every test of a small project with a real history carries a marker of its own. The agent's server
writes code that reads whatever the tests' process can reach and tells it in exception messages,
searches the machine from the shell, and asks for evidence. No marker of a test outside the
diagnostic, and no long line that the agent's mirror lacks, comes back in any request to the model,
any table or any file that the agent's side kept.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.evaluator.suites import Bundle, function_of, load_bundle
from orchestrator.repo.mirror import Mirror
from orchestrator.spec.ports import SuiteName
from orchestrator.store.reading import read_table
from orchestrator.store.root import Root
from tests.e2e.support import TASKS, Workspace, make_workspace
from tests.unit.git_support import Content, Repo

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

TASK = "ledger-1"
BUGS, GUARDS = 6, 24
LONG = 40
"""Characters from which a line is taken for one that is copied, not made up twice."""


def mark(name: str) -> str:
    """A marker that is in no other test, in pieces that survive cutting a message short."""
    return f"MARK-{name}-KRAM"


def module(fixed: bool) -> str:
    wrong = "" if fixed else " + 1"
    bugs = [f"def bug_{n}(value):\n    return value * {n}{wrong}\n" for n in range(BUGS)]
    guards = [f"def guard_{n}(value):\n    return value + {n}\n" for n in range(GUARDS)]
    return "\n\n".join([*bugs, *guards])


def suite() -> str:
    tests = [
        f'def test_bug_{n}():\n    told = "{mark(f"bug{n}")}"\n'
        f"    assert (bug_{n}(7), told) == (7 * {n}, told)\n"
        for n in range(BUGS)
    ]
    tests += [
        f'def test_guard_{n}():\n    told = "{mark(f"guard{n}")}"\n'
        f"    assert (guard_{n}(7), told) == (7 + {n}, told)\n"
        for n in range(GUARDS)
    ]
    return "from ledger import *\n\n\n" + "\n\n".join(tests)


def files(fixed: bool) -> dict[str, Content]:
    return {
        "pyproject.toml": '[project]\nname = "ledger"\nversion = "1.0"\n',
        "src/ledger/__init__.py": module(fixed),
        "tests/test_ledger.py": suite() if fixed else "def test_nothing():\n    assert True\n",
    }


SPY = """
import os, re, sys

def _of_files():
    for top in ("/workspace", "/opt/evaluator", "/out", "/tmp", "/mnt", "/srv", "/root", "/home"):
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if os.path.isfile(path):  # the key's pipe would keep it waiting
                        with open(path, "rb") as stream:
                            yield stream.read(1 << 20).decode("utf-8", "replace")
                except OSError:
                    pass

def _of_objects():
    import gc
    for value in gc.get_objects():
        if isinstance(value, (dict, tuple, list)):
            try:
                inside = list(value.values() if isinstance(value, dict) else value)
            except Exception:
                continue
            yield from (one for one in inside if isinstance(one, str) and "MARK-" in one)

def _of_modules():
    for module in list(sys.modules.values()):
        for one in list(vars(module).values()) if hasattr(module, "__dict__") else ():
            consts = getattr(getattr(one, "__code__", None), "co_consts", ())
            yield from (each for each in consts if isinstance(each, str))

_told = [0]
_words = []

def _tell():
    if not _told[0]:
        _words.extend(sorted({w for t in WAY() for w in re.findall("MARK-[a-z0-9]+-KRAM", t)}))
    part = _words[_told[0] * 15:][:15]
    _told[0] += 1
    raise ValueError(f"{len(_words)} of them: " + " ".join(w[5:-5] for w in part))
"""
"""The agent's production code: one chunk of all markers that it can reach for each failing test."""
WAYS = ("_of_modules", "_of_files", "_of_objects")
"""What it reads: constants of the tests that are loaded, files, every object of the interpreter."""


def spying(way: str) -> str:
    names = [*(f"bug_{n}" for n in range(BUGS)), *(f"guard_{n}" for n in range(GUARDS))]
    functions = "".join(f"\ndef {name}(value):\n    _tell()\n" for name in names)
    return SPY.replace("WAY", way) + functions


def write(content: str) -> dict[str, object]:
    path = "src/ledger/__init__.py"
    changes = [{"path": path, "delete": True}, {"path": path, "create": content}]
    return {"action": "edit", "changes": changes}


PLACES = "/workspace /opt /out /tmp /home /root /var /etc /mnt /srv /run"
TURNS: list[dict[str, object]] = [
    {
        "action": "shell",
        "command": f"grep -rIhoE 'MARK-[a-z0-9]+-KRAM' {PLACES} 2>/dev/null | head -200",
    },
    {
        "action": "shell",
        "command": f"find {PLACES} -name '*ledger*' 2>/dev/null",
    },
    {"action": "search", "pattern": "MARK-"},
    {"action": "view", "path": "tests/test_ledger.py"},
    *(action for way in WAYS for action in (write(spying(way)), {"action": "test"})),
    {
        "action": "shell",
        "command": "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '",
    },
    {"action": "submit"},
]


class Spy:
    """A chat server that plays :data:`TURNS` and keeps every request."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        lock = threading.Lock()
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with lock:
                    requests.append(body)
                messages = json.loads(body)["messages"]
                turn = sum(message["role"] == "assistant" for message in messages)
                reply = json.dumps(TURNS[min(turn, len(TURNS) - 1)])
                answer = {
                    "choices": [{"message": {"content": reply}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
                }
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture(scope="module")
def spy() -> Iterator[Spy]:
    play = Spy()
    thread = threading.Thread(target=play.server.serve_forever)
    thread.start()
    yield play
    play.server.shutdown()
    play.server.server_close()
    thread.join(10)


def task_manifest(home: Path) -> dict[str, Any]:
    repo = Repo.create(home / "ledger.git", bare=True)
    buggy, fixed = repo.pair(files(False), files(True))
    repo.branch("main", fixed)
    entry = {
        "id": TASK,
        "project": "ledger",
        "source": {
            "kind": "git",
            "name": "ledger",
            "url": str(home / "ledger.git"),
            "buggy": buggy,
            "fixed": fixed,
        },
        "environment": {"python": "3.11", "requirements": "envs/pytest.txt"},
        "problem_statement": "Every product is one too large.",
    }
    return {"schema": "factorial/tasks@1", "tasks": [entry]}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, spy: Spy) -> Workspace:
    home = tmp_path_factory.mktemp("leakage")
    made = make_workspace(
        home,
        stack={"rates": [{"alpha": 0.0, "beta": 0.0}]},
        tasks={"manifest": "../tasks/ledger.yaml", "include": [TASK]},
        budgets={"actions": len(TURNS), "revisions": 4, "visible_tests": 4, "wall_seconds": 900},
        seeds=[1],
    )
    tasks = home / "manifests" / "tasks" / "ledger.yaml"
    tasks.write_text(yaml.safe_dump(task_manifest(home)))
    endpoint = (home / "manifests/stacks/endpoint-example.yaml").read_text()
    stack = {**yaml.safe_load(endpoint), "name": "spy"}
    stack["server"] = {"kind": "endpoint", "base_url": spy.url}
    (home / "manifests/stacks/mini.yaml").write_text(yaml.safe_dump(stack))
    made.run("run", str(made.study), "--root", "runs/spied", "--through", "replay")
    return made


@pytest.fixture(scope="module")
def root(workspace: Workspace) -> Root:
    return Root.existing(workspace.path / "runs" / "spied")


@pytest.fixture(scope="module")
def bundle(workspace: Workspace) -> Bundle:
    return load_bundle(TASKS, TASK)


def sealed_markers(bundle: Bundle) -> tuple[set[str], set[str]]:
    """Markers of tests that the diagnostic holds, and of those that it does not."""
    shown = {function_of(test_id) for test_id in bundle.suites[SuiteName.DIAGNOSTIC].ids}
    every = {function_of(test_id) for test_id in bundle.suites[SuiteName.FULL].ids}
    name = {function: function.rpartition("::test_")[2].replace("_", "") for function in every}
    return {name[f] for f in shown}, {name[f] for f in every - shown}


def kept_texts(root: Root, spy: Spy) -> dict[str, str]:
    """All that the agent was asked with or told, and every file that its side left in the root."""
    told = {f"request {number}": body for number, body in enumerate(spy.requests)}
    for row in read_table(root, "actions").to_pylist():
        told[f"{row['rollout_id']} turn {row['turn']}"] = row["observation"]
    # The evaluator's own: verdicts, whole judgements, and the patches that it judged.
    skipped = {"records", "evaluations", "tables", "patches", "analysis", "cache"}
    for path in root.path.rglob("*"):
        if path.is_file() and path.relative_to(root.path).parts[0] not in skipped:
            told[str(path)] = path.read_bytes().decode("utf-8", "replace")
    return told


def test_the_agent_did_try_and_the_diagnostic_is_heard(
    root: Root, bundle: Bundle, spy: Spy
) -> None:
    shown, sealed = sealed_markers(bundle)
    assert len(shown) >= 3 and len(sealed) >= 20
    actions = read_table(root, "actions").to_pylist()
    assert {row["kind"] for row in actions} >= {"shell", "search", "view", "edit", "test"}
    told = "\n".join(row["observation"] for row in actions)
    assert "of them: " in told, "the spying code ran and its messages came back"
    assert any(name in told for name in shown), "the channel is open: the spy can tell what it sees"
    assert len(spy.requests) >= 4 * len(TURNS) // 2


def test_a_diagnostic_run_holds_no_test_but_its_own(bundle: Bundle) -> None:
    shown, sealed = sealed_markers(bundle)
    whole = b"".join(data for _, data in bundle.sealed.values()).decode()
    cut = b"".join(
        data for _, data in {**bundle.sealed, **bundle.redaction.files}.values()
    ).decode()
    assert all(mark(name) in whole for name in shown | sealed)
    assert {name for name in shown | sealed if mark(name) in cut} == shown


def test_no_marker_of_a_sealed_test_is_ever_told(root: Root, bundle: Bundle, spy: Spy) -> None:
    _, sealed = sealed_markers(bundle)
    for place, text in kept_texts(root, spy).items():
        words = {word for chunk in text.split() for word in chunk.replace("\\n", " ").split()}
        found = {name for name in sealed if name in words or mark(name) in text}
        assert not found, f"{place}: {sorted(found)}"


def test_no_long_line_of_the_sealed_files_is_ever_told(
    root: Root, bundle: Bundle, spy: Spy
) -> None:
    agent = Mirror(TASKS / "agent" / TASK / "repo.git").files("main")
    own = {line.strip() for _, data in agent.values() for line in data.decode().splitlines()}
    shown, _ = sealed_markers(bundle)
    secret = {
        line.strip()
        for _, data in bundle.sealed.values()
        for line in data.decode().splitlines()
        if len(line.strip()) >= LONG and not any(mark(name) in line for name in shown)
    } - own
    for place, text in kept_texts(root, spy).items():
        found = [line for line in secret if line in text]
        assert not found, f"{place}: {found[0]}"


def test_the_spy_resolves_nothing(root: Root) -> None:
    rows = read_table(root, "evaluations").to_pylist()
    assert rows and not any(row["resolved"] for row in rows)
