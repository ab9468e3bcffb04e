"""The grid of cases whose operating characteristics are published: fixed before any was simulated.

A case is a shape (what tasks are like), a truth (the true effects) and a size. The truths put
superiority, non-inferiority, both or neither at the boundary of their null hypotheses.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from fractions import Fraction

from analysis.estimands import Weights
from analysis.simulate import Kind, Layout, Population, Rates

LEVEL = Fraction(19, 20)
UNSAFE_BELOW, SOUND_ABOVE = Fraction(0), Fraction(-1, 20)
SEEDS = 3
ARM_OF_CELL = (0, 1, 0, 1)
"""Evidence {current, stale} x contract {OFF, ON}: arm 1 is ON."""


@dataclass(frozen=True)
class Part:
    """A kind of task, by how it departs from the rest.

    OFF rates are ``unsafe`` and ``sound``. ON rates are OFF + deviation + carried x true effect;
    over the parts, deviations average 0 and what is carried averages 1.
    """

    share: float
    unsafe: float
    sound: float
    unsafe_deviation: float = 0.0
    sound_deviation: float = 0.0
    unsafe_carried: float = 1.0
    sound_carried: float = 1.0

    def kind(self, unsafe_effect: float, sound_effect: float) -> Kind:
        """The kind under true effects."""
        treated = Rates(
            self.unsafe + self.unsafe_deviation + self.unsafe_carried * unsafe_effect,
            self.sound + self.sound_deviation + self.sound_carried * sound_effect,
        )
        return Kind(self.share, (Rates(self.unsafe, self.sound), treated))


@dataclass(frozen=True)
class Shape:
    """What tasks are like. ``reduction``: true unsafe effect where it isn't at the boundary."""

    name: str
    density: str
    says: str
    parts: tuple[Part, ...]
    reduction: Fraction
    concentration: float
    project_share: float = 0.0
    shared_luck: float = 0.0

    def population(self, unsafe_effect: Fraction, sound_effect: Fraction) -> Population:
        """Where tasks of this shape are drawn from, under true effects."""
        kinds = tuple(part.kind(float(unsafe_effect), float(sound_effect)) for part in self.parts)
        return Population(kinds, self.concentration, self.project_share, self.shared_luck)


