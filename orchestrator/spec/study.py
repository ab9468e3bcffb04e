"""Study manifests: factors, cells, seeds, budgets, endpoints, decision rule, schedule."""

from itertools import product
from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestrator.spec.manifest import Frozen, Misfit
from orchestrator.spec.task import Slug

Level = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, strict=False)]

SWITCH = ("OFF", "ON")
FACTOR_LEVELS: dict[str, tuple[str, ...] | None] = {
    "evidence": ("current", "stale"),
    "contract": SWITCH,
    "binding": SWITCH,
    "admission": SWITCH,
    "certification": SWITCH,
    "revision_cap": None,  # any positive integer
}
"""What may vary between cells (protocol §1). ``contract`` is all three components at once."""


class Factor(Frozen):
    """A named factor and its levels, in the order in which cells are enumerated."""

    name: Literal["evidence", "contract", "binding", "admission", "certification", "revision_cap"]
    levels: tuple[Level, ...] = Field(strict=False, min_length=1)

    @model_validator(mode="after")
    def _known_levels(self) -> "Factor":
        known = FACTOR_LEVELS[self.name]
        for level in self.levels:
            if known is None and not (level.isdigit() and int(level) >= 1):
                raise ValueError(f"level {level!r} of {self.name} is not a positive whole number")
            if known is not None and level not in known:
                raise ValueError(
                    f"unknown level {level!r} of {self.name} (known: {', '.join(known)})"
                )
        if len(set(self.levels)) != len(self.levels):
            raise ValueError(f"factor {self.name} repeats a level")
        return self


class Budgets(Frozen):
    """What one rollout may spend (protocol §1): counts, charged seconds, tokens."""

    actions: Positive = 15
    revisions: Positive = 3
    visible_tests: Annotated[int, Field(ge=0)] = 6
    wall_seconds: Seconds = 900.0
    visible_test_seconds: Seconds = 120.0
    completion_tokens: Positive | None = None


class Sampling(Frozen):
    """Sampling of one action (protocol §1: 0.3, 0.9, at most 1,024 new tokens)."""

    temperature: Annotated[float, Field(ge=0, le=2, strict=False)] = 0.3
    top_p: Annotated[float, Field(gt=0, le=1, strict=False)] = 0.9
    max_new_tokens: Positive = 1024


class SandboxSpec(Frozen):
    """Backend and limits of the commands that run untrusted code."""

    backend: Literal["bwrap"] = "bwrap"
    memory_mib: Positive = 1024
    processes: Positive = 128
    file_mib: Positive = 64
    scratch_mib: Positive = 256
    shell_seconds: Seconds = 30.0
    suite_seconds: Seconds = 300.0
    cpus: Annotated[float, Field(gt=0, strict=False)] = 1.0


class Contrast(Frozen):
    """Effect = mean at ``high`` minus mean at ``low``, within task, over all other factors."""

    name: Slug
    kind: Literal["contrast"]
    factor: str
    low: Level
    high: Level


class Linear(Frozen):
    """Fitted change from ``low`` to ``high`` of a per-task least-squares line on the factor."""

    name: Slug
    kind: Literal["linear"]
    factor: str
    low: Level
    high: Level


class Interaction(Frozen):
    """Effect of ``of[0]`` at ``of[1]``'s high level minus at its low level; both named effects."""

    name: Slug
    kind: Literal["interaction"]
    of: tuple[Slug, Slug] = Field(strict=False)


Effect = Annotated[Contrast | Linear | Interaction, Field(discriminator="kind")]
Endpoint = Literal["unsafe", "sound", "accepted", "discovered"]


class Family(Frozen):
    """Effects x endpoints whose sign-flip p-values are Holm-adjusted together."""

    name: Slug
    effects: tuple[Slug, ...] = Field(strict=False, min_length=1)
    endpoints: tuple[Endpoint, ...] = Field(strict=False, min_length=1)


class Decision(Frozen):
    """Co-primary intersection-union rule (protocol §1 "Decision"); both inequalities strict.

    Superiority: one-sided upper bound of the unsafe effect < ``unsafe_below``; non-inferiority:
    one-sided lower bound of the sound effect > ``sound_above``. Effects are differences of
    probabilities (0.05 = 5 points). ``floor``: baseline sound rate under which the non-inferiority
    verdict is called floor-limited.
    """

    effect: Slug
    level: Annotated[float, Field(gt=0.5, lt=1, strict=False)] = 0.95
    unsafe_below: Annotated[float, Field(ge=-1, le=1, strict=False)] = 0.0
    sound_above: Annotated[float, Field(ge=-1, le=1, strict=False)] = -0.05
    floor: Annotated[float, Field(ge=0, le=1, strict=False)] = 0.05


class Inference(Frozen):
    """Draws and seed of the task-cluster bootstrap and the Monte Carlo sign flip."""

    bootstrap_draws: Annotated[int, Field(ge=1000, le=2_000_000)] = 200_000
    sign_flip_draws: Annotated[int, Field(ge=1000, le=2_000_000)] = 100_000
    seed: Annotated[int, Field(ge=0)] = 20260101


