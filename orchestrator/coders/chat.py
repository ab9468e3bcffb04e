"""A language model behind an OpenAI-compatible ``/v1/chat/completions``.

One request in, one reply with the server's own token counts out. A prompt that does not fit the
context is the agent's doing (empty reply, ``finish_reason`` ``context``); everything else that goes
wrong is an InfrastructureFault of boundary ``server``.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeGuard

from orchestrator.coders.exchange import Answer, Exchange, Unusable
from orchestrator.spec.ports import CoderReply, CoderRequest
from orchestrator.spec.stack import ChatStack, LlamaCppServer

CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
CONTEXT_PHRASES = ("maximum context length", "context size", "longer than the model's context")
"""vLLM and SGLang send no code of their own for this error, only one of these phrases."""


class ChatCoder:
    """The Coder port over HTTP. Safe to use from several threads.

    ``latency_seconds`` is the time of the attempt that succeeded: retries and back-off are the
    server's faults and are not charged. Where the server reports its own processing time
    (llama.cpp's ``timings``), that is charged, so that queueing costs nothing (protocol §1 "Wall
    clock"); towards a server of our own, no more requests are sent at once than it has slots.
    ``deadline_seconds`` of a request does not cut it: the loop charges the latency and ends the
    rollout itself, and a reply that arms share must not depend on one arm's remaining time.
    """

    def __init__(
        self,
        stack: ChatStack,
        base_url: str,
        api_key: str | None,
        action_schema: Mapping[str, object],
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._stack = stack
        self._schema = dict(action_schema)
        self._exchange = Exchange(completions_url(base_url), api_key, stack.request_seconds, alive)
        self._slot: AbstractContextManager[object] = nullcontext()
        if isinstance(stack.server, LlamaCppServer):
            self._slot = threading.BoundedSemaphore(stack.server.parallel)

    def reply(self, request: CoderRequest) -> CoderReply:
        """Ask the model once; raises InfrastructureFault (``server``)."""
        with self._slot:
            return self._exchange.post(self.payload(request), self._accept)

    def close(self) -> None:
        """Close the connections to the server."""
        self._exchange.close()

    def payload(self, request: CoderRequest) -> dict[str, Any]:
        """The request body; with ``constrain`` the reply is held to the action schema."""
        body: dict[str, Any] = {
            "model": self._stack.model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_new_tokens,
            "seed": request.request_seed,
            "stream": False,
        }
        if self._stack.constrain:
            schema = {"name": "action", "strict": True, "schema": self._schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _accept(self, answer: Answer) -> CoderReply:
        if answer.status == 200:
            return self._completion(answer)
        error = _error(answer.body)
        if answer.status in (400, 413, 422) and is_context_overflow(error):
            tokens = error.get("n_prompt_tokens")
            prompt = tokens if isinstance(tokens, int) else 0
            return CoderReply("", prompt, 0, 0, answer.seconds, "context", "model")
        if answer.status in (401, 403):
            raise self._exchange.fault(f"HTTP {answer.status}, the API key was not accepted")
        raise self._exchange.fault(
            f"HTTP {answer.status} for model {self._stack.model!r}: {error.get('message', '')}"
        )

    def _completion(self, answer: Answer) -> CoderReply:
        try:
            choice = answer.body["choices"][0]
            text = choice["message"]["content"] or ""
            finish = str(choice.get("finish_reason") or "unknown")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unusable("the reply has no choices[0].message.content") from None
        if not isinstance(text, str):
            raise Unusable("the reply's content is no text")
        prompt, completion = _usage(answer.body, text, self._exchange)
        seconds = min(answer.seconds, _processing_seconds(answer.body, answer.seconds))
        return CoderReply(text, prompt, completion, prompt + completion, seconds, finish, "model")


def completions_url(base_url: str) -> str:
    """URL of chat completions for a base URL with or without its ``/v1``."""
    base = base_url.rstrip("/")
    return f"{base if base.endswith('/v1') else base + '/v1'}/chat/completions"


def is_context_overflow(error: Mapping[str, Any]) -> bool:
    """Whether an error object says that the prompt does not fit: by its code, else its words."""
    if CONTEXT_CODES & {str(error.get("code")), str(error.get("type"))}:
        return True
    message = str(error.get("message", "")).lower()
    return any(phrase in message for phrase in CONTEXT_PHRASES)


def _error(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The error object: nested (OpenAI, llama.cpp), flat (vLLM, SGLang) or a bare sentence."""
    error = body.get("error", body)
    return error if isinstance(error, dict) else {"message": str(error)}


def _usage(body: Mapping[str, Any], text: str, exchange: Exchange) -> tuple[int, int]:
    """Prompt and completion tokens as the server counts them; a guess would corrupt the tables."""
    usage = body.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if not (_is_count(prompt) and _is_count(completion) and prompt > 0):
        raise exchange.fault("the reply has no token usage; use a server that reports `usage`")
    if text and completion == 0:
        raise exchange.fault("the reply claims 0 completion tokens for a text that is not empty")
    return prompt, completion


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _processing_seconds(body: Mapping[str, Any], otherwise: float) -> float:
    """llama.cpp's own prompt and generation time (s), or ``otherwise`` where there is none."""
    timings = body.get("timings")
    if not isinstance(timings, dict):
        return otherwise
    parts = [timings.get("prompt_ms"), timings.get("predicted_ms")]
    numbers = [part for part in parts if isinstance(part, int | float) and part >= 0]
    return sum(numbers) / 1000.0 if len(numbers) == 2 else otherwise
