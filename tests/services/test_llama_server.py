"""A real language model on the CPU: weights from the package index, llama.cpp's server, replies."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from orchestrator.agent.actions import ACTION_SCHEMA
from orchestrator.agent.parsing import Invalid, parse
from orchestrator.coders.chat import ChatCoder
from orchestrator.coders.llama_server import LlamaServer, fetch_weights
from orchestrator.coders.manifest import load_stack
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.ports import CoderReply, CoderRequest, Message
from orchestrator.spec.stack import ChatStack, LlamaCppServer

pytestmark = pytest.mark.services

STACK_FILE = Path(__file__).parents[2] / "manifests" / "stacks" / "smollm2-135m-cpu.yaml"


@pytest.fixture(scope="module")
def stack() -> ChatStack:
    found = load_stack(STACK_FILE)
    assert isinstance(found, ChatStack)
    return found


@pytest.fixture(scope="module")
def own(stack: ChatStack) -> LlamaCppServer:
    assert isinstance(stack.server, LlamaCppServer)
    return stack.server


@pytest.fixture(scope="module")
def weights(own: LlamaCppServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    path = fetch_weights(own.weights, cache)
    assert fetch_weights(own.weights, cache) == path
    return path


@pytest.fixture(scope="module")
def server(
    own: LlamaCppServer, weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaServer]:
    began = time.monotonic()
    with LlamaServer(own, weights, tmp_path_factory.mktemp("log")) as running:
        print(f"\nboot to first completion: {time.monotonic() - began:.2f} s")
        yield running


@pytest.fixture
def coder(stack: ChatStack, server: LlamaServer) -> Iterator[ChatCoder]:
    made = ChatCoder(stack, server.base_url, None, ACTION_SCHEMA, server.alive)
    yield made
    made.close()


def request(
    seed: int, tokens: int = 48, words: str = "Find the fault in parser.py."
) -> CoderRequest:
    messages = (
        Message("system", "You repair a repository. Answer with one JSON action."),
        Message("user", words),
    )
    return CoderRequest("r", "t", 1, 1, seed, messages, 0.8, 0.95, tokens, 900.0)


def is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_the_weights_are_those_of_the_manifest(weights: Path) -> None:
    assert weights.stat().st_size == 98_362_432
    assert weights.read_bytes()[:4] == b"GGUF"


def test_equal_seeds_give_equal_replies_alone_and_together(coder: ChatCoder) -> None:
    began = time.monotonic()
    alone = [coder.reply(request(seed)) for seed in (1, 1, 2)]
    seconds = time.monotonic() - began
    print(f"\none at a time: {sum(r.completion_tokens for r in alone) / seconds:.1f} tokens/s")
    assert alone[0].text == alone[1].text != alone[2].text
    together: dict[int, CoderReply] = {}
    threads = [
        threading.Thread(target=lambda s=seed: together.__setitem__(s, coder.reply(request(s))))
        for seed in (1, 2, 3, 4)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(250)
    seconds = time.monotonic() - began
    total = sum(r.completion_tokens for r in together.values())
    print(f"\nfour together: {total / seconds:.1f} tokens/s")
    assert (together[1].text, together[2].text) == (alone[0].text, alone[2].text)


@pytest.mark.parametrize("seed", range(4))
def test_replies_are_constrained_to_the_action_schema(coder: ChatCoder, seed: int) -> None:
    reply = coder.reply(request(seed, tokens=160))
    assert reply.finish_reason in ("stop", "length")
    if reply.finish_reason == "stop":
        assert not isinstance(parse(reply.text), Invalid)
    else:
        assert reply.text.startswith("{") and '"action"' in reply.text
    assert reply.prompt_tokens > 20
    assert 0 < reply.completion_tokens <= 160
    assert reply.tokens_served == reply.prompt_tokens + reply.completion_tokens
    assert reply.latency_seconds > 0


def test_without_the_schema_replies_are_free(stack: ChatStack, server: LlamaServer) -> None:
    free = stack.model_copy(update={"constrain": False})
    replies = [
        ChatCoder(free, server.base_url, None, ACTION_SCHEMA).reply(request(seed, tokens=24))
        for seed in range(3)
    ]
    assert any(not reply.text.startswith("{") for reply in replies)


def test_a_prompt_beyond_the_slot_is_no_fault(coder: ChatCoder) -> None:
    reply = coder.reply(request(1, words="word " * 9000))
    assert (reply.finish_reason, reply.text) == ("context", "")
    assert reply.prompt_tokens > 8192


def test_a_killed_server_is_a_fault_and_can_be_started_again(
    stack: ChatStack, own: LlamaCppServer, weights: Path, tmp_path: Path
) -> None:
    server = LlamaServer(own, weights, tmp_path)
    server.start()
    first, address = server.pid, server.base_url
    assert first is not None
    coder = ChatCoder(stack, address, None, ACTION_SCHEMA, server.alive)
    timer = threading.Timer(1.0, os.kill, (first, signal.SIGKILL))
    timer.start()
    with pytest.raises(InfrastructureFault, match=r"server: .*its process has ended"):
        for seed in range(1000):
            coder.reply(request(seed, tokens=200))
    assert not server.alive()
    server.start()
    again = ChatCoder(stack, server.base_url, None, ACTION_SCHEMA, server.alive)
    assert again.reply(request(1)).text
    second = server.pid
    assert second is not None
    server.stop()
    server.stop()
    assert not is_process(first) and not is_process(second)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health", trust_env=False)
    with pytest.raises(InfrastructureFault, match="was not started"):
        _ = server.base_url


def test_a_stopped_process_group_is_killed(
    own: LlamaCppServer, weights: Path, tmp_path: Path
) -> None:
    server = LlamaServer(own, weights, tmp_path)
    server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    server.stop()
    assert not is_process(pid)


def test_weights_that_are_none_end_in_a_fault_with_the_log(
    own: LlamaCppServer, tmp_path: Path
) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"no weights")
    server = LlamaServer(own, tmp_path / "bad.gguf", tmp_path)
    with pytest.raises(InfrastructureFault, match="ended at start") as caught:
        server.start()
    assert "bad.gguf" in caught.value.detail
    assert not server.alive()
    assert len(list(tmp_path.glob("llama-server-*.log"))) == 1


def test_a_server_that_is_not_ready_in_time_is_ended(
    own: LlamaCppServer, weights: Path, tmp_path: Path
) -> None:
    server = LlamaServer(own.model_copy(update={"ready_seconds": 0.05}), weights, tmp_path)
    with pytest.raises(InfrastructureFault, match="in time"):
        server.start()
    assert server.pid is None


PARENT = """
import sys, threading, time
from pathlib import Path
from orchestrator.coders.llama_server import LlamaServer
from orchestrator.spec.stack import LlamaCppServer
own = LlamaCppServer.model_validate_json(sys.argv[1])
server = LlamaServer(own, Path(sys.argv[2]), Path(sys.argv[3]))
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
time.sleep(1)
print(server.pid if server.alive() else "dead with its thread", flush=True)
time.sleep(600)
"""


def test_the_server_outlives_its_starting_thread_but_not_its_parent(
    own: LlamaCppServer, weights: Path, tmp_path: Path
) -> None:
    arguments = [own.model_dump_json(), str(weights), str(tmp_path)]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        assert is_process(pid)
        parent.kill()
    assert wait_until(lambda: not is_process(pid))


def test_a_wrong_digest_leaves_nothing(own: LlamaCppServer, tmp_path: Path) -> None:
    wrong = own.weights.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(BadInput, match=r"server\.weights\.sha256: the wheel's SHA-256 is"):
        fetch_weights(wrong, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
