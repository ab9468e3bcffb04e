"""A tiny historical bug with its environment and sealed bundle, built in the test."""

import compileall
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

from orchestrator.evaluator.ground import PLUGIN, REPO, REPORT, Ground
from orchestrator.evaluator.suites import BundleFile, bundle_bytes, split_suites
from orchestrator.repo.files import Files, delta_between, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.spec.ports import Command, Completed, Delta, ExitClass

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TASK = "calc-1.0-1.1"
WALL_SECONDS = 60.0
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")

CORE = """\
def add(a, b):
    return a - b


def double(x):
    return 2 * x
"""
CONFTEST = """\
import pytest


@pytest.fixture
def two():
    return 2
"""
TESTS = """\
import unittest

import pytest
from calc.core import add, double


@pytest.mark.parametrize("b", [0, 3, 5], ids=["a::b", "[x] y", "née"])
def test_add(b):
    assert add(1, b) == 1 + b


class TestAdd:
    def test_two(self, two):
        assert add(two, 2) == 4


class Case(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(4, 4), 8)


def test_double(two):
    assert double(two) == 4


@pytest.mark.parametrize("x", [0, 1])
def test_even(x):
    assert double(x) % 2 == 0


@pytest.mark.skip(reason="never runs")
def test_skipped():
    raise AssertionError


@pytest.mark.xfail(reason="known")
def test_known():
    assert add(1, 1) == 3
"""
CONFIG = """\
[tool.pytest.ini_options]
addopts = "--no-such-option"
filterwarnings = ["error"]
"""

FILE = "tests/test_core.py"
BUG = (
    f"{FILE}::Case::test_sum",
    f"{FILE}::TestAdd::test_two",
    f"{FILE}::test_add[[x] y]",
    f"{FILE}::test_add[n\\xe9e]",
)
KEPT = (
    f"{FILE}::test_add[a::b]",
    f"{FILE}::test_double",
    f"{FILE}::test_even[0]",
    f"{FILE}::test_even[1]",
)
PASSING = (*BUG, *KEPT)


def text_files(texts: dict[str, str]) -> Files:
    return {path: (0o100644, text.encode()) for path, text in texts.items()}


BASE = text_files(
    {"src/calc/__init__.py": "", "src/calc/core.py": CORE, "README.md": "calc\n", "setup.cfg": ""}
)
SEALED = text_files({"tests/conftest.py": CONFTEST, FILE: TESTS, "pyproject.toml": CONFIG})
FIXED = CORE.replace("a - b", "a + b")


def changed(texts: dict[str, str]) -> Files:
    """The base tree with some files replaced."""
    return {**BASE, **text_files(texts)}


def with_core(text: str) -> Files:
    return changed({"src/calc/core.py": text})


def candidate(files: Files) -> tuple[str, Delta]:
    """State id and delta of a candidate tree."""
    return tree_of(files).state_id, delta_between(BASE, files)


def build_environment(directory: Path) -> Path:
    """A virtual environment with pytest, copied from the running one: nothing is downloaded."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
    site = next((directory / "lib").glob("python*/site-packages"))
    for name in PACKAGES:
        _copy_distribution(name, site)
    compileall.compile_dir(site, quiet=2)
    return directory


def _copy_distribution(name: str, site: Path) -> None:
    for file in distribution(name).files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), target)


def ground(environment: Path) -> Ground:
    return Ground(environment, "src", ("tests",), PYTHON)


def build_tasks(directory: Path, **changes: object) -> Path:
    """``directory`` as a tasks directory with one sealed bundle and the bare mark of a venv.

    ``changes`` replace fields of ``bundle.json``.
    """
    environment = directory / "environments" / "env"
    environment.mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"version = {PYTHON}.9\n")
    home = directory / "evaluator" / TASK
    Mirror.create(home / "repo.git", {"base": BASE, "sealed": SEALED}, "calc")
    record = BundleFile.model_validate({**bundle_fields(), **changes})
    (home / "bundle.json").write_bytes(bundle_bytes(record))
    return directory


def bundle_fields() -> dict[str, object]:
    suites, _ = split_suites(TASK, BUG, KEPT, PASSING)
    return {
        "schema": "factorial/bundle@1",
        "task_id": TASK,
        "project": "calc",
        "base_state_id": tree_of(BASE).state_id,
        "environment_id": "env",
        "import_root": "src",
        "python": PYTHON,
        "test_paths": ["tests"],
        "suites": {name.value: list(ids) for name, ids in suites.items()},
        "overlay_sha256": tree_of(SEALED).state_id,
        "removed": ["setup.cfg"],
    }


def report_line(key: bytes, number: int, fact: dict[str, object]) -> bytes:
    """One line as the launcher writes it."""
    payload = json.dumps(fact).encode()
    mac = hashlib.blake2b(b"%d " % number + payload, key=key, digest_size=16).hexdigest()
    return mac.encode() + b" " + payload + b"\n"


def outcome(test_id: str, result: str, message: str = "") -> dict[str, object]:
    return {"kind": "outcome", "id": test_id, "outcome": result, "message": message}


FINISHED: dict[str, object] = {"kind": "finished", "status": 0}


def honest(test_id: str, tree: Path) -> str:
    """What the tiny project's tests would do on a tree, without running them."""
    core = (tree / "src" / "calc" / "core.py").read_text()
    broken = (test_id in BUG and "a + b" not in core) or (test_id in KEPT and "2 * x" not in core)
    return "failed" if broken else "passed"


class ScriptedSandbox:
    """Writes the report that ``decide`` says instead of running anything; counts its runs."""

    def __init__(
        self,
        decide: Callable[[str, Path], str] = honest,
        exit_class: ExitClass = ExitClass.OK,
        extra: tuple[dict[str, object], ...] = (),
    ) -> None:
        self.decide, self.exit_class, self.extra = decide, exit_class, extra
        self.commands: list[Command] = []

    def identity(self) -> dict[str, str]:
        return {"name": "scripted"}

    def run(self, command: Command) -> Completed:
        self.commands.append(command)
        order = json.loads(command.stdin)
        places = {mount.target: mount.source for mount in command.mounts}
        facts = [
            *(outcome(test_id, self.decide(test_id, places[REPO])) for test_id in order["ids"]),
            *self.extra,
            FINISHED,
        ]
        with (places[PLUGIN] / "key").open("rb", buffering=0) as pipe:
            key = pipe.read(64)
        lines = [report_line(key, number, fact) for number, fact in enumerate(facts)]
        places[REPORT].write_bytes(b"".join(lines))
        seconds = float(len(self.commands))
        return Completed(self.exit_class, 0, b"", b"", False, seconds)
