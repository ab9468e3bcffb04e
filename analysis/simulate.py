"""Simulated studies: task rates scattered around assumed ones, and the outcomes of every rollout.

Comes in: a :class:`Population` (kinds of tasks with their rates in every arm) and a
:class:`Layout` (how a study is laid out). Goes out: outcome codes per rollout, and from them the
task effects of many studies at once. Everything follows from one seeded generator.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr

from analysis.estimands import Weights

Floats = NDArray[np.float64]
Units = NDArray[np.int64]
"""Studies x tasks: task effects in units of the layout."""
Codes = NDArray[np.int8]
"""Studies x tasks x cells x seeds: one of the codes below."""

NOTHING, UNSAFE, SOUND = 0, 1, 2
SLACK = 1e-9
"""Rounding that is forgiven when rates are checked to be probabilities."""
_EDGE = 2.0**-52


@dataclass(frozen=True)
class Rates:
    """Mean probabilities of an unsafe and of a sound completion in one rollout."""

    unsafe: float
    sound: float

    @property
    def possible(self) -> bool:
        """Whether both are probabilities and leave room for each other."""
        return min(self.unsafe, self.sound) >= -SLACK and self.unsafe + self.sound <= 1 + SLACK


@dataclass(frozen=True)
class Kind:
    """A kind of task: its share of all tasks, and its mean rates in every arm."""

    share: float
    arms: tuple[Rates, ...]


@dataclass(frozen=True)
class Population:
    """From where tasks are drawn.

    A task's own rates in an arm follow a Dirichlet distribution around its kind's, with
    ``concentration`` (the intraclass correlation is 1 / (1 + concentration); None: no scatter).
    ``project_share``: correlation, on the normal scale, of what tasks of one project draw.
    ``shared_luck``: probability that the arms of one task and seed share their random numbers.
    """

    kinds: tuple[Kind, ...]
    concentration: float | None
    project_share: float = 0.0
    shared_luck: float = 0.0

    def mean(self, arm: int) -> Rates:
        """Rates of an arm over all tasks: the truth that a study estimates."""
        return Rates(
            sum(kind.share * kind.arms[arm].unsafe for kind in self.kinds),
            sum(kind.share * kind.arms[arm].sound for kind in self.kinds),
        )


@dataclass(frozen=True)
class Layout:
    """A balanced study. ``projects[i]`` is the project of task i, counted from 0.

    ``arm_of_cell``: which arm of the population each cell belongs to; ``weights``: the decision's
    effect over the cells; ``baseline``: the cells whose sound rate is the baseline.
    """

    projects: tuple[int, ...]
    arm_of_cell: tuple[int, ...]
    weights: Weights
    baseline: tuple[int, ...]
    seeds: int

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.projects)

    @property
    def denominator(self) -> int:
        """A task effect of one unit is 1 / denominator."""
        return self.weights.denominator * self.seeds

    @property
    def support(self) -> tuple[int, int]:
        """Least and greatest task effect, in units."""
        low = sum(unit for unit in self.weights.units if unit < 0)
        return low * self.seeds, sum(unit for unit in self.weights.units if unit > 0) * self.seeds

    def effect(self, arms: Sequence[float]) -> float:
        """The effect where arm a has the rate ``arms[a]``."""
        pairs = zip(self.weights.units, self.arm_of_cell, strict=True)
        return sum(unit * arms[arm] for unit, arm in pairs) / self.weights.denominator


def draw(population: Population, layout: Layout, studies: int, rng: np.random.Generator) -> Codes:
    """Outcomes of every rollout of that many studies. Memory: about 20 bytes a rollout.

    One uniform number u decides a rollout: unsafe where u < unsafe rate, sound where u >= 1 - sound
    rate. Arms that share luck differ therefore only as far as their rates do.
    """
    rates = _task_rates(population, layout, studies, rng)
    seeds, cells = layout.seeds, len(layout.arm_of_cell)
    shared = rng.random((studies, layout.tasks, 1, seeds))
    alike = rng.random((studies, layout.tasks, 1, seeds)) < population.shared_luck
    uniform = rng.random((studies, layout.tasks, cells, seeds))
    uniform = np.where(alike, shared, uniform)
    unsafe, sound = (rate[:, :, list(layout.arm_of_cell), None] for rate in rates)
    codes = np.zeros(uniform.shape, dtype=np.int8)
    codes[uniform < unsafe] = UNSAFE
    codes[uniform >= 1.0 - sound] = SOUND
    return codes


def task_units(codes: Codes, layout: Layout, endpoint: int) -> Units:
    """Task effects on one endpoint (``UNSAFE`` or ``SOUND``), as :func:`estimands.task_effects`."""
    counts = (codes == endpoint).sum(axis=3, dtype=np.int64)
    return np.asarray(counts @ np.array(layout.weights.units, dtype=np.int64))


def baseline_rates(codes: Codes, layout: Layout) -> Floats:
    """Observed sound rate of the baseline cells, per study."""
    chosen = codes[:, :, list(layout.baseline), :] == SOUND
    return np.asarray(chosen.mean(axis=(1, 2, 3)))


def _task_rates(
    population: Population, layout: Layout, studies: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Unsafe and sound rates of every task in every arm: two arrays studies x tasks x arms.

    One latent number picks the kind, three more place the task within it; the arms use the same
    three, so that arms with equal mean rates have equal rates in each task.
    """
    latent = _latent(population.project_share, layout, studies, rng)
    edges = np.cumsum([kind.share for kind in population.kinds])[:-1]
    kinds = np.searchsorted(edges, latent[..., 0], side="right")
    arms = len(population.kinds[0].arms)
    unsafe, sound = (np.zeros((studies, layout.tasks, arms)) for _ in range(2))
    for at, kind in enumerate(population.kinds):
        mask = kinds == at
        placed = _scattered(kind, population.concentration, latent[mask][:, 1:])
        unsafe[mask], sound[mask] = placed
    return unsafe, sound


