"""What is assumed of coder and tasks before a study is run, and the population it stands for.

Comes in: a plan and assumed numbers (a mapping, as a YAML file or ``key=value`` words give it).
Goes out: :class:`Assumptions`, checked, and from them layout and population for the simulation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from analysis.errors import AnalysisError
from analysis.estimands import baseline_cells, cell_weights
from analysis.node import Node
from analysis.plan import Interaction, Levels, MainEffect, Plan
from analysis.simulate import Kind, Layout, Population, Rates

SCHEMA = "factorial/assumptions@1"
MOST_ICC = 0.99


@dataclass(frozen=True)
class Assumptions:
    """Probabilities. *Baseline* cells are at the low level of the decision's effect, *treated* ones
    at the high level; levels of a linear effect lie on the line through both.

    ``icc``: correlation of two rollouts of one task in one arm (spread between tasks).
    ``carriers``: share of the tasks that carry the whole difference between the arms.
    ``project_share``: correlation of the tasks of one project, on the normal scale.
    ``shared_luck``: how often the arms of a task and seed share their random numbers, as they do
    while they share replies; 0 is the cautious assumption.
    """

    unsafe_baseline: Fraction
    unsafe_treated: Fraction
    sound_baseline: Fraction
    sound_treated: Fraction
    icc: Fraction = Fraction(3, 10)
    carriers: Fraction = Fraction(1)
    project_share: Fraction = Fraction(1, 5)
    shared_luck: Fraction = Fraction(0)

    @property
    def unsafe_effect(self) -> Fraction:
        """True effect on unsafe completion."""
        return self.unsafe_treated - self.unsafe_baseline

    @property
    def sound_effect(self) -> Fraction:
        """True effect on sound completion."""
        return self.sound_treated - self.sound_baseline

    def with_effects(
        self, unsafe: Fraction | None = None, sound: Fraction | None = None
    ) -> "Assumptions":
        """The same baseline with other true effects."""
        return replace(
            self,
            unsafe_treated=self.unsafe_treated if unsafe is None else self.unsafe_baseline + unsafe,
            sound_treated=self.sound_treated if sound is None else self.sound_baseline + sound,
        )


KEYS = tuple(field.name for field in fields(Assumptions))
REQUIRED = KEYS[:4]


def parse_assumptions(data: Mapping[str, object], file: str) -> Assumptions:
    """Check assumed numbers. Raises ``AnalysisError`` naming the first that cannot be."""
    node = Node(file, "", dict(data))
    node.only("schema", *KEYS)
    if data.get("schema", SCHEMA) != SCHEMA:
        raise node.error("schema", f"{data['schema']!r} is not {SCHEMA!r}", f"Write {SCHEMA}.")
    for key in REQUIRED:
        if key not in data:
            raise node.error(key, "is not assumed", f"Give it; needed: {', '.join(REQUIRED)}.")
    given = {key: node.number(key, 0, _most(key)) for key in KEYS if key in data}
    if given.get("carriers") == 0:
        raise node.error("carriers", "has to be above 0", "Give the share of tasks, up to 1.")
    assumed = Assumptions(**given)
    for arm in ("baseline", "treated"):
        unsafe, sound = given[f"unsafe_{arm}"], given[f"sound_{arm}"]
        if unsafe + sound > 1:
            problem = f"unsafe and sound add up to {float(unsafe + sound):.3g}"
            remedy = "A completion is one or the other: together they are at most 1."
            raise node.error(f"unsafe_{arm}, sound_{arm}", problem, remedy)
    return assumed


def _most(key: str) -> float:
    return MOST_ICC if key == "icc" else 1.0


def layout_of(plan: Plan) -> Layout:
    """How the plan's study is laid out: cells at one place of the effect are one arm."""
    places = cell_places(plan)
    arms = sorted(set(places))
    projects = sorted({task.project for task in plan.tasks})
    return Layout(
        projects=tuple(projects.index(task.project) for task in plan.tasks),
        arm_of_cell=tuple(arms.index(place) for place in places),
        weights=cell_weights(plan, plan.rule.effect),
        baseline=baseline_cells(plan, plan.rule.effect),
        seeds=len(plan.seeds),
    )


def population_of(plan: Plan, assumed: Assumptions) -> Population:
    """Where the tasks are drawn from; its arms are those of :func:`layout_of`.

    Raises ``AnalysisError`` where carriers, or levels beyond the effect's high level, would need
    rates that are no probabilities.
    """
    places = sorted(set(cell_places(plan)))
    carried = [(float(assumed.carriers), 1 / assumed.carriers)]
    if assumed.carriers < 1:
        carried.append((float(1 - assumed.carriers), Fraction(0)))
    kinds = []
    for share, factor in carried:
        arms = tuple(_rates(assumed, place * factor) for place in places)
        for place, rates in zip(places, arms, strict=True):
            _check(plan, assumed, place, rates)
        kinds.append(Kind(share, arms))
    icc = float(assumed.icc)
    return Population(
        kinds=tuple(kinds),
        concentration=None if icc == 0 else 1 / icc - 1,
        project_share=float(assumed.project_share),
        shared_luck=float(assumed.shared_luck),
    )


def possible(plan: Plan, assumed: Assumptions) -> bool:
    """Whether there is a population with these rates."""
    try:
        population_of(plan, assumed)
    except AnalysisError:
        return False
    return True


def cell_places(plan: Plan) -> tuple[Fraction, ...]:
    """Where each cell stands on the decision's effect: 0 at baseline, 1 where treated.

    The product over an interaction's two main effects, so that an effect of d at place 1, and of
    d x place elsewhere, is d as estimated.
    """
    effect = plan.effect(plan.rule.effect)
    mains = [plan.main(name) for name in effect.of] if isinstance(effect, Interaction) else [effect]
    return tuple(_place(mains, cell) for cell in plan.cells())


def _place(mains: list[MainEffect], cell: Levels) -> Fraction:
    place = Fraction(1)
    for main in mains:
        level = cell[main.factor]
        if main.kind == "contrast":
            place *= level == main.high
        else:
            low, high = Fraction(main.low), Fraction(main.high)
            place *= (Fraction(level) - low) / (high - low)
    return place


def _rates(assumed: Assumptions, times: Fraction) -> Rates:
    return Rates(
        float(assumed.unsafe_baseline + times * assumed.unsafe_effect),
        float(assumed.sound_baseline + times * assumed.sound_effect),
    )


def _check(plan: Plan, assumed: Assumptions, place: Fraction, rates: Rates) -> None:
    if rates.possible:
        return
    problem = (
        f"impossible: where {float(assumed.carriers):.0%} of the tasks carry the whole effect, "
        f"their rates at {float(place):.3g} of it would be {rates.unsafe:.1%} unsafe and "
        f"{rates.sound:.1%} sound"
    )
    remedy = "Assume a smaller effect, another baseline or more carriers."
    raise AnalysisError(plan.file, "assumptions", problem, remedy)
