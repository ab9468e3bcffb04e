"""Launcher and pytest plugin: runs inside the sandbox, writes one authenticated line per fact.

In: one JSON object on standard input (places of key and report, ids or null, order seed, paths,
pytest arguments) and the key, from a pipe that holds it once. Out: lines ``<mac> <json>`` in the
report, of kinds ``collected``, ``outcome``, ``collection_error``, ``tampered`` and a final
``finished``; each MAC covers the line's number and text. Stands alone with the modules beside it:
Python 3.8 or later, pytest 7.4 or later.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import factorial_hook
import factorial_watch
import pytest

MESSAGE_CHARS = 2000
if TYPE_CHECKING:  # Python 3.8 cannot subscript it
    Write = Callable[..., None]


def sealed_writer(path: str, key: bytes) -> Write:
    """A function that appends one authenticated line per call, from this process only.

    A forked child that falls back into the test session writes nothing, except that it tampered:
    such a line spoils the numbering and so voids the report. What the writer needs it holds itself,
    so that a module changed later does not reach it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    owner, getpid, put, digest = os.getpid(), os.getpid, os.write, hashlib.blake2b
    number = 0

    def write(kind: str, **fields: Any) -> None:
        nonlocal number
        if getpid() != owner and kind != "tampered":
            return
        payload = encoded({"kind": kind, **fields})
        message = b"%d " % number + payload
        mac = digest(message, key=key, digest_size=16).hexdigest()
        number += 1
        put(descriptor, mac.encode() + b" " + payload + b"\n")

    return write


def _encoder() -> Callable[[dict[str, Any]], bytes]:
    """JSON of texts and whole numbers by a builtin that no candidate can reach."""
    quoted = json.encoder.encode_basestring_ascii

    def encode(fields: dict[str, Any]) -> bytes:
        pairs = [
            quoted(name) + ": " + (quoted(value) if value.__class__ is str else int.__repr__(value))
            for name, value in fields.items()
        ]
        return ("{" + ", ".join(pairs) + "}").encode()

    return encode


encoded = _encoder()


def telling(write: Write) -> factorial_hook.Tell:
    """How tampering is told: a line at once, one for each rule."""
    told: set[str] = set()

    def tell(rule: str, detail: str) -> None:
        if rule not in told:
            told.add(rule)
            write("tampered", rule=rule, detail=clean(str(detail))[:200])

    return tell


def guarded(
    write: Write,
    places: factorial_hook.Places,
    tell: factorial_hook.Tell,
    check: Callable[[], None],
) -> Write:
    """The writer for the reporter. That it is called by code outside the runner is told first, and
    so is what ``check`` finds before an outcome.
    """
    frame_of, pure = sys._getframe, places.pure

    def checked(kind: str, **fields: Any) -> None:
        if not pure(frame_of(1)):
            tell("stack", kind)
        if kind == "outcome":
            check()
        write(kind, **fields)

    return checked


def clean(text: str) -> str:
    """Text that survives UTF-8: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Reporter:
    """Selects the wanted ids and reports what became of each collected test."""

    def __init__(self, write: Write, ids: list[str] | None, order_seed: int | None) -> None:
        self._write = write
        self._wanted = None if ids is None else frozenset(ids)
        self._order_seed = order_seed
        self._phases: list[Any] = []
        self._message = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        wanted = self._wanted
        chosen = [item for item in items if wanted is None or clean(item.nodeid) in wanted]
        dropped = [
            item for item in items if wanted is not None and clean(item.nodeid) not in wanted
        ]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        if self._order_seed is not None:
            random.Random(self._order_seed).shuffle(chosen)
        items[:] = chosen
        for item in chosen:
            self._write("collected", id=clean(item.nodeid))

    def _is_wanted(self, item: Any) -> bool:
        return self._wanted is None or clean(item.nodeid) in self._wanted

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            message = error_lines(str(report.longrepr))
            self._write("collection_error", id=clean(report.nodeid), message=message)

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._phases = []
        self._message = ""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        result = yield
        if call.excinfo is not None and not self._message and result.get_result().failed:
            self._message = exception_text(call.excinfo)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._phases.append(report)

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        outcome = combined(self._phases)
        message = self._message if outcome in ("failed", "error") else ""
        if outcome in ("failed", "error") and not message:
            message = error_lines(failure_text(self._phases))
        self._write("outcome", id=clean(nodeid), outcome=outcome, message=message)


def combined(phases: list[Any]) -> str:
    """One outcome from the reports of set-up, call and tear-down (and of subtests, if any)."""
    if any(report.failed and report.when == "call" for report in phases):
        return "failed"
    if any(report.failed for report in phases):
        return "error"
    if any(hasattr(report, "wasxfail") for report in phases):
        skipped = any(report.skipped for report in phases)
        return "xfailed" if skipped else "xpassed"
    if any(report.skipped for report in phases):
        return "skipped"
    complete = {"setup", "call", "teardown"} <= {report.when for report in phases}
    return "passed" if complete else "error"


def failure_text(phases: list[Any]) -> str:
    return next((str(report.longrepr) for report in phases if report.failed), "")


def exception_text(excinfo: Any) -> str:
    """Type and message of an exception; its ``__str__`` is foreign code and may itself fail."""
    try:
        text = excinfo.exconly()
    except Exception:
        text = excinfo.typename
    return clean(text[:MESSAGE_CHARS])


def error_lines(text: str) -> str:
    """The lines that pytest marks as the error (``E   ...``), or the last lines of the text."""
    lines = text.splitlines()
    marked = [line[1:].strip() for line in lines if line.startswith("E  ")]
    return clean("\n".join(marked or lines[-3:])[:MESSAGE_CHARS])


def take_key(path: str) -> bytes:
    """The key. Reading takes it out of the pipe: whoever comes later finds nothing."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)


def main() -> int:
    """Read the order, put the candidate on the path only now, run pytest, report the end."""
    order = json.loads(sys.stdin.buffer.read())
    write = sealed_writer(order["report"], take_key(order["key"]))
    plugins: list[Any] = []
    factorial_watch.hide_names()
    if order["watch"] is not None:
        write = watch(write, order, plugins)
    arguments = prepared(order)
    plugins.insert(0, Reporter(write, order["ids"], order["order_seed"]))
    status = pytest.main(arguments, plugins=plugins)
    write("finished", status=int(status))
    return int(status)


def watch(write: Write, order: dict[str, Any], plugins: list[Any]) -> Write:
    """Start watching; returns the writer that the reporter uses from now on."""
    wanted, tell = order["watch"], telling(write)
    places = factorial_hook.places_of(__file__, wanted["sealed"])
    guard = factorial_watch.watch(places, order["report"], wanted["unwatched"], tell)
    plugins.append(guard)
    return guarded(write, places, tell, guard.outcome)


def prepared(order: dict[str, Any]) -> list[str]:
    """pytest's arguments; from here on the candidate can be imported."""
    Path(os.environ["HOME"]).mkdir(parents=True, exist_ok=True)
    arguments = list(order["arguments"])
    if importlib.util.find_spec("hypothesis") is not None:
        arguments.insert(0, "--hypothesis-seed=0")
    sys.path[0:1] = order["path"]
    os.environ["PYTHONPATH"] = order["pythonpath"]
    sys.argv = ["pytest", *arguments]
    return arguments


if __name__ == "__main__":
    sys.exit(main())
