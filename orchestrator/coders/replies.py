"""The reply store: arms of one task and seed share a reply until their prompts first differ.

Key = digest of stack, messages, sampling and request seed (common random numbers). A reply is
durable before it is delivered, and the first one stored under a key is the one everybody gets, so
a retried attempt meets the replies of the first.
"""

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.identity import canonical_json, digest_json
from orchestrator.spec.ports import Coder, CoderReply, CoderRequest


def reply_key(stack_id: str, request: CoderRequest) -> str:
    """Identity of a model call. Rollout, cell, turn and deadline are not part of it."""
    return digest_json(
        [
            stack_id,
            [[message.role, message.content] for message in request.messages],
            [request.temperature, request.top_p, request.max_new_tokens],
            request.request_seed,
        ]
    )


class ReplyStore:
    """Replies as files ``<directory>/<key[:2]>/<key>.json``; safe for threads and processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str) -> CoderReply | None:
        """The stored reply; None where there is none or its digest does not hold (torn, edited)."""
        try:
            held = json.loads(self._path(key).read_bytes())
            reply = CoderReply(**held["reply"])
            return reply if held["sha256"] == _seal(key, reply) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _disk_fault(error) from None
        except (ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, reply: CoderReply) -> CoderReply:
        """Store durably; returns what the store now holds: an earlier valid reply wins.

        Raises InfrastructureFault (``disk``) where the reply could not be made durable.
        """
        path = self._path(key)
        content = canonical_json({"reply": asdict(reply), "sha256": _seal(key, reply)})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = _durable_file(path.parent, content)
            try:
                return self._publish(temporary, path, key, reply)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise _disk_fault(error) from None

    def _publish(self, temporary: Path, path: Path, key: str, reply: CoderReply) -> CoderReply:
        try:
            os.link(temporary, path)
        except FileExistsError:
            earlier = self.get(key)
            if earlier is not None:
                return earlier
            temporary.replace(path)
        _sync_directory(path.parent)
        return reply

    def _path(self, key: str) -> Path:
        return self._directory / key[:2] / f"{key}.json"


class SharedCoder:
    """Wraps a coder with a reply store; equal requests at one time make one call (single flight).

    A met reply has source ``shared``, 0 tokens served, and the logical tokens and latency of the
    call that made it. Requests with a privileged view depend on more than the key and pass through.
    """

    def __init__(self, coder: Coder, store: ReplyStore, stack_id: str) -> None:
        self._coder = coder
        self._store = store
        self._stack_id = stack_id
        self._lock = threading.Lock()
        self._flights: dict[str, Future[CoderReply]] = {}

    def reply(self, request: CoderRequest) -> CoderReply:
        """The stored reply, or a new one, stored before it is returned."""
        if request.privileged is not None:
            return self._coder.reply(request)
        key = reply_key(self._stack_id, request)
        with self._lock:
            flight = self._flights.get(key)
            leads = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if leads:
            return self._lead(key, flight, request)
        return _shared(_wait(flight))

    def close(self) -> None:
        """Close the wrapped coder, where it has anything to close."""
        close: Callable[[], None] | None = getattr(self._coder, "close", None)
        if close is not None:
            close()

    def _lead(self, key: str, flight: Future[CoderReply], request: CoderRequest) -> CoderReply:
        try:
            reply = self._obtain(key, request)
            flight.set_result(reply)
            return reply
        except BaseException as error:
            flight.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._flights[key]

    def _obtain(self, key: str, request: CoderRequest) -> CoderReply:
        met = self._store.get(key)
        if met is not None:
            return _shared(met)
        made = self._coder.reply(request)
        held = self._store.put(key, made)
        # Another process was first: its reply counts, yet our server did work for this one.
        return made if held == made else replace(_shared(held), tokens_served=made.tokens_served)


def _shared(reply: CoderReply) -> CoderReply:
    return replace(reply, source="shared", tokens_served=0)


def _wait(flight: Future[CoderReply]) -> CoderReply:
    """The leader's reply. Its fault is raised anew: one exception object per thread.

    Unbounded only in form: the leader's call has its own deadline and always settles the flight.
    """
    try:
        return flight.result()
    except InfrastructureFault as fault:
        raise InfrastructureFault(fault.boundary, fault.detail) from None


def _seal(key: str, reply: CoderReply) -> str:
    return digest_json([key, asdict(reply)])


def _durable_file(directory: Path, content: bytes) -> Path:
    with NamedTemporaryFile(dir=directory, prefix=".reply-", delete=False) as stream:
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        except OSError:
            Path(stream.name).unlink(missing_ok=True)
            raise
    return Path(stream.name)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _disk_fault(error: OSError) -> InfrastructureFault:
    return InfrastructureFault("disk", f"reply store: {error.strerror} ({error.filename})")
