"""The plan: what was to be run and how it is to be judged, parsed from ``plan.json``.

Comes in: the resolved plan that the command line exports. Goes out: frozen dataclasses whose
references (factors, levels, effects, rollouts) all resolve. A plan with no tasks and no rollouts is
*open*: an outcome table from elsewhere completes it (:mod:`analysis.external`).
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.node import Node

SCHEMA = "factorial/plan@1"
MAIN_ENDPOINTS = ("unsafe", "sound", "accepted")
ENDPOINTS = (*MAIN_ENDPOINTS, "discovered")
MAX_DRAWS = 2_000_000
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")
Levels = dict[str, str]


@dataclass(frozen=True)
class Factor:
    """A factor and its levels, in the order in which cells are enumerated."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """A task; ``gate_overlap``: its one fail-to-pass function is in diagnostic and gate alike."""

    task_id: str
    project: str
    gate_overlap: bool


@dataclass(frozen=True)
class Rollout:
    """One intention-to-treat rollout; ``levels``: factor -> level."""

    rollout_id: str
    task_id: str
    project: str
    stack: str
    seed: int
    levels: Levels


@dataclass(frozen=True)
class MainEffect:
    """``contrast``: mean at ``high`` minus at ``low``. ``linear``: fitted change low -> high."""

    name: str
    kind: str
    factor: str
    low: str
    high: str


@dataclass(frozen=True)
class Interaction:
    """Difference of the differences (or fitted changes) of two main effects, by name."""

    name: str
    of: tuple[str, str]


Effect = MainEffect | Interaction


@dataclass(frozen=True)
class Rule:
    """The co-primary intersection-union rule (docs/protocol.md, "Decision"); probabilities."""

    effect: str
    level: Fraction
    unsafe_below: Fraction
    sound_above: Fraction
    floor: Fraction


@dataclass(frozen=True)
class Family:
    """Effects x endpoints whose sign-flip p-values are Holm-adjusted together."""

    name: str
    effects: tuple[str, ...]
    endpoints: tuple[str, ...]


@dataclass(frozen=True)
class Inference:
    """Monte Carlo draws and the seed of both streams."""

    bootstrap_draws: int
    sign_flip_draws: int
    seed: int


@dataclass(frozen=True)
class Plan:
    """A whole plan. ``file`` is where it was read, for messages."""

    file: str
    study: str
    title: str
    lock_id: str
    simulated: bool
    stack: str
    factors: tuple[Factor, ...]
    constants: Levels
    seeds: tuple[int, ...]
    tasks: tuple[Task, ...]
    rollouts: tuple[Rollout, ...]
    effects: tuple[Effect, ...]
    rule: Rule
    families: tuple[Family, ...]
    inference: Inference

    @property
    def open(self) -> bool:
        """Whether tasks and rollouts are still to be completed from an outcome table."""
        return not self.tasks and not self.rollouts

    def cells(self) -> tuple[Levels, ...]:
        """All combinations of levels, first factor slowest."""
        names = [factor.name for factor in self.factors]
        combinations = product(*(factor.levels for factor in self.factors))
        return tuple(dict(zip(names, levels, strict=True)) for levels in combinations)

    def effect(self, name: str) -> Effect:
        """The effect of that name."""
        return next(effect for effect in self.effects if effect.name == name)

    def main(self, name: str) -> MainEffect:
        """The main effect of that name; a plan that passed :func:`parse_plan` has it."""
        effect = self.effect(name)
        if not isinstance(effect, MainEffect):
            raise AnalysisError(self.file, "effects", f"{name} is no main effect", "Name one.")
        return effect


def read_plan(path: Path) -> Plan:
    """Read and check one ``plan.json``."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AnalysisError(str(path), "", "no such file", "Check the path.") from None
    except (OSError, ValueError) as error:
        raise AnalysisError(str(path), "", f"not readable JSON ({error})", "Mend it.") from None
    return parse_plan(data, str(path))


