"""The bubblewrap backend meets every obligation, and backends that contain nothing meet none."""

import dataclasses
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.sandbox import bwrap
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.sandbox.capabilities import capabilities, enforced_by
from orchestrator.sandbox.conformance import CHECKS, run_conformance
from orchestrator.spec.ports import Command, Completed, ExitClass, Sandbox

NAMES = [check.name for check in CHECKS]


def fault(sandbox: Sandbox, python: str, name: str) -> str | None:
    (result,) = run_conformance(sandbox, python=python, only=[name])
    assert result.passed == (result.fault is None)
    return result.fault


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> BwrapSandbox:
    return BwrapSandbox(tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="module")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BwrapSandbox]:
    """The sandbox of a machine without root and without control groups."""
    weaker = dataclasses.replace(
        capabilities(), privileged=False, places={}, enforced=enforced_by({})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bwrap, "require", lambda: weaker)
        yield BwrapSandbox(tmp_path_factory.mktemp("fallback"), slot=1)


@pytest.mark.parametrize("name", NAMES)
def test_bubblewrap_conforms(real: BwrapSandbox, name: str) -> None:
    assert fault(real, real.interpreter, name) is None


# The host's root stays itself behind a user namespace: no process limit binds it, it owns the files
# of /proc/sys, and its bounding set stays. Anybody else has to meet these too.
ROOT_IS_ROOT = {
    "fork bomb is contained",
    "system is read-only",
    "no capabilities, no user namespaces",
}
UNPRIVILEGED = [name for name in NAMES if os.geteuid() != 0 or name not in ROOT_IS_ROOT]


@pytest.mark.parametrize("name", UNPRIVILEGED)
def test_bubblewrap_conforms_in_a_user_namespace_without_cgroups(
    fallback: BwrapSandbox, name: str
) -> None:
    assert fault(fallback, fallback.interpreter, name) is None


class Leaky:
    """Runs commands directly on the host; a deadline ends the client only."""

    def run(self, command: Command) -> Completed:
        argv = list(command.argv)
        for mount in command.mounts:
            argv = [word.replace(mount.target, str(mount.source)) for word in argv]
        environment = {**os.environ, **command.env}
        code, out, err = 0, b"", b""
        try:
            done = subprocess.run(
                argv, input=command.stdin, capture_output=True, env=environment, check=False,
                close_fds=False, timeout=command.limits.wall_seconds,
            )  # fmt: skip
            code, out, err = done.returncode, done.stdout, done.stderr
            kind = ExitClass.FAILED if code else ExitClass.OK
        except subprocess.TimeoutExpired as expired:
            kind, out, err = ExitClass.TIMEOUT, expired.stdout or b"", expired.stderr or b""
        return Completed(kind, code, out, err, False, 0.0)

    def identity(self) -> Mapping[str, str]:
        return {"backend": "leaky"}


LEAKS = [
    "environment is not inherited",
    "no network",
    "/tmp is private and fresh",
    "host files are invisible",
    "/proc shows own processes only",
    "no capabilities, no user namespaces",
    "no inherited descriptors",
    "fork bomb is contained",
    "file size is limited",
    "scratch size is limited",
    "output flood is cut",
    "timeout kills a daemon",
    "background child ends with the command",
    "bad working directory is exit code 126",
    "read-only mount refuses writes",
]


@pytest.mark.parametrize("name", LEAKS)
def test_a_sandbox_that_contains_nothing_is_found_out(name: str) -> None:
    assert fault(Leaky(), "python3", name) is not None


class Silent(Leaky):
    """Claims that everything went well and runs nothing."""

    def run(self, command: Command) -> Completed:
        return Completed(ExitClass.OK, 0, b"", b"", False, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_no_check_passes_by_default(name: str) -> None:
    assert fault(Silent(), "python3", name) is not None


def test_names_are_unique_and_unknown_ones_run_nothing() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert run_conformance(Silent(), only=["no such check"]) == []
    assert Path(bwrap.__file__).exists()
