"""Lock files as a person meets them: writing one, reading one, telling one from a study.

Every mistake is found before anything is built or run, and named with file, field and remedy.
"""

import json
import os
from pathlib import Path

from orchestrator.spec.errors import BadInput, LockMismatch
from orchestrator.spec.freeze import lock_content
from orchestrator.spec.lock import Lock
from orchestrator.spec.manifest import read_text, validate

FREEZE = "Give a lock that `factorial freeze` wrote."


def lock_bytes(lock: Lock) -> bytes:
    """The lock file: JSON, keys sorted, one value a line."""
    text = json.dumps(lock_content(lock), indent=1, sort_keys=True, ensure_ascii=False)
    return (text + "\n").encode()


def is_lock(path: Path) -> bool:
    """Whether a file to run is a lock (by name, or a JSON object in it), not a YAML study."""
    return path.suffix == ".json" or read_text(path).lstrip().startswith("{")


def read_lock(path: Path) -> Lock:
    """Read a lock file and check that its id is the digest of its content."""
    try:
        data = json.loads(read_text(path))
    except ValueError as error:
        raise BadInput(str(path), "", f"not JSON ({error})", FREEZE) from None
    if not isinstance(data, dict) or "lock_id" not in data:
        raise BadInput(str(path), "", "not a lock", FREEZE)
    lock = validate(data, Lock, str(path))
    if lock.lock_id != Lock.digest(lock_content(lock)):
        raise LockMismatch(str(path), ("lock_id: the lock's content was edited after freezing",))
    return lock


def study_of(lock: Lock, lock_path: Path) -> Path:
    """The study file that a lock was made from.

    Looked for from the working directory, then from each folder above the lock file, so that a run
    goes on from wherever one stands.
    """
    named = Path(lock.study_path)
    for folder in (Path(), *lock_path.resolve().parents):
        if (folder / named).is_file():
            return folder / named
    raise BadInput(
        str(lock_path),
        "study_path",
        f"no file {named} here or above the lock",
        "Call from the folder in which the study was frozen.",
    )


def require_writable_file(path: Path, option: str) -> None:
    """Refuse an output file that cannot be written."""
    if path.is_dir():
        raise BadInput("command line", option, f"{path} is a folder", "Name a file.")
    require_folder(path.parent, option)


def require_folder(path: Path, option: str) -> None:
    """Refuse an output folder that cannot be made or written; makes nothing itself."""
    here = path.absolute()
    existing = next(folder for folder in (here, *here.parents) if os.path.lexists(folder))
    if not existing.is_dir():
        raise BadInput("command line", option, f"{existing} is not a folder", "Name another place.")
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = "Name a folder of your own."
        raise BadInput("command line", option, f"{existing} is not writable", remedy)


def require_home(path: Path) -> None:
    """Refuse a run's folder that is a file, is not writable or holds something else."""
    require_folder(path, "--root")
    found = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    foreign = [name for name in found if not name.endswith(".tmp")]
    if foreign and "lock.json" not in foreign:
        raise BadInput(
            str(path),
            "",
            f"holds files but no lock.json (first: {foreign[0]})",
            "Give a new or empty folder to --root.",
        )
