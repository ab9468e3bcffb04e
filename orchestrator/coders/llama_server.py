"""llama.cpp's HTTP server in a child process of its own group, on a loopback port it chooses.

Ready means that a real completion came back. Whatever goes wrong is an InfrastructureFault of
boundary ``server`` with the end of the log; nothing of the server outlives ``stop`` or its parent.
"""

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkstemp
from types import TracebackType

import httpx

from orchestrator.coders.weights import fetch_weights
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.stack import LlamaCppServer

__all__ = ["LlamaServer", "fetch_weights"]

MAIN = Path(__file__).with_name("llama_server_main.py")
STOP_SECONDS = 5.0
POLL_SECONDS = 0.1
LOG_TAIL_BYTES = 1500
PROBE = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 1, "seed": 0}


class LlamaServer:
    """One server. Start it, ask it at ``base_url``, stop it; or use it as a context manager.

    ``log_dir`` must exist; every start leaves one log file in it.
    """

    def __init__(self, server: LlamaCppServer, weights: Path, log_dir: Path) -> None:
        self._server = server
        self._weights = weights
        self._log_dir = log_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self.log: Path | None = None

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:<port>``; InfrastructureFault where the server was not started."""
        if not self._address:
            raise InfrastructureFault("server", "llama.cpp server was not started")
        return self._address

    @property
    def pid(self) -> int | None:
        """Process id, and group id, of the server; None before ``start`` and after ``stop``."""
        return None if self._process is None else self._process.pid

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait, at most ``ready_seconds``, for a completion. Does nothing when alive."""
        if self.alive():
            return
        _require_package()
        self.stop()
        deadline = time.monotonic() + self._server.ready_seconds
        try:
            self._address = self._launch(deadline)
            self._await_health(deadline)
            self._probe(deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the whole process group: SIGTERM, then SIGKILL. Safe to call at any time."""
        process, self._process, self._address = self._process, None, ""
        if process is None:
            return
        for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, None)):
            if process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)

    def __enter__(self) -> "LlamaServer":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _launch(self, deadline: float) -> str:
        """Start the child and return the address that it reports once the model is loaded."""
        handle, name = mkstemp(prefix="llama-server-", suffix=".log", dir=self._log_dir)
        self.log = Path(name)
        reading, writing = os.pipe()
        try:
            with os.fdopen(handle, "wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(MAIN), self._options(writing)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        finally:
            os.close(writing)
        with os.fdopen(reading, "r") as pipe:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([pipe], [], [], left)
            address = pipe.readline().strip() if ready else ""
        if not address:
            raise self._fault("did not load its model in time" if not ready else "ended at start")
        return address

    def _options(self, address_fd: int) -> str:
        return json.dumps(
            {
                "weights": str(self._weights),
                "context_tokens": self._server.context_tokens,
                "parallel": self._server.parallel,
                "threads": self._server.threads,
                "parent": os.getpid(),
                "address_fd": address_fd,
            }
        )

    def _await_health(self, deadline: float) -> None:
        while True:
            try:
                if self._request("GET", "/health", deadline).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if not self.alive():
                raise self._fault("ended while starting")
            if time.monotonic() > deadline:
                raise self._fault("was not healthy in time")
            time.sleep(POLL_SECONDS)

    def _probe(self, deadline: float) -> None:
        """A real completion: a healthy answer alone does not prove that requests are served."""
        try:
            answer = self._request("POST", "/v1/chat/completions", deadline, PROBE)
        except httpx.TransportError as error:
            raise self._fault(f"gave no completion in time ({type(error).__name__})") from None
        if answer.status_code != 200 or "choices" not in answer.json():
            raise self._fault(f"answered a completion with HTTP {answer.status_code}")

    def _request(
        self, method: str, path: str, deadline: float, body: object | None = None
    ) -> httpx.Response:
        left = max(0.1, deadline - time.monotonic())
        with httpx.Client(trust_env=False, timeout=left) as client:
            return client.request(method, self._address + path, json=body)

    def _fault(self, problem: str) -> InfrastructureFault:
        code = None if self._process is None else self._process.poll()
        status = "" if code is None else f" (exit status {code})"
        return InfrastructureFault(
            "server", f"llama.cpp server {problem}{status}; {self.log} ends: {self._log_tail()}"
        )

    def _log_tail(self) -> str:
        if self.log is None:
            return ""
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            return " | ".join(stream.read().decode(errors="replace").splitlines()[-5:])


def _require_package() -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        raise BadInput(
            "stack",
            "server.kind",
            "llama-cpp needs the package xllamacpp, which is not installed",
            "Install the extra: pip install 'repo-factorials[cpu-llm]'.",
        )
