"""Files that appear whole and are never overwritten."""

import os
import tempfile
from pathlib import Path

from orchestrator.repo.files import disk_faults


def write_once(path: Path, data: bytes) -> None:
    """Write, fsync, rename. A name that is there already is left as it is."""
    if path.exists():
        return
    with disk_faults():
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).rename(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
