"""The conformance suite of the ``Sandbox`` port: what every backend must do, as named checks.

Backend-independent: it knows only :meth:`Sandbox.run` and an interpreter inside. A check looks from
both sides (what the command could do, what the host then sees).
"""

import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from orchestrator.sandbox.checks_endings import ENDINGS_AND_DATA
from orchestrator.sandbox.checks_isolation import ISOLATION
from orchestrator.sandbox.checks_limits import LIMITS
from orchestrator.sandbox.probe import Check, Probe
from orchestrator.spec.ports import Sandbox

CHECKS: tuple[Check, ...] = (*ISOLATION, *LIMITS, *ENDINGS_AND_DATA)


@dataclass(frozen=True)
class Result:
    """Outcome of one check; ``fault`` is None where it passed."""

    name: str
    fault: str | None

    @property
    def passed(self) -> bool:
        return self.fault is None


def run_conformance(
    sandbox: Sandbox, *, python: str = "python3", only: Collection[str] = ()
) -> list[Result]:
    """Run all checks (or those named in ``only``), in order; faults are results, never raised."""
    chosen = [check for check in CHECKS if not only or check.name in only]
    with tempfile.TemporaryDirectory(prefix=f"factorial-{os.getpid()}-conformance-") as folder:
        Path(folder).chmod(0o755)
        return [_result(check, Probe(sandbox, python, Path(folder))) for check in chosen]


def _result(check: Check, probe: Probe) -> Result:
    try:
        return Result(check.name, check.find_fault(probe))
    except Exception as error:  # a backend under test may fail in any way; that is its result
        return Result(check.name, f"{type(error).__name__}: {error}")
