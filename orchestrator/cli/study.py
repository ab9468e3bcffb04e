"""``factorial freeze``, ``run`` and ``replay``: from a study file to a printed decision."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from analysis.plan import parse_plan
from orchestrator.cli.decision import decide
from orchestrator.cli.locks import (
    is_lock,
    lock_bytes,
    read_lock,
    require_home,
    require_writable_file,
    study_of,
)
from orchestrator.cli.progress import RunView, report_progress
from orchestrator.cluster.curation import CPUS_PER_BUILD, MAX_JOBS
from orchestrator.cluster.driver import run_rollouts
from orchestrator.cluster.replaying import replay as replay_matrix
from orchestrator.cluster.resolve import Crew, freeze_study, require_match
from orchestrator.cluster.session import Settings, session
from orchestrator.sandbox.capabilities import require
from orchestrator.sandbox.reaper import reap
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.lock import Lock
from orchestrator.spec.manifest import load
from orchestrator.spec.plan import plan_of
from orchestrator.spec.study import Study
from orchestrator.store.files import write_atomic
from orchestrator.store.integrity import validate_evaluations
from orchestrator.store.reading import compact, owed
from orchestrator.store.root import Root
from orchestrator.store.writer import Writer

TasksDir = Annotated[
    Path,
    typer.Option(
        "--tasks", help="Folder of built tasks; built on demand.", envvar="FACTORIAL_TASKS"
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster; `auto` on one of its nodes. A local one is started where absent.",
        envvar="RAY_ADDRESS",
    ),
]
DEFAULT_TASKS = Path("build/tasks")
REAP_SECONDS = 10.0


class Stage(StrEnum):
    """How far ``factorial run`` goes."""

    ROLLOUTS = "rollouts"
    REPLAY = "replay"
    REPORT = "report"


def freeze(
    study: Annotated[Path, typer.Argument(help="Study manifest (YAML).")],
    out: Annotated[Path, typer.Option(help="Lock file to write.")],
    tasks: TasksDir = DEFAULT_TASKS,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary.")] = False,
) -> None:
    """Resolve, hash and enumerate a study into a lock.

    Example: `factorial freeze manifests/studies/quickstart.yaml --out quickstart.lock.json`
    """
    require()
    require_writable_file(out, "--out")
    lock = _frozen(study, tasks, _crew(os.cpu_count() or 1))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, lock_bytes(lock))
    _summarise(lock, out, as_json)


def run(
    target: Annotated[Path, typer.Argument(help="Study manifest (YAML) or lock (JSON).")],
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of the run's files; `runs/NAME` of the study where absent."),
    ] = None,
    tasks: TasksDir = DEFAULT_TASKS,
    address: Address = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Rollouts at a time; the number of CPUs where absent.")
    ] = os.cpu_count() or 1,
    through: Annotated[Stage, typer.Option(help="Last stage to carry out.")] = Stage.REPORT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the decision (or the progress) as JSON.")
    ] = False,
) -> None:
    """Run a study, or go on with a half-finished run.

    Example: `factorial run manifests/studies/quickstart.yaml --root runs/quickstart`
    """
    require()
    lock, opened, study_path = _open(target, root, tasks, _crew(workers, address))
    settings = _settings(lock, opened, tasks, study_path, address, workers)
    with _writing(opened, lock) as writer:
        if owed(lock, opened):
            with session(lock, settings, coder=True) as live, RunView(lock, opened) as view:
                run_rollouts(lock, opened, writer, live.make_worker, workers, view)
        if through is not Stage.ROLLOUTS:
            _replay(lock, opened, writer, settings)
        compact(opened)
    if through is Stage.REPORT:
        decide(lock, opened, as_json)
    else:
        report_progress(opened, lock, as_json)


def replay(
    root: Annotated[Path, typer.Argument(help="Folder of a run whose rollouts are all settled.")],
    tasks: TasksDir = DEFAULT_TASKS,
    address: Address = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Evaluators; the number of CPUs where absent.")
    ] = os.cpu_count() or 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the progress as JSON.")] = False,
) -> None:
    """Validate the matrix, unseal, and judge every proposal in evaluator-owned worktrees.

    Example: `factorial replay runs/quickstart`
    """
    require()
    opened = Root.existing(root)
    lock = opened.lock()
    study_path = study_of(lock, opened.lock_path)
    require_match(lock, str(root / "lock.json"), study_path, tasks, _say)
    settings = _settings(lock, opened, tasks, study_path, address, workers)
    with _writing(opened, lock) as writer:
        _replay(lock, opened, writer, settings)
        compact(opened)
    report_progress(opened, lock, as_json)


@contextmanager
def _writing(root: Root, lock: Lock) -> Iterator[Writer]:
    """The root's writer; before and after, what dead processes left is removed."""
    with root.writer():
        _reap(root)
        try:
            writer = Writer(root, lock)
            writer.close_abandoned()
            yield writer
        finally:
            _reap(root)


