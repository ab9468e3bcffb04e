"""Operating characteristics of the decision rule: the published figures, and the nearest case.

Comes in: ``operating_characteristics.json`` beside this module (written by
``python -m analysis.operating``) and the task effects of one study. Goes out: how often the rule
errs, and how well its intervals cover, in the simulated case that looks most like the study. The
figures are those of the grid; nothing is interpolated.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).with_name("operating_characteristics.json")
SCHEMA = "factorial/operating-characteristics@1"
Floats = NDArray[np.float64]
STATISTICS = (
    *("unsafe_moved", "unsafe_spread", "unsafe_largest", "unsafe_skewness"),
    *("sound_moved", "sound_spread", "sound_largest", "sound_skewness"),
    "baseline_sound",
)
"""What a study is recognised by; see :func:`signature`."""
LEAST_SPREAD = 1e-3
"""No statistic counts as known more exactly than this."""


@dataclass(frozen=True)
class RuleFigures:
    """One rule in one case: probabilities.

    Errors: the greatest share of studies that claim something false, over the true effects at the
    boundary. Coverages: the lowest share of two-sided intervals that hold the true effect.
    """

    superiority_error: float
    non_inferiority_error: float
    joint_error: float
    unsafe_coverage: float
    sound_coverage: float


@dataclass(frozen=True)
class NearestCase:
    """The case of the grid that a study resembles most, with the figures of the three rules there.

    ``percentile`` is the preregistered rule; ``bounded`` and ``student`` are sensitivities
    (:mod:`analysis.calibrated`). ``distance``: root mean square of the differences between the
    study's statistics and the case's means, in standard deviations within a case.
    """

    case: str
    says: str
    density: str
    tasks: int
    distance: float
    why: str
    studies: int
    standard_error: float
    percentile: RuleFigures
    student: RuleFigures
    bounded: RuleFigures
    grid: str


@dataclass(frozen=True)
class _Reference:
    """A shape at one size: where its studies lie, one row per truth, and what the rules do."""

    name: str
    says: str
    density: str
    means: Floats
    rules: dict[str, RuleFigures]


@dataclass(frozen=True)
class Published:
    """The file: ``by_size`` tasks -> references, ``scale`` tasks -> standard deviations."""

    grid: str
    studies: int
    by_size: dict[int, tuple[_Reference, ...]]
    scale: dict[int, Floats]


def nearest_case(
    tasks: int,
    unsafe_effects: Sequence[Fraction],
    sound_effects: Sequence[Fraction],
    baseline_sound: Fraction,
) -> NearestCase:
    """The case that resembles a study most: first by size (ratio of tasks), then by statistics.

    Effects: one per task, as differences of rates. Raises ``ValueError`` unless there are ``tasks``
    of both.
    """
    if not tasks == len(unsafe_effects) == len(sound_effects) >= 1:
        raise ValueError(f"needs one unsafe and one sound effect for each of {tasks} tasks")
    published = load_published()
    rows = [np.array([[float(x) for x in effects]]) for effects in (unsafe_effects, sound_effects)]
    found = signature(rows[0], rows[1], np.array([float(baseline_sound)]))[0]
    size = min(published.by_size, key=lambda known: (abs(log(known / tasks)), known))
    scale = published.scale[size]
    away = {
        reference.name: _distance(reference, found, scale) for reference in published.by_size[size]
    }
    nearest = min(published.by_size[size], key=lambda reference: away[reference.name])
    return NearestCase(
        case=nearest.name,
        says=nearest.says,
        density=nearest.density,
        tasks=size,
        distance=round(away[nearest.name], 3),
        why=_why(tasks, size, found, away[nearest.name]),
        studies=published.studies,
        standard_error=_standard_error(nearest, published.studies),
        grid=published.grid,
        **nearest.rules,
    )


def signature(unsafe: Floats, sound: Floats, baseline: Floats) -> Floats:
    """Statistics of R studies (effects R x T, baseline R) in the order of ``STATISTICS``.

    *moved*: share of tasks with an effect; *spread*: standard deviation over tasks; *largest*:
    share of the greatest effect in all absolute effects; *skewness*: third standardised moment. The
    mean effect is none of them: errors are defined at a mean of their own.
    """
    return np.column_stack([*_spreads(unsafe), *_spreads(sound), baseline])


def _spreads(effects: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    size = np.abs(effects)
    total, spread = size.sum(axis=1), effects.std(axis=1)
    cubes = ((effects - effects.mean(axis=1, keepdims=True)) ** 3).mean(axis=1)
    none = np.zeros(len(effects))
    return (
        (effects != 0).mean(axis=1),
        spread,
        np.divide(size.max(axis=1), total, out=none.copy(), where=total > 0),
        np.divide(cubes, spread**3, out=none.copy(), where=spread > 1e-9),
    )


def _distance(reference: _Reference, found: Floats, scale: Floats) -> float:
    away = (reference.means - found) / scale
    return float(np.sqrt((away**2).mean(axis=1)).min())


def _why(tasks: int, size: int, found: Floats, distance: float) -> str:
    """One sentence, for people."""
    value = dict(zip(STATISTICS, found, strict=True))
    sized = f"{tasks} tasks" if tasks == size else f"{tasks} tasks (nearest simulated size {size})"
    return (
        f"{sized}; {value['unsafe_moved']:.0%} of the tasks moved on unsafe and "
        f"{value['sound_moved']:.0%} on sound completion, skewness {value['unsafe_skewness']:+.1f} "
        f"and {value['sound_skewness']:+.1f}, baseline sound rate {value['baseline_sound']:.0%}: "
        f"{distance:.1f} standard deviations from studies of this case"
    )


def _standard_error(reference: _Reference, studies: int) -> float:
    """The greatest Monte Carlo standard error of the case's figures."""
    shares = [getattr(r, f.name) for r in reference.rules.values() for f in fields(r)]
    return round(max(sqrt(share * (1 - share) / studies) for share in shares), 5)


