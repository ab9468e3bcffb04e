"""What a printed figure is: its estimand in words, the method, how many tasks, draws and seed."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.inference import DRAW_SCHEME, Estimate
from analysis.plan import Interaction, MainEffect, Plan


@dataclass(frozen=True)
class Figure:
    """``draws``, ``sign_flips``: Monte Carlo draws beside or instead of the exact values.

    ``seed`` starts both streams; all three are None where nothing is drawn.
    """

    estimand: str
    method: str
    tasks: int
    draws: int | None
    sign_flips: int | None
    seed: int | None


def effect_figure(
    plan: Plan, effect: str, endpoint: str, tasks: int, estimates: Sequence[Estimate]
) -> Figure:
    """Of a task-equal effect with percentile bounds and sign-flip p-value."""
    bounds = "exact" if all(one.exact is not None for one in estimates) else "Monte Carlo"
    flips = "exact" if all(one.exact_p is not None for one in estimates) else "Monte Carlo"
    return Figure(
        estimand=f"task-equal {in_words(plan, effect)} on {endpoint}",
        method=f"{bounds} task-cluster percentile bootstrap; {flips} sign flips of task effects; "
        f"draws {DRAW_SCHEME}",
        tasks=tasks,
        draws=plan.inference.bootstrap_draws,
        sign_flips=plan.inference.sign_flip_draws,
        seed=plan.inference.seed,
    )


def plain_figure(estimand: str, method: str, tasks: int) -> Figure:
    """Of a figure for which nothing is drawn."""
    return Figure(estimand, method, tasks, None, None, None)


def in_words(plan: Plan, name: str) -> str:
    """An effect: what is compared with what."""
    effect = plan.effect(name)
    if isinstance(effect, Interaction):
        first, second = (plan.main(of) for of in effect.of)
        return f"change of ({_main(first)}) from {second.low} to {second.high} of {second.factor}"
    return _main(effect)


def _main(effect: MainEffect) -> str:
    if effect.kind == "linear":
        return (
            f"fitted change from {effect.factor} {effect.low} to {effect.high} "
            "(least-squares line per task)"
        )
    return f"mean at {effect.factor} {effect.high} minus mean at {effect.low}"
