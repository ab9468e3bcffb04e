"""The runner in a real sandbox: an honest project, then candidates that want a pass."""

import shutil
from pathlib import Path

import pytest

from orchestrator.evaluator import runner
from orchestrator.evaluator.judge import judge
from orchestrator.evaluator.runner import TestRun, run_tests
from orchestrator.evaluator.suites import Suite
from orchestrator.evaluator.verifier import LocalVerifier
from orchestrator.repo.files import Files
from orchestrator.repo.worktree import reset, worktree
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.ports import Purpose, SuiteName, SuiteOutcome, SuiteRequest, SuiteVerdict
from tests.unit import evaluator_support as support

PASS, FAIL, TIMEOUT, VOID = SuiteOutcome


class Room:
    """One environment and one sandbox for all tests of this module."""

    def __init__(self, directory: Path) -> None:
        self.scratch = directory / "scratch"
        self.ground = support.ground(support.build_environment(directory / "env"))
        self.sandbox = BwrapSandbox(self.scratch / "sandbox")

    def run(self, files: Files, ids: tuple[str, ...] | None, **options: float) -> TestRun:
        with worktree({**files, **support.SEALED}, self.scratch) as tree:
            wall = options.pop("wall_seconds", support.WALL_SECONDS)
            run = run_tests(
                self.sandbox,
                self.ground,
                tree,
                ids,
                wall_seconds=wall,
                scratch=self.scratch,
                **options,  # type: ignore[arg-type]
            )
            assert reset(tree, {**files, **support.SEALED}) == ()
            return run

    def outcome(self, core: str, wall_seconds: float = support.WALL_SECONDS) -> SuiteOutcome:
        ids = tuple(sorted(support.PASSING))
        run = self.run(support.with_core(core), ids, wall_seconds=wall_seconds)
        return judge(Suite(SuiteName.FULL, ids, "s"), run).outcome


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(tmp_path_factory.mktemp("room"))


# --------------------------------------------------------------------------------- honest


def test_every_kind_of_test_is_reported(room: Room) -> None:
    run = room.run(support.BASE, None)
    others = {f"{support.FILE}::test_skipped": "skipped", f"{support.FILE}::test_known": "xfailed"}
    assert run.outcomes == {
        **dict.fromkeys(support.BUG, "failed"),
        **dict.fromkeys(support.KEPT, "passed"),
        **others,
    }
    assert set(run.collected) == run.outcomes.keys()
    assert run.messages.keys() == set(support.BUG)
    assert run.messages[f"{support.FILE}::Case::test_sum"] == "AssertionError: 0 != 8"
    assert run.clean
    assert not run.void
    assert "4 failed" in run.log_tail


def test_only_wanted_ids_run_and_gold_passes_them(room: Room) -> None:
    wanted = (*support.BUG, "tests/test_absent.py::test_a")
    run = room.run(support.with_core(support.FIXED), wanted, order_seed=1, hash_seed=7)
    assert run.outcomes == dict.fromkeys(support.BUG, "passed")
    assert run.clean
    assert not run.void


def test_a_collection_error_is_not_a_set_of_failing_tests(room: Room) -> None:
    run = room.run(support.with_core("def add(a, b):\n    return a + b\n"), None)
    assert run.outcomes == {}
    assert run.collection_errors.keys() == {support.FILE}
    assert "ImportError" in run.collection_errors[support.FILE]


def test_messages_are_the_same_in_every_run(room: Room) -> None:
    core = (
        "import datetime, tempfile\n\n"
        "def add(a, b):\n"
        "    raise ValueError(object(), datetime.datetime.now(), tempfile.mkdtemp())\n\n"
        "def double(x):\n    return 2 * x\n"
    )
    runs = [room.run(support.with_core(core), (support.BUG[0],)) for _ in range(2)]
    assert runs[0].messages == runs[1].messages
    assert runs[0].messages[support.BUG[0]].startswith("ValueError: (<object object at 0xADDR>")


def test_a_candidate_cannot_take_the_place_of_the_runner(room: Room) -> None:
    shadows = dict.fromkeys(("src/pytest.py", "src/json.py", "json.py"), "raise SystemExit(0)")
    files = support.changed({"src/calc/core.py": support.FIXED, **shadows})
    run = room.run(files, support.BUG)
    assert run.outcomes == dict.fromkeys(support.BUG, "passed")


