"""Runs a task's tests on a tree inside a fresh sandbox and says what each id did.

The supervisor stays outside and never imports candidate code; exit codes decide nothing. What is
absent from the report is absent from :attr:`TestRun.outcomes`; what does not belong there is named.

Limit: candidate code lives in the interpreter that runs the tests. The report's key reaches the
launcher through a pipe that it empties before any candidate code is loaded, so blind forgery
(appending lines, replacing the file, forked children) is detected; with a :class:`Watch`, so is
code that searches the interpreter's memory or replaces the runner's functions, as far as
:mod:`orchestrator.evaluator.plugin.factorial_watch` looks.
"""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import ClassVar

from orchestrator.evaluator.canonical import canonical, short
from orchestrator.evaluator.ground import KEY, PYTEST_ARGUMENTS, REPO, REPORT, SUITE_LIMITS, Ground
from orchestrator.evaluator.hardening import Watch
from orchestrator.evaluator.report import Report, read_report
from orchestrator.repo.files import disk_faults
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.identity import canonical_json
from orchestrator.spec.ports import Command, Completed, ExitClass, Limits, Sandbox

PLUGIN_FOLDER = Path(__file__).parent / "plugin"
WATCHING = ("factorial_hook.py", "factorial_watch.py")
REPORTING = ("factorial_report.py", *WATCHING)
LOG_TAIL_CHARS = 8_000
MESSAGE_CHARS = 2_000
"""What the launcher keeps of a message; more comes only from a forged one."""
DISK_RESERVE_BYTES = 64 << 20


@dataclass(frozen=True)
class TestRun:
    """What one run of tests showed.

    ``outcomes``: id -> ``passed | failed | error | skipped | xfailed | xpassed``, only for tests
    that came to their end. ``messages`` (canonical, at most 400 characters) only for failed and
    error. ``finished``: pytest came to its own end and said so. ``repeated``: ids that were
    collected or reported more than once; ``unexpected``: reported but not wanted; ``malformed``:
    what is wrong with the report, or empty. ``tampered``: rules of the watcher that were broken,
    and by what. ``peak_memory_bytes`` is None where not measured.
    """

    __test__: ClassVar[bool] = False  # not a test class, whatever its name

    outcomes: dict[str, str]
    messages: dict[str, str]
    collection_errors: dict[str, str]
    finished: bool
    exit_class: ExitClass
    timed_out: bool
    duration_seconds: float
    peak_memory_bytes: int | None
    log_tail: str
    collected: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    malformed: str = ""
    tampered: dict[str, str] = field(default_factory=dict)

    @property
    def forged(self) -> bool:
        """The report is not one that an untouched launcher writes: no line of it counts."""
        return bool(self.malformed or self.repeated or self.unexpected)

    @property
    def void(self) -> bool:
        """No line of the report counts: it is forged, or the runner was tampered with."""
        return self.forged or bool(self.tampered)

    @property
    def clean(self) -> bool:
        """Finished, and neither stopped by a limit nor killed; the exit code itself is ignored."""
        return self.finished and self.exit_class in (ExitClass.OK, ExitClass.FAILED)


def run_tests(
    sandbox: Sandbox,
    ground: Ground,
    tree: Path,
    ids: Sequence[str] | None,
    *,
    wall_seconds: float,
    scratch: Path,
    limits: Limits | None = None,
    hash_seed: int = 0,
    order_seed: int | None = None,
    watch: Watch | None = None,
    authentic: bool = True,
) -> TestRun:
    """Run the wanted ids (None: everything under the ground's test paths) on the tree.

    ``tree`` is a directory with the suite's files already laid down; it is shown read-only. The
    run ends after ``wall_seconds``, whatever ``limits`` say of time. ``order_seed`` shuffles the
    tests (curation), ``hash_seed`` is PYTHONHASHSEED. ``watch``: look for tampering from inside.
    ``authentic`` off: whatever reads like a report is believed. Raises InfrastructureFault where
    the sandbox failed.
    """
    key = secrets.token_bytes(32)
    with desk(scratch, REPORTING) as (plugin, report_file), offered(plugin / "key", key):
        command = Command(
            argv=ground.argv(),
            cwd=REPO,
            env=ground.variables(hash_seed),
            mounts=ground.mounts(tree, plugin, report_file),
            limits=run_limits(limits, wall_seconds),
            stdin=order(ground, tree, ids, watch, order_seed=order_seed),
        )
        started = time.time()
        completed = sandbox.run(command)
        report = read_report(report_file, key, authentic=authentic)
        check_host(completed, report.finished, scratch)
        return _test_run(report, completed, ids if authentic else None, started, authentic)


