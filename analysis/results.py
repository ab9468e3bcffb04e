"""The result of an analysis as frozen data, and its one JSON form.

Probabilities and their differences stay exact fractions here; JSON shows each as
``{"exact": "-1/36", "value": -0.0277777777778}``. The bytes depend on the inputs alone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.figures import Figure
from analysis.inference import Bounds, Estimate
from analysis.paired import Paired
from analysis.plan import Levels
from analysis.rates import Rate
from analysis.summary import Cell, Coverage
from analysis.transitions import Transitions

if TYPE_CHECKING:
    from analysis.operating import NearestCase

SCHEMA = "factorial/decision@2"
"""Its JSON Schema is ``analysis/schema/decision.schema.json``."""
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
    outcomes miss. ``rollout_pooled``: the effect on the pooled rates of the settled rollouts, which
    is descriptive: nothing here gives it an interval or a p-value; None where a cell has none.
    """

    effect: str
    endpoint: str
    missing: int
    least: Estimate
    greatest: Estimate
    project_equal: Range
    rollout_pooled: Fraction | None
    leave_one_project_out: dict[str, Range]
    nonzero_task_effects: dict[str, Fraction] | None
    figure: Figure

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

    ``unsafe_below``, ``sound_above``: the thresholds, both strict; with fewer than ``least_tasks``
    no claim is made. ``worst_case``: missing outcomes were set against the claim.
    ``floor_limited``: the baseline sound rate is below the floor, so that the non-inferiority
    verdict says little.
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
    unsafe_below: Fraction
    sound_above: Fraction
    least_tasks: int
    figure: Figure


@dataclass(frozen=True)
class Calibrated:
    """The decision's rule with bounds that assume only the range of a task effect; never decides.

    See :mod:`analysis.calibrated`. Missing outcomes are set against both claims, as there.
    """

    unsafe: Bounds
    sound: Bounds
    verdict: Verdict
    figure: Figure


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
    figure: Figure


@dataclass(frozen=True)
class ZeroEvents:
    """No unsafe completion at one level: one-sided upper bound of the rate over task clusters."""

    factor: str
    level: str
    tasks: int
    upper: float
    figure: Figure


@dataclass(frozen=True)
class Observed:
    """What the nearest case of the published grid is looked up by: one effect per task."""

    unsafe: tuple[Fraction, ...]
    sound: tuple[Fraction, ...]
    baseline_sound: Fraction


HIDDEN = {"json": False}
"""Metadata of a field that is not part of ``decision.json``."""


@dataclass(frozen=True)
class Analysis:
    """Everything that is printed, and nothing that is not recomputable from the files.

    ``rates``: descriptive, by name; ``estimands`` defines them. ``timing``: those that depend on
    the machine's clock, which are printed and left out of ``decision.json``; so is ``observed``.
    """

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
    calibrated: Calibrated
    families: tuple[FamilyResult, ...]
    sensitivities: tuple[Sensitivity, ...]
    paired: tuple[Paired, ...]
    zero_events: tuple[ZeroEvents, ...]
    transitions: tuple[Transitions, ...]
    estimands: dict[str, str]
    rates: tuple[Rate, ...]
    timing: tuple[Rate, ...] = field(metadata=HIDDEN)
    observed: Observed = field(metadata=HIDDEN)
    bootstrap_draws: int
    sign_flip_draws: int
    seed: int

    def effect(self, effect: str, endpoint: str) -> EffectResult:
        """The result of one effect on one endpoint."""
        return next(r for r in self.effects if (r.effect, r.endpoint) == (effect, endpoint))

    @cached_property
    def operating(self) -> "NearestCase":
        """The rule's error rates in the simulated case that looks most like this study.

        Looked up when it is first asked for. Raises ``AnalysisError`` where the published figures
        are missing or damaged: a decision is not shown without them.
        """
        from analysis import operating

        seen = self.observed
        try:
            return operating.nearest_case(
                len(seen.unsafe), seen.unsafe, seen.sound, seen.baseline_sound
            )
        except (OSError, ValueError, KeyError) as error:
            problem = f"the published operating characteristics cannot be read ({error})"
            remedy = "Install the package again."
            raise AnalysisError(str(operating.FILE), "", problem, remedy) from None

    def as_dict(self) -> dict[str, object]:
        """Plain JSON values, schema included."""
        kept = [f.name for f in fields(self) if f.metadata.get("json", True)]
        values = {name: plain(getattr(self, name)) for name in kept}
        return {"schema": SCHEMA, **values, "operating": plain(self.operating)}

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
