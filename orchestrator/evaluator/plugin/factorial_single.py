"""The second runner: the wanted ids of one test function in a process of their own, one answer.

Shares nothing with the reporting plugin but the watcher. In: one JSON object on standard input and
a nonce from a pipe that holds it once. Out: the digest of nonce and ids, written after pytest's own
end if each of them passed, and nothing otherwise. The process then leaves at once. Stands alone:
Python 3.8 or later, pytest 7.4 or later.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import factorial_hook
import factorial_watch
import pytest


def answerer(path: str, nonce: bytes, ids: list[str]) -> Any:
    """A function that writes the answer; everything it needs is its own."""
    descriptor = os.open(path, os.O_WRONLY)
    owner, getpid, put = os.getpid(), os.getpid, os.write
    text = "\n".join(sorted(ids)).encode("utf-8", "backslashreplace")
    answer = hashlib.blake2b(text, key=nonce, digest_size=32).hexdigest().encode()

    def write() -> None:
        if getpid() == owner:
            put(descriptor, answer)

    return write


class Tally:
    """Keeps the wanted items and counts what passed, by pytest's reports of the calls."""

    def __init__(self, ids: list[str]) -> None:
        self.wanted = frozenset(ids)
        self.passed: set[str] = set()
        self.other = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if plain(item.nodeid) in self.wanted]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" and report.outcome == "passed" and not hasattr(report, "wasxfail"):
            self.passed.add(plain(report.nodeid))
        elif report.outcome != "passed":
            self.other += 1

    def complete(self) -> bool:
        return not self.other and self.passed == self.wanted


def plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def take(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)


def main() -> None:
    order = json.loads(sys.stdin.buffer.read())
    answer, leave = answerer(order["report"], take(order["key"]), order["ids"]), os._exit
    tally = Tally(order["ids"])
    tampered: list[str] = []
    plugins: list[Any] = [tally]
    factorial_watch.hide_names()
    if order["watch"] is not None:
        wanted, tell = order["watch"], _tell(tampered)
        places = factorial_hook.places_of(__file__, wanted["sealed"])
        plugins.append(factorial_watch.watch(places, order["report"], wanted["unwatched"], tell))
    Path(os.environ["HOME"]).mkdir(parents=True, exist_ok=True)
    arguments = list(order["arguments"])
    if importlib.util.find_spec("hypothesis") is not None:
        arguments.insert(0, "--hypothesis-seed=0")
    sys.path[0:1] = order["path"]
    os.environ["PYTHONPATH"] = order["pythonpath"]
    sys.argv = ["pytest", *arguments]
    status = int(pytest.main(arguments, plugins=plugins))
    if status == 0 and tally.complete() and not tampered:
        answer()
    leave(status)


def _tell(tampered: list[str]) -> Any:
    """Tampering ends the process: what is not answered is not confirmed."""
    leave = os._exit

    def tell(rule: str, detail: str) -> None:
        tampered.append(rule)
        leave(70)

    return tell


if __name__ == "__main__":
    main()