def parse_plan(data: object, file: str = "plan.json") -> Plan:
    """Check a parsed plan. Raises ``AnalysisError`` naming the first thing that does not hold."""
    if not isinstance(data, dict):
        raise AnalysisError(file, "", "expected an object at the top", "Start with `schema`.")
    top = Node(file, "", data)
    top.only(*(name if name != "rule" else "decision" for name in _TOP))
    if top.text("schema") != SCHEMA:
        raise top.error("schema", f"{top.text('schema')!r} is not {SCHEMA!r}", "Export it again.")
    plan = Plan(
        file=file,
        study=top.text("study"),
        title=top.text("title"),
        lock_id=top.text("lock_id"),
        simulated=top.flag("simulated"),
        stack=top.text("stack"),
        factors=tuple(_factor(node) for node in top.nodes("factors")),
        constants=top.mapping("constants"),
        seeds=_seeds(top),
        tasks=tuple(_task(node) for node in top.nodes("tasks")),
        rollouts=tuple(_rollout(node) for node in top.nodes("rollouts")),
        effects=tuple(_effect(node) for node in top.nodes("effects")),
        rule=_rule(top.node("decision")),
        families=tuple(_family(node) for node in top.nodes("families")),
        inference=_inference(top.node("inference")),
    )
    _check_factors(plan)
    _check_effects(plan)
    _check_named(plan)
    if not plan.open:
        check_design(plan)
    return plan


_TOP = ("schema", *(name for name in Plan.__dataclass_fields__ if name != "file"))


def _factor(node: Node) -> Factor:
    node.only("name", "levels")
    return Factor(node.text("name"), node.texts("levels"))


def _seeds(top: Node) -> tuple[int, ...]:
    seeds = top.items("seeds")
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            raise top.error("seeds", f"expected whole numbers, found {seed!r}")
    if not seeds or len(set(seeds)) != len(seeds):
        raise top.error("seeds", "must be distinct and at least one")
    return tuple(int(str(seed)) for seed in seeds)


def _task(node: Node) -> Task:
    node.only("task_id", "project", "gate_overlap")
    return Task(node.text("task_id"), node.text("project"), node.flag("gate_overlap"))


def _rollout(node: Node) -> Rollout:
    node.only("rollout_id", "task_id", "project", "stack", "seed", "levels")
    return Rollout(
        rollout_id=node.text("rollout_id"),
        task_id=node.text("task_id"),
        project=node.text("project"),
        stack=node.text("stack"),
        seed=node.whole("seed", 0),
        levels=node.mapping("levels"),
    )


def _effect(node: Node) -> Effect:
    kind = node.text("kind")
    if kind == "interaction":
        node.only("name", "kind", "of")
        of = node.texts("of")
        if len(of) != 2:
            raise node.error("of", "must name two main effects")
        return Interaction(node.text("name"), (of[0], of[1]))
    if kind not in ("contrast", "linear"):
        raise node.error("kind", f"unknown kind {kind!r} (contrast, linear, interaction)")
    node.only("name", "kind", "factor", "low", "high")
    fields = (node.text(key) for key in ("factor", "low", "high"))
    return MainEffect(node.text("name"), kind, *fields)


def _rule(node: Node) -> Rule:
    node.only("effect", "level", "unsafe_below", "sound_above", "floor")
    level = node.number("level", 0.5, 1.0)
    if not Fraction(1, 2) < level < 1:
        raise node.error("level", "must lie strictly between 0.5 and 1")
    return Rule(
        effect=node.text("effect"),
        level=level,
        unsafe_below=node.number("unsafe_below", -1, 1),
        sound_above=node.number("sound_above", -1, 1),
        floor=node.number("floor", 0, 1),
    )


def _family(node: Node) -> Family:
    node.only("name", "effects", "endpoints")
    family = Family(node.text("name"), node.texts("effects"), node.texts("endpoints"))
    if not family.effects or not family.endpoints:
        raise node.error("effects", "a family needs effects and endpoints")
    for key, names in (("effects", family.effects), ("endpoints", family.endpoints)):
        if (twice := _twice(list(names))) is not None:
            raise node.error(key, f"{twice} is named twice")
    for endpoint in family.endpoints:
        if endpoint not in ENDPOINTS:
            raise node.error("endpoints", f"unknown endpoint {endpoint!r} ({', '.join(ENDPOINTS)})")
    return family


def _inference(node: Node) -> Inference:
    node.only("bootstrap_draws", "sign_flip_draws", "seed")
    draws = Inference(
        bootstrap_draws=node.whole("bootstrap_draws", 1),
        sign_flip_draws=node.whole("sign_flip_draws", 1),
        seed=node.whole("seed", 0),
    )
    for key in ("bootstrap_draws", "sign_flip_draws"):
        if getattr(draws, key) > MAX_DRAWS:
            raise node.error(key, f"more than {MAX_DRAWS} draws")
    return draws


def _problem(plan: Plan, field: str, problem: str) -> AnalysisError:
    return AnalysisError(plan.file, field, problem, "Export the plan again from its study or lock.")


