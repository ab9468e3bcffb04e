"""The bench of a case: a managed project on disk, real sessions on it, and what they left.

Everything is real (trees, sandbox, ledgers, receipts) but the failure that a case injects.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.admission import receipt
from orchestrator.admission.conformance.fixtures import Fixture
from orchestrator.admission.identities import Identities
from orchestrator.admission.session import Session
from orchestrator.admission.verifier import CommandVerifier, Execution, Request, Verifier
from orchestrator.repo.files import REGULAR, Files, read_directory, write_directory
from orchestrator.sandbox.bwrap import BwrapSandbox

Answer = Callable[[Request, Verifier], Execution]


@dataclass(frozen=True)
class Deceiving:
    """A verifier between session and project that may answer something else than it was asked."""

    honest: Verifier
    answer: Answer

    def identities(self) -> Identities:
        """Of the project, unchanged."""
        return self.honest.identities()

    def run(self, request: Request) -> Execution:
        """Whatever the injection says."""
        return self.answer(request, self.honest)


class Desk:
    """One project and one session on it."""

    def __init__(self, folder: Path, fixture: Fixture, sandbox: BwrapSandbox) -> None:
        self.fixture, self.sandbox, self._folder = fixture, sandbox, folder
        self.manifest, self.source = folder / "project.yaml", folder / "source"
        self.session: Session

    def open(
        self,
        answer: Answer | None = None,
        host: Mapping[str, str] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Session:
        """Start the session; ``answer`` puts a deceiving verifier in front of the real one."""
        verifier: Verifier = self.verifier(self.manifest, host)
        if answer is not None:
            verifier = Deceiving(verifier, answer)
        root, owner = self._folder / "session", self.sandbox.uid
        timing = {} if clock is None else {"clock": clock}
        self.session = Session(self.manifest, self.source, root, verifier, owner=owner, **timing)
        return self.session

    def verifier(self, manifest: Path, host: Mapping[str, str] | None = None) -> CommandVerifier:
        """The real verifier of a manifest for this desk's source."""
        return CommandVerifier(
            manifest,
            self.source,
            self.sandbox,
            self._folder / "scratch",
            interpreter=self.interpreter,
            host=host,
            owner=self.sandbox.uid,
        )

    @property
    def interpreter(self) -> str:
        """Folder of the interpreter that the sandbox shows."""
        return str(Path(self.sandbox.interpreter).parent)

    @property
    def good(self) -> Files:
        """The base tree with the sound change."""
        return self.tree(self.fixture.good)

    def bad(self, number: int = 0) -> Files:
        """The base tree with a change that its tests refuse."""
        return self.tree(self.fixture.bad[number])

    def tree(self, code: str, **others: str) -> Files:
        """The base tree with the code given, and further files."""
        texts = {self.fixture.code: code, **others}
        added = {path: (REGULAR, text.encode()) for path, text in texts.items()}
        return {**self.fixture.files, **added}

    def leave(self, files: Files) -> None:
        """What an agent does: the worktree now holds these files."""
        for path, (_, data) in files.items():
            place = self.session.worktree / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.is_file() or place.read_bytes() != data:
                place.write_bytes(data)
        for path in read_directory(self.session.worktree).keys() - files.keys():
            (self.session.worktree / path).unlink()

    def worktree_is(self, files: Files) -> bool:
        """Whether the worktree holds exactly these files, build caches included."""
        return read_directory(self.session.worktree) == files

    def restate(self, **changes: object) -> None:
        """The owner changes the manifest."""
        stated = json.loads(self.manifest.read_text())
        self.manifest.write_text(json.dumps({**stated, **changes}))

    def receipt(self) -> dict[str, Any]:
        """The receipt of the session, closed if it is open, once both ledgers lead to it."""
        self.session.close()
        receipt.verify(self.session.root)
        body: dict[str, Any] = json.loads((self.session.root / receipt.RECEIPT).read_bytes())
        return body


class Bench:
    """Where cases set up their projects: a scratch folder and the sandbox of this machine."""

    def __init__(self, scratch: Path, sandbox: BwrapSandbox) -> None:
        self._scratch, self.sandbox = scratch, sandbox
        self._numbers = itertools.count(1)

    def desk(self, fixture: Fixture, **changes: object) -> Desk:
        """A fresh project of a fixture; ``changes`` are manifest fields."""
        folder = self._scratch / f"desk-{next(self._numbers)}"
        folder.mkdir(parents=True)
        desk = Desk(folder, fixture, self.sandbox)
        write_directory(fixture.files, desk.source)
        desk.manifest.write_text(json.dumps({**fixture.manifest(), **changes}))
        return desk

    def folder(self, name: str) -> Path:
        """A fresh folder that the sandbox's user may write."""
        folder = self._scratch / f"{name}-{next(self._numbers)}"
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        return folder
