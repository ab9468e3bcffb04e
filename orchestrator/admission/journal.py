"""An append-only, hash-linked file: each line is on disk before the side effect it announces."""

import os
from pathlib import Path

from orchestrator.contract import ledger
from orchestrator.contract.ledger import Data, Head
from orchestrator.repo.files import disk_faults
from orchestrator.spec.errors import IntegrityError


class Journal:
    """One ledger file, created exclusively; lines as ``contract.ledger`` makes them."""

    def __init__(self, path: Path) -> None:
        self.head: Head = ledger.GENESIS
        self.lines: list[bytes] = []
        with disk_faults():
            self._stream = path.open("xb")

    def append(self, kind: str, data: Data) -> None:
        """Add one line; durable on return."""
        line, head = ledger.append(self.head, kind, data)
        with disk_faults():
            self._stream.write(line + b"\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self.lines.append(line)
        self.head = head

    def close(self) -> None:
        """No line follows."""
        self._stream.close()


def lines_of(path: Path) -> list[bytes]:
    """The lines of a ledger file. IntegrityError where it is missing or its last line is torn."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise IntegrityError(str(path), f"cannot be read ({error.strerror})") from None
    if not raw.endswith(b"\n"):
        raise IntegrityError(str(path), "does not end with a whole line")
    return raw[:-1].split(b"\n")
