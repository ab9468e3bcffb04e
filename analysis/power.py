"""Power of a study before it is run: how likely is each decision under what is assumed?

Comes in: a plan with its tasks, assumptions, a number of studies and a seed. Goes out: the
probability of each claim under the plan's rule and its two alternatives, expected widths, the
minimum detectable effect, errors at the boundary, each with its Monte Carlo standard error. All
scenarios use the same random numbers, so that they differ only as far as their rates do.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil, log2, sqrt

import numpy as np

from analysis.assumptions import Assumptions, layout_of, population_of, possible
from analysis.batch import RULES, Flags, Floats, Series, claims_less, claims_more, limits
from analysis.errors import AnalysisError
from analysis.plan import Plan
from analysis.simulate import SOUND, UNSAFE, Layout, baseline_rates, draw, task_units

SCHEMA = "factorial/power@1"
TARGET = 0.8
TOLERANCE = Fraction(1, 400)
"""The minimum detectable effect is found to a quarter of a point."""
CHUNK_ROLLOUTS = 500_000
"""Rollouts simulated at once; part of the seed scheme."""
MOST_STUDIES = 1_000_000
Progress = Callable[[int, int, str], None]
"""Steps done, steps in all, what is being simulated."""


@dataclass(frozen=True)
class Share:
    """A probability or a mean, with its Monte Carlo standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class Claims:
    """Probability of each claim."""

    superiority: Share
    non_inferiority: Share
    joint: Share


@dataclass(frozen=True)
class Errors:
    """Probability of each claim where it is false by the least; None: it cannot be false.

    ``joint``: the greater of two, unsafe effect at its threshold or sound effect at its margin,
    the other one as assumed.
    """

    superiority: Share | None
    non_inferiority: Share | None
    joint: Share | None


@dataclass(frozen=True)
class Widths:
    """Mean width of the two-sided intervals, as differences of rates."""

    unsafe: Share
    sound: Share


@dataclass(frozen=True)
class Detectable:
    """Least reduction of the unsafe rate that gives superiority with the target probability.

    ``reduction`` None: not even ``greatest``, the largest possible reduction, does. ``power`` and
    ``joint`` are those at the reduction (at the greatest, where there is none).
    """

    target: float
    tolerance: float
    reduction: float | None
    greatest: float
    power: Share
    joint: Share


@dataclass(frozen=True)
class Floor:
    """Baseline sound rate against the floor. ``below``: studies that observe a rate under it."""

    floor: float
    assumed: float
    limited: bool
    below: Share


@dataclass(frozen=True)
class Power:
    """Everything that is known of a study before it is run; see the module."""

    study: str
    tasks: int
    projects: int
    cells: int
    seeds: int
    effect: str
    level: float
    unsafe_below: float
    sound_above: float
    assumed: dict[str, float]
    unsafe_effect: float
    sound_effect: float
    studies: int
    seed: int
    claims: dict[str, Claims]
    widths: dict[str, Widths]
    errors: dict[str, Errors]
    detectable: Detectable
    floor: Floor

    def to_json(self) -> str:
        """The same as JSON text."""
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, ensure_ascii=False)
        return text + "\n"