@contextmanager
def desk(scratch: Path, sources: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """A directory with the launcher (readable) and an empty report that any user may write.

    The sandbox is shown the report as one file, not a directory: it can neither be replaced nor
    joined by others, and the file-size limit bounds what it costs the host's disk.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with disk_faults():
        desk = Path(tempfile.mkdtemp(prefix=f"factorial-{os.getpid()}-run-", dir=scratch))
    try:
        desk.chmod(0o711)  # passable for the sandbox's user, not listable
        plugin, report = desk / "plugin", desk / "report.jsonl"
        plugin.mkdir()
        report.touch()
        plugin.chmod(0o755)
        report.chmod(0o666)
        for name in sources:
            shutil.copyfile(PLUGIN_FOLDER / name, plugin / name)
            (plugin / name).chmod(0o644)
        yield plugin, report
    finally:
        shutil.rmtree(desk, ignore_errors=True)


@contextmanager
def offered(path: Path, key: bytes) -> Iterator[None]:
    """The key in a named pipe, to be had once. Standard input would not do: a sandbox may give it
    as a file, which candidate code of the same user could open and read again.
    """
    os.mkfifo(path)
    path.chmod(0o644)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(descriptor, key)
        yield
    finally:
        os.close(descriptor)


def check_host(completed: Completed, finished: bool, scratch: Path) -> None:
    """InfrastructureFault where it was not the candidate that stopped the run or its report."""
    if completed.exit_class is ExitClass.ENGINE_FAULT:
        raise InfrastructureFault("engine", "the sandbox could not run a suite")
    if not finished and shutil.disk_usage(scratch).free < DISK_RESERVE_BYTES:
        raise InfrastructureFault("disk", f"{scratch} is full; a report may have been cut")


def order(
    ground: Ground, tree: Path, ids: Sequence[str] | None, watch: Watch | None, **more: int | None
) -> bytes:
    """What a launcher reads from its standard input; candidate code may read it, too."""
    return canonical_json(
        {
            **more,
            "arguments": [*PYTEST_ARGUMENTS, *ground.targets(tree, ids)],
            "ids": None if ids is None else list(ids),
            "key": KEY,
            "path": [REPO, ground.import_path],
            "pythonpath": ground.import_path,
            "report": REPORT,
            "watch": None if watch is None else _watch_order(watch),
        }
    )


def _watch_order(watch: Watch) -> dict[str, list[str]]:
    """What the watcher reads, with places as they are inside the sandbox."""
    sealed = [f"{REPO}/{path}" for path in watch.sealed if path.endswith(".py")]
    return {"sealed": sealed, "unwatched": list(watch.unwatched)}


def run_limits(limits: Limits | None, wall_seconds: float) -> Limits:
    """The given limits with this run's wall clock, and CPU time of two processors for that long."""
    cpu_seconds = 2 * ceil(wall_seconds)
    return replace(limits or SUITE_LIMITS, wall_seconds=wall_seconds, cpu_seconds=cpu_seconds)


def _test_run(
    report: Report,
    completed: Completed,
    ids: Sequence[str] | None,
    started: float,
    authentic: bool,
) -> TestRun:
    wanted = None if ids is None else frozenset(ids)
    reported = [*report.collected, *report.outcomes]
    unexpected = () if wanted is None else tuple(sorted({*reported} - wanted))
    return TestRun(
        outcomes=report.outcomes,
        messages={test_id: _message(text, started) for test_id, text in report.messages.items()},
        collection_errors={
            path: _message(text, started) for path, text in report.collection_errors.items()
        },
        finished=report.finished,
        exit_class=completed.exit_class,
        timed_out=completed.exit_class is ExitClass.TIMEOUT,
        duration_seconds=completed.wall_seconds,
        peak_memory_bytes=completed.peak_memory_bytes,
        log_tail=_tail(completed),
        collected=tuple(report.collected),
        repeated=tuple(sorted(report.repeated)) if authentic else (),
        unexpected=unexpected,
        malformed=report.malformed,
        tampered=report.tampered,
    )


def _message(text: str, now: float) -> str:
    return short(canonical(text[:MESSAGE_CHARS], now))


def _tail(completed: Completed) -> str:
    text = (completed.stdout + completed.stderr).decode("utf-8", "replace")
    return text[-LOG_TAIL_CHARS:]
