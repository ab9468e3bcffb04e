"""The paper-sized list: 24 of 24 eligible with every rule's figure, built three times alike, and
nothing sealed within reach. Every standing negative case: refused by the rule that it stands for.

About an hour; prints one line of figures per task for docs/validation/.
"""

import resource
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.cli.auditing import audited
from orchestrator.cluster.curation import Kind, Outcome, build_tasks
from orchestrator.spec.manifest import load
from orchestrator.spec.task import TaskManifest
from orchestrator.tasks.compartments import BuiltTask, Places, require_built
from orchestrator.tasks.eligibility import RULES, Verdict
from tests.e2e.support import REPOSITORY

pytestmark = [pytest.mark.validate, pytest.mark.timeout(7200)]
FOLDER = REPOSITORY / "manifests" / "tasks"
PAPER, REJECTED = FOLDER / "paper24.yaml", FOLDER / "rejected.yaml"
PAPER_TASKS, REJECTED_TASKS = load(PAPER, TaskManifest), load(REJECTED, TaskManifest)


@dataclass(frozen=True)
class Homes:
    """Where tasks are built: twice side by side, once under a path of another length, and what is
    to be refused."""

    first: Path
    second: Path
    elsewhere: Path
    refused: Path


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    make = tmp_path_factory.mktemp
    deep = make("elsewhere") / "with" / "a longer path"
    return Homes(make("first"), make("second"), deep, make("refused"))


def build(manifest: Path, tasks: TaskManifest, task_id: str, out: Path) -> Outcome:
    out.mkdir(parents=True, exist_ok=True)
    (outcome,) = build_tasks(tasks, manifest, out, only=[task_id])
    return outcome


@pytest.mark.parametrize("task_id", [task.id for task in PAPER_TASKS.tasks])
def test_a_task_is_eligible_the_same_everywhere_and_sealed(task_id: str, homes: Homes) -> None:
    outcome = build(PAPER, PAPER_TASKS, task_id, homes.first)
    assert (outcome.kind, outcome.ok) == (Kind.ELIGIBLE, True), outcome.message
    built = require_built(homes.first, task_id)
    for other in (homes.second, homes.elsewhere):
        assert build(PAPER, PAPER_TASKS, task_id, other).ok
        assert require_built(other, task_id) == built
        assert _records(other, task_id) == _records(homes.first, task_id)
    started = time.monotonic()
    found = audited(homes.first, task_id, signatures=False)
    seconds = time.monotonic() - started
    assert found.findings == ()
    assert [ruling.rule for ruling in found.rulings] == list(RULES)
    assert {ruling.verdict for ruling in found.rulings} <= {Verdict.PASS, Verdict.FLAG}
    assert all(ruling.figure for ruling in found.rulings)
    print(_figures(outcome, built, seconds))


def _records(out: Path, task_id: str) -> tuple[bytes, ...]:
    places = Places(out, task_id)
    return tuple(p.read_bytes() for p in (places.facts, places.eligibility, places.certificate))


def _figures(outcome: Outcome, built: BuiltTask, audit_seconds: float) -> str:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return (
        f"\n{outcome.task_id}: built in {outcome.seconds:.0f} s, audited in {audit_seconds:.1f} s, "
        f"{outcome.disk_bytes / 2**20:.1f} MiB on disk, peak memory of a suite "
        f"{outcome.suite_peak_memory_bytes / 2**20:.0f} MiB, of the builder so far "
        f"{peak / 2**20:.0f} MiB, {built.fail_to_pass_functions} fail-to-pass functions, "
        f"agent commit {built.agent_commit[:12]}"
    )


@pytest.mark.parametrize("task_id", [task.id for task in REJECTED_TASKS.tasks])
def test_a_standing_negative_case_is_refused_by_its_rule(task_id: str, homes: Homes) -> None:
    (task,) = (task for task in REJECTED_TASKS.tasks if task.id == task_id)
    outcome = build(REJECTED, REJECTED_TASKS, task_id, homes.refused)
    assert (outcome.kind, outcome.rule) == (Kind.REJECTED, task.rejected_by), outcome.message
    assert outcome.expected
    found = audited(homes.refused, task_id, signatures=False)
    assert not found.eligible
    verdicts = {ruling.rule: ruling.verdict for ruling in found.rulings}
    failed = [rule for rule, verdict in verdicts.items() if verdict is Verdict.FAIL]
    assert failed == [task.rejected_by]
    print(f"\n{task_id}: refused by {outcome.rule} in {outcome.seconds:.0f} s ({outcome.message})")
