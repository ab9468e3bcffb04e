"""One project with what is odd about real ones; docs/eligibility.md lists the lessons."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.evaluator.ground import Ground
from orchestrator.evaluator.suites import load_bundle
from orchestrator.spec.ports import Completed, ExitClass, SuiteName
from orchestrator.tasks.bench import Job, unloaded_seconds
from orchestrator.tasks.build import sandbox_bench
from orchestrator.tasks.compartments import (
    environments,
    read_eligibility,
    read_facts,
    read_measured,
)
from orchestrator.tasks.eligibility import Verdict
from tests.unit import evaluator_support
from tests.unit import tasks_support as support
from tests.unit.tasks_support import Built, build

CORE = """\
from pathlib import Path


def low(values):
    return values[0]


def words():
    return (Path(__file__).parent / "words.txt").read_text().split()
"""
TESTS = """\
import unittest
import warnings

import pytest

from gauge.core import low, words
from gauge.test.helpers import Contract
from gauge.testing import near

SEEN = []


class TestInherited(Contract):
    pass


class Case(unittest.TestCase):
    def test_unit(self):
        self.assertEqual(low([2, 1]), 1)

    def test_sub(self):
        for value in (1, 2):
            with self.subTest(value=value):
                self.assertEqual(low([value, 0]), 0)


ODD = ["a::b", "[x] y", "n\u00e9e", "a b/c", "new\\nline"]


@pytest.mark.parametrize("value", range(5), ids=ODD)
def test_odd(value, margin):
    assert low([value + margin, value]) == value


@pytest.mark.parametrize("step", range(12))
def test_chain(step):
    SEEN.append(step)
    assert SEEN == list(range(step + 1))


def test_leaves_a_file(request):
    try:
        (request.path.parent / "out.tmp").write_text("x")
    except OSError:
        pass


def test_old_habits_warn():
    warnings.warn("old", DeprecationWarning)
    assert near(1, 1)


def test_words():
    assert words() == ["one", "two"]
