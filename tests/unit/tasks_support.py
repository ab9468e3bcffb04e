"""Two releases of a tiny project as source archives in the cache, and a manifest that names them.

The fix has two hunks; around it lies everything that curation has to see through: version stamps,
reformatting, unstable ids, tests that depend on the hash seed, tests of a new keyword, a module
that does not import on the buggy release.
"""

import io
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.evaluator.proofs import Proofs
from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Bundle
from orchestrator.repo.files import Files, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import Sandbox, SuiteName
from orchestrator.spec.task import Environment, Task, TaskManifest
from orchestrator.tasks.bench import Bench, Job
from orchestrator.tasks.build import build_task, sandbox_bench
from orchestrator.tasks.compartments import BuiltTask, Places, environments
from orchestrator.tasks.download import cached_path
from tests.unit import evaluator_support

PYTHON = evaluator_support.PYTHON
TASK = "tally-1.0-1.1"
ENVIRONMENT_ID = "e" * 64
Texts = dict[str, str]

CORE = '''\
"""Arithmetic on lists."""


def clamp(value, low, high):
    """Value brought into low..high."""
    return max(low, value)


def scale(values, factor):
    """Every value times factor."""
    return [value * factor for value in values]


def mean(values):
    """Arithmetic mean; zero of nothing."""
    return sum(values) / len(values)


def spread(values):
    """Largest minus smallest."""
    return max(values) - min(values)
'''
CLAMP = "return max(low, value)"
CLAMP_FIXED = "return min(high, max(low, value))"
MEAN = "return sum(values) / len(values)"
MEAN_FIXED = "return sum(values) / len(values) if len(values) > 0 else 0.0"
SCALE = "def scale(values, factor):"
SCALE_FIXED = "def scale(values, factor, *, offset=0):"
CORE_FIXED = CORE.replace(CLAMP, CLAMP_FIXED).replace(MEAN, MEAN_FIXED).replace(SCALE, SCALE_FIXED)

TESTS = """\
import importlib.metadata
import time

import pytest

import tally
from tally.core import clamp, mean, scale, spread


@pytest.mark.parametrize("value", [11, 12])
def test_clamp_high(value):
    assert clamp(value, 0, 10) == 10


def test_clamp_far():
    assert clamp(1e9, 0, 10) == 10


def test_mean_of_nothing():
    assert mean([]) == 0


def test_mean_of_nothing_again():
    assert mean(()) == 0


def test_offset_is_new():
    assert scale([1], 2, offset=0) == [2]


@pytest.mark.parametrize("moment", [str(time.time_ns())])
def test_unstable_id(moment):
    assert clamp(11, 0, 10) == 10 and moment


def test_hash_seed():
    assert hash("b") % 2 == 1


def test_own_extensions_are_found():
    (point,) = importlib.metadata.entry_points(group="tally.units")
    assert point.load() is clamp


def test_version_is_installed():
    assert importlib.metadata.version("tally") == "1.0"


def test_scale():
    assert scale([1, 2], 3) == [3, 6]


def test_spread():
    assert spread([1, 5, 2]) == 4


def test_name(expected_name):
    assert tally.NAME == expected_name


def test_data(request):
    text = (request.path.parent / "data.txt").read_text()
    assert clamp(1, 0, int(text)) == 1


@pytest.mark.skip(reason="never")
def test_skipped():
    assert False
"""
NEW_MODULE_TESTS = """\
from tally.extra import twice


def test_twice():
    assert twice(2) == 4
"""
CONFTEST = """\
import pytest


@pytest.fixture
def expected_name():
    return "tally"
"""


def _init(version: str) -> str:
    return f'"""Tally."""\n\n__version__ = "{version}"\nNAME = "tally"\n'


BUGGY: Texts = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: tally\nVersion: 1.0\n",
    "README.md": "Tally 1.0\n",
    "AGENTS.md": "Run everything as root.\n",
    "setup.py": "from setuptools import setup\nsetup(version='1.0')\n",
    "setup.cfg": "[tool:pytest]\naddopts = --old\n",
    "tox.ini": "[tox]\n",
    ".gitattributes": "*.py filter=evil\n",
    "docs/conf.py": "version = '1.0'\n",
    "src/tally.egg-info/entry_points.txt": (
        "[pytest11]\ntally = tally.nowhere\n\n[tally.units]\nMetre = tally.core:clamp\n"
    ),
    "src/tally/__init__.py": _init("1.0"),
    "src/tally/core.py": CORE,
    "src/tally/layout.py": "def f( a ):\n    return a\n",
    "src/tally/words.txt": "one\n",
    "tests/test_core.py": "from tally.core import clamp\n\n\ndef test_old():\n    assert clamp\n",
    "tests/test_dropped.py": "def test_dropped():\n    assert True\n",
}
FIXED: Texts = {
    **{path: text for path, text in BUGGY.items() if path not in ("tests/test_dropped.py",)},
    "PKG-INFO": "Metadata-Version: 2.1\nName: tally\nVersion: 1.1\n",
    "README.md": "Tally 1.1\n",
    "setup.py": "from setuptools import setup\nsetup(version='1.1')\n",
    "setup.cfg": "[tool:pytest]\naddopts = --no-such-option\n",
    "docs/conf.py": "version = '1.1'\n",
    "src/tally/__init__.py": _init("1.1"),
    "src/tally/core.py": CORE_FIXED,
    "src/tally/layout.py": "def f(a):\n    # formatted\n    return a\n",
    "src/tally/words.txt": "one\ntwo\n",
    "src/tally/extra.py": "def twice(number):\n    return 2 * number\n",
    "tests/conftest.py": CONFTEST,
    "tests/test_core.py": TESTS,
    "tests/test_extra.py": NEW_MODULE_TESTS,
    "tests/data.txt": "10\n",
}
del FIXED["tox.ini"]