def _twice(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _check_factors(plan: Plan) -> None:
    from analysis.outcomes import RESERVED

    if not plan.factors:
        raise _problem(plan, "factors", "there is no factor")
    names = [factor.name for factor in plan.factors] + list(plan.constants)
    if (twice := _twice(names)) is not None:
        raise _problem(plan, "factors", f"{twice} is named twice")
    for factor in plan.factors:
        if not _NAME.match(factor.name) or factor.name in RESERVED:
            raise _problem(plan, "factors", f"{factor.name!r} cannot be a factor's column name")
        if not factor.levels or len(set(factor.levels)) != len(factor.levels):
            raise _problem(plan, "factors", f"levels of {factor.name} are empty or repeat")


def _check_effects(plan: Plan) -> None:
    if (twice := _twice([effect.name for effect in plan.effects])) is not None:
        raise _problem(plan, "effects", f"{twice} is named twice")
    main = {effect.name: effect for effect in plan.effects if isinstance(effect, MainEffect)}
    for effect in main.values():
        _check_main(plan, effect)
    for pair in (effect for effect in plan.effects if isinstance(effect, Interaction)):
        if any(name not in main for name in pair.of):
            raise _problem(plan, "effects", f"{pair.name}: `of` must name two main effects")
        if main[pair.of[0]].factor == main[pair.of[1]].factor:
            raise _problem(plan, "effects", f"{pair.name}: both effects are of one factor")


def _check_main(plan: Plan, effect: MainEffect) -> None:
    levels = {factor.name: factor.levels for factor in plan.factors}
    if effect.factor not in levels:
        raise _problem(plan, "effects", f"{effect.name}: unknown factor {effect.factor!r}")
    for level in (effect.low, effect.high):
        if level not in levels[effect.factor]:
            raise _problem(
                plan, "effects", f"{effect.name}: {effect.factor} has no level {level!r}"
            )
    if effect.low == effect.high:
        raise _problem(plan, "effects", f"{effect.name}: low and high are the same level")
    if effect.kind == "linear":
        numbers = [_numeric(plan, effect, level) for level in levels[effect.factor]]
        if len(set(numbers)) != len(numbers):
            problem = f"{effect.name}: two levels of {effect.factor} are the same number"
            raise _problem(plan, "effects", problem)


def _numeric(plan: Plan, effect: MainEffect, level: str) -> Fraction:
    try:
        return Fraction(level)
    except (ValueError, ZeroDivisionError):
        problem = f"{effect.name}: level {level!r} of {effect.factor} is no number"
        raise _problem(plan, "effects", problem) from None


def _check_named(plan: Plan) -> None:
    known = {effect.name for effect in plan.effects}
    named = [(plan.rule.effect, "decision.effect")]
    named += [(name, f"families.{f.name}") for f in plan.families for name in f.effects]
    for name, where in named:
        if name not in known:
            raise _problem(plan, where, f"no effect is named {name!r}")
    if (twice := _twice([family.name for family in plan.families])) is not None:
        raise _problem(plan, "families", f"{twice} is named twice")


def check_design(plan: Plan) -> None:
    """Refuse a plan whose rollouts are not exactly tasks x cells x seeds, once each."""
    projects = {task.task_id: task.project for task in plan.tasks}
    if (twice := _twice([task.task_id for task in plan.tasks])) is not None:
        raise _problem(plan, "tasks", f"{twice} appears twice")
    if (twice := _twice([rollout.rollout_id for rollout in plan.rollouts])) is not None:
        raise _problem(plan, "rollouts", f"rollout id {twice} appears twice")
    cells = plan.cells()
    wanted = {
        (task, tuple(cell.values()), seed)
        for task, cell, seed in product(projects, cells, plan.seeds)
    }
    seen: set[tuple[str, tuple[str, ...], int]] = set()
    for rollout in plan.rollouts:
        key = _key(plan, rollout, projects)
        if key not in wanted or key in seen:
            kind = "twice" if key in seen else "outside the design"
            raise _problem(plan, "rollouts", f"{rollout.rollout_id} is {kind}")
        seen.add(key)
    if len(seen) != len(wanted):
        missing = min(wanted - seen)
        raise _problem(plan, "rollouts", f"{len(wanted - seen)} missing, first {missing}")


def _key(
    plan: Plan, rollout: Rollout, projects: dict[str, str]
) -> tuple[str, tuple[str, ...], int]:
    if projects.get(rollout.task_id) != rollout.project or rollout.stack != plan.stack:
        raise _problem(plan, "rollouts", f"{rollout.rollout_id}: task, project or stack is foreign")
    if rollout.levels.keys() != {factor.name for factor in plan.factors}:
        raise _problem(plan, "rollouts", f"{rollout.rollout_id}: levels do not name every factor")
    levels = tuple(rollout.levels[factor.name] for factor in plan.factors)
    return rollout.task_id, levels, rollout.seed
