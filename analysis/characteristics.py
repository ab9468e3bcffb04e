"""Simulates the grid of :mod:`analysis.grid` and writes its figures, as JSON and as tables.

Each case has a seed of its own, made from its name, and is drawn in chunks of fixed size: a case
gives the same figures alone, in any order and on any number of machines.
"""

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from math import sqrt
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from analysis.batch import RULES, Series, claims_less, claims_more, coverage
from analysis.errors import AnalysisError
from analysis.grid import CASES, LEVEL, SIZES, SOUND_ABOVE, TRUTHS, UNSAFE_BELOW, Case, grid_hash
from analysis.operating import SCHEMA, STATISTICS, rule_figures, signature
from analysis.simulate import SOUND, UNSAFE, baseline_rates, draw, task_units

SEED = 20260101
CHUNK = 500
"""Studies per seeded chunk; part of the seed scheme."""
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


def run_grid(studies: int, out: Path, say: Callable[[str], None]) -> None:
    """Simulate all cases and write their figures to ``out``."""
    say(f"grid {grid_hash()[:12]}: {len(CASES)} cases x {studies} studies")
    started, lines = monotonic(), []
    for number, case in enumerate(CASES, 1):
        lines.append(json.dumps(run_case(case, studies), ensure_ascii=False))
        left = (monotonic() - started) / number * (len(CASES) - number)
        say(f"[{number}/{len(CASES)}] {case.name}; about {left:.0f} s to go")
    head = {
        "schema": SCHEMA,
        "grid": grid_hash(),
        "studies": studies,
        "seed": SEED,
        "level": str(LEVEL),
        "standard_error_at_most": round(sqrt(0.25 / studies), 5),
    }
    body = ",\n  ".join(lines)  # one line per case
    text = f'{json.dumps(head, indent=1)[:-2]},\n "cases": [\n  {body}\n ]\n}}\n'
    out.write_text(text, encoding="utf-8")


def run_case(case: Case, studies: int) -> dict[str, Any]:
    """Figures of one case: shares of studies, and where its studies lie."""
    unsafe, sound, baseline = simulate_case(case, studies)
    effects = case.effects
    statistics = signature(
        unsafe.units / unsafe.denominator, sound.units / sound.denominator, baseline
    )
    return {
        "name": case.name,
        "tasks": case.tasks,
        "projects": SIZES[case.tasks],
        "shape": case.shape.name,
        "density": case.shape.density,
        "says": case.shape.says,
        "truth": case.truth,
        "unsafe_effect": float(effects[0]),
        "sound_effect": float(effects[1]),
        "unsafe_null": TRUTHS[case.truth][0],
        "sound_null": TRUTHS[case.truth][1],
        "rules": {rule: _shares(unsafe, sound, effects, rule) for rule in RULES},
        "mean": _named(statistics.mean(axis=0)),
        "deviation": _named(statistics.std(axis=0)),
    }


def simulate_case(case: Case, studies: int) -> tuple[Series, Series, Any]:
    """Unsafe and sound task effects, and observed baseline sound rates, of that many studies."""
    layout, parts = case.layout, []
    for chunk, start in enumerate(range(0, studies, CHUNK)):
        rng = np.random.default_rng([SEED, _number(case.name), chunk])
        codes = draw(case.population, layout, CHUNK, rng)[: studies - start]
        units = [task_units(codes, layout, endpoint) for endpoint in (UNSAFE, SOUND)]
        parts.append((*units, baseline_rates(codes, layout)))
    unsafe, sound, baseline = (np.concatenate(column) for column in zip(*parts, strict=True))
    scale, support = layout.denominator, layout.support
    return Series(unsafe, scale, support), Series(sound, scale, support), baseline


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _shares(
    unsafe: Series, sound: Series, effects: tuple[Fraction, Fraction], rule: str
) -> dict[str, float]:
    """Share of the studies in which each claim is made and each bound holds the truth."""
    superiority = claims_less(unsafe, rule, UNSAFE_BELOW, LEVEL)
    non_inferiority = claims_more(sound, rule, SOUND_ABOVE, LEVEL)
    flags = {
        "superiority": superiority,
        "non_inferiority": non_inferiority,
        "joint": superiority & non_inferiority,
    }
    for name, series, truth in (("unsafe", unsafe, effects[0]), ("sound", sound, effects[1])):
        held = coverage(series, rule, truth, LEVEL)
        flags[f"{name}_interval"] = held.interval
        flags[f"{name}_lower"], flags[f"{name}_upper"] = held.lower, held.upper
    return {name: round(float(flag.mean()), 6) for name, flag in flags.items()}


def _named(values: Any) -> dict[str, float]:
    return {name: round(float(x), 5) for name, x in zip(STATISTICS, values, strict=True)}


# ---------------------------------------------------------------------------------------- the page


def write_tables(data: dict[str, Any], page: Path) -> None:
    """Replace what stands between the page's two markers by the tables of the figures."""
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise AnalysisError(str(page), "", "has no place for tables", f"Add {BEGIN} and {END}.")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{tables(data)}\n{END}{after}", encoding="utf-8")


def tables(data: dict[str, Any]) -> str:
    """All figures of the file as Markdown, in percent: errors by size, then every case."""
    head = (
        f"Grid `{data['grid'][:16]}`, {data['studies']:,} studies per case, seed {data['seed']}. "
        f"Monte Carlo standard error of a share p: √(p(1 − p)/{data['studies']:,}), at most "
        f"{100 * data['standard_error_at_most']:.2f} points, "
        f"{100 * sqrt(0.05 * 0.95 / data['studies']):.2f} points at 5%."
    )
    parts = [head, "### Errors and coverage by size and shape", _by_shape(data["cases"])]
    for rule in RULES:
        parts += [f"### Every case, {rule} rule", _by_case(data["cases"], rule)]
    return "\n\n".join(parts)


_COLUMNS = {
    "superiority_error": "false superiority",
    "non_inferiority_error": "false non-inferiority",
    "joint_error": "false joint claim",
    "unsafe_coverage": "unsafe interval covers",
    "sound_coverage": "sound interval covers",
}
"""Figure -> its title."""


def _by_shape(cases: list[dict[str, Any]]) -> str:
    """Worst figures over the truths; percentile / student / bounded in each cell."""
    lines = [_row("tasks", "shape", *_COLUMNS.values()), _row(*["---"] * 7)]
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for case in cases:
        groups.setdefault((case["tasks"], case["shape"]), []).append(case)
    for (size, shape), group in groups.items():
        figures = [rule_figures(group, rule) for rule in RULES]
        cells = [" / ".join(_percent(getattr(one, name)) for one in figures) for name in _COLUMNS]
        lines.append(_row(str(size), shape, *cells))
    return "\n".join(lines)


def _by_case(cases: list[dict[str, Any]], rule: str) -> str:
    names = list(cases[0]["rules"][rule])
    titles = [name.replace("_", " ") for name in names]
    lines = [_row("case", *titles), _row("---", *["---:"] * len(names))]
    for case in cases:
        shares = case["rules"][rule]
        wrong = {
            "superiority": case["unsafe_null"],
            "non_inferiority": case["sound_null"],
            "joint": case["unsafe_null"] or case["sound_null"],
        }
        cells = [
            f"**{_percent(shares[name])}**" if wrong.get(name) else _percent(shares[name])
            for name in names
        ]
        lines.append(_row(case["name"], *cells))
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