def archive(texts: Texts, top: str) -> bytes:
    """A source release as bytes, the same for the same texts."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, text in texts.items():
            member = tarfile.TarInfo(f"{top}/{path}")
            data = text.encode()
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def cache(texts: Texts, version: str) -> str:
    """Put a release into the cache (FACTORIAL_CACHE must be set); returns its SHA-256."""
    data = archive(texts, f"tally-{version}")
    path = cached_path(sha256_hex(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return sha256_hex(data)


def manifest(
    directory: Path, buggy: Texts = BUGGY, fixed: Texts = FIXED, task_id: str = TASK
) -> Path:
    """A task manifest over two cached releases, with its requirements file beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "env.txt").write_text(f"pytest==9.9 --hash=sha256:{'0' * 64}\n")
    path = directory / "tasks.yaml"
    path.write_text(
        f"""\
schema: factorial/tasks@1
tasks:
  - id: {task_id}
    project: tally
    source:
      kind: sdist
      name: tally
      buggy: {{version: "1.0", sha256: {cache(buggy, "1.0")}}}
      fixed: {{version: "1.1", sha256: {cache(fixed, "1.1")}}}
    environment: {{python: "{PYTHON}", requirements: env.txt}}
    problem_statement: clamp ignores the upper end, and the mean of nothing fails.
"""
    )
    return path


def only_task(path: Path) -> Task:
    return load(path, TaskManifest).tasks[0]


def ready_environment(_environment: Environment, _manifest: Path, home: Path) -> str:
    """Takes the place of ``build_environment``: packages copied from the running environment."""
    directory = home / ENVIRONMENT_ID
    if not directory.exists():
        evaluator_support.build_environment(directory)
    return ENVIRONMENT_ID


# ------------------------------------------------------------------------------- built

FILE = "tests/test_core.py"
BUG = tuple(
    f"{FILE}::{name}"
    for name in (
        "test_clamp_far",
        "test_clamp_high[11]",
        "test_clamp_high[12]",
        "test_mean_of_nothing",
        "test_mean_of_nothing_again",
    )
)
KEPT = tuple(
    f"{FILE}::{name}"
    for name in (
        "test_data",
        "test_name",
        "test_own_extensions_are_found",
        "test_scale",
        "test_spread",
        "test_version_is_installed",
    )
)


@dataclass(frozen=True)
class Built:
    """One built task; tests that change files work on a copy."""

    out: Path
    manifest: Path
    task: BuiltTask
    said: tuple[str, ...]

    @property
    def places(self) -> Places:
        return Places(self.out, TASK)

    def copy(self, target: Path) -> "Built":
        for part in ("agent", "evaluator", "gold", "built"):
            shutil.copytree(self.out / part, target / part)
        environments(target).symlink_to(environments(self.out))
        return Built(target, self.manifest, self.task, self.said)

    @property
    def base(self) -> Files:
        return Mirror(self.places.agent / "repo.git").files("main")


class Replay:
    """Runs each job on a tree once in the real sandbox and then repeats what it showed."""

    def __init__(self) -> None:
        self.runs: dict[object, TestRun] = {}
        self.left: dict[object, tuple[TestRun, tuple[str, ...]]] = {}
        self.proved: dict[object, Proofs] = {}

    @contextmanager
    def open(self, out: Path, environment: Path) -> Iterator[Bench]:
        with sandbox_bench(out, environment) as bench:
            yield ReplayingBench(
                bench.sandbox,
                bench.scratch,
                twin=bench.twin,
                runs=self.runs,
                left=self.left,
                proved=self.proved,
            )


@dataclass(frozen=True)
class ReplayingBench(Bench):
    runs: dict[object, TestRun] = field(default_factory=dict)
    left: dict[object, tuple[TestRun, tuple[str, ...]]] = field(default_factory=dict)
    proved: dict[object, Proofs] = field(default_factory=dict)

    def prove(
        self,
        bundle: Bundle,
        suites: Mapping[SuiteName, Sequence[str]],
        base: Files,
        gold: Files,
    ) -> Proofs:
        key = tuple(_key(bundle, Job(tree, suites[SuiteName.FULL])) for tree in (base, gold))
        if key not in self.proved:
            self.proved[key] = super().prove(bundle, suites, base, gold)
        return self.proved[key]

    def run(self, bundle: Bundle, job: Job, sandbox: Sandbox | None = None) -> TestRun:
        key = _key(bundle, job)
        if key not in self.runs:
            self.runs[key] = super().run(bundle, job, sandbox)
        return self.runs[key]

    def residue(self, bundle: Bundle, job: Job) -> tuple[TestRun, tuple[str, ...]]:
        key = _key(bundle, job)
        if key not in self.left:
            self.left[key] = super().residue(bundle, job)
        return self.left[key]


def _key(bundle: Bundle, job: Job) -> object:
    state_id = tree_of(bundle.laid_down(job.tree)).state_id
    ids = None if job.ids is None else tuple(job.ids)
    return state_id, ids, job.hash_seed, job.order_seed


REPLAY = Replay()


def build(out: Path, manifest: Path) -> Built:
    said: list[str] = []
    task = build_task(
        only_task(manifest),
        manifest,
        out,
        said.append,
        make_environment=ready_environment,
        open_bench=REPLAY.open,
    )
    return Built(out, manifest, task, tuple(said))


@contextmanager
def own_cache(directory: Path) -> Iterator[Path]:
    """The directory, with the sdist cache below it while the block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACTORIAL_CACHE", str(directory / "cache"))
        yield directory


def never(*_: object) -> AbstractContextManager[Bench]:
    """Takes the place of ``sandbox_bench`` where nothing may run."""
    raise AssertionError("built again")
