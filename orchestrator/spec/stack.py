"""Coder stacks: what proposes, frozen together with how it is served and sampled."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestrator.spec.manifest import Frozen, Misfit
from orchestrator.spec.study import FACTOR_LEVELS
from orchestrator.spec.task import Sha256, Slug

Probability = Annotated[float, Field(ge=0.0, le=1.0, strict=False)]


class PlantedRates(Frozen):
    """Per-revision behaviour where every level in ``when`` holds (the first matching row counts).

    ``alpha`` = P(next state correct | current incorrect), ``beta`` = P(next incorrect | current
    correct) (paper §3, equations 1 and 2); ``overfit`` = P(next state passes the gate but does not
    resolve | current incorrect), so alpha + overfit <= 1; ``overfit_harm`` = share of harmful
    revisions that end in such a state.
    """

    when: dict[str, str] = Field(default_factory=dict)
    alpha: Probability
    beta: Probability
    overfit: Probability = 0.0
    overfit_harm: Probability = 0.0

    @model_validator(mode="after")
    def _sums(self) -> "PlantedRates":
        for factor, level in self.when.items():  # a misspelt row would silently match no cell
            if factor not in FACTOR_LEVELS:
                known = ", ".join(FACTOR_LEVELS)
                raise Misfit(f"when.{factor}", f"unknown factor (known: {known})")
            levels = FACTOR_LEVELS[factor]
            if levels is not None and level not in levels:
                raise Misfit(f"when.{factor}", f"unknown level (known: {', '.join(levels)})")
        if self.alpha + self.overfit > 1.0:
            raise Misfit("overfit", "alpha + overfit exceeds 1")
        return self


class PlantedStack(Frozen):
    """A simulated coder with known transition rates; proves that planted effects are recovered.

    It sees the gold patch, so ``privileged: true`` has to be written out. ``submit`` is the
    probability of submitting at a turn after the first retained revision, ``test`` of asking for
    evidence before an edit, ``invalid`` of a malformed reply, ``escalate`` of giving up.
    """

    schema_: Literal["factorial/stack@1"] = Field(alias="schema")
    kind: Literal["planted"]
    name: Slug
    privileged: Literal[True]
    rates: tuple[PlantedRates, ...] = Field(strict=False, min_length=1)
    submit: Probability = 0.3
    test: Probability = 0.5
    invalid: Probability = 0.0
    escalate: Probability = 0.0

    @model_validator(mode="after")
    def _total(self) -> "PlantedStack":
        if self.rates[-1].when:
            raise Misfit("rates", "the last row must have an empty `when`, so that one matches")
        if self.invalid + self.escalate > 1.0:
            raise Misfit("invalid", "invalid + escalate exceeds 1")
        return self

    @property
    def needs_overfit(self) -> bool:
        return any(r.overfit > 0 or (r.beta > 0 and r.overfit_harm > 0) for r in self.rates)


class RecordedStack(Frozen):
    """Replays the replies of an earlier run from its own tables.

    ``on_divergence``: ``refuse`` stops a rollout whose prompt differs from the recorded one (an
    infrastructure-free replica); ``continue`` replies by turn whatever the prompt, for
    counterfactual policies. A turn without a record escalates.
    """

    schema_: Literal["factorial/stack@1"] = Field(alias="schema")
    kind: Literal["recorded"]
    name: Slug
    root: str
    on_divergence: Literal["refuse", "continue"] = "refuse"


class WheelWeights(Frozen):
    """Model weights inside a wheel of the package index."""

    kind: Literal["wheel"]
    name: Slug
    version: str
    sha256: Sha256
    path: str


class FileWeights(Frozen):
    """Model weights in a local file."""

    kind: Literal["file"]
    path: str
    sha256: Sha256


class LlamaCppServer(Frozen):
    """llama.cpp's own HTTP server on this node's CPU, one per stack."""

    kind: Literal["llama-cpp"]
    weights: Annotated[WheelWeights | FileWeights, Field(discriminator="kind")]
    context_tokens: Annotated[int, Field(ge=512)] = 16384
    parallel: Annotated[int, Field(ge=1, le=64)] = 4
    threads: Annotated[int, Field(ge=1)] = 1
    ready_seconds: Annotated[float, Field(gt=0, strict=False)] = 120.0


class EndpointServer(Frozen):
    """Any OpenAI-compatible service. The key is read from the environment, never stored."""

    kind: Literal["endpoint"]
    base_url: Annotated[str, Field(pattern=r"^https?://")]
    api_key_env: str | None = None


class ChatStack(Frozen):
    """A language model behind /v1/chat/completions, replies constrained to the action schema."""

    schema_: Literal["factorial/stack@1"] = Field(alias="schema")
    kind: Literal["chat"]
    name: Slug
    model: str
    server: Annotated[LlamaCppServer | EndpointServer, Field(discriminator="kind")]
    constrain: bool = True
    context_tokens: Annotated[int, Field(ge=512)]
    request_seconds: Annotated[float, Field(gt=0, strict=False)] = 300.0

    @model_validator(mode="after")
    def _slots(self) -> "ChatStack":
        if isinstance(self.server, LlamaCppServer):
            slot = self.server.context_tokens // self.server.parallel
            if self.context_tokens > slot:
                raise Misfit(
                    "context_tokens",
                    f"{self.context_tokens} exceeds the {slot} of one server slot "
                    "(server.context_tokens / server.parallel)",
                )
        return self


Stack = PlantedStack | RecordedStack | ChatStack


class StackManifest(Frozen):
    """Wrapper that dispatches on ``kind``; read it with :func:`parse_stack`."""

    stack: Annotated[Stack, Field(discriminator="kind")]
