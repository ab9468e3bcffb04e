"""Lost, hung and failing actors, a dead Ray and a full disk, without any of them being real."""

import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayTaskError

from orchestrator.cli import study
from orchestrator.cluster import actors, driver, replaying
from orchestrator.cluster.actors import await_result
from orchestrator.spec.errors import BadInput, InfrastructureFault, IntegrityError
from orchestrator.store.reading import attempts, owed, settled
from orchestrator.store.root import Root
from orchestrator.store.writer import Writer
from tests.unit.store_support import complete_run, example_record, open_root, small_lock

LOCK = small_lock()
STATES = ("state_id", "state_before", "state_after", "final_state_id", "checkpoint_state_id")
IDS = [planned.rollout_id for planned in LOCK.rollouts]


class FakeRay:
    """References are callables that give the result or raise; ``nodes`` are alive or not."""

    def __init__(self) -> None:
        self.alive = True
        self.killed: list[object] = []
        self.dead: list[tuple[str, object]] = []
        head = SimpleNamespace(dead_processes=lambda: self.dead)
        self._private = SimpleNamespace(worker=SimpleNamespace(_global_node=head))

    def get(self, reference: Callable[[], Any], timeout: float | None = None) -> Any:
        return reference()

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[Any, Any]:
        return references[:1], references[1:]

    def kill(self, actor: object, no_restart: bool) -> None:
        self.killed.append(actor)

    def nodes(self) -> list[dict[str, bool]]:
        return [{"Alive": self.alive}]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    for module in (actors, driver, replaying):
        monkeypatch.setattr(module, "ray", fake)
    monkeypatch.setattr(actors, "RESTART_POLL_SECONDS", 0.0)
    return fake


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    opened = open_root(tmp_path / "root", LOCK)
    with opened.writer():
        yield opened


def raising(error: BaseException) -> Callable[[], Any]:
    def reference() -> Any:
        raise error

    return reference


class FakeActor:
    """Answers each call of ``ready`` or ``run`` with the next of ``answers``."""

    def __init__(self, *answers: Any) -> None:
        self.answers = deque(answers)
        self.asked = 0
        self.ready = self.run = SimpleNamespace(remote=self._next)

    def _next(self, *_: object) -> Callable[[], Any]:
        self.asked += 1
        answer = self.answers.popleft()
        return raising(answer) if isinstance(answer, BaseException) else lambda: answer


def test_a_loss_is_reported_once_the_successor_answers(ray: FakeRay) -> None:
    actor = FakeActor(ActorUnavailableError("restarting", None), GetTimeoutError(), True)
    with pytest.raises(InfrastructureFault, match="evaluator: its actor died"):
        await_result(raising(ActorDiedError()), "evaluator", 1.0, actor)
    assert actor.asked == 3
    assert ray.killed == []


def test_a_silent_actor_is_ended_so_that_it_has_a_successor(ray: FakeRay) -> None:
    actor = FakeActor(True)
    with pytest.raises(InfrastructureFault, match="server: no answer within 5 s"):
        await_result(raising(GetTimeoutError()), "server", 5.0, actor)
    assert ray.killed == [actor]


def test_a_successor_that_cannot_start_ends_the_wait(ray: FakeRay) -> None:
    actor = FakeActor(RayTaskError("ready", "", ValueError("no")))
    with pytest.raises(InfrastructureFault, match="its actor died"):
        await_result(raising(ActorDiedError()), "server", 5.0, actor)


def test_nobody_waits_for_a_successor_where_ray_has_ended(ray: FakeRay) -> None:
    ray.alive = False
    with pytest.raises(InfrastructureFault, match="node: "):
        await_result(raising(ActorDiedError()), "evaluator", 1.0, FakeActor())


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_dead_head_is_noticed_without_asking_it(ray: FakeRay, name: str) -> None:
    ray.dead = [("log_monitor", None)]
    actors.require_node()
    ray.dead.append((name, None))
    ray.nodes = raising(AssertionError("asked"))  # type: ignore[method-assign]
    with pytest.raises(InfrastructureFault, match=f"node: Ray's {name} died"):
        actors.require_node()


def test_an_error_inside_an_actor_comes_out_as_itself(ray: FakeRay) -> None:
    wrong = BadInput("environment", "KEY", "is not set", "Export it.")
    with pytest.raises(BadInput, match="KEY: is not set"):
        await_result(raising(RayTaskError("ready", "", wrong)), "server", 1.0)


def test_a_judgement_is_asked_for_again_when_its_evaluator_dies(ray: FakeRay) -> None:
    lost = InfrastructureFault("evaluator", "its actor died")
    answers = {"a": deque([lost, "A"]), "b": deque(["B"]), "c": deque([lost, lost, "C"])}
    counts: list[int] = []
    found = replaying.gather(
        [(key, _answering(queue)) for key, queue in answers.items()],
        ["one", "two"],
        1.0,
        lambda done, total: counts.append(done),
    )
    assert found == {"a": "A", "b": "B", "c": "C"}
    assert counts[-1] == 3


@pytest.mark.parametrize(("boundary", "asked"), [("evaluator", replaying.TRIES), ("node", 1)])
def test_a_judgement_is_not_asked_for_for_ever(ray: FakeRay, boundary: str, asked: int) -> None:
    answers = deque([InfrastructureFault(boundary, "gone")] * 9)
    with pytest.raises(InfrastructureFault, match="gone"):
        replaying.gather([("a", _answering(answers))], ["one"], 1.0, lambda *_: None)
    assert len(answers) == 9 - asked


