"""The system call filter: what no sandboxed command needs and an escape would.

A classic BPF program for ``bwrap --seccomp``. It refuses new user namespaces (from which every
other namespace and a full set of capabilities could be had), the kernel's keyrings and the usual
escape surface. Everything else is allowed.
"""

import errno
import platform
import struct

CLONE_NEWUSER = 0x1000_0000
X32_BIT = 0x4000_0000

# Architecture -> (audit architecture, system call numbers); linux/audit.h, asm/unistd.h.
_TABLES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000_003E,
        {
            "clone": 56, "unshare": 272, "clone3": 435, "setns": 308, "add_key": 248,
            "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298,
            "open_by_handle_at": 304, "userfaultfd": 323, "io_uring_setup": 425,
            "sched_setaffinity": 203,
        },
    ),
    "aarch64": (
        0xC000_00B7,
        {
            "clone": 220, "unshare": 97, "clone3": 435, "setns": 268, "add_key": 217,
            "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
            "open_by_handle_at": 265, "userfaultfd": 282, "io_uring_setup": 425,
            "sched_setaffinity": 122,
        },
    ),
}  # fmt: skip

_NAMESPACE_CALLS = ("clone", "unshare")
_MISSING = ("clone3",)  # its flags lie in memory; libraries fall back to clone on ENOSYS
_REFUSED = (
    "setns",
    "add_key",
    "request_key",
    "keyctl",
    "bpf",
    "perf_event_open",
    "open_by_handle_at",
    "userfaultfd",
    "io_uring_setup",
)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000


def supported(machine: str | None = None) -> bool:
    """Whether there is a table for this processor."""
    return (machine or platform.machine()) in _TABLES


def program(machine: str | None = None, *, pin_cpus: bool = False) -> bytes:
    """The filter as an array of ``struct sock_filter``.

    With ``pin_cpus`` a command cannot change its CPU affinity either. KeyError where
    :func:`supported` is false.
    """
    audit, numbers = _TABLES[machine or platform.machine()]
    refused = (*_REFUSED, "sched_setaffinity") if pin_cpus else _REFUSED
    code = [(_LOAD, 0, 0, _ARCHITECTURE), *_when(_EQUAL, audit, None, errno.ENOSYS)]
    code.append((_LOAD, 0, 0, _NUMBER))
    code += _when(_AT_LEAST, X32_BIT, errno.ENOSYS, None)
    for name in _MISSING:
        code += _when(_EQUAL, numbers[name], errno.ENOSYS, None)
    for name in refused:
        code += _when(_EQUAL, numbers[name], errno.EPERM, None)
    for name in _NAMESPACE_CALLS:
        code += [
            (_EQUAL, 0, 4, numbers[name]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            *_when(_ANY_BIT, CLONE_NEWUSER, errno.EPERM, None),
            (_RETURN, 0, 0, _ALLOW),
        ]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _when(
    test: int, value: int, if_true: int | None, if_false: int | None
) -> list[tuple[int, int, int, int]]:
    """Test the accumulator; return the given errno on one side and go on on the other."""
    error = if_true if if_true is not None else if_false
    assert error is not None
    jumps = (0, 1) if if_true is not None else (1, 0)
    return [(test, *jumps, value), (_RETURN, 0, 0, _ERRNO | error)]
