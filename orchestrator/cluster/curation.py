"""Builds many tasks side by side, each in a process and with sandbox users of its own.

In: the tasks of one manifest and a folder, which every node has to reach under the same path. Out:
one :class:`Outcome` per task, whatever became of it: a task that fails does not stop the others.
What is settled already is not started again. Steps and output go to ``DIR/logs/<task>.log``.
"""

import os
import resource
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from orchestrator.cluster.actors import require_node
from orchestrator.cluster.code import code_digest
from orchestrator.cluster.session import connect
from orchestrator.spec.errors import BadInput, FactorialError, InfrastructureFault
from orchestrator.spec.task import Requires, Task, TaskManifest
from orchestrator.tasks.build import (
    CURATION_SLOTS,
    MakeEnvironment,
    OpenBench,
    build_task,
    sandbox_bench,
    settled,
)
from orchestrator.tasks.compartments import Places, prepare, read_measured
from orchestrator.tasks.eligibility import Ineligible, some
from orchestrator.tasks.environment import build_environment, environment_id
from orchestrator.tasks.required import require_functions

CPUS_PER_BUILD = 2
"""A build runs two suites side by side."""
MAX_JOBS = 48
"""Pairs of sandbox users that are left from :data:`CURATION_SLOTS` on."""
POLL_SECONDS = 0.5
LOG_LINES = 20


class Kind(StrEnum):
    """What became of a task. ``FAILED``: something went wrong, which says nothing of the task."""

    ELIGIBLE = "eligible"
    REJECTED = "rejected"
    FAILED = "failed"


@dataclass(frozen=True)
class Order:
    """One task to build. ``code``: digest of the code that has to do it."""

    task: Task
    manifest: Path
    out: Path
    requires: Requires
    slots: tuple[int, int]
    code: str


@dataclass(frozen=True)
class Outcome:
    """How one build ended. ``expected``: as its entry in the manifest says.

    ``step``: where it failed; ``message``: the counts, the rule's detail, or the error; ``log``:
    the end of what the failing program said. Seconds and bytes (``peak_memory_bytes``: of the
    builder; ``suite_peak_memory_bytes``: of the largest suite run, 0 where not measured).
    """

    task_id: str
    kind: Kind
    expected: bool
    rule: str
    step: str
    message: str
    log: str
    seconds: float
    disk_bytes: int
    peak_memory_bytes: int
    suite_peak_memory_bytes: int

    @property
    def ok(self) -> bool:
        return self.expected and self.kind is not Kind.FAILED


