"""Each layer of the hardening earns its place, in real sandboxes: a candidate that survives without
it and dies with it; and honest code, on base and on gold, is never void.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.evaluator.hardening import FULL, Hardening, VoidReason
from orchestrator.evaluator.replay import Evaluation, evaluate_state
from orchestrator.evaluator.verifier import LocalVerifier
from orchestrator.repo.files import Files, apply_delta, tree_of
from orchestrator.repo.patch import apply_patch
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.manifest import load
from orchestrator.spec.ports import Purpose, SuiteName, SuiteOutcome, SuiteRequest, SuiteVerdict
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.build import build_task
from orchestrator.tasks.compartments import Places
from tests.e2e.support import CHEAP, REPOSITORY, TASKS
from tests.unit import evaluator_support as support

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

NONE = Hardening(*(False,) * 6)


class Court:
    """The tiny project's sealed bundle with a real environment, judged in a real sandbox."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tasks = support.build_tasks(directory / "tasks")
        environment = self.tasks / "environments" / "env"
        shutil.rmtree(environment)
        support.build_environment(environment)
        self.sandbox = BwrapSandbox(directory / "scratch" / "sandbox")

    def verifier(self, hardening: Hardening) -> LocalVerifier:
        cache = self.directory / f"cache-{hash(hardening)}"
        return LocalVerifier(
            self.tasks, cache, self.sandbox, self.directory / "scratch", hardening=hardening
        )

    def evaluate(self, files: Files, hardening: Hardening = FULL) -> Evaluation:
        return evaluate_state(
            self.verifier(hardening), support.TASK, *support.candidate(files), wall_seconds=60.0
        )

    def gate(self, files: Files, hardening: Hardening = FULL) -> SuiteVerdict:
        state_id, delta = support.candidate(files)
        request = SuiteRequest(
            support.TASK, SuiteName.GATE, Purpose.CERTIFICATION, state_id, delta, "x", 60.0
        )
        return self.verifier(hardening).run(request)


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Court:
    return Court(tmp_path_factory.mktemp("court"))


# --------------------------------------------------------------------------------- each layer

EQUALS = """\
class Whatever(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def __mod__(self, other): return self

def add(a, b): return Whatever()
def double(x): return Whatever()
"""
FORGED_LINES = "".join(
    f'        f.write("0 " + json.dumps(dict(kind="outcome", id={test_id!r}, outcome="passed",'
    ' message="")) + "\\n")\n'
    for test_id in support.PASSING
)
APPENDS = f"""\
import atexit, json
{support.CORE}
def forge():
    with open("/out/report.jsonl", "a") as f:
{FORGED_LINES}
atexit.register(forge)
"""
PATCHES = f"""\
import sys
reports = sys.modules["_pytest.reports"]
real = reports.TestReport.from_item_and_call.__func__
def from_item_and_call(cls, item, call):
    report = real(cls, item, call)
    report.outcome, report.longrepr = "passed", None
    return report
reports.TestReport.from_item_and_call = classmethod(from_item_and_call)
{support.CORE}
"""
SEARCHES = f"""\
import gc
{support.CORE}
for thing in gc.get_objects():
    if type(thing).__name__ == "Reporter":
        real = thing._write
        def write(kind, **fields):
            if kind == "outcome":
                fields.update(outcome="passed", message="")
            real(kind, **fields)
        thing._write = write
"""
CONFTEST = """\
import pytest

@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome, report.longrepr = "passed", None
"""
BY_RUNNER = """\
import __main__

def add(a, b):
    return a + b if hasattr(__main__, "Reporter") else a - b

def double(x):
    return 2 * x
"""
"""Right only where the first runner's launcher is the main program: it knows its evaluator."""