class TaskSelection(Frozen):
    """A task manifest (path relative to the study file) and which of its tasks are used."""

    manifest: str
    include: tuple[Slug, ...] | None = Field(default=None, strict=False)
    max_per_project: Positive = 3


class Study(Frozen):
    """A whole experiment as data. Paths are relative to the study file's folder."""

    schema_: Literal["factorial/study@1"] = Field(alias="schema")
    name: Slug
    title: str
    tasks: TaskSelection
    stack: str
    prompts: str
    factors: tuple[Factor, ...] = Field(strict=False, min_length=1)
    constants: dict[str, str] = Field(default_factory=dict)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(strict=False, min_length=1)
    budgets: Budgets = Budgets()
    sampling: Sampling = Sampling()
    sandbox: SandboxSpec = SandboxSpec()
    effects: tuple[Effect, ...] = Field(strict=False, min_length=1)
    decision: Decision
    families: tuple[Family, ...] = Field(default=(), strict=False)
    inference: Inference = Inference()
    schedule_seed: Annotated[int, Field(ge=0)] = 0
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    reply_sharing: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        _check_arms(self)
        _check_effects(self)
        _check_budgets(self)
        if len(set(self.seeds)) != len(self.seeds):
            raise Misfit("seeds", "seeds repeat")
        return self

    def cells(self) -> tuple[dict[str, str], ...]:
        """All combinations of levels, first factor slowest: one dict factor -> level per cell."""
        names = [factor.name for factor in self.factors]
        return tuple(
            dict(zip(names, levels, strict=True))
            for levels in product(*(factor.levels for factor in self.factors))
        )

    def arm(self, cell: dict[str, str]) -> "Arm":
        """The cell with constants and defaults filled in: what the loop and contract are given."""
        levels = {**self.constants, **cell}
        switch = levels.get("contract", "OFF")
        return Arm(
            evidence="stale" if levels.get("evidence") == "stale" else "current",
            binding=levels.get("binding", switch) == "ON",
            admission=levels.get("admission", switch) == "ON",
            certification=levels.get("certification", switch) == "ON",
            revision_cap=int(levels.get("revision_cap", self.budgets.revisions)),
        )


class Arm(Frozen):
    """One treatment, resolved: evidence condition, contract components B, A, C, revision cap."""

    evidence: Literal["current", "stale"]
    binding: bool
    admission: bool
    certification: bool
    revision_cap: Positive


def _check_arms(study: Study) -> None:
    names = [factor.name for factor in study.factors]
    if len(set(names)) != len(names):
        raise Misfit("factors", "a factor is named twice")
    for name, level in study.constants.items():
        if name in names:
            raise Misfit("constants", f"{name} is both a factor and a constant")
        if name not in FACTOR_LEVELS:
            raise Misfit(
                "constants", f"unknown constant {name!r} (known: {', '.join(FACTOR_LEVELS)})"
            )
        Factor.model_validate({"name": name, "levels": [level]})
    everything = {*names, *study.constants}
    parts = everything & {"binding", "admission", "certification"}
    if "contract" in everything and parts:
        raise Misfit(
            "factors", f"contract cannot be combined with its parts ({', '.join(sorted(parts))})"
        )


def _check_effects(study: Study) -> None:
    levels = {factor.name: factor.levels for factor in study.factors}
    effects = {effect.name: effect for effect in study.effects}
    if len(effects) != len(study.effects):
        raise Misfit("effects", "an effect is named twice")
    for effect in study.effects:
        if isinstance(effect, Interaction):
            if any(not isinstance(effects.get(n), Contrast | Linear) for n in effect.of):
                raise Misfit(f"effects.{effect.name}", "`of` must name two main effects")
            continue
        if effect.factor not in levels:
            raise Misfit(f"effects.{effect.name}", f"unknown factor {effect.factor!r}")
        for level in (effect.low, effect.high):
            if level not in levels[effect.factor]:
                raise Misfit(f"effects.{effect.name}", f"{effect.factor} has no level {level!r}")
        if effect.low == effect.high:
            raise Misfit(f"effects.{effect.name}", "low and high are the same level")
    named = [(study.decision.effect, "decision.effect")]
    named += [(n, f"families.{family.name}") for family in study.families for n in family.effects]
    for name, where in named:
        if name not in effects:
            raise Misfit(where, f"no effect is named {name!r}")


def _check_budgets(study: Study) -> None:
    caps = [study.arm(cell).revision_cap for cell in study.cells()]
    if max(caps) + 1 > study.budgets.actions:
        raise Misfit(
            "budgets",
            f"cannot be satisfied: {max(caps)} revisions and a submission need more than "
            f"{study.budgets.actions} actions",
        )
    if study.budgets.visible_test_seconds > study.budgets.wall_seconds:
        raise Misfit("budgets", "cannot be satisfied: one visible test may outlast the wall clock")
