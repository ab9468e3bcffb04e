"""Runs pip for the interpreter of a task: which pip, without our import path, and its complaints.

What a failure means is the caller's to say; nothing here decides about a task.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

STEP_SECONDS = 900.0


def pip_of(python: Path) -> list[str]:
    """The pip that works for ``python``: our own where it supports that version, or its own."""
    own = [sys.executable, "-m", "pip"]
    if find_spec("pip") is not None and _runs([*own, "--python", str(python), "--version"]):
        return own
    return [str(python), "-m", "pip"]


def _runs(argv: Sequence[str]) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def run_step(argv: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """One step without the caller's import path. Raises subprocess.TimeoutExpired."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        argv, env=variables, capture_output=True, text=True, timeout=seconds, check=False
    )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Errors that a step printed, one line each; all of its lines where none is marked as one."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return [
        " ".join(line.removeprefix("ERROR:").split()) for line in errors or lines or ["no message"]
    ]
