"""Sessions for tests: a project on disk, and a verifier whose answers the test decides."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.admission.identities import Identities, identify
from orchestrator.admission.project import load_project
from orchestrator.admission.rules import GateResult
from orchestrator.admission.session import Session
from orchestrator.admission.verifier import Execution, Request
from orchestrator.contract.events import Outcome
from orchestrator.repo.files import REGULAR, Files, tree_of, write_directory

BASE: Files = {
    "code.txt": (REGULAR, b"base"),
    "tests/check.txt": (REGULAR, b"the suite"),
    "ci/release.sh": (REGULAR, b"release"),
}
GATE = {"name": "tests", "argv": ["check"]}

Judge = Callable[[Files], Outcome]


def by_content(files: Files) -> Outcome:
    """``good`` passes, ``slow`` times out, all else fails."""
    said = files["code.txt"][1]
    return "pass" if said.startswith(b"good") else "timeout" if said == b"slow" else "fail"


@dataclass
class Judged:
    """A verifier port that judges trees by their content; it runs nothing."""

    manifest: Path
    judge: Judge = by_content
    asked: list[Request] = field(default_factory=list)

    def identities(self) -> Identities:
        return identify(load_project(self.manifest), {}, {}, {})

    def run(self, request: Request) -> Execution:
        self.asked.append(request)
        identities = self.identities()
        diagnostic = request.purpose == "diagnostic"
        outcome: Outcome = "pass" if diagnostic else self.judge(request.files)
        result = GateResult("tests", "L1", True, identities.commands["tests"], outcome, None)
        return Execution(
            request.purpose,
            tree_of(request.files).state_id,
            identities.diagnostic_suite if diagnostic else identities.gate_suite,
            request.execution_id,
            outcome,
            () if diagnostic else (result,),
            "payload" if diagnostic else "",
        )


class Clock:
    """Seconds as the test says."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Place:
    """One project and one session on it."""

    folder: Path
    session: Session
    verifier: Judged
    clock: Clock

    def write(self, code: bytes, path: str = "code.txt") -> None:
        (self.session.worktree / path).write_bytes(code)

    def receipt(self) -> dict[str, object]:
        body: dict[str, object] = json.loads(
            (self.session.root / "admission-receipt.json").read_bytes()
        )
        return body


def stated(**changes: object) -> dict[str, object]:
    """A manifest as data."""
    return {"schema": "factorial/admission@1", "name": "example", "gates": [GATE], **changes}


def opened(folder: Path, judge: Judge = by_content, **changes: object) -> Place:
    """A session on a fresh project."""
    manifest, source = folder / "project.yaml", folder / "source"
    manifest.write_text(json.dumps(stated(**changes)))
    write_directory(BASE, source)
    verifier, clock = Judged(manifest, judge), Clock()
    session = Session(manifest, source, folder / "session", verifier, clock)
    return Place(folder, session, verifier, clock)


def with_code(code: bytes) -> Files:
    """The base tree with other code."""
    return {**BASE, "code.txt": (REGULAR, code)}
