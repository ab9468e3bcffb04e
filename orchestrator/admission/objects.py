"""Trees kept outside every worktree, content-addressed: what was put in comes out exactly.

``blobs/<sha256>`` hold contents, ``trees/<state_id>.json`` hold modes and paths. Everything appears
by one rename and is checked against its name when it is read.
"""

import json
from pathlib import Path

from orchestrator.admission.files import write_once
from orchestrator.repo.files import Files, check_files, disk_faults, tree_of
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, sha256_hex


class ObjectStore:
    """A folder of trees."""

    def __init__(self, path: Path) -> None:
        self._blobs, self._trees = path / "blobs", path / "trees"
        with disk_faults():
            for folder in (self._blobs, self._trees):
                folder.mkdir(parents=True, exist_ok=True)

    def put(self, files: Files) -> str:
        """Keep a tree; returns its state id. On disk before this returns."""
        check_files(files)
        for _, data in files.values():
            write_once(self._blobs / sha256_hex(data), data)
        tree = tree_of(files)
        entries = {path: [entry.mode, entry.sha256] for path, entry in tree.entries.items()}
        write_once(self._trees / f"{tree.state_id}.json", canonical_json(entries))
        return tree.state_id

    def get(self, state_id: str) -> Files:
        """The tree of that id. IntegrityError where it is absent or not what it was."""
        raw = _read(self._trees / f"{state_id}.json")
        try:
            listed = {
                path: (int(mode), str(name)) for path, (mode, name) in json.loads(raw).items()
            }
        except (ValueError, TypeError, AttributeError):
            raise IntegrityError(f"tree {state_id[:12]}", "is not a tree") from None
        files = {path: (mode, _read(self._blobs / name)) for path, (mode, name) in listed.items()}
        if tree_of(files).state_id != state_id:
            raise IntegrityError(f"tree {state_id[:12]}", "does not match its identity")
        return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IntegrityError(str(path), f"cannot be read ({error.strerror})") from None