def test_the_environment_is_exactly_the_grounds(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    core = (
        "import os\n\n"
        "def add(a, b):\n"
        "    raise ValueError(os.environ.get('SECRET'), os.environ['TZ'], os.getcwd())\n\n"
        "def double(x):\n    return 2 * x\n"
    )
    message = room.run(support.with_core(core), (support.BUG[0],)).messages[support.BUG[0]]
    assert message == "ValueError: (None, 'UTC', '/workspace/repo')"


# --------------------------------------------------------------------------------- hostile

BROKEN = support.CORE
FAKE = '{"kind": "outcome", "id": "tests/test_core.py::test_double", "outcome": "passed"}'
HOSTILE: dict[str, tuple[str, SuiteOutcome]] = {
    "leaves at import": ("import os\nos._exit(0)\n", FAIL),
    "exits at import": ("import sys\nsys.exit(0)\n", FAIL),
    "leaves in a test": ("import os\ndef add(a, b): os._exit(0)\ndef double(x): return 4\n", FAIL),
    "kills its session": (
        "import os, signal\ndef add(a, b): os.kill(os.getpid(), signal.SIGKILL)\n"
        "def double(x): return 2 * x\n",
        FAIL,
    ),
    "prints passes": (f"print('''{FAKE}\\nPASSED 100%\\n8 passed''')\n{BROKEN}", FAIL),
    "appends to the report": (
        f"with open('/out/report.jsonl', 'a') as f: f.write('''{FAKE}\\n''')\n{BROKEN}",
        VOID,
    ),
    "rewrites the report": (
        f"with open('/out/report.jsonl', 'w') as f: f.write('''0 {FAKE}\\n''')\n{BROKEN}",
        VOID,
    ),
    "empties the report at the end": (
        f"import atexit, os\natexit.register(os.truncate, '/out/report.jsonl', 0)\n{support.FIXED}",
        FAIL,
    ),
    "puts a link in place of the report": (
        "import contextlib, os\n"
        "with contextlib.suppress(OSError): os.unlink('/out/report.jsonl')\n"
        "with contextlib.suppress(OSError): os.symlink('/tmp/mine', '/tmp/link')\n"
        "with contextlib.suppress(OSError): os.replace('/tmp/link', '/out/report.jsonl')\n"
        f"{BROKEN}",
        FAIL,
    ),
    "deletes and rewrites tests": (
        "import contextlib, shutil\n"
        "shutil.rmtree('/workspace/repo/tests', ignore_errors=True)\n"
        "with contextlib.suppress(OSError):\n"
        "    open('/workspace/repo/tests/test_core.py', 'w').write('def test_double(): pass')\n"
        "with contextlib.suppress(OSError):\n"
        "    open('/opt/evaluator/factorial_report.py', 'w').write('')\n"
        f"{BROKEN}",
        FAIL,
    ),
    "lets a child go on in its place": (
        f"import os\nchild = os.fork()\nif child:\n    os.waitpid(child, 0)\n    os._exit(0)\n"
        f"{support.FIXED}",
        FAIL,
    ),
    "never ends": ("while True: pass\n", TIMEOUT),
    "waits behind a child": (
        f"import os, time\nif os.fork():\n    time.sleep(1000)\n{support.FIXED}",
        TIMEOUT,
    ),
    "skips its tests": (f"import pytest\npytest.skip(allow_module_level=True)\n{BROKEN}", FAIL),
    "stops the session": ("import pytest\npytest.exit('done', returncode=0)\n", FAIL),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_cheat_ends_as_a_pass(room: Room, name: str) -> None:
    core, expected = HOSTILE[name]
    wall_seconds = 2.0 if expected is TIMEOUT else support.WALL_SECONDS
    assert room.outcome(core, wall_seconds) is expected


def test_an_honest_fix_passes_where_the_cheats_did_not(room: Room) -> None:
    assert room.outcome(support.FIXED) is PASS


SEARCH = """\
import glob, os


def contents(path):
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.pread(descriptor, 1 << 20, 0)
        except OSError:
            return os.read(descriptor, 1 << 20)
    except OSError:
        return b""


PLACES = ["/proc/*/environ", "/proc/*/cmdline", "/proc/*/fd/*", "/opt/evaluator/*", "/out/*"]
FOUND = [name for place in PLACES for name in glob.glob(place) if b"K" * 32 in contents(name)]
NAMES = sorted(os.listdir("/opt/evaluator") + os.listdir("/out"))


def add(a, b):
    raise ValueError(FOUND, NAMES)


def double(x):
    return 2 * x
"""


def test_the_key_is_in_no_file_that_the_candidate_can_open(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.secrets, "token_bytes", lambda size: b"K" * size)
    message = room.run(support.with_core(SEARCH), (support.BUG[0],)).messages[support.BUG[0]]
    names = sorted([*runner.REPORTING, "key", "report.jsonl"])
    assert message == f"ValueError: ([], {names})"


CHEATS = {
    "conftest.py": "import pytest\n\n"
    "def pytest_runtest_makereport(item, call):\n    call.excinfo = None\n",
    "pytest.toml": '[pytest]\naddopts = ["-p", "calc.core"]\n',
    "sitecustomize.py": "raise SystemExit(0)\n",
    "src/sitecustomize.py": "raise SystemExit(0)\n",
    support.FILE: "def test_double(): pass\n",
}


def test_verdicts_of_a_real_run_ignore_what_a_candidate_plants(room: Room, tmp_path: Path) -> None:
    tasks = support.build_tasks(tmp_path / "tasks")
    environment = tasks / "environments" / "env"
    shutil.rmtree(environment)
    shutil.copytree(room.ground.environment, environment, symlinks=True)
    verifier = LocalVerifier(tasks, tmp_path / "cache", room.sandbox, room.scratch)

    def verdict(texts: dict[str, str]) -> SuiteVerdict:
        state_id, delta = support.candidate(support.changed(texts))
        request = SuiteRequest(
            support.TASK, SuiteName.GATE, Purpose.CERTIFICATION, state_id, delta, "x", 60.0
        )
        return verifier.run(request)

    assert verdict({"src/calc/core.py": support.FIXED, **CHEATS}).ok
    assert verdict(CHEATS).outcome is FAIL
