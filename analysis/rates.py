"""Estimands by name, per cell: rates and costs, weighed by task, by project, or pooled.

Every estimand is events over trials. Task-equal is the default; project-equal and rollout-pooled
are named alternatives. All of them are descriptive: a :class:`Rate` has no interval and no p-value,
so that rollouts are never taken for independent units (docs/protocol.md, "Decision").
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from analysis.costs import VOLATILE
from analysis.outcomes import Outcomes
from analysis.plan import Levels, Plan
from analysis.tallies import Number, Tally, at_cell, tallies, total


@dataclass(frozen=True)
class Estimand:
    """``events`` per ``trials``, both names of measures (:mod:`analysis.tallies`).

    ``per_completion``: a cost, so that a task's own ratio may be undefined; the ratio is then taken
    of means over tasks, and is no mean of ratios.
    """

    name: str
    events: str
    trials: str
    meaning: str
    per_completion: bool = False


def _share(name: str, flag: str, meaning: str) -> Estimand:
    return Estimand(name, flag, "rollouts", meaning)


ESTIMANDS: tuple[Estimand, ...] = (
    _share("completion", "accepted", "rollouts whose completion is accepted"),
    _share("unsafe", "unsafe", "rollouts accepted and not resolved"),
    _share("sound", "sound", "rollouts accepted and resolved"),
    Estimand("risk", "unsafe", "accepted", "accepted completions that are not resolved"),
    _share("discovery", "discovered", "ever-correct: some proposal of the rollout resolves"),
    _share("current_correct", "final_correct", "the final working state resolves"),
    Estimand(
        "admission", "admitted", "discovered", "discoveries of which one resolving passed the gate"
    ),
    Estimand(
        "retention",
        "retained",
        "discovered",
        "discoveries of which one is the final state or the checkpoint at the end",
    ),
    Estimand(
        "certification",
        "certifications_passed",
        "certifications",
        "fresh certification runs that certify",
    ),
    Estimand("repair", "repairs", "wrong_before", "alpha: edits of a wrong state that resolve it"),
    Estimand("harm", "harms", "right_before", "beta: edits of a resolving state that break it"),
    Estimand(
        "gate_false_pass",
        "gate_false_passes",
        "wrong_proposals",
        "proposals that do not resolve and that the gate passes",
    ),
    Estimand(
        "gate_false_rejection",
        "gate_false_rejections",
        "right_proposals",
        "proposals that resolve and that the gate rejects",
    ),
    Estimand("invalid_action", "invalid_actions", "actions", "actions that are no valid action"),
    _share(
        "any_invalid_action", "rollouts_with_invalid_actions", "rollouts with an invalid action"
    ),
    Estimand(
        "test_deadline", "deadline_hits", "visible_tests", "visible tests that hit their deadline"
    ),
    Estimand(
        "suite_deadline",
        "suite_deadline_hits",
        "suite_runs",
        "diagnostic, gate and certification runs that hit their deadline",
    ),
    _share("any_test_deadline", "rollouts_with_deadline_hits", "rollouts with such a visible test"),
    _share("actions_exhausted", "actions_exhausted", "rollouts that the action budget ended"),
    _share("wall_exhausted", "wall_exhausted", "rollouts that the charged wall clock ended"),
    _share("tokens_exhausted", "tokens_exhausted", "rollouts that the token budget ended"),
    _share("escalation", "escalated", "rollouts in which the agent abstained"),
    _share(
        "empty_submission", "empty_submission", "rollouts whose accepted state is the base tree"
    ),
    Estimand("actions_per_sound", "actions", "sound", "actions per sound completion", True),
    Estimand("tokens_per_sound", "tokens", "sound", "tokens per sound completion", True),
    Estimand(
        "seconds_per_sound",
        "charged_seconds",
        "sound",
        "charged seconds per sound completion",
        True,
    ),
)


@dataclass(frozen=True)
class Rate:
    """One estimand at one cell (``levels`` empty: over all cells), over settled rollouts.

    ``task_equal``, ``project_equal``, ``rollout_pooled``: None without a trial, never 0. ``tasks``:
    those with a trial. No interval belongs to any of them.
    """

    estimand: str
    levels: Levels
    events: Number
    trials: Number
    tasks: int
    task_equal: float | None
    project_equal: float | None
    rollout_pooled: float | None


def rates(
    plan: Plan, outcomes: Outcomes, volatile: bool = False, found: list[Tally] | None = None
) -> tuple[Rate, ...]:
    """Every estimand that the source reports, per cell in plan order and, first, over all cells.

    ``volatile``: those that depend on the machine's clock, instead of those that do not.
    ``found``: the source's tallies, where they are at hand.
    """
    found = tallies(plan, outcomes) if found is None else found
    made = []
    for estimand in ESTIMANDS:
        if (estimand.events in VOLATILE) is not volatile or not _reported(found, estimand):
            continue
        made += [_rate(estimand, levels, at_cell(found, levels)) for levels in ({}, *plan.cells())]
    return tuple(made)


def _reported(found: Sequence[Tally], estimand: Estimand) -> bool:
    return bool(found) and None not in (
        total(found, estimand.events),
        total(found, estimand.trials),
    )


def _rate(estimand: Estimand, levels: Levels, group: Sequence[Tally]) -> Rate:
    sums = _by_task(group, estimand)
    projects = {tally.task_id: tally.project for tally in group}
    weigh = _ratio_of_means if estimand.per_completion else _mean_of_ratios
    tasks = [task for task, (_, trials, _n) in sums.items() if trials]
    return Rate(
        estimand=estimand.name,
        levels=levels,
        events=total(group, estimand.events),
        trials=total(group, estimand.trials),
        tasks=len(tasks),
        task_equal=weigh(sums, lambda chosen: _mean(chosen.values())),
        project_equal=weigh(sums, lambda chosen: _by_project(chosen, projects)),
        rollout_pooled=_pooled(sums),
    )


Sum = tuple[float, float, float]
"""Events, trials and rollouts of one task."""
Mean = Callable[[dict[str, float]], float]
"""Mean of one value per task."""


def _by_task(group: Iterable[Tally], estimand: Estimand) -> dict[str, Sum]:
    sums: dict[str, Sum] = {}
    for tally in group:
        before = sums.get(tally.task_id, (0, 0, 0))
        more = (tally.sums[name] or 0 for name in (estimand.events, estimand.trials, "rollouts"))
        events, trials, rollouts = (a + b for a, b in zip(before, more, strict=True))
        sums[tally.task_id] = (events, trials, rollouts)
    return sums


def _mean_of_ratios(sums: dict[str, Sum], mean: Mean) -> float | None:
    ratios = {task: events / trials for task, (events, trials, _) in sums.items() if trials}
    return mean(ratios) if ratios else None


def _ratio_of_means(sums: dict[str, Sum], mean: Mean) -> float | None:
    """Mean cost of a rollout over the mean number of completions of a rollout."""
    completions = mean({t: trials / n for t, (_, trials, n) in sums.items()}) if sums else 0.0
    if not completions:
        return None
    return mean({task: events / n for task, (events, _, n) in sums.items()}) / completions


def _pooled(sums: dict[str, Sum]) -> float | None:
    trials = fsum(trials for _, trials, _ in sums.values())
    return fsum(events for events, _, _ in sums.values()) / trials if trials else None


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return fsum(listed) / len(listed)


def _by_project(values: dict[str, float], projects: dict[str, str]) -> float:
    """Mean over projects of the mean over a project's tasks."""
    groups: dict[str, list[float]] = {}
    for task, value in values.items():
        groups.setdefault(projects[task], []).append(value)
    return _mean(_mean(group) for group in groups.values())
