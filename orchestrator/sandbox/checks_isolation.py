"""Conformance checks of isolation: what a command must not see, reach, hold or change."""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.sandbox.probe import PATH, Check, Probe, unless


@contextmanager
def _secret_in_environment() -> Iterator[None]:
    os.environ["FACTORIAL_CANARY"] = "secret"
    try:
        yield
    finally:
        del os.environ["FACTORIAL_CANARY"]


def _environment(probe: Probe) -> str | None:
    with _secret_in_environment():
        done = probe.run("env")
    expected = "".join(f"{name}={value}\n" for name, value in PATH.items()).encode()
    return unless(done.stdout == expected, f"environment is {done.stdout!r}")


_CONNECT = """
import json, socket, sys
def reached(family, address):
    with socket.socket(family) as s:
        s.settimeout(2)
        try: s.connect(address)
        except OSError: return False
        return True
def resolved():
    try: socket.getaddrinfo("example.org", 80)
    except OSError: return False
    return True
print(json.dumps({
    "tcp": reached(socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))),
    "abstract": reached(socket.AF_UNIX, chr(0) + sys.argv[2]),
    "dns": resolved(),
    "links": [l.strip() for l in open("/proc/net/dev") if ":" in l and "lo:" not in l],
}))
"""


def _network(probe: Probe) -> str | None:
    name = f"factorial-{os.getpid()}-canary"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        local.bind("\0" + name)
        local.listen()
        answer = probe.ask(_CONNECT, str(tcp.getsockname()[1]), name)
    alone = {"tcp": False, "abstract": False, "dns": False, "links": []}
    return unless(answer == alone, f"network: {answer}")


_TMP = """
import json, os, sys
seen = os.path.exists(sys.argv[1])
open("/tmp/" + sys.argv[2], "w").close()
print(json.dumps(seen))
"""


def _private_tmp(probe: Probe) -> str | None:
    inside = f"factorial-{os.getpid()}-inside"
    trace = Path("/tmp") / inside
    with tempfile.NamedTemporaryFile(dir="/tmp") as canary:
        seen = probe.ask(_TMP, canary.name, inside)
        leaked = trace.exists()
        again = probe.ask(_TMP, str(trace), inside)
    trace.unlink(missing_ok=True)
    return unless(not (seen or leaked or again), f"/tmp: seen={seen} leaked={leaked} kept={again}")


def _own_user(probe: Probe) -> str | None:
    ids = probe.ask("import os, json; print(json.dumps([*os.getresuid(), *os.getresgid()]))")
    return unless(isinstance(ids, list) and 0 not in ids, f"ids {ids}")


_WRITE = """
import json, os, sys
done = []
for place in sys.argv[1:]:
    try: os.close(os.open(place, os.O_WRONLY | os.O_CREAT, 0o600)); done.append(place)
    except OSError: pass
print(json.dumps(done))
"""


def _read_only_system(probe: Probe) -> str | None:
    name = f"factorial-{os.getpid()}-canary"
    folders = ("/", "/usr", "/usr/bin", "/etc", "/dev", "/var", "/root")
    targets = [str(Path(folder) / name) for folder in folders]
    written = probe.ask(_WRITE, *targets, "/etc/passwd", "/proc/sys/kernel/hostname")
    assert isinstance(written, list)
    for target in set(targets) & set(written):
        Path(target).unlink(missing_ok=True)
    return unless(written == [], f"could write {written}")


_OPEN = """
import json, os, sys
found = [p for p in sys.argv[1:] if os.access(p, os.R_OK)]
for top in ("/root", "/home", "/var", "/sys", "/run"):
    for at, folders, names in os.walk(top):
        found += [os.path.join(at, n) for n in names if os.path.isfile(os.path.join(at, n))]
        if at.count("/") >= 2: folders.clear()
print(json.dumps(found[:5]))
"""


def _host_files(probe: Probe) -> str | None:
    secret = probe.folder / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    shown = probe.mount(writable=False)
    places = (str(secret), "/mnt/secret", "/mnt/shown/../secret", "/etc/shadow", __file__)
    found = probe.ask(_OPEN, *places, mounts=[shown])
    return unless(found == [], f"could read {found}")


_PROCESSES = """
import glob, json
found = []
for p in glob.glob("/proc/[0-9]*/cmdline"):
    try: found.append(open(p, "rb").read().hex())
    except OSError: found.append("")
print(json.dumps(found))
"""


def _own_processes(probe: Probe) -> str | None:
    ours = Path("/proc/self/cmdline").read_bytes().hex()
    found = probe.ask(_PROCESSES)
    assert isinstance(found, list)
    return unless(len(found) <= 4 and ours not in found, f"{len(found)} processes in /proc")


_PRIVILEGES = """
import ctypes, json
status = dict(l.split(":", 1) for l in open("/proc/self/status"))
held = [n for n in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status[n], 16)]
held += [] if status["NoNewPrivs"].strip() == "1" else ["new privileges"]
held += [] if ctypes.CDLL(None).unshare(0x10000000) else ["user namespace"]
print(json.dumps(held))
"""


def _no_privileges(probe: Probe) -> str | None:
    held = probe.ask(_PRIVILEGES)
    return unless(held == [], f"holds {held}")


def _no_descriptors(probe: Probe) -> str | None:
    script = (
        "import os, json; print(json.dumps(sorted(map(int, os.listdir('/proc/self/fd')))[:-1]))"
    )
    with tempfile.TemporaryFile() as leak:
        os.set_inheritable(leak.fileno(), True)
        held = probe.ask(script)
    return unless(held == [0, 1, 2], f"open descriptors {held}")


ISOLATION: tuple[Check, ...] = (
    Check("environment is not inherited", _environment),
    Check("no network", _network),
    Check("/tmp is private and fresh", _private_tmp),
    Check("own user, not root", _own_user),
    Check("system is read-only", _read_only_system),
    Check("host files are invisible", _host_files),
    Check("/proc shows own processes only", _own_processes),
    Check("no capabilities, no user namespaces", _no_privileges),
    Check("no inherited descriptors", _no_descriptors),
)
