"""The result of an analysis as frozen data, and its one JSON form.

Probabilities and their differences stay exact fractions here; JSON shows each as
``{"exact": "-1/36", "value": -0.0277777777778}``. The bytes depend on the inputs alone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import NamedTemporaryFile

from analysis.inference import Estimate
from analysis.plan import Levels
from analysis.summary import Cell, Coverage
from analysis.transitions import Transitions

SCHEMA = "factorial/decision@1"
Range = tuple[Fraction, Fraction]
"""Least and greatest value over all assignments of missing outcomes; equal where none misses."""


@dataclass(frozen=True)
class Design:
    """The size of the matrix: tasks x cells x seeds = rollouts."""

    tasks: int
    projects: int
    cells: int
    seeds: int
    rollouts: int
    factors: dict[str, tuple[str, ...]]
    constants: Levels
    gate_overlap_tasks: int


@dataclass(frozen=True)
class EffectResult:
    """One effect on one endpoint. ``least`` and ``greatest`` differ only where outcomes miss.

    ``nonzero_task_effects``: task -> effect, for the tasks that carry the estimate; None where
    outcomes miss.
    """

    effect: str
    endpoint: str
    missing: int
    least: Estimate
    greatest: Estimate
    project_equal: Range
    leave_one_project_out: dict[str, Range]
    nonzero_task_effects: dict[str, Fraction] | None

    @property
    def p(self) -> Fraction | None:
        """Deciding sign-flip p-value; None where outcomes miss (only bounds decide then)."""
        return None if self.missing else self.least.p

    @property
    def monte_carlo_agrees(self) -> bool:
        """Whether the Monte Carlo bounds are the deciding ones."""
        return all(one.bounds == one.monte_carlo for one in (self.least, self.greatest))


@dataclass(frozen=True)
class Verdict:
    """The intersection-union rule applied to one pair of bounds; both inequalities strict."""

    unsafe_upper: Fraction
    sound_lower: Fraction
    superiority: bool
    non_inferiority: bool
    joint: bool


@dataclass(frozen=True)
class Decision:
    """The co-primary decision. ``decided_by``: exact | monte carlo.

    ``worst_case``: missing outcomes were set against the claim. ``floor_limited``: the baseline
    sound rate is below the floor, so that the non-inferiority verdict says little.
    """

    effect: str
    level: Fraction
    decided_by: str
    worst_case: bool
    verdict: Verdict
    monte_carlo: Verdict
    monte_carlo_agrees: bool
    baseline_sound: Range
    floor: Fraction
    floor_limited: bool


@dataclass(frozen=True)
class Sensitivity:
    """The decision's effect and rule under another reading of the same rows."""

    name: str
    tasks: int
    changed_rollouts: int
    unsafe: EffectResult
    sound: EffectResult
    verdict: Verdict


@dataclass(frozen=True)
class FamilyRow:
    """One member of a Holm family; all None where outcomes miss."""

    effect: str
    endpoint: str
    p: Fraction | None
    p_holm: float | None
    monte_carlo_p: Fraction | None
    monte_carlo_p_holm: float | None
    significant: bool | None


@dataclass(frozen=True)
class FamilyResult:
    """A Holm family, decided at ``alpha`` = 1 - level of the rule."""

    name: str
    alpha: Fraction
    rows: tuple[FamilyRow, ...]


@dataclass(frozen=True)
class ZeroEvents:
    """No unsafe completion at one level: one-sided upper bound of the rate over task clusters."""

    factor: str
    level: str
    tasks: int
    upper: float


@dataclass(frozen=True)
class Analysis:
    """Everything that is printed, and nothing that is not recomputable from the files."""

    study: str
    title: str
    lock_id: str
    stack: str
    simulated: bool
    design: Design
    coverage: Coverage
    cells: tuple[Cell, ...]
    effects: tuple[EffectResult, ...]
    decision: Decision
    families: tuple[FamilyResult, ...]
    sensitivities: tuple[Sensitivity, ...]
    zero_events: tuple[ZeroEvents, ...]
    transitions: tuple[Transitions, ...]
    bootstrap_draws: int
    sign_flip_draws: int
    seed: int

    def effect(self, effect: str, endpoint: str) -> EffectResult:
        """The result of one effect on one endpoint."""
        return next(r for r in self.effects if (r.effect, r.endpoint) == (effect, endpoint))

    def as_dict(self) -> dict[str, object]:
        """Plain JSON values, schema included."""
        return {"schema": SCHEMA, **{f.name: plain(getattr(self, f.name)) for f in fields(self)}}

    def to_json(self) -> str:
        """Canonical text: sorted keys, two spaces, fixed float notation, newline at the end."""
        return json.dumps(self.as_dict(), sort_keys=True, indent=2, allow_nan=False) + "\n"


def plain(value: object) -> object:
    """JSON form of a result value: fractions keep their exact form, floats have 12 digits."""
    if isinstance(value, Fraction):
        shown = float(f"{float(value):.12g}")
        return {"exact": f"{value.numerator}/{value.denominator}", "value": shown}
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def write_decision(analysis: Analysis, path: Path) -> None:
    """Write ``decision.json`` by one rename, so that a reader never meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as stream:
        stream.write(analysis.to_json())
    temporary = Path(stream.name)
    temporary.chmod(0o644)
    temporary.replace(path)
