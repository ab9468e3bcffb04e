"""Many builds: what each one comes to, side by side, interrupted, resumed, and when it fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.cluster import curation
from orchestrator.cluster.curation import Kind, Order, Outcome, build_one, build_tasks, disk_bytes
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.manifest import load
from orchestrator.spec.task import Requires, TaskManifest
from orchestrator.tasks.compartments import Places, read_built
from tests.unit import tasks_support as support
from tests.unit.tasks_support import never

UNTESTED = {path: text for path, text in support.FIXED.items() if not path.startswith("tests/")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with support.own_cache(tmp_path_factory.mktemp("curation")) as home:
        yield home


def order(manifest: Path, out: Path, functions: int = 1, code: str = "") -> Order:
    task, requires = support.only_task(manifest), Requires(min_fail_to_pass_functions=functions)
    return Order(task, manifest, out, requires, (900, 901), code or curation.code_digest())


def outcome(order: Order) -> Outcome:
    return build_one(
        order, make_environment=support.ready_environment, open_bench=support.REPLAY.open
    )


def test_an_eligible_task_has_its_figures_and_its_steps_on_disk(home: Path) -> None:
    manifest = support.manifest(home / "good")
    done = outcome(order(manifest, home / "out"))
    assert (done.kind, done.ok, done.message) == (Kind.ELIGIBLE, True, "4 fail-to-pass functions")
    assert done.disk_bytes == disk_bytes(home / "out", support.TASK) > 0
    assert done.peak_memory_bytes > 0
    log = Places(home / "out", support.TASK).log.read_text()
    steps = [line.split("  step ")[1] for line in log.splitlines() if "  step " in line]
    assert steps == [
        "environment", "sources", "suites", "compartments", "certificate", "requirements"
    ]  # fmt: skip


def test_too_few_functions_fail_the_build_and_not_the_task(home: Path) -> None:
    manifest = support.manifest(home / "good")
    done = outcome(order(manifest, home / "out", functions=9))
    assert (done.kind, done.step, done.ok) == (Kind.FAILED, "requirements", False)
    assert "4 fail-to-pass functions, and the manifest requires 9" in done.message
    assert read_built(home / "out", support.TASK) is not None


def test_a_pilot_need_not_have_what_the_list_requires(home: Path) -> None:
    manifest = support.manifest(home / "pilot", task_id="pilot")
    manifest.write_text(manifest.read_text() + "    pilot: true\n")
    assert outcome(order(manifest, home / "out", functions=9)).ok


def test_a_rejection_is_no_failure_but_has_to_be_expected(home: Path) -> None:
    manifest = support.manifest(home / "bad", fixed=UNTESTED, task_id="bad")
    done = outcome(order(manifest, home / "out"))
    assert (done.kind, done.rule, done.ok) == (Kind.REJECTED, "tests-present", False)
    manifest.write_text(manifest.read_text() + "    rejected_by: tests-present\n")
    done = outcome(order(manifest, home / "out"))
    assert (done.kind, done.rule, done.ok) == (Kind.REJECTED, "tests-present", True)


@pytest.mark.parametrize("defect", [False, True])
def test_a_failure_names_its_step_and_shows_the_end_of_the_log(home: Path, defect: bool) -> None:
    def failing(*_: object) -> str:
        error = ZeroDivisionError("oops") if defect else BadInput("env.txt", "x", "is bad", "Mend.")
        error.add_note("\n".join(f"line {n}" for n in range(100)))
        raise error

    manifest = support.manifest(home / "failing", task_id="failing")
    done = build_one(order(manifest, home / "out"), make_environment=failing, open_bench=never)
    assert (done.kind, done.step) == (Kind.FAILED, "environment")
    assert ("ZeroDivisionError: oops" if defect else "is bad. Mend.") in done.message
    assert done.log.splitlines()[-1].endswith("line 99")
    assert "line 0" in Places(home / "out", "failing").log.read_text()


def test_another_version_of_the_code_is_refused(home: Path) -> None:
    manifest = support.manifest(home / "good")
    done = outcome(order(manifest, home / "out", code="0" * 64))
    assert done.kind is Kind.FAILED and "imports code" in done.message


def test_an_unknown_task_is_named(home: Path) -> None:
    manifest = support.manifest(home / "good")
    with pytest.raises(BadInput, match="no task 'other'"):
        build_tasks(load(manifest, TaskManifest), manifest, home / "out", only=["other"])


def many(home: Path) -> Path:
    """One manifest: an eligible task, a standing negative, one that cannot be built."""
    entries = []
    for name, fixed in (("one", support.FIXED), ("none", UNTESTED)):
        path = support.manifest(home / "many", fixed=fixed, task_id=name)
        entries += yaml.safe_load(path.read_text())["tasks"]
    entries[1]["rejected_by"] = "tests-present"
    broken = {**entries[0], "id": "broken", "environment": {"python": "3.7", "requirements": "x"}}
    text = yaml.safe_dump({"schema": "factorial/tasks@1", "tasks": [*entries, broken]})
    path.write_text(text)
    return path


def ready(path: Path, out: Path) -> None:
    """Put the copied environment where a build of this manifest looks for it."""
    task = load(path, TaskManifest).tasks[0]
    name = curation.environment_id(task.environment, path)
    support.evaluator_support.build_environment(out / "environments" / name)


def test_many_side_by_side_and_nothing_is_started_for_what_is_settled(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = many(home), home / "side"
    (out / "environments").mkdir(parents=True)
    ready(path, out)
    manifest, seen, ended = load(path, TaskManifest), dict[str, str](), list[str]()
    first = build_tasks(
        manifest,
        path,
        out,
        jobs=2,
        watch=seen.update,
        ended=lambda outcome: ended.append(outcome.task_id),
    )
    assert [(o.task_id, o.kind.value, o.ok) for o in first] == [
        ("one", "eligible", True),
        ("none", "rejected", True),
        ("broken", "failed", False),
    ], first
    assert sorted(ended) == ["broken", "none", "one"]
    assert "one" in seen
    facts = read_built(out, "one")
    monkeypatch.setattr(curation, "connect", no_ray)
    again = build_tasks(manifest, path, out, only=["one", "none"], jobs=2)
    assert [o.ok for o in again] == [True, True]
    assert read_built(out, "one") == facts


def no_ray(*_: object) -> None:
    raise InfrastructureFault("node", "nothing is owed, so nothing may be started")