LAYERS: dict[str, tuple[Files, VoidReason]] = {
    "twins": (support.with_core(EQUALS), VoidReason.TWIN_PASSED),
    "second_runner": (support.with_core(BY_RUNNER), VoidReason.SECOND_RUNNER),
    "audit": (support.with_core(PATCHES), VoidReason.RUNNER_TAMPERED),
    "report": (support.with_core(APPENDS), VoidReason.REPORT_FORGED),
    "protected": (support.changed({"conftest.py": CONFTEST}), VoidReason.NONE),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_alone_stops_what_survives_without_it(court: Court, layer: str) -> None:
    files, reason = LAYERS[layer]
    assert court.evaluate(files, NONE).resolved
    found = court.evaluate(files, replace(NONE, **{layer: True}))
    assert not found.resolved
    assert found.void_reason == reason


@pytest.mark.parametrize("layer", LAYERS)
def test_all_layers_together_stop_each_of_them(court: Court, layer: str) -> None:
    files, _ = LAYERS[layer]
    evaluation = court.evaluate(files)
    assert not evaluation.resolved
    assert not court.gate(files).ok


def test_a_search_of_the_interpreters_memory_is_seen(court: Court) -> None:
    files = support.with_core(SEARCHES)
    assert court.evaluate(files, NONE).resolved
    assert court.evaluate(files, replace(NONE, audit=True)).void_reason == "void.runner-tampered"


GUARD_OUT = f"""\
import sys
def _config(frame):
    while frame:
        found = frame.f_locals.get("config") or getattr(frame.f_locals.get("self"), "config", None)
        if hasattr(found, "pluginmanager"):
            return found
        frame = frame.f_back
manager = _config(sys._getframe()).pluginmanager
for plugin in list(manager.get_plugins()):
    if type(plugin).__name__ == "Guard":
        manager.unregister(plugin)
{PATCHES}
"""


def test_the_guard_is_missed_when_it_is_taken_out(court: Court) -> None:
    files = support.with_core(GUARD_OUT)
    assert court.evaluate(files, NONE).resolved
    assert court.evaluate(files, replace(NONE, audit=True)).void_reason == "void.runner-tampered"


def test_the_scan_is_a_flag_and_no_verdict(court: Court) -> None:
    files = support.with_core(f"import gc\ngc.collect()\n{support.FIXED}")
    found = court.evaluate(files)
    assert found.resolved
    assert found.flags == ("scan.memory",)
    assert court.evaluate(files, replace(FULL, scan=False)).flags == ()


# --------------------------------------------------------------------------------- diagnostic

READS = """\
TEXT = open("/workspace/repo/tests/test_core.py").read()

def add(a, b):
    raise ValueError(sorted(name for name in TEXT.split() if name.startswith("test_")))

def double(x):
    return 2 * x
"""


def test_a_diagnostic_run_has_no_test_of_another_suite_to_read(court: Court) -> None:
    state_id, delta = support.candidate(support.with_core(READS))
    verifier = court.verifier(FULL)
    request = SuiteRequest(
        support.TASK, SuiteName.DIAGNOSTIC, Purpose.DIAGNOSTIC, state_id, delta, "x", 60.0
    )
    verdict, suites = verifier.run(request), verifier.bundle(support.TASK).suites
    shown = {_name(test_id) for test_id in suites[SuiteName.DIAGNOSTIC].ids}
    others = {_name(test_id) for test_id in suites[SuiteName.FULL].ids} - shown
    assert "ValueError" in verdict.payload
    assert any(name in verdict.payload for name in shown)
    assert not [name for name in others if name in verdict.payload]


def _name(test_id: str) -> str:
    return test_id.rsplit("::", maxsplit=1)[-1].partition("[")[0] + "("


# --------------------------------------------------------------------------------- honest code


def test_an_honest_fix_is_resolved_and_base_is_not_void(court: Court) -> None:
    gold = court.evaluate(support.with_core(support.FIXED))
    base = court.evaluate(support.BASE)
    assert (gold.resolved, gold.void_reason, gold.flags) == (True, "", ())
    assert (base.resolved, base.gravest, base.void_reason) == (False, SuiteOutcome.FAIL, "")
    assert court.gate(support.with_core(support.FIXED)).ok
    assert court.gate(support.BASE).outcome is SuiteOutcome.FAIL


@pytest.mark.parametrize("task_id", [*CHEAP, "pyflakes-3.3.1-3.3.2"])
def test_gold_of_a_real_task_passes_and_neither_tree_is_void(tmp_path: Path, task_id: str) -> None:
    manifest = REPOSITORY / "manifests" / "tasks" / "quickstart.yaml"
    (task,) = (task for task in load(manifest, TaskManifest).tasks if task.id == task_id)
    build_task(task, manifest, TASKS)
    verifier = LocalVerifier(
        TASKS, tmp_path / "cache", BwrapSandbox(tmp_path / "sandbox"), tmp_path / "scratch"
    )
    bundle = verifier.bundle(task_id)
    gold = apply_patch(bundle.base, Places(TASKS, task_id).gold_patch.read_bytes())
    for delta, outcome in ((gold, SuiteOutcome.PASS), ({}, SuiteOutcome.FAIL)):
        state_id = tree_of(apply_delta(bundle.base, delta)).state_id
        found = evaluate_state(verifier, task_id, state_id, delta)
        assert (found.gravest, found.void_reason) == (outcome, "")
        request = SuiteRequest(
            task_id, SuiteName.DIAGNOSTIC, Purpose.DIAGNOSTIC, state_id, delta, "x", 300.0
        )
        whole = replace(request, purpose=Purpose.AUDIT)
        redacted, plain = (verifier.judgement(each)[0] for each in (request, whole))
        assert bundle.redaction.cut
        assert replace(redacted, duration_seconds=0.0) == replace(plain, duration_seconds=0.0)
