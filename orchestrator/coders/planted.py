"""A *simulated* coder with known transition rates; proves that the pipeline recovers them.

It knows verified variants of every task (correct, overfit, wrong) and moves between them with the
rates of its manifest. Every random decision of a turn is one uniform of a generator seeded by the
request seed alone, so arms of one task and seed share their random numbers (protocol §1 "Seeds").
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.coders import scripted
from orchestrator.coders.edit_script import edit_script
from orchestrator.coders.variants import TaskVariants, Variant, check_variants
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.ports import CoderReply, CoderRequest, PrivilegedView
from orchestrator.spec.stack import PlantedRates, PlantedStack

__all__ = ["PlantedCoder", "TaskVariants", "Variant", "check_variants", "matching_rates"]

ClassName = Literal["correct", "overfit", "wrong"]


@dataclass(frozen=True)
class Draws:
    """The five uniforms of one turn, always all drawn and always in this order."""

    fault: float
    submit: float
    test: float
    outcome: float
    choice: float

    @classmethod
    def of(cls, request_seed: int) -> "Draws":
        """Draws of one turn; equal seeds give equal draws whatever the arm's history."""
        generator = random.Random(request_seed)
        return cls(*(generator.random() for _ in range(5)))


def matching_rates(stack: PlantedStack, levels: Mapping[str, str]) -> PlantedRates:
    """The first row of ``rates`` whose every ``when`` level holds in ``levels``."""
    for row in stack.rates:
        if all(levels.get(factor) == level for factor, level in row.when.items()):
            return row
    raise BadInput(
        f"stack {stack.name}",
        "rates",
        f"no row matches {dict(levels)}",
        "End the list with a row that has an empty `when`.",
    )


def next_class(rates: PlantedRates, correct_now: bool, outcome: float) -> ClassName:
    """Class of the next state (paper §3, equations 1 and 2), by one uniform.

    Incorrect now: correct below ``alpha``, overfit up to ``alpha + overfit``, else wrong. Correct
    now: harmed below ``beta``, of which the first ``overfit_harm`` share ends in an overfit.
    """
    if not correct_now:
        if outcome < rates.alpha:
            return "correct"
        return "overfit" if outcome < rates.alpha + rates.overfit else "wrong"
    if outcome >= rates.beta:
        return "correct"
    return "overfit" if outcome < rates.beta * rates.overfit_harm else "wrong"


class PlantedCoder:
    """The Coder port over verified variants. Raises BadInput where a needed class has too few."""

    def __init__(self, stack: PlantedStack, variants: Mapping[str, TaskVariants]) -> None:
        check_variants(stack, variants)
        self._stack = stack
        self._variants = dict(variants)

    def reply(self, request: CoderRequest) -> CoderReply:
        """One simulated turn: no tokens, no latency."""
        view, task = request.privileged, self._variants.get(request.task_id)
        if view is None:
            raise IntegrityError(request.rollout_id, "planted coder asked without privileged view")
        if task is None:
            raise IntegrityError(request.rollout_id, f"no variants of task {request.task_id}")
        text = self._act(view, task, Draws.of(request.request_seed))
        return CoderReply(text, 0, 0, 0, 0.0, "stop", "simulated")

    def _act(self, view: PrivilegedView, task: TaskVariants, draws: Draws) -> str:
        stack = self._stack
        if draws.fault < stack.invalid:
            return scripted.MALFORMED
        if draws.fault < stack.invalid + stack.escalate:
            return scripted.escalate("simulated abstention")
        revised = view.state_id != task.base_state_id
        if view.revisions_left == 0 or (revised and draws.submit < stack.submit):
            return scripted.SUBMIT
        if view.delivered_for != view.state_id and draws.test < stack.test:
            return scripted.TEST
        return self._edit(view, task, draws)

    def _edit(self, view: PrivilegedView, task: TaskVariants, draws: Draws) -> str:
        """Move to another variant; an unknown state counts as incorrect and as the base tree."""
        correct_now = any(v.state_id == view.state_id for v in task.correct)
        rates = matching_rates(self._stack, view.levels)
        members = task.members(next_class(rates, correct_now, draws.outcome))
        target = _choose(members, view.state_id, draws.choice)
        current = task.find(view.state_id)
        before = task.files({} if current is None else current.delta, target.delta)
        after = task.files(target.delta, {} if current is None else current.delta)
        return scripted.edit(edit_script(before, after))


def _choose(members: tuple[Variant, ...], state_id: str, choice: float) -> Variant:
    """The variant that ``choice`` falls on, or its successor where that is the current state."""
    index = int(choice * len(members))
    if members[index].state_id == state_id:
        index = (index + 1) % len(members)
    return members[index]
