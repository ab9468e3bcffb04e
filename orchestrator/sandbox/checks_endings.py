"""Conformance checks of endings and data: what dies, what is reported, what comes through."""

import time
from collections.abc import Mapping

from orchestrator.sandbox.probe import MIB, Check, Probe, unless
from orchestrator.spec.ports import Completed, ExitClass, Limits

QUIET_SECONDS = 0.4
"""How long a process that should be dead is listened for."""

_DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for f in (0, 1, 2): os.close(f)
    for _ in range(60):
        with open("/mnt/shown/beat", "a") as beat: beat.write("x")
        time.sleep(0.05)
    os._exit(0)
while not os.path.exists("/mnt/shown/beat"): time.sleep(0.01)
time.sleep(float(sys.argv[1]))
"""


def _survivor(probe: Probe, stay: float, wall: float) -> tuple[Completed, bool]:
    """Leave a daemon behind and tell whether its heart beats on after the return."""
    shown = probe.mount(writable=True)
    argv = (probe.python, "-I", "-S", "-c", _DAEMON, str(stay))
    done = probe.run(*argv, limits=Limits(wall_seconds=wall), mounts=[shown])
    beat = shown.source / "beat"
    before = beat.stat().st_size
    time.sleep(QUIET_SECONDS)
    return done, beat.stat().st_size != before


def _timeout(probe: Probe) -> str | None:
    done, alive = _survivor(probe, stay=30, wall=1.5)
    good = done.exit_class is ExitClass.TIMEOUT and not alive
    return unless(good, f"{done.exit_class}, daemon alive: {alive}")


def _background_child(probe: Probe) -> str | None:
    done, alive = _survivor(probe, stay=0, wall=30)
    good = done.exit_class is ExitClass.OK and not alive
    return unless(good, f"{done.exit_class}, daemon alive: {alive}")


ENDINGS: Mapping[str, tuple[ExitClass, int]] = {
    "exit 0": (ExitClass.OK, 0),
    "exit 3": (ExitClass.FAILED, 3),
    "no-such-program": (ExitClass.FAILED, 127),
    "kill -KILL $$": (ExitClass.KILLED, 137),
    "kill -TERM $$": (ExitClass.KILLED, 143),
    "kill -SEGV $$": (ExitClass.KILLED, 139),
}
"""What a shell script does, and how it must be reported."""


def _endings(probe: Probe) -> str | None:
    for script, expected in ENDINGS.items():
        done = probe.run("sh", "-c", script)
        if (done.exit_class, done.exit_code) != expected:
            return f"`{script}` gave {done.exit_class} {done.exit_code}"
    return None


def _missing_program(probe: Probe) -> str | None:
    done = probe.run("/no/such/program")
    return unless((done.exit_class, done.exit_code) == (ExitClass.FAILED, 127), f"{done}")


def _working_directory(probe: Probe) -> str | None:
    for cwd in ("/no/such/folder", "/etc/passwd"):
        done = probe.run("true", cwd=cwd)
        if (done.exit_class, done.exit_code) != (ExitClass.FAILED, 126):
            return f"in {cwd}: {done.exit_class} {done.exit_code}"
    done = probe.run("pwd", cwd="/usr/bin")
    return unless(done.stdout == b"/usr/bin\n", f"pwd said {done.stdout!r}")


def _read_only_mount(probe: Probe) -> str | None:
    shown = probe.mount(writable=False)
    (shown.source / "file").write_text("kept")
    script = (
        "cat /mnt/shown/file; echo x >/mnt/shown/file; echo x >/mnt/shown/new; rm /mnt/shown/file"
    )
    done = probe.run("sh", "-c", script, mounts=[shown])
    files = {path.name: path.read_text() for path in shown.source.iterdir()}
    good = done.stdout == b"kept" and files == {"file": "kept"}
    return unless(good, f"read {done.stdout!r}, then the host had {files}")


def _writable_mount(probe: Probe) -> str | None:
    shown = probe.mount(writable=True)
    done = probe.run("sh", "-c", "echo made >/mnt/shown/new", mounts=[shown])
    made = shown.source / "new"
    found = made.read_text() if made.exists() else None
    return unless(found == "made\n", f"host found {found!r} {done.stderr!r}")


def _stdin(probe: Probe) -> str | None:
    data = bytes(range(256)) * 4096
    done = probe.run("cat", stdin=data, limits=Limits(wall_seconds=30, output_bytes=2 * MIB))
    empty = probe.run("cat")
    return unless(done.stdout == data and empty.stdout == b"", "stdin did not come through")


def _exact_bytes(probe: Probe) -> str | None:
    script = "import os; os.write(1, bytes(range(256))); os.write(2, b'\\xff\\r\\n')"
    done = probe.run(probe.python, "-I", "-S", "-c", script)
    good = done.stdout == bytes(range(256)) and done.stderr == b"\xff\r\n" and not done.truncated
    return unless(good, f"got {done.stdout!r} {done.stderr!r}")


ENDINGS_AND_DATA: tuple[Check, ...] = (
    Check("timeout kills a daemon", _timeout),
    Check("background child ends with the command", _background_child),
    Check("exit codes and signals are told apart", _endings),
    Check("missing program is exit code 127", _missing_program),
    Check("bad working directory is exit code 126", _working_directory),
    Check("read-only mount refuses writes", _read_only_mount),
    Check("writable mount comes back", _writable_mount),
    Check("stdin is delivered", _stdin),
    Check("output bytes are exact", _exact_bytes),
)
