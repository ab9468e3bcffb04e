"""The requirements file of an imported task: given, found in a folder, or locked from a list.

A locked file is named by what it was made from, so that an import which was interrupted, or is
made again, does not ask the index twice.
"""

import os
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from orchestrator.repo.files import disk_faults
from orchestrator.spec.errors import BadInput
from orchestrator.spec.identity import digest_json
from orchestrator.tasks.compartments import write_whole
from orchestrator.tasks.importers.drafts import Draft, Request
from orchestrator.tasks.lockfile import listed_requirements, lock_requirements, read_list

Say = Callable[[str], None]


def requirements_path(draft: Draft, request: Request, folder: Path, say: Say) -> str:
    """Path of a draft's requirements file, relative to the manifest's folder.

    Locks go below ``folder``. BadInput names what is missing.
    """
    listed = _listed(draft, request)
    path = _locked(draft, listed, folder, say) if request.lock else listed
    return os.path.relpath(path.resolve(), request.out.parent.resolve())


def _listed(draft: Draft, request: Request) -> Path:
    given = request.requirements
    if given is not None and not given.is_dir():
        return given
    if given is not None:
        found = (given / f"{key}.txt" for key in draft.keys)
        path = next((path for path in found if path.is_file()), None)
        if path is None:
            names = ", ".join(f"{key}.txt" for key in draft.keys)
            raise BadInput(draft.row, "requirements", f"{given} has none of {names}", "Add one.")
        return path
    if request.lock and draft.requirements is not None and draft.requirements.is_file():
        return draft.requirements
    raise BadInput(
        draft.row,
        "requirements",
        "nothing says what its tests need",
        "Give --requirements with a file or a folder.",
    )


def _locked(draft: Draft, listed: Path, folder: Path, say: Say) -> Path:
    name = str(draft.source["name"])
    wanted = list(listed_requirements(read_list(listed), str(listed), name))
    if "pytest" not in {canonicalize_name(Requirement(line).name) for line in wanted}:
        wanted.append("pytest")  # the suites run under it, whatever the project uses
    digest = digest_json([sorted(wanted), draft.python, name])
    path = folder / "requirements" / f"{name}-{digest[:12]}.txt"
    if not path.is_file():
        say(f"{draft.task_id}: locking {listed} for Python {draft.python}")
        text = lock_requirements(wanted, draft.python, name, str(listed))
        with disk_faults():
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    return path