@dataclass
class Journal:
    """Steps of one build, on disk, so that whoever waits elsewhere can see them."""

    path: Path
    started: float = field(default_factory=time.monotonic)
    step: str = "start"

    def __call__(self, step: str) -> None:
        self.step = step
        self.write(f"step {step}")

    def write(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(f"{time.monotonic() - self.started:.1f} s  {text}\n")


Watch = Callable[[Mapping[str, str]], None]
"""Told now and then which tasks are being built, and the step that each is at."""
Ended = Callable[[Outcome], None]


# ------------------------------------------------------------------------------- one task


def build_one(
    order: Order,
    on_step: Callable[[str], None] = lambda _step: None,
    *,
    make_environment: MakeEnvironment = build_environment,
    open_bench: OpenBench | None = None,
) -> Outcome:
    """Build one task; every error becomes an outcome that names the step."""
    journal = _journal(order)

    def step(name: str) -> None:
        journal(name)
        on_step(name)

    try:
        _require_code(order)
        built = build_task(
            order.task,
            order.manifest,
            order.out,
            journal.write,
            step=step,
            make_environment=make_environment,
            open_bench=open_bench or partial(sandbox_bench, slots=order.slots),
        )
        if not order.task.pilot:
            step("requirements")
            require_functions(built, order.requires, order.manifest)
    except Ineligible as refusal:
        expected = refusal.rule == order.task.rejected_by
        return _outcome(
            order, journal, Kind.REJECTED, expected, refusal.detail, refusal.log, refusal.rule
        )
    except (FactorialError, OSError) as error:
        log = "\n".join(getattr(error, "__notes__", ()))
        return _outcome(order, journal, Kind.FAILED, False, str(error), log)
    except Exception as error:  # a defect of ours: named, and the other tasks go on
        message = f"{type(error).__name__}: {error}"
        return _outcome(order, journal, Kind.FAILED, False, message, traceback.format_exc())
    functions = some(built.fail_to_pass_functions, "fail-to-pass function")
    return _outcome(order, journal, Kind.ELIGIBLE, True, functions)


def _journal(order: Order) -> Journal:
    prepare(order.out)
    path = Places(order.out, order.task.id).log
    path.unlink(missing_ok=True)
    return Journal(path)


def _require_code(order: Order) -> None:
    present = code_digest()
    if present != order.code:
        problem = f"imports code {present[:12]}, the caller {order.code[:12]}"
        raise InfrastructureFault("node", f"a worker {problem}; give all nodes the same version")


def _outcome(
    order: Order,
    journal: Journal,
    kind: Kind,
    expected: bool,
    message: str,
    log: str = "",
    rule: str = "",
) -> Outcome:
    for line in (f"{kind.value} {rule}: {message}", *log.splitlines()):
        journal.write(line)
    measured = read_measured(order.out, order.task.id)
    return Outcome(
        task_id=order.task.id,
        kind=kind,
        expected=expected,
        rule=rule,
        step=journal.step,
        message=message,
        log="\n".join(log.splitlines()[-LOG_LINES:]),
        seconds=round(time.monotonic() - journal.started, 1),
        disk_bytes=disk_bytes(order.out, order.task.id),
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        suite_peak_memory_bytes=measured.suite_peak_memory_bytes if measured else 0,
    )


def disk_bytes(out: Path, task_id: str) -> int:
    """What the compartments of one task take on disk; what has several names counts once."""
    places, seen, total = Places(out, task_id), set[int](), 0
    for home in (places.agent, places.evaluator, places.gold):
        for folder, _, names in os.walk(home):
            for name in names:
                status = (Path(folder) / name).lstat()
                if status.st_ino not in seen:
                    seen.add(status.st_ino)
                    total += status.st_blocks * 512
    return total


# ------------------------------------------------------------------------------- many


def build_tasks(
    manifest: TaskManifest,
    path: Path,
    out: Path,
    *,
    only: Sequence[str] = (),
    jobs: int = 1,
    address: str | None = None,
    watch: Watch = lambda _steps: None,
    ended: Ended = lambda _outcome: None,
) -> list[Outcome]:
    """Build the tasks of a manifest, or only those named, ``jobs`` at a time; one outcome each.

    With one job and no cluster everything happens in this process. BadInput for an unknown name.
    """
    prepare(out)
    code = code_digest()
    orders = [
        Order(task, path.resolve(), out.resolve(), manifest.requires, CURATION_SLOTS, code)
        for task in chosen(manifest, path, only)
    ]
    outcomes = {}
    for outcome in _outcomes(orders, jobs, address, watch):
        ended(outcome)
        outcomes[outcome.task_id] = outcome
    return [outcomes[order.task.id] for order in orders]


def _outcomes(
    orders: Sequence[Order], jobs: int, address: str | None, watch: Watch
) -> Iterator[Outcome]:
    """What is settled first and here, since it only has to be read."""
    owed = [order for order in orders if not _is_settled(order)]
    local = address is None and min(jobs, len(owed)) <= 1
    for order in orders:
        if local or order not in owed:
            yield _build_here(order, watch)
    if not local and owed:
        with _ray(address, min(jobs, len(owed))):
            yield from _side_by_side(owed, jobs, watch)


def _build_here(order: Order, watch: Watch) -> Outcome:
    return build_one(order, lambda step: watch({order.task.id: step}))


def _is_settled(order: Order) -> bool:
    task, manifest = order.task, order.manifest
    try:
        return settled(task, manifest, order.out, environment_id(task.environment, manifest))
    except (FactorialError, OSError):
        return False  # the build will say what is wrong


def chosen(manifest: TaskManifest, path: Path, only: Sequence[str]) -> tuple[Task, ...]:
    """Tasks of a manifest by name, all where no name is given."""
    known = {task.id: task for task in manifest.tasks}
    for name in only:
        if name not in known:
            raise BadInput(str(path), "--task", f"no task {name!r}", "Use an id of the manifest.")
    return tuple(task for task in manifest.tasks if not only or task.id in only)


@contextmanager
def _ray(address: str | None, jobs: int) -> Iterator[None]:
    try:
        connect(address, CPUS_PER_BUILD * jobs)
        yield
    finally:
        ray.shutdown()


def _side_by_side(orders: Sequence[Order], jobs: int, watch: Watch) -> Iterator[Outcome]:
    """Outcomes as they come. A slot's users are free again when its build has ended."""
    waiting, free = list(reversed(orders)), [*range(jobs)]
    running: dict[Any, tuple[Order, int]] = {}
    # A process of its own for each build: nothing is left of one, and its memory is its own.
    remote = ray.remote(num_cpus=CPUS_PER_BUILD, max_calls=1, max_retries=0)(build_one)
    while waiting or running:
        while waiting and free:
            slot = free.pop(0)
            order = _with_slot(waiting.pop(), slot)
            Places(order.out, order.task.id).log.unlink(missing_ok=True)
            running[remote.remote(order)] = order, slot
        ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            order, slot = running.pop(reference)
            free.append(slot)
            yield _result(reference, order)
        watch({order.task.id: _step_of(order) for order, _ in running.values()})


def _with_slot(order: Order, slot: int) -> Order:
    first, second = (user + 2 * slot for user in CURATION_SLOTS)
    return Order(order.task, order.manifest, order.out, order.requires, (first, second), order.code)


def _result(reference: Any, order: Order) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except RayError as error:
        require_node()
        journal = Journal(Places(order.out, order.task.id).log, step=_step_of(order))
        problem = f"its process died ({type(error).__name__}); build again to go on"
        return _outcome(order, journal, Kind.FAILED, False, problem)
    return outcome


def _step_of(order: Order) -> str:
    """The last step that a build wrote down."""
    try:
        text = Places(order.out, order.task.id).log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "waiting"
    steps = [line.partition("  step ")[2] for line in text.splitlines() if "  step " in line]
    return steps[-1] if steps else "start"
