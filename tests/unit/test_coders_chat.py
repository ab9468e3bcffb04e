"""The chat coder against a local server that misbehaves in every way that servers do."""

import json
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.coders.chat import ChatCoder, completions_url, is_context_overflow
from orchestrator.coders.exchange import Exchange
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.ports import CoderReply, CoderRequest, Message
from orchestrator.spec.stack import ChatStack

KEY = "sk-very-secret-key"
SCHEMA = {"type": "object", "properties": {"action": {"const": "submit"}}}
REQUEST = CoderRequest(
    "a",
    "t",
    1,
    1,
    77,
    (Message("system", "You repair."), Message("user", "Go.")),
    0.3,
    0.9,
    64,
    5.0,
)
GOOD: dict[str, object] = {
    "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 3},
}

Step = Callable[[BaseHTTPRequestHandler], object]


def say(status: int, body: object, **headers: str) -> Step:
    """A server step that answers whole; ``body`` is JSON data or raw bytes."""

    def step(handler: BaseHTTPRequestHandler) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return step


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Promise 500 bytes, send 10, cut the line."""
    handler.send_response(200)
    handler.send_header("Content-Length", "500")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
    handler.close_connection = True


class Served:
    """A server that plays one step per request; the last step repeats."""

    def __init__(self, steps: list[Step]) -> None:
        self.requests: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.ending = threading.Event()
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(inner) -> None:
                body = inner.rfile.read(int(inner.headers["Content-Length"]))
                with lock:
                    self.requests.append(json.loads(body))
                    self.headers.append(dict(inner.headers))
                    self.paths.append(inner.path)
                    step = steps[min(len(self.requests), len(steps)) - 1]
                step(inner)

            def log_message(inner, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def served(*steps: Step) -> Iterator[Served]:
    play = Served(list(steps))
    thread = threading.Thread(target=play.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield play
    finally:
        play.ending.set()
        play.server.shutdown()
        play.server.server_close()
        thread.join(10)


def coder(
    url: str,
    seconds: float = 20.0,
    key: str | None = KEY,
    alive: Callable[[], bool] = lambda: True,
    **changes: object,
) -> ChatCoder:
    data: dict[str, object] = {
        "schema": "factorial/stack@1",
        "kind": "chat",
        "name": "c",
        "model": "some/model",
        "server": {"kind": "endpoint", "base_url": "http://unused"},
        "context_tokens": 8192,
        "request_seconds": seconds,
    }
    return ChatCoder(ChatStack.model_validate({**data, **changes}), url, key, SCHEMA, alive)


def fault_of(asked: ChatCoder) -> InfrastructureFault:
    with pytest.raises(InfrastructureFault) as caught:
        asked.reply(REQUEST)
    fault = caught.value
    assert fault.boundary == "server"
    assert KEY not in str(fault) and KEY not in repr(fault)
    assert KEY not in "".join(traceback.format_exception(fault))
    assert "\n" not in str(fault) and len(str(fault)) < 600
    return fault


# ------------------------------------------------------------------------------------ good replies


def test_a_reply_with_the_servers_own_token_counts() -> None:
    with served(say(200, GOOD)) as server:
        reply = coder(server.url).reply(REQUEST)
    assert (reply.text, reply.finish_reason, reply.source) == ("hello", "stop", "model")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.tokens_served) == (12, 3, 15)
    assert reply.latency_seconds > 0


def test_what_is_sent() -> None:
    with served(say(200, GOOD)) as server:
        coder(server.url + "/v1/").reply(REQUEST)
        coder(server.url, key=None, constrain=False).reply(REQUEST)
    first, second = server.requests
    assert server.paths == ["/v1/chat/completions"] * 2
    assert first["messages"] == [
        {"role": "system", "content": "You repair."},
        {"role": "user", "content": "Go."},
    ]
    sampling = {k: first[k] for k in ("model", "temperature", "top_p", "max_tokens", "seed")}
    assert sampling == {
        "model": "some/model",
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 64,
        "seed": 77,
    }
    format_ = first["response_format"]
    assert isinstance(format_, dict) and format_["json_schema"]["schema"] == SCHEMA
    assert "response_format" not in second
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert "Authorization" not in server.headers[1]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:1", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("https://h/api/v1/", "https://h/api/v1/chat/completions"),
    ],
)
def test_completions_url(base: str, url: str) -> None:
    assert completions_url(base) == url


def test_the_servers_processing_time_is_charged_where_it_is_reported() -> None:
    timed = {**GOOD, "timings": {"prompt_ms": 0.5, "predicted_ms": 0.25}}
    with served(say(200, timed)) as server:
        assert coder(server.url).reply(REQUEST).latency_seconds == 0.00075


def test_an_empty_completion_is_a_reply() -> None:
    empty = {**GOOD, "choices": [{"message": {"content": None}, "finish_reason": "length"}]}
    with served(say(200, empty)) as server:
        reply = coder(server.url).reply(REQUEST)
    assert (reply.text, reply.finish_reason) == ("", "length")


# --------------------------------------------------------------------------- what passes by itself


@pytest.mark.parametrize(
    "first",
    [
        say(429, {"error": "slow down"}),
        say(503, b"<html>loading</html>"),
        say(500, b""),
        say(200, b'{"choices": [{"mess'),
        say(200, [1, 2]),
        say(200, {"object": "nothing"}),
        say(200, {**GOOD, "choices": []}),
        hang_up,
    ],
)
def test_what_passes_is_retried(first: Step) -> None:
    with served(first, say(200, GOOD)) as server:
        assert coder(server.url).reply(REQUEST).text == "hello"
    assert len(server.requests) == 2
    assert server.requests[0] == server.requests[1]


def test_retry_after_is_honoured() -> None:
    pauses: list[float] = []
    with served(say(429, {}, Retry_After="7"), say(200, GOOD)) as server:
        exchange = Exchange(server.url, None, 20.0, sleep=pauses.append)
        assert exchange.post({}, lambda answer: answer.status) == 200
    assert pauses == [7.0]


def test_pauses_grow_and_vary() -> None:
    pauses: list[float] = []
    steps = [say(503, {})] * 5
    with served(*steps, say(200, GOOD)) as server:
        Exchange(server.url, None, 60.0, sleep=pauses.append).post({}, lambda a: a.status)
    for attempt, pause in enumerate(pauses):
        assert 0.125 * 2**attempt <= pause <= 0.25 * 2**attempt


def test_latency_leaves_out_failed_attempts_and_pauses() -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(0.3)

    with served(say(500, {}), say(200, GOOD)) as server:
        exchange = Exchange(server.url, None, 30.0, sleep=sleep)
        began = time.monotonic()
        charged = exchange.post({}, lambda answer: answer.seconds)
        assert charged <= time.monotonic() - began - 0.3
    assert len(slept) == 1


# -------------------------------------------------------------------------------------- one fault


def test_errors_for_ever_end_in_a_fault_that_names_the_last() -> None:
    with served(say(500, {"error": f"internal, key {KEY}"})) as server:
        fault = fault_of(coder(server.url, seconds=2.0))
    assert "no usable reply within 2 s" in fault.detail
    assert "HTTP 500" in fault.detail and "[key]" in fault.detail


def test_truncated_json_for_ever_ends_in_a_fault() -> None:
    with served(say(200, b'{"choices": [')) as server:
        fault = fault_of(coder(server.url, seconds=2.0))
    assert "truncated or malformed" in fault.detail


def test_a_reply_cut_by_the_deadline_does_not_hide_the_cause() -> None:
    def stall(handler: BaseHTTPRequestHandler) -> None:
        play[0].ending.wait(20)

    play: list[Served] = []
    with served(say(503, {"error": "model is loading"}), stall) as server:
        play.append(server)
        fault = fault_of(coder(server.url, seconds=2.0))
    assert "the last: ReadTimeout; before it: HTTP 503" in fault.detail
    assert "model is loading" in fault.detail


def test_a_hanging_server_meets_the_deadline() -> None:
    play: list[Served] = []
    with served(lambda _: play[0].ending.wait(20)) as server:
        play.append(server)
        fault = fault_of(coder(server.url, seconds=2.0))
    assert "ReadTimeout" in fault.detail


def test_a_dripping_server_meets_the_deadline() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not play[0].ending.wait(0.05):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    play: list[Served] = []
    with served(drip) as server:
        play.append(server)
        fault = fault_of(coder(server.url, seconds=2.0))
    assert "still coming in at the deadline" in fault.detail


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:hidden@127.0.0.1:{taken.getsockname()[1]}"
        fault = fault_of(coder(url, seconds=2.0))
    assert "ConnectError" in fault.detail and "hidden" not in fault.detail


def test_a_dead_server_of_our_own_is_not_waited_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        fault = fault_of(coder(url, seconds=3600.0, alive=lambda: False))
    assert "its process has ended" in fault.detail


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (say(404, {"error": {"message": "model `some/model` does not exist"}}), "does not exist"),
        (say(404, b"Not Found"), "HTTP 404 for model 'some/model': Not Found"),
        (say(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), "not accepted"),
        (say(400, {"error": {"message": f"unknown parameter {KEY}"}}), "unknown parameter [key]"),
        (say(307, b"", Location="http://elsewhere/"), "HTTP 307"),
        (say(200, {k: v for k, v in GOOD.items() if k != "usage"}), "no token usage"),
        (say(200, {**GOOD, "usage": {"prompt_tokens": 0, "completion_tokens": 3}}), "no token"),
        (say(200, {**GOOD, "usage": {"prompt_tokens": 9, "completion_tokens": 0}}), "claims 0"),
        (say(200, {**GOOD, "usage": {"prompt_tokens": "9", "completion_tokens": 1}}), "no token"),
    ],
)
def test_what_does_not_pass_is_a_fault_at_once(step: Step, words: str) -> None:
    with served(step) as server:
        fault = fault_of(coder(server.url))
    assert words in fault.detail
    assert len(server.requests) == 1


def test_a_base_url_that_is_none_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"server\.base_url"):
        coder("http://[::1")


# --------------------------------------------------------------------------------- context overflow


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9000}),
        (400, {"code": "context_length_exceeded", "message": "too long"}),
        (400, {"message": "This model's maximum context length is 8192 tokens."}),
        (413, {"message": "The input is longer than the model's context length (8192 tokens)."}),
    ],
)
def test_a_prompt_that_does_not_fit_is_the_agents_doing(
    status: int, error: dict[str, object]
) -> None:
    for body in ({"error": error}, error):
        with served(say(status, body)) as server:
            reply = coder(server.url).reply(REQUEST)
        assert (reply.text, reply.finish_reason) == ("", "context")
        assert reply.prompt_tokens == error.get("n_prompt_tokens", 0)
        assert reply.tokens_served == 0


def test_other_errors_are_no_overflow() -> None:
    assert not is_context_overflow({"message": "Invalid JSON schema", "code": 400})


# -------------------------------------------------------------------------------------- concurrency


def test_a_server_of_our_own_gets_no_more_requests_than_it_has_slots() -> None:
    present, most, lock = [0], [0], threading.Lock()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        with lock:
            present[0] += 1
            most[0] = max(most[0], present[0])
        time.sleep(0.05)
        with lock:
            present[0] -= 1
        say(200, GOOD)(handler)

    weights = {"kind": "file", "path": "w.gguf", "sha256": "0" * 64}
    own = {"kind": "llama-cpp", "weights": weights, "parallel": 2}
    replies: list[CoderReply] = []
    with served(slow) as server:
        asked = coder(server.url, server=own)
        threads = [
            threading.Thread(target=lambda: replies.append(asked.reply(REQUEST))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(replies) == 6
    assert most[0] == 2
