"""Conformance checks of limits: memory, processes, CPU, files, scratch, output.

Each bounds its own damage, so that it may also meet a backend that contains nothing.
"""

import json

from orchestrator.sandbox.probe import MIB, Check, Probe, unless
from orchestrator.spec.ports import ExitClass, Limits

_EAT = """
hoard = []
for _ in range(50):
    hoard.append(b"x" * (8 << 20))
print("ate it all")
"""


def _memory(probe: Probe) -> str | None:
    limits = Limits(wall_seconds=30, memory_bytes=128 * MIB)
    done = probe.run(probe.python, "-I", "-S", "-c", _EAT, limits=limits)
    contained = done.exit_class in (ExitClass.OUT_OF_MEMORY, ExitClass.FAILED)
    after = probe.run("true")
    fault = f"{done.exit_class} {done.stdout!r}, then {after.exit_class}"
    return unless(contained and not done.stdout and after.exit_class is ExitClass.OK, fault)


_BREED = """
import json, os, time
made = 0
for _ in range(120):
    try: pid = os.fork()
    except OSError: break
    if pid == 0:
        time.sleep(3)
        os._exit(0)
    made += 1
print(json.dumps(made), flush=True)
os._exit(0)
"""


def _processes(probe: Probe) -> str | None:
    limits = Limits(wall_seconds=30, processes=20)
    done = probe.run(probe.python, "-I", "-S", "-c", _BREED, limits=limits)
    made = int(done.stdout or b"-1")
    return unless(0 <= made <= 20, f"{made} children under a limit of 20 processes")


def _cpu(probe: Probe) -> str | None:
    limits = Limits(wall_seconds=20, cpu_seconds=1)
    done = probe.run("sh", "-c", "while :; do :; done", limits=limits)
    stopped = done.exit_class in (ExitClass.TIMEOUT, ExitClass.KILLED)
    fault = f"{done.exit_class} after {done.wall_seconds:.1f} s"
    return unless(stopped and done.wall_seconds < limits.wall_seconds, fault)


_FILL = """
import json, os, sys
folder, pieces, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for i in range(pieces):
    try:
        with open(f"{folder}/fill-{i}", "wb", buffering=0) as f:
            while f.tell() < size and f.write(bytes(1 << 16)): pass
    except OSError: pass
kept = [os.path.getsize(f"{folder}/fill-{i}") for i in range(pieces)
        if os.path.exists(f"{folder}/fill-{i}")]
for i in range(pieces):
    if os.path.exists(f"{folder}/fill-{i}"): os.unlink(f"{folder}/fill-{i}")
print(json.dumps([max(kept), sum(kept)]))
"""


def _fill(probe: Probe, folder: str, pieces: int, limits: Limits) -> tuple[int, int]:
    arguments = (folder, str(pieces), str(2 * MIB))
    done = probe.run(probe.python, "-I", "-S", "-c", _FILL, *arguments, limits=limits)
    largest, total = json.loads(done.stdout)
    return int(largest), int(total)


def _file_size(probe: Probe) -> str | None:
    largest, _ = _fill(probe, "/tmp", 1, Limits(wall_seconds=30, file_bytes=MIB))
    return unless(largest <= MIB, f"a file of {largest} bytes under a limit of {MIB}")


def _scratch_size(probe: Probe) -> str | None:
    limits = Limits(wall_seconds=30, scratch_bytes=8 * MIB)
    for folder in ("/tmp", "/dev/shm"):
        _, total = _fill(probe, folder, 10, limits)
        if total > limits.scratch_bytes:
            return f"{total} bytes in {folder} under a limit of {limits.scratch_bytes}"
    return None


_FLOOD = "import os\nfor _ in range(400):\n for f in (1, 2): os.write(f, bytes(1 << 16))"


def _output(probe: Probe) -> str | None:
    limits = Limits(wall_seconds=30, output_bytes=10_000)
    done = probe.run(probe.python, "-I", "-S", "-c", _FLOOD, limits=limits)
    sizes = (len(done.stdout), len(done.stderr))
    whole = done.truncated and sizes == (10_000, 10_000) and done.exit_class is ExitClass.OK
    return unless(whole, f"{done.exit_class}, kept {sizes}, truncated={done.truncated}")


def _endless_output(probe: Probe) -> str | None:
    done = probe.run("yes", limits=Limits(wall_seconds=0.5, output_bytes=1000))
    good = done.exit_class is ExitClass.TIMEOUT and len(done.stdout) == 1000 and done.truncated
    return unless(good, f"{done.exit_class}, kept {len(done.stdout)}")


LIMITS: tuple[Check, ...] = (
    Check("memory bomb is contained", _memory),
    Check("fork bomb is contained", _processes),
    Check("CPU burn is stopped", _cpu),
    Check("file size is limited", _file_size),
    Check("scratch size is limited", _scratch_size),
    Check("output flood is cut", _output),
    Check("endless output ends at the deadline", _endless_output),
)