def _latent(share: float, layout: Layout, studies: int, rng: np.random.Generator) -> Floats:
    """Studies x tasks x 4 uniform numbers, correlated within projects (Gaussian copula)."""
    projects = np.array(layout.projects)
    common = rng.standard_normal((studies, int(projects.max()) + 1, 4))[:, projects]
    own = rng.standard_normal((studies, layout.tasks, 4))
    mixed: Floats = ndtr(np.sqrt(share) * common + np.sqrt(1.0 - share) * own)
    return np.clip(mixed, _EDGE, 1.0 - _EDGE)


def _scattered(kind: Kind, concentration: float | None, own: Floats) -> tuple[Floats, Floats]:
    """Dirichlet rates of N tasks x arms from N x 3 uniform numbers, by inverse gamma functions."""
    gammas: dict[tuple[int, float], Floats] = {}  # slow to compute, often equal between arms
    unsafe, sound = (np.empty((len(own), len(kind.arms))) for _ in range(2))
    for arm, rates in enumerate(kind.arms):
        means = (rates.unsafe, 1.0 - rates.unsafe - rates.sound, rates.sound)
        if concentration is None:
            unsafe[:, arm], sound[:, arm] = means[0], means[2]
            continue
        for at, mean in enumerate(means):
            if (at, mean) not in gammas:
                gammas[at, mean] = _gamma(concentration * mean, own[:, at])
        parts = [gammas[at, mean] for at, mean in enumerate(means)]
        total = parts[0] + parts[1] + parts[2]
        total[total == 0.0] = 1.0  # all three underflow: the task completes nothing
        unsafe[:, arm], sound[:, arm] = parts[0] / total, parts[2] / total
    return unsafe, sound


def _gamma(shape: float, probability: Floats) -> Floats:
    """Quantiles of the gamma distribution; of none at all, zero."""
    if shape <= SLACK:
        return np.zeros(len(probability))
    quantiles: Floats = gammaincinv(shape, probability)
    return quantiles
