"""One JSON exchange with a server that may misbehave: deadlines, retries, then one clear fault.

Retries what passes (connection loss, 408, 425, 429, 5xx, a torn or unusable body) with jittered
exponential back-off until the time is spent. No secret ever reaches an exception: the key is
struck from every text, URLs are shown without user info, and causes are not chained.
"""

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import httpx

from orchestrator.spec.errors import BadInput, InfrastructureFault

CONNECT_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
LARGEST_BODY = 16 << 20
"""Bytes; a reply of this size is no action, and reading it would cost the actor its memory."""
PASSING = frozenset({408, 425, 429})
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

T = TypeVar("T")


class Unusable(Exception):
    """A reply that says nothing; worth another try. The argument says what is wrong with it."""


@dataclass(frozen=True)
class Answer:
    """A whole reply: HTTP status, JSON object, seconds from sending to the last byte."""

    status: int
    body: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True)
class _Failure:
    problem: str
    wait_seconds: float = 0.0


@dataclass
class Exchange:
    """Posts JSON to one URL. Safe to use from several threads.

    ``alive`` says whether the server can still come back (False: give up at once).
    """

    url: str
    api_key: str | None = field(repr=False)
    seconds: float
    alive: Callable[[], bool] = lambda: True
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise BadInput("stack", "server.base_url", str(error), "Give an http URL.") from None
        self.shown = str(parsed.copy_with(username=None, password=None, query=None))
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        self._client = httpx.Client(
            headers=headers,
            trust_env=parsed.host not in LOOPBACK,
            limits=httpx.Limits(max_connections=None),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def post(self, payload: Mapping[str, Any], accept: Callable[[Answer], T]) -> T:
        """Post until ``accept`` takes the answer; raises InfrastructureFault (``server``).

        ``accept`` sees every status that is not worth a retry, and raises Unusable for a body that
        is. The whole call ends within about ``seconds``, at most twice that when a server drips.
        """
        deadline = time.monotonic() + self.seconds
        before = ""
        for attempt in count():
            outcome = self._attempt(payload, accept, deadline)
            if not isinstance(outcome, _Failure):
                return outcome
            if not self.alive():
                raise self.fault(f"its process has ended ({outcome.problem})")
            pause = max(_back_off(attempt), outcome.wait_seconds)
            if time.monotonic() + pause >= deadline:
                raise self.fault(
                    f"no usable reply within {self.seconds:g} s and {attempt + 1} attempt(s); "
                    f"the last: {outcome.problem}{before}"
                )
            # The deadline may cut the last attempt short; what was wrong before it is the cause.
            before = f"; before it: {outcome.problem}"
            self.sleep(pause)
        raise AssertionError("unreachable: count() never ends")

    def fault(self, problem: str) -> InfrastructureFault:
        """A fault of this server, without secrets, at most 400 characters of detail."""
        return InfrastructureFault("server", f"{self.shown}: {self._scrub(problem)}")

    def _attempt(
        self, payload: Mapping[str, Any], accept: Callable[[Answer], T], deadline: float
    ) -> T | _Failure:
        started = time.monotonic()
        try:
            response, content = self._send(payload, deadline)
        except httpx.HTTPError as error:
            return _Failure(type(error).__name__)
        except Unusable as error:
            return _Failure(str(error))
        seconds = time.monotonic() - started
        status = response.status_code
        if status in PASSING or status >= 500:
            problem = f"HTTP {status} {content[:200].decode(errors='replace')}"
            return _Failure(problem, _retry_after(response))
        try:
            return accept(Answer(status, _json_object(content, status), seconds))
        except Unusable as error:
            return _Failure(str(error))

    def _send(self, payload: Mapping[str, Any], deadline: float) -> tuple[httpx.Response, bytes]:
        left = max(0.05, deadline - time.monotonic())
        timeout = httpx.Timeout(left, connect=min(CONNECT_SECONDS, left))
        with self._client.stream("POST", self.url, json=payload, timeout=timeout) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if time.monotonic() > deadline:
                    raise Unusable("the reply was still coming in at the deadline")
                if len(body) > LARGEST_BODY:
                    raise Unusable(f"the reply is larger than {LARGEST_BODY >> 20} MiB")
        return response, bytes(body)

    def _scrub(self, text: str) -> str:
        clean = text.replace(self.api_key, "[key]") if self.api_key else text
        return " ".join(clean.split())[:400]


def _json_object(content: bytes, status: int) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    if status == 200:
        raise Unusable("the reply is no JSON object (truncated or malformed)")
    return {"error": {"message": content[:200].decode(errors="replace")}}


def _back_off(attempt: int) -> float:
    """Exponential with full jitter in its upper half; not part of any result, so unseeded."""
    ceiling = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 16))
    return ceiling * random.uniform(0.5, 1.0)


def _retry_after(response: httpx.Response) -> float:
    """Seconds of a numeric Retry-After header, else 0."""
    value = response.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else 0.0
