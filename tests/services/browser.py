"""Chromium, driven through its DevTools protocol: what a page logs, asks for, measures and shows.

The browser is started without a network: every name fails to resolve. One browser per view, with a
profile of its own in a temporary folder; a phone's width is emulated, since a window has a least
width.
"""

import asyncio
import base64
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 90.0
"""Seconds for the browser to start, and for each answer."""


@dataclass
class View:
    """What was seen: console messages and exceptions, requests, the value of the script."""

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    value: Any = None
    pdf: bytes = b""


def chromium() -> str:
    """The browser's path; asks for the installation where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found is not None, "no Chromium: run `sh infra/install-browser.sh`"
    return found


def look(page: Path, width: int, script: str, shot: Path) -> View:
    """Open a file at a width (CSS pixels), run ``script``, write a picture of the whole page."""
    with _browser() as port:
        return asyncio.run(_look(port, page.resolve().as_uri(), width, script, shot))


@contextmanager
def _browser() -> Iterator[int]:
    """A running browser's port; the browser and its profile are gone afterwards."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *(chromium(), "--headless=new", "--remote-debugging-port=0", "--disable-gpu"),
            *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
            *("--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"),
            f"--user-data-dir={profile}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "about:blank",
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield _port(Path(profile) / "DevToolsActivePort", process)
        finally:
            process.kill()
            process.wait()
            _until_gone(profile)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the browser ended with {process.returncode}"
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.1)
    raise AssertionError("the browser did not start")


def _until_gone(profile: str) -> None:
    """Its helpers end by themselves once it is gone; their profile is removed after that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(_uses(profile, entry) for entry in _processes()):
        time.sleep(0.1)


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _uses(profile: str, entry: Path) -> bool:
    try:
        return profile.encode() in (entry / "cmdline").read_bytes()
    except OSError:
        return False


class _Session:
    """One page's connection: numbered calls, and the events that came in between."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._last = socket, 0
        self.view = View()
        self.loaded = False

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        while True:
            answer = await self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    async def until_loaded(self) -> None:
        while not self.loaded:
            await self._next()

    async def _next(self) -> dict[str, Any]:
        answer: dict[str, Any] = await self._socket.receive_json(timeout=PATIENCE)
        self._note(answer.get("method", ""), answer.get("params", {}))
        return answer

    def _note(self, method: str, facts: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.view.requests.append(facts["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.view.messages.append(str(facts["args"]))
        elif method == "Runtime.exceptionThrown":
            self.view.messages.append(str(facts["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.view.messages.append(str(facts["entry"]["text"]))


async def _look(port: int, address: str, width: int, script: str, shot: Path) -> View:
    async with aiohttp.ClientSession() as client:
        async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
            targets = await answer.json()
        target = next(one for one in targets if one["type"] == "page")
        async with client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            return await _drive(_Session(socket), address, width, script, shot)


async def _drive(session: _Session, address: str, width: int, script: str, shot: Path) -> View:
    for domain in ("Page", "Runtime", "Log", "Network"):
        await session.call(f"{domain}.enable")
    size = {"width": width, "height": 800, "deviceScaleFactor": 1}
    await session.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
    await session.call("Page.navigate", url=address)
    await session.until_loaded()
    answer = await session.call(
        "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
    )
    assert "exceptionDetails" not in answer, answer
    session.view.value = answer["result"].get("value")
    picture = await session.call("Page.captureScreenshot", captureBeyondViewport=True)
    shot.write_bytes(base64.b64decode(picture["data"]))
    printed = await session.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
    session.view.pdf = base64.b64decode(printed["data"])
    return session.view
