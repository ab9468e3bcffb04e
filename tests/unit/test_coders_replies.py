"""The reply store: one reply per key, durable before delivery, torn files are as good as none."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.coders.replies import ReplyStore, SharedCoder, reply_key
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.ports import CoderReply, CoderRequest, Message, PrivilegedView

REPLY = CoderReply('{"action": "submit"}', 70, 9, 79, 2.125, "stop", "model")
REQUEST = CoderRequest("a", "t", 1, 1, 5, (Message("user", "Go."),), 0.3, 0.9, 64, 900.0)


class Counting:
    """A coder that counts its calls; ``before`` runs inside each."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.calls = 0
        self._before = before
        self.closed = False

    def reply(self, request: CoderRequest) -> CoderReply:
        self.calls += 1
        self._before()
        return replace(REPLY, text=f"reply {self.calls}")

    def close(self) -> None:
        self.closed = True


def only_file(directory: Path) -> Path:
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) == 1
    return files[0]


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, messages=(Message("user", "Stop."),)),
        replace(REQUEST, messages=(Message("system", "Go."),)),
        replace(REQUEST, temperature=0.4),
        replace(REQUEST, top_p=0.8),
        replace(REQUEST, max_new_tokens=65),
        replace(REQUEST, request_seed=6),
    ],
)
def test_the_key_names_prompt_sampling_seed_and_stack(other: CoderRequest) -> None:
    assert reply_key("s", other) != reply_key("s", REQUEST) != reply_key("s2", REQUEST)


def test_the_key_ignores_what_differs_between_arms() -> None:
    arm = replace(REQUEST, rollout_id="b", deadline_seconds=3.0)
    assert reply_key("s", arm) == reply_key("s", REQUEST)


def test_a_reply_survives_and_the_first_one_stays(tmp_path: Path) -> None:
    store = ReplyStore(tmp_path)
    assert store.get("ab") is None
    assert store.put("ab", REPLY) == REPLY
    assert store.put("ab", replace(REPLY, text="later")) == REPLY
    assert ReplyStore(tmp_path).get("ab") == REPLY
    only_file(tmp_path)


@pytest.mark.parametrize("damage", ["torn", "edited", "empty", "foreign", "moved"])
def test_damage_is_detected_and_mended_by_the_next_reply(tmp_path: Path, damage: str) -> None:
    store = ReplyStore(tmp_path)
    store.put("ab", REPLY)
    path = only_file(tmp_path)
    content = path.read_bytes()
    path.write_bytes(
        {
            "torn": content[:-20],
            "edited": content.replace(b"submit", b"escape"),
            "empty": b"",
            "foreign": json.dumps({"reply": [], "sha256": ""}).encode(),
            "moved": content,
        }[damage]
    )
    key = "ab"
    if damage == "moved":
        key = "abc"
        path.rename(path.with_name("abc.json"))
    assert store.get(key) is None
    other = replace(REPLY, text="new")
    assert store.put(key, other) == other
    assert store.get(key) == other


def test_a_met_reply_is_shared_with_logical_tokens_and_recorded_latency(tmp_path: Path) -> None:
    inner = Counting()
    first = SharedCoder(inner, ReplyStore(tmp_path), "s").reply(REQUEST)
    again = SharedCoder(inner, ReplyStore(tmp_path), "s").reply(replace(REQUEST, rollout_id="b"))
    assert (first.source, first.tokens_served) == ("model", 79)
    assert again == replace(first, source="shared", tokens_served=0)
    assert (again.latency_seconds, again.prompt_tokens, inner.calls) == (2.125, 70, 1)


def test_the_reply_is_stored_before_it_is_delivered(tmp_path: Path) -> None:
    class Refusing(ReplyStore):
        def put(self, key: str, reply: CoderReply) -> CoderReply:
            raise InfrastructureFault("disk", "full")

    with pytest.raises(InfrastructureFault, match="disk: full"):
        SharedCoder(Counting(), Refusing(tmp_path), "s").reply(REQUEST)


def test_an_unwritable_store_is_a_fault_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InfrastructureFault, match="disk: reply store: Not a directory"):
        ReplyStore(tmp_path / "file").put("ab", REPLY)


def test_another_process_that_was_first_wins(tmp_path: Path) -> None:
    store = ReplyStore(tmp_path)
    winner = replace(REPLY, text="of the other process")
    inner = Counting(before=lambda: store.put(reply_key("s", REQUEST), winner))
    reply = SharedCoder(inner, store, "s").reply(REQUEST)
    assert (reply.text, reply.source, reply.tokens_served) == (winner.text, "shared", 79)


def together(coder: SharedCoder, count: int, started: Callable[[], None]) -> list[object]:
    """Results, or faults, of ``count`` equal requests made while the first one is in the air."""
    results: list[object] = []

    def ask() -> None:
        try:
            results.append(coder.reply(REQUEST))
        except InfrastructureFault as fault:
            results.append(fault)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    started()
    for thread in threads:
        thread.join(30)
    return results


def test_concurrent_equal_requests_make_one_call(tmp_path: Path) -> None:
    release = threading.Event()
    inner = Counting(before=lambda: release.wait(30))
    results = together(SharedCoder(inner, ReplyStore(tmp_path), "s"), 8, release.set)
    assert inner.calls == 1 and len(results) == 8
    sources = sorted(r.source for r in results if isinstance(r, CoderReply))
    assert sources == ["model"] + ["shared"] * 7
    assert sum(r.tokens_served for r in results if isinstance(r, CoderReply)) == 79


def test_a_fault_reaches_everybody_who_waits_and_stores_nothing(tmp_path: Path) -> None:
    release = threading.Event()

    def fail() -> None:
        release.wait(30)
        raise InfrastructureFault("server", "gone")

    coder = SharedCoder(Counting(before=fail), ReplyStore(tmp_path), "s")
    results = together(coder, 4, release.set)
    assert results == [InfrastructureFault("server", "gone")] * 4
    assert not list(tmp_path.rglob("*.json"))


def test_privileged_requests_pass_through_and_close_closes(tmp_path: Path) -> None:
    inner = Counting()
    coder = SharedCoder(inner, ReplyStore(tmp_path), "s")
    seen = replace(REQUEST, privileged=PrivilegedView("s", {}, 1, None, None))
    assert [coder.reply(seen).text, coder.reply(seen).text] == ["reply 1", "reply 2"]
    assert not list(tmp_path.iterdir())
    coder.close()
    assert inner.closed