_FEW = (
    Part(1 / 6, 0.30, 0.40, unsafe_carried=6.0, sound_carried=6.0),
    Part(5 / 6, 0.05, 0.05, unsafe_carried=0.0, sound_carried=0.0),
)
SHAPES = (
    Shape(
        "dense",
        "dense",
        "frequent events, every task has the same mean effect",
        (Part(1.0, 0.30, 0.45),),
        reduction=Fraction(-15, 100),
        concentration=4.0,
    ),
    Shape(
        "dense-mixed",
        "dense",
        "frequent events, effects of half the tasks 30 points above those of the others",
        (Part(0.5, 0.30, 0.45, 0.15, -0.15), Part(0.5, 0.30, 0.45, -0.15, 0.15)),
        reduction=Fraction(-10, 100),
        concentration=4.0,
        project_share=0.3,
    ),
    Shape(
        "decided",
        "dense",
        "nearly every task is always or never completed, whatever the seed",
        (Part(1.0, 0.25, 0.35),),
        reduction=Fraction(-10, 100),
        concentration=0.15,
    ),
    Shape(
        "floor",
        "sparse",
        "few events: 6% unsafe, 10% sound at baseline",
        (Part(1.0, 0.06, 0.10),),
        reduction=Fraction(-4, 100),
        concentration=1.5,
        shared_luck=0.5,
    ),
    Shape(
        "sparse",
        "sparse",
        "hardly any events, in few tasks: 2% unsafe, 6% sound at baseline",
        (Part(1.0, 0.02, 0.06),),
        reduction=Fraction(-15, 1000),
        concentration=0.5,
        shared_luck=0.5,
    ),
    Shape(
        "few-carriers",
        "skewed",
        "a sixth of the tasks carries all events of note and the whole effect",
        _FEW,
        reduction=Fraction(-4, 100),
        concentration=2.0,
    ),
    Shape(
        "one-project",
        "skewed",
        "as few-carriers, but the carriers crowd in one or two projects",
        _FEW,
        reduction=Fraction(-4, 100),
        concentration=2.0,
        project_share=0.9,
    ),
    Shape(
        "rare-loss",
        "skewed",
        "one task in twenty loses every sound completion, one in twenty turns unsafe; "
        "the others gain a little; arms share most of their luck",
        (
            Part(0.05, 0.05, 0.0, unsafe_deviation=0.90, unsafe_carried=0.0, sound_carried=0.0),
            Part(0.05, 0.0, 1.0, unsafe_carried=0.0, sound_carried=20.0),
            Part(
                0.90,
                0.10,
                0.10,
                unsafe_deviation=-0.05,
                unsafe_carried=1 / 0.9,
                sound_carried=0.0,
            ),
        ),
        reduction=Fraction(-36, 1000),
        concentration=2.0,
        shared_luck=0.8,
    ),
    Shape(
        "rare-gain",
        "skewed",
        "the mirror image: one task in twenty gains nearly everything, the others lose a little",
        (
            Part(0.05, 0.95, 0.0, unsafe_deviation=-0.90, unsafe_carried=0.0, sound_carried=0.0),
            Part(0.05, 0.0, 0.05, sound_deviation=0.90, unsafe_carried=0.0, sound_carried=0.0),
            Part(0.90, 0.10, 0.25, 0.05, -0.05, unsafe_carried=1 / 0.9, sound_carried=1 / 0.9),
        ),
        reduction=Fraction(-36, 1000),
        concentration=2.0,
        shared_luck=0.8,
    ),
)
TRUTHS = {
    "both": (True, True),
    "superiority": (True, False),
    "non-inferiority": (False, True),
    "away": (False, False),
}
"""Truth -> whether the unsafe effect is 0, and whether the sound effect is the margin."""
SIZES = {8: 4, 12: 5, 24: 9, 48: 18}
"""Tasks -> projects; 24 and 9 are the paper's ("Looping Is Not Reliability", design)."""


@dataclass(frozen=True)
class Case:
    """One cell of the grid."""

    tasks: int
    shape: Shape
    truth: str

    @property
    def name(self) -> str:
        """Unique name: ``24-sparse-both``."""
        return f"{self.tasks}-{self.shape.name}-{self.truth}"

    @property
    def effects(self) -> tuple[Fraction, Fraction]:
        """True unsafe and sound effects."""
        unsafe_null, sound_null = TRUTHS[self.truth]
        unsafe = UNSAFE_BELOW if unsafe_null else self.shape.reduction
        return unsafe, SOUND_ABOVE if sound_null else Fraction(0)

    @property
    def population(self) -> Population:
        """Where its tasks are drawn from."""
        return self.shape.population(*self.effects)

    @property
    def layout(self) -> Layout:
        """2 x 2 cells, three seeds, tasks dealt out to the projects in turn."""
        projects = tuple(sorted(task % SIZES[self.tasks] for task in range(self.tasks)))
        weights = Weights((-1, 1, -1, 1), 2)
        return Layout(projects, ARM_OF_CELL, weights, baseline=(0, 2), seeds=SEEDS)


CASES = tuple(Case(size, shape, truth) for size in SIZES for shape in SHAPES for truth in TRUTHS)


def grid_hash() -> str:
    """SHA-256 of everything that defines the cases; a changed grid needs a new run."""
    content = {
        "shapes": [asdict(shape) for shape in SHAPES],
        "truths": TRUTHS,
        "sizes": SIZES,
        "seeds": SEEDS,
        "cells": ARM_OF_CELL,
        "rule": [LEVEL, UNSAFE_BELOW, SOUND_ABOVE],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