"""
BUGGY = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: tally\nVersion: 1.0\n",
    "setup.cfg": "[tool:pytest]\naddopts = --cov\n",
    "gauge/__init__.py": "# (c) 2020 the authors\n",
    "gauge/core.py": CORE,
    "gauge/testing.py": "def near(a, b):\n    return abs(a - b) < 1\n",
    "gauge/words.txt": "one\n",
    "gauge/test/__init__.py": "",
    "gauge/test/test_old.py": "def test_old():\n    assert True\n",
}
FIXED = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: tally\nVersion: 1.1\n",
    "setup.cfg": (
        "[tool:pytest]\naddopts = --cov\nfilterwarnings = error\npython_files = check_*.py\n"
    ),
    "gauge/__init__.py": "# (c) 2021 the authors\n",
    "gauge/core.py": CORE.replace("values[0]", "min(values)").replace("\n", "\r\n"),
    "gauge/testing.py": "def near(a, b):\n    return abs(a - b) < 2\n",
    "gauge/words.txt": "one\ntwo\n",
    "gauge/test/__init__.py": "",
    "gauge/test/conftest.py": ("import pytest\n\n\n@pytest.fixture\ndef margin():\n    return 3\n"),
    "gauge/test/helpers.py": (
        "from gauge.core import low\n\n\n"
        "class Contract:\n    def test_low(self):\n        assert low([4, 3]) == 3\n"
    ),
    "gauge/test/check_core.py": TESTS,
    "gauge/test/test_doc.txt": ">>> from gauge.core import low\n>>> low([3, 1])\n1\n",
}
FILE = "gauge/test/check_core.py"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    with support.own_cache(tmp_path_factory.mktemp("lessons")) as home:
        yield build(home / "out", support.manifest(home / "manifest", BUGGY, FIXED))


def test_ids_of_every_style_are_fail_to_pass(odd: Built) -> None:
    names = ("a::b", "[x] y", "n\\xe9e", "a b/c", "new\\nline")
    assert {*load_bundle(odd.out, support.TASK).suites[SuiteName.FAIL_TO_PASS].ids} == {
        f"{FILE}::Case::test_sub",
        f"{FILE}::Case::test_unit",
        f"{FILE}::TestInherited::test_low",
        "gauge/test/test_doc.txt::test_doc.txt",
        *(f"{FILE}::test_odd[{name}]" for name in names),
    }
    assert odd.task.fail_to_pass_functions == 5


def test_helpers_configuration_and_data_of_the_fixed_end_are_laid_down(odd: Built) -> None:
    sealed = load_bundle(odd.out, support.TASK).sealed
    tests = {path for path in FIXED if path.startswith("gauge/test/")}
    assert {*sealed} == {*tests, "setup.cfg", "tally-1.0.dist-info/METADATA"}
    assert not any(path.startswith("gauge/test/") for path in odd.base)


def test_only_effective_production_lines_are_gold(odd: Built) -> None:
    facts = read_facts(odd.out, support.TASK)
    assert facts["gold_files"] == ["gauge/core.py", "gauge/testing.py"]
    assert facts["gold_lines"] == 4
    changed = facts["changed_paths"]
    assert isinstance(changed, dict)
    assert (changed["gauge/__init__.py"], changed["gauge/words.txt"]) == (
        "metadata", "package_data"
    )  # fmt: skip


def test_what_depends_on_the_order_is_dropped_and_says_so(odd: Built) -> None:
    assert read_facts(odd.out, support.TASK)["dropped"] == {f"{FILE}::test_chain": "shuffled"}


def test_what_needs_more_than_python_is_no_fail_to_pass(odd: Built) -> None:
    assert read_facts(odd.out, support.TASK)["not_python_alone"] == [f"{FILE}::test_words"]
    verdicts = {r.rule: r for r in read_eligibility(odd.out, support.TASK).rulings}
    assert verdicts["gold-python-alone"].verdict is Verdict.FLAG
    assert verdicts["gold-python-alone"].figure.startswith("5 of 6")


def test_what_a_suite_leaves_where_it_may_is_on_record(odd: Built) -> None:
    measured = read_measured(odd.out, support.TASK)
    assert measured is not None and measured.residue == ("gauge/test/out.tmp",)


def test_no_project_option_decides(odd: Built) -> None:
    kept = load_bundle(odd.out, support.TASK).suites[SuiteName.PASS_TO_PASS].ids
    assert f"{FILE}::test_old_habits_warn" in kept


def test_nothing_of_the_fixed_end_is_in_the_environment(odd: Built) -> None:
    environment = environments(odd.out) / odd.task.environment_id
    assert not [*environment.rglob("gauge*")]
    record = json.loads((odd.places.agent / "task.json").read_bytes())
    assert record["import_root"] == "."


@pytest.mark.parametrize(
    ("load", "cpu", "seconds"), [(1.0, 3.0, 40.0), (9.0, 3.0, 3.0), (9.0, 50.0, 40.0)]
)
def test_on_a_loaded_machine_processor_time_stands_for_wall_time(
    load: float, cpu: float, seconds: float
) -> None:
    done = Completed(ExitClass.OK, 0, b"", b"", False, wall_seconds=40.0, cpu_seconds=cpu)
    assert unloaded_seconds(done, load, cpus=2) == seconds
    unmeasured = Completed(ExitClass.OK, 0, b"", b"", False, wall_seconds=40.0)
    assert unloaded_seconds(unmeasured, load, cpus=2) == 40.0


# ------------------------------------------------------------------------------- hypothesis

DRAWING = """\
from hypothesis import given, settings, strategies as st

DRAWN = []


@settings(max_examples=20)
@given(st.integers())
def test_draws(number):
    DRAWN.append(number)


def test_shows_what_was_drawn():
    assert DRAWN == []
"""


def test_random_examples_are_the_same_in_every_run_and_leave_nothing(
    odd: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = (*evaluator_support.PACKAGES, "hypothesis", "sortedcontainers")
    monkeypatch.setattr(evaluator_support, "PACKAGES", packages)
    environment = evaluator_support.build_environment(tmp_path / "env")
    bundle = replace(
        load_bundle(odd.out, support.TASK),
        ground=Ground(environment, ".", ("tests",), support.PYTHON),
        sealed={"tests/test_drawing.py": (0o100644, DRAWING.encode())},
    )
    with sandbox_bench(odd.out, environment) as bench:
        job = Job(odd.base)
        first, second = bench.pair(bundle, job, replace(job, hash_seed=1))
        run, residue = bench.residue(bundle, job)
    shown = "tests/test_drawing.py::test_shows_what_was_drawn"
    assert first.messages[shown] == second.messages[shown] == run.messages[shown]
    assert "assert [0" in first.messages[shown], first.messages
    assert residue == ()
