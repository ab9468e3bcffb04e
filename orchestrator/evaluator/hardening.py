"""The layers that make a forged pass hard, each to be switched off by one value, and the reasons
for which a run is void. Values only: nothing runs here.

Candidate code runs in the interpreter of the tests, so forging is detected, not prevented. Layers
are switched off for the kill matrix and for tests; a study always has :data:`FULL`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True)
class Hardening:
    """Which layers are on.

    ``twins``: a pass is doubted by tests whose expected values were altered, which must fail.
    ``second_runner``: a pass is confirmed function by function, each in a process of its own.
    ``audit``: tampering with the runner, seen from inside, voids the run. ``scan``: added lines are
    looked through; what is found is a flag, never a verdict. ``protected``: the candidate's tests,
    test configuration, start-up files and shadowing modules are left out. ``report``: the report
    must be authentic, each id reported once and wanted.
    """

    twins: bool = True
    second_runner: bool = True
    audit: bool = True
    scan: bool = True
    protected: bool = True
    report: bool = True


FULL: Final = Hardening()


class VoidReason(StrEnum):
    """Stable ids of why a run is void; ``NONE`` where it is not."""

    NONE = ""
    RUNNER_TAMPERED = "void.runner-tampered"
    REPORT_FORGED = "void.report-forged"
    RESIDUE = "void.residue"
    TWIN_PASSED = "void.twin-passed"
    SECOND_RUNNER = "void.second-runner-disagrees"


@dataclass(frozen=True)
class Watch:
    """What the watcher inside the sandbox has to know.

    ``sealed``: paths, relative to the tree, of files whose code is trusted. ``unwatched``: rules of
    the watcher that the task's own honest code would break, as curation found.
    """

    sealed: Sequence[str]
    unwatched: Sequence[str] = ()