def _answering(answers: deque[Any]) -> Callable[[Any], Any]:
    def call(_evaluator: object) -> Callable[[], Any]:
        answer = answers.popleft()
        return raising(answer) if isinstance(answer, BaseException) else lambda: answer

    return call


class FakeWorker:
    """Runs an attempt at once through ``perform(rollout_id, attempt_id)``."""

    def __init__(self, perform: Callable[[str, str], Any]) -> None:
        self.run = SimpleNamespace(
            remote=lambda planned, attempt_id, _journal: (
                lambda: perform(planned.rollout_id, attempt_id)
            )
        )


def drive(root: Root, perform: Callable[[str, str], Any], slots: int = 2) -> list[Any]:
    """Runs the driver with workers that do ``perform``; returns its events."""
    events: list[Any] = []
    writer = Writer(root, LOCK)
    writer.close_abandoned()
    worker = FakeWorker(perform)
    driver.run_rollouts(LOCK, root, writer, lambda _slot: worker, slots, events.append)
    return events


def fault(boundary: str) -> RayTaskError:
    return RayTaskError("run", "", InfrastructureFault(boundary, "gone"))


def test_attempts_that_fail_are_owed_again_and_then_settle_without_outcome(
    ray: FakeRay, root: Root
) -> None:
    def perform(rollout_id: str, attempt_id: str) -> Any:
        if rollout_id == IDS[0]:
            raise fault("evaluator")
        if rollout_id == IDS[1]:
            raise ActorDiedError()
        return example_record(LOCK, rollout_id, attempt_id)

    events = drive(root, perform)
    assert settled(root) == {IDS[0]: "infrastructure", IDS[1]: "unknown"} | dict.fromkeys(
        IDS[2:], "agent"
    )
    assert Counter(a.end.outcome for a in attempts(root) if a.end) == {
        "infrastructure": 3,
        "unknown": 3,
        "settled": 2,
    }
    again = [event.reason for event in events if event.settled_as is None]
    assert sorted(set(again)) == ["evaluator: gone", "worker: died (ActorDiedError)"]


def test_a_full_disk_uses_up_no_attempt(
    ray: FakeRay, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    def perform(_rollout_id: str, _attempt_id: str) -> Any:
        monkeypatch.setattr(driver.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
        raise fault("evaluator")

    with pytest.raises(InfrastructureFault, match="disk: 1 MiB free"):
        drive(root, perform)
    assert [attempt.end for attempt in attempts(root)] == [None, None]
    monkeypatch.undo()
    assert owed(LOCK, root) == IDS


def test_a_dead_ray_uses_up_no_attempt(ray: FakeRay, root: Root) -> None:
    def perform(_rollout_id: str, _attempt_id: str) -> Any:
        ray.alive = False
        raise ActorDiedError()

    with pytest.raises(InfrastructureFault, match="node: "):
        drive(root, perform)
    assert {attempt.end for attempt in attempts(root)} == {None}
    ray.alive = True
    drive(root, lambda rollout_id, attempt_id: example_record(LOCK, rollout_id, attempt_id))
    assert set(settled(root).values()) == {"agent"}


def test_tries_used_up_before_a_kill_settle_by_the_last_of_them(ray: FakeRay, root: Root) -> None:
    """The driver was killed after the third try's end and before the row, then once more."""
    writer = Writer(root, LOCK)
    for outcome in ("infrastructure", "infrastructure", "unknown"):
        attempt = writer.begin_attempt(IDS[0], {})
        writer.end_attempt(attempt, outcome, f"{outcome}: gone")
    writer.end_attempt(writer.begin_attempt(IDS[0], {}), "abandoned", "the run was killed")
    drive(root, lambda rollout_id, attempt_id: example_record(LOCK, rollout_id, attempt_id))
    assert settled(root)[IDS[0]] == "unknown"


def test_a_record_with_a_file_removed_is_named_in_one_sentence(ray: FakeRay, root: Root) -> None:
    drive(root, lambda rollout_id, attempt_id: example_record(LOCK, rollout_id, attempt_id))
    (root.record_path(IDS[1]) / "rollout.parquet").unlink()
    with pytest.raises(IntegrityError, match=f"{IDS[1]}/rollout.parquet: is damaged"):
        owed(LOCK, root)


def test_a_record_made_again_is_not_analysed_with_the_old_judgement(tmp_path: Path) -> None:
    done = complete_run(tmp_path / "root", LOCK)
    settings: Any = None  # nothing is left to judge, so nothing is started
    with done.writer():
        writer = Writer(done, LOCK)
        study._replay(LOCK, done, writer, settings)
        shutil.rmtree(done.record_path(IDS[0]))
        again = example_record(LOCK, IDS[0], writer.begin_attempt(IDS[0], {}))
        again.proposals[0]["state_id"] = again.rollout["base_state_id"]
        for row in (*again.actions, *again.verdicts, again.rollout):
            row |= {k: again.rollout["base_state_id"] for k in row if k in STATES and row[k]}
        writer.commit(again)
        with pytest.raises(IntegrityError, match=f"{IDS[0]}: .*remove that rollout's file"):
            study._replay(LOCK, done, writer, settings)