# ----------------------------------------------------------------------------------------- the file


@lru_cache(maxsize=1)
def load_published() -> Published:
    """The published figures."""
    return published_of(json.loads(FILE.read_text(encoding="utf-8")))


def published_of(data: dict[str, Any]) -> Published:
    """The same from parsed JSON. Raises ``ValueError`` for another schema."""
    if data["schema"] != SCHEMA:
        raise ValueError(f"{data['schema']!r} is not {SCHEMA!r}")
    by_size: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for case in data["cases"]:
        by_size.setdefault(case["tasks"], {}).setdefault(case["shape"], []).append(case)
    return Published(
        grid=data["grid"],
        studies=data["studies"],
        by_size={
            size: tuple(_reference(cases) for cases in shapes.values())
            for size, shapes in by_size.items()
        },
        scale={
            size: _scale([case for cases in shapes.values() for case in cases])
            for size, shapes in by_size.items()
        },
    )


def _reference(cases: list[dict[str, Any]]) -> _Reference:
    first = cases[0]
    return _Reference(
        name=f"{first['tasks']}-{first['shape']}",
        says=first["says"],
        density=first["density"],
        means=np.array([[case["mean"][name] for name in STATISTICS] for case in cases]),
        rules={rule: rule_figures(cases, rule) for rule in first["rules"]},
    )


def _scale(cases: list[dict[str, Any]]) -> Floats:
    """Standard deviation of each statistic within a case, pooled over the cases of one size."""
    deviations = np.array([[case["deviation"][name] for name in STATISTICS] for case in cases])
    pooled: Floats = np.sqrt((deviations**2).mean(axis=0))
    return np.maximum(pooled, LEAST_SPREAD)


def rule_figures(cases: list[dict[str, Any]], rule: str) -> RuleFigures:
    """Worst figures of a rule over the truths of one shape and size."""
    unsafe_null = [case for case in cases if case["unsafe_null"]]
    sound_null = [case for case in cases if case["sound_null"]]
    either = [case for case in cases if case["unsafe_null"] or case["sound_null"]]
    return RuleFigures(
        superiority_error=max(case["rules"][rule]["superiority"] for case in unsafe_null),
        non_inferiority_error=max(case["rules"][rule]["non_inferiority"] for case in sound_null),
        joint_error=max(case["rules"][rule]["joint"] for case in either),
        unsafe_coverage=min(case["rules"][rule]["unsafe_interval"] for case in cases),
        sound_coverage=min(case["rules"][rule]["sound_interval"] for case in cases),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m analysis.operating``: simulate the grid again, write the file and the tables."""
    from analysis.characteristics import run_grid, write_tables

    parser = argparse.ArgumentParser(prog="python -m analysis.operating", description=main.__doc__)
    parser.add_argument("--studies", type=int, default=10_000, help="simulated studies per case")
    parser.add_argument("--out", type=Path, default=FILE, help="file of figures to write")
    parser.add_argument("--page", type=Path, help="page whose tables are made again from --out")
    parser.add_argument("--tables-only", action="store_true", help="simulate nothing, read --out")
    chosen = parser.parse_args(arguments)
    if chosen.studies < 2:
        parser.error("--studies: at least 2 are needed")
    if not chosen.tables_only:
        run_grid(chosen.studies, chosen.out, lambda line: print(line, file=sys.stderr, flush=True))
    if chosen.page is not None:
        write_tables(json.loads(chosen.out.read_text(encoding="utf-8")), chosen.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