def _reap(root: Root) -> None:
    """Remove what actors left; waits a little for those that are about to end."""
    deadline = time.monotonic() + REAP_SECONDS
    while True:
        for scratch in (root.path / "tmp", *root.path.glob("tmp/*"), *root.path.glob("cache/*")):
            reap(scratch)
        left = [*root.path.glob("tmp/*/factorial-*"), *root.path.glob("cache/*/factorial-*")]
        if not left or time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _settings(
    lock: Lock, root: Root, tasks: Path, study_path: Path, address: str | None, workers: int
) -> Settings:
    return Settings(
        root=root.path.resolve(),
        tasks_dir=tasks.resolve(),
        prompts_dir=(study_path.parent / str(lock.study["prompts"])).resolve(),
        address=address or None,
        workers=workers,
    )


def _replay(lock: Lock, root: Root, writer: Writer, settings: Settings) -> None:
    planned = [rollout.rollout_id for rollout in lock.rollouts]
    if not all(root.evaluation_path(rollout_id).exists() for rollout_id in planned):
        _judge(lock, root, writer, settings)
    # A record that was removed and made again may have other proposals than were judged.
    if findings := validate_evaluations(lock, root):
        raise IntegrityError(
            str(root.evaluations), f"{findings[0]}; remove that rollout's file and replay again"
        )


def _judge(lock: Lock, root: Root, writer: Writer, settings: Settings) -> None:
    def report(done: int, total: int) -> None:
        if done == total or done % 10 == 0:
            _say(f"replay: {done} of {total} distinct candidates judged")

    with session(lock, settings, coder=False) as live:
        replay_matrix(lock, root, writer, live.evaluators, report)


def _crew(cpus: int, address: str | None = None) -> Crew:
    """As many builds at a time as there are processors for."""
    return Crew(min(MAX_JOBS, max(1, cpus // CPUS_PER_BUILD)), address or None)


def _open(target: Path, root: Path | None, tasks: Path, crew: Crew) -> tuple[Lock, Root, Path]:
    """The lock to run, its root, and the study file; refuses anything that differs."""
    if is_lock(target):
        lock = read_lock(target)
        home, study_path = root or Path("runs") / str(lock.study["name"]), study_of(lock, target)
        require_home(home)
        require_match(lock, str(target), study_path, tasks, _say, crew)
        return lock, Root.open(home, lock_bytes(lock)), study_path
    home = root or Path("runs") / load(target, Study).name
    require_home(home)
    if (home / "lock.json").exists():
        lock = read_lock(home / "lock.json")
        require_match(lock, str(home / "lock.json"), target, tasks, _say, crew)
    else:
        lock = _frozen(target, tasks, crew)
    return lock, Root.open(home, lock_bytes(lock)), target


def _frozen(study: Path, tasks: Path, crew: Crew) -> Lock:
    """A new lock; what the analysis could not analyse is refused before anything is spent."""
    lock = freeze_study(study, tasks, _say, crew)
    parse_plan(plan_of(lock), str(study))
    return lock


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _summarise(lock: Lock, out: Path, as_json: bool) -> None:
    facts = {
        "lock": str(out),
        "lock_id": lock.lock_id,
        "tasks": len(lock.tasks),
        "rollouts": len(lock.rollouts),
        "simulated": lock.simulated,
    }
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        typer.echo(
            f"{out}: {facts['tasks']} tasks, {facts['rollouts']} rollouts, lock {lock.lock_id[:12]}"
        )
