"""``factorial freeze``, ``run`` and ``replay``: from a study file to a printed decision."""

import json
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from orchestrator.cli.decision import decide
from orchestrator.cli.progress import RunView
from orchestrator.cluster.driver import run_rollouts
from orchestrator.cluster.replaying import replay as replay_matrix
from orchestrator.cluster.resolve import freeze_study, require_match
from orchestrator.cluster.session import Settings, session
from orchestrator.sandbox.capabilities import require
from orchestrator.sandbox.reaper import reap
from orchestrator.spec.errors import BadInput, LockMismatch
from orchestrator.spec.freeze import lock_content
from orchestrator.spec.lock import Lock
from orchestrator.spec.manifest import load, read_text
from orchestrator.spec.study import Study
from orchestrator.store.files import write_atomic
from orchestrator.store.reading import compact, owed
from orchestrator.store.root import Root
from orchestrator.store.writer import Writer

TasksDir = Annotated[
    Path,
    typer.Option(
        "--tasks", help="Folder of built tasks; built on demand.", envvar="FACTORIAL_TASKS"
    ),
]
DEFAULT_TASKS = Path("build/tasks")


class Stage(StrEnum):
    """How far ``factorial run`` goes."""

    ROLLOUTS = "rollouts"
    REPLAY = "replay"
    REPORT = "report"


def lock_bytes(lock: Lock) -> bytes:
    """The lock file: JSON, keys sorted, one value a line."""
    text = json.dumps(lock_content(lock), indent=1, sort_keys=True, ensure_ascii=False)
    return (text + "\n").encode()


def read_lock(path: Path) -> Lock:
    """Read a lock file and check that its id is the digest of its content."""
    try:
        lock = Lock.model_validate_json(read_text(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInput(str(path), field, str(first["msg"]), "Freeze the study again.") from None
    if lock.lock_id != Lock.digest(lock_content(lock)):
        raise LockMismatch(str(path), ("lock_id: the lock's content was edited after freezing",))
    return lock


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
    lock = freeze_study(study, tasks, _say(as_json))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, lock_bytes(lock))
    _summarise(lock, out, as_json)


def run(
    target: Annotated[Path, typer.Argument(help="Study manifest (YAML) or lock (JSON).")],
    root: Annotated[
        Path | None, typer.Option(help="Folder of the run's files; runs/<study> where absent.")
    ] = None,
    tasks: TasksDir = DEFAULT_TASKS,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster; `auto` inside a Ray job. Local where absent.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Rollouts at a time; the number of CPUs where absent.")
    ] = os.cpu_count() or 1,
    through: Annotated[Stage, typer.Option(help="Last stage to carry out.")] = Stage.REPORT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Run a study, or go on with a half-finished run.

    Example: `factorial run manifests/studies/quickstart.yaml --root runs/quickstart`
    """
    require()
    lock, opened, study_path = _open(target, root, tasks, _say(as_json))
    settings = _settings(lock, opened, tasks, study_path, address, workers)
    with opened.writer():
        reap(opened.path / "tmp")
        writer = Writer(opened, lock)
        writer.close_abandoned()
        if owed(lock, opened):
            with session(lock, settings, coder=True) as live, RunView(lock, opened) as view:
                run_rollouts(lock, opened, writer, live.make_worker, workers, view)
        if through is not Stage.ROLLOUTS:
            _replay(lock, opened, writer, settings)
        compact(opened)
    if through is Stage.REPORT:
        decide(lock, opened, as_json)


def replay(
    root: Annotated[Path, typer.Argument(help="Folder of a run whose rollouts are all settled.")],
    tasks: TasksDir = DEFAULT_TASKS,
    address: Annotated[str | None, typer.Option(help="Ray cluster. Local where absent.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Evaluators.")] = os.cpu_count() or 1,
) -> None:
    """Validate the matrix, unseal, and judge every proposal in evaluator-owned worktrees.

    Example: `factorial replay runs/quickstart`
    """
    require()
    opened = Root.existing(root)
    lock = opened.lock()
    require_match(lock, str(root / "lock.json"), Path(lock.study_path), tasks, _say(False))
    settings = _settings(lock, opened, tasks, Path(lock.study_path), address, workers)
    with opened.writer():
        _replay(lock, opened, Writer(opened, lock), settings)
        compact(opened)


def _settings(
    lock: Lock, root: Root, tasks: Path, study_path: Path, address: str | None, workers: int
) -> Settings:
    return Settings(
        root=root.path.resolve(),
        tasks_dir=tasks.resolve(),
        prompts_dir=(study_path.parent / str(lock.study["prompts"])).resolve(),
        address=address or os.environ.get("RAY_ADDRESS"),
        workers=workers,
    )


def _replay(lock: Lock, root: Root, writer: Writer, settings: Settings) -> None:
    planned = [rollout.rollout_id for rollout in lock.rollouts]
    if all(root.evaluation_path(rollout_id).exists() for rollout_id in planned):
        return
    say = _say(False)

    def report(done: int, total: int) -> None:
        if done == total or done % 10 == 0:
            say(f"replay: {done} of {total} distinct candidates judged")

    with session(lock, settings, coder=False) as live:
        replay_matrix(lock, root, writer, live.evaluators, report)


def _open(
    target: Path, root: Path | None, tasks: Path, say: Callable[[str], None]
) -> tuple[Lock, Root, Path]:
    """The lock to run, its root, and the study file; refuses anything that differs."""
    if target.suffix == ".json":
        lock = read_lock(target)
        study_path = Path(lock.study_path)
        require_match(lock, str(target), study_path, tasks, say)
        home = root or Path("runs") / str(lock.study["name"])
        return lock, Root.open(home, lock_bytes(lock)), study_path
    home = root or Path("runs") / load(target, Study).name
    if (home / "lock.json").exists():
        lock = read_lock(home / "lock.json")
        require_match(lock, str(home / "lock.json"), target, tasks, say)
    else:
        lock = freeze_study(target, tasks, say)
    return lock, Root.open(home, lock_bytes(lock)), target


def _say(quiet: bool) -> Callable[[str], None]:
    return lambda line: None if quiet else typer.echo(line, err=True)


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
