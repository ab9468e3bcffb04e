"""The per-task heat map: how often each task ended unsafe or sound in each cell.

Whole numbers over the seeds; accepted is their sum. A study of many tasks is drawn by project, and
one of many projects by the busiest of them, with a line that holds the rest: nothing disappears.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis.report.blocks import Heat, HeatCell, HeatGroup
from analysis.report.source import Study
from analysis.report.words import cell_lines, plural
from analysis.tallies import Sums, tallies

MOST_TASKS = 60
MOST_PROJECTS = 60
REST = "all other projects"


def heat(study: Study) -> Heat:
    """Rows are tasks, or projects where there are more tasks than a reader can look at."""
    tasks = study.analysis.design.tasks
    groups = _by_task(study) if tasks <= MOST_TASKS else _by_project(study)
    unit = "task" if tasks <= MOST_TASKS else "project"
    seeds = study.analysis.design.seeds
    caption = f"Unsafe ▲ and sound ● completions per {unit} and cell, over {plural(seeds, 'seed')}."
    return Heat(
        caption=caption,
        corner=unit,
        head=tuple(cell_lines(study.plan, cell) for cell in study.plan.cells()),
        groups=tuple(groups),
        note=_note(study, unit),
    )


def _note(study: Study, unit: str) -> str:
    said = "Accepted = unsafe + sound. The darker, the larger the share of the settled rollouts."
    said += " ○: without an outcome."
    if unit == "project":
        projects = study.analysis.design.projects
        said += (
            f" {plural(study.analysis.design.tasks, 'task')} are too many to show one by one: "
            "they are added up by project"
        )
        if projects > MOST_PROJECTS:
            said += f"; the {MOST_PROJECTS} with most completions of {projects:,} are named"
        said += "."
    return said


def _by_task(study: Study) -> Iterable[HeatGroup]:
    rows = _grouped(study, by_project=False)
    order: dict[str, list[str]] = {}
    for task in study.plan.tasks:
        order.setdefault(task.project, []).append(task.task_id)
    for project in sorted(order):
        yield HeatGroup(project, tuple((task, rows[task]) for task in sorted(order[project])))


def _by_project(study: Study) -> Iterable[HeatGroup]:
    rows = _grouped(study, by_project=True)
    sizes = Counter(task.project for task in study.plan.tasks)
    busiest = sorted(rows, key=lambda name: (-_completions(rows[name]), name))
    named, rest = sorted(busiest[:MOST_PROJECTS]), busiest[MOST_PROJECTS:]
    lines = [(f"{name} ({plural(sizes[name], 'task')})", rows[name]) for name in named]
    if rest:
        size = sum(sizes[name] for name in rest)
        words = f"{REST} ({plural(len(rest), 'project')}, {plural(size, 'task')})"
        lines.append((words, _sum([rows[name] for name in rest])))
    yield HeatGroup("", tuple(lines))


def _completions(cells: Sequence[HeatCell]) -> int:
    return sum(cell.unsafe + cell.sound for cell in cells)


def _sum(rows: Sequence[Sequence[HeatCell]]) -> tuple[HeatCell, ...]:
    return tuple(
        HeatCell(
            unsafe=sum(cell.unsafe for cell in column),
            sound=sum(cell.sound for cell in column),
            missing=sum(cell.missing for cell in column),
            rollouts=sum(cell.rollouts for cell in column),
        )
        for column in zip(*rows, strict=True)
    )


def _grouped(study: Study, by_project: bool) -> dict[str, tuple[HeatCell, ...]]:
    """Label of a row -> one cell of counts per cell of the plan."""
    plan = study.plan
    found = {
        (tally.project if by_project else tally.task_id, tally.cell, tally.task_id): tally.sums
        for tally in tallies(plan, study.outcomes)
    }
    owners: dict[str, list[str]] = {}
    for task in plan.tasks:
        owners.setdefault(task.project if by_project else task.task_id, []).append(task.task_id)
    return {
        name: tuple(
            _counted([found.get((name, tuple(cell.values()), task)) for task in tasks], plan.seeds)
            for cell in plan.cells()
        )
        for name, tasks in owners.items()
    }


def _counted(tasks: Sequence[Sums | None], seeds: Sequence[int]) -> HeatCell:
    """A task without a tally has no settled rollout in the cell."""
    known = [sums for sums in tasks if sums is not None]
    settled = sum(int(sums["rollouts"] or 0) for sums in known)
    return HeatCell(
        unsafe=sum(int(sums["unsafe"] or 0) for sums in known),
        sound=sum(int(sums["sound"] or 0) for sums in known),
        missing=len(tasks) * len(seeds) - settled,
        rollouts=settled,
    )