@dataclass(frozen=True)
class _Bench:
    """What all scenarios share."""

    plan: Plan
    layout: Layout
    studies: int
    seed: int

    def simulate(self, assumed: Assumptions) -> "_Sample":
        """Task effects of all studies under one set of assumptions."""
        population, layout = population_of(self.plan, assumed), self.layout
        size = max(1, CHUNK_ROLLOUTS // (layout.tasks * len(layout.arm_of_cell) * layout.seeds))
        parts = []
        for chunk, start in enumerate(range(0, self.studies, size)):
            rng = np.random.default_rng([self.seed, chunk])
            codes = draw(population, layout, min(size, self.studies - start), rng)
            units = [task_units(codes, layout, endpoint) for endpoint in (UNSAFE, SOUND)]
            parts.append((*units, baseline_rates(codes, layout)))
        unsafe, sound, baseline = (np.concatenate(column) for column in zip(*parts, strict=True))
        scale, support = layout.denominator, layout.support
        return _Sample(
            Series(unsafe, scale, support), Series(sound, scale, support), baseline, self.plan
        )


@dataclass(frozen=True, eq=False)
class _Sample:
    """Simulated studies of one scenario."""

    unsafe: Series
    sound: Series
    baseline: Floats
    plan: Plan

    def claims(self, rule: str) -> Claims:
        """How often each claim is made."""
        decision = self.plan.rule
        superiority = claims_less(self.unsafe, rule, decision.unsafe_below, decision.level)
        above = claims_more(self.sound, rule, decision.sound_above, decision.level)
        return Claims(_share(superiority), _share(above), _share(superiority & above))

    def widths(self, rule: str) -> Widths:
        """Mean widths of the two-sided intervals."""
        level = self.plan.rule.level
        found = (limits(series, rule, level).width for series in (self.unsafe, self.sound))
        return Widths(*(_share(width) for width in found))


def study_power(
    plan: Plan, assumed: Assumptions, studies: int, seed: int, progress: Progress | None = None
) -> Power:
    """Simulate the plan's study under the assumptions (docs/operating-characteristics.md).

    ``studies``: 2 to ``MOST_STUDIES``. Raises ``AnalysisError`` for a plan without tasks and for
    assumptions that no population fulfils.
    """
    if plan.open:
        raise AnalysisError(plan.file, "tasks", "the plan has no tasks", "Name a task manifest.")
    if not 2 <= studies <= MOST_STUDIES:
        problem = f"{studies} simulated studies"
        raise AnalysisError(plan.file, "studies", problem, f"Ask for 2 to {MOST_STUDIES}.")
    bench = _Bench(plan, layout_of(plan), studies, seed)
    greatest = _greatest(plan, assumed)
    steps = _Steps(progress, 4 + _halvings(greatest))
    steps.next("as assumed")
    main = bench.simulate(assumed)
    widths = {rule: main.widths(rule) for rule in RULES}
    rule = plan.rule
    return Power(
        study=plan.study,
        tasks=len(plan.tasks),
        projects=len({task.project for task in plan.tasks}),
        cells=len(plan.cells()),
        seeds=len(plan.seeds),
        effect=rule.effect,
        level=float(rule.level),
        unsafe_below=float(rule.unsafe_below),
        sound_above=float(rule.sound_above),
        assumed={name: float(value) for name, value in asdict(assumed).items()},
        unsafe_effect=float(assumed.unsafe_effect),
        sound_effect=float(assumed.sound_effect),
        studies=studies,
        seed=seed,
        claims={name: main.claims(name) for name in RULES},
        widths=widths,
        errors=_errors(bench, assumed, steps),
        detectable=_detectable(bench, assumed, greatest, steps),
        floor=Floor(
            float(rule.floor),
            float(assumed.sound_baseline),
            assumed.sound_baseline < rule.floor,
            _share(main.baseline < float(rule.floor)),
        ),
    )


class _Steps:
    """Counts scenarios for whoever wants to know."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def next(self, label: str) -> None:
        """Announce the next scenario."""
        if self._progress is not None:
            self._progress(self._done, self._total, label)
        self._done += 1


def _errors(bench: _Bench, assumed: Assumptions, steps: _Steps) -> dict[str, Errors]:
    """Both boundaries in turn; a boundary that no population reaches gives no error."""
    rule = bench.plan.rule
    boundaries = {
        "unsafe at its threshold": assumed.with_effects(unsafe=rule.unsafe_below),
        "sound at its margin": assumed.with_effects(sound=rule.sound_above),
    }
    samples = []
    for label, boundary in boundaries.items():
        steps.next(label)
        reached = possible(bench.plan, boundary)
        samples.append(bench.simulate(boundary) if reached else None)
    made = {}
    for name in RULES:
        claims = [None if sample is None else sample.claims(name) for sample in samples]
        joint = [one.joint for one in claims if one is not None]
        made[name] = Errors(
            superiority=None if claims[0] is None else claims[0].superiority,
            non_inferiority=None if claims[1] is None else claims[1].non_inferiority,
            joint=max(joint, key=lambda share: share.value, default=None),
        )
    return made


def _detectable(
    bench: _Bench, assumed: Assumptions, greatest: Fraction, steps: _Steps
) -> Detectable:
    """Bisection on the reduction, the sound rates as assumed, under the preregistered rule."""

    def at(reduction: Fraction) -> Claims:
        steps.next(f"unsafe reduction of {float(100 * reduction):.2f} points")
        return bench.simulate(assumed.with_effects(unsafe=-reduction)).claims(RULES[0])

    found, power = None, at(greatest)
    if power.superiority.value >= TARGET:
        low, found = Fraction(0), greatest
        for _ in range(_halvings(greatest)):
            middle = (low + found) / 2
            claims = at(middle)
            if claims.superiority.value >= TARGET:
                found, power = middle, claims
            else:
                low = middle
    return Detectable(
        target=TARGET,
        tolerance=float(TOLERANCE),
        reduction=None if found is None else float(found),
        greatest=float(greatest),
        power=power.superiority,
        joint=power.joint,
    )


def _greatest(plan: Plan, assumed: Assumptions) -> Fraction:
    """The largest reduction for which there is a population, found by halving the baseline."""
    population_of(plan, assumed)  # refuses impossible assumptions before anything is simulated
    high = assumed.unsafe_baseline
    if possible(plan, assumed.with_effects(unsafe=-high)):
        return high
    low = Fraction(0)
    while high - low > TOLERANCE / 16:
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if possible(plan, assumed.with_effects(unsafe=-middle))
            else (low, middle)
        )
    return low


def _halvings(greatest: Fraction) -> int:
    return max(0, ceil(log2(greatest / TOLERANCE))) if greatest > 0 else 0


def _share(values: Floats | Flags) -> Share:
    numbers = np.asarray(values, dtype=np.float64)
    return Share(float(numbers.mean()), float(numbers.std()) / sqrt(len(numbers)))
