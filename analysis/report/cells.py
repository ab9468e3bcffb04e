"""Tables with one row or column per cell: completions, gate errors, cost, rates, attempts.

Each function takes a study and gives blocks; where the source does not report something, the block
is the sentence that says so.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from analysis.cell_tables import BEHAVIOUR
from analysis.cell_tables import COSTS as PER_COMPLETION
from analysis.plan import MAIN_ENDPOINTS
from analysis.rates import ESTIMANDS, Rate
from analysis.report.blocks import NOT_REPORTED, Block, Paragraph, absent, table
from analysis.report.facts import COSTS, RUNNING
from analysis.report.source import Study
from analysis.report.words import (
    cell_label,
    cell_order,
    percent,
    share,
    whole,
)
from analysis.summary import Cell

ENDPOINT_HEADS = {
    "accepted": "accepted",
    "unsafe": "unsafe",
    "sound": "sound",
    "discovered": "discovered",
    "admitted": "admitted",
    "retained": "retained",
    "final_correct": "final correct",
    "empty_submission": "empty",
}
COST_WORDS = {
    "actions": "actions",
    "revisions": "source revisions",
    "visible_tests": "visible tests",
    "tokens_prompt": "prompt tokens",
    "tokens_completion": "completion tokens",
    "tokens_served": "tokens served (shared replies count 0)",
    "charged_seconds": "charged seconds",
    "wall_seconds": "elapsed seconds",
}
MEANINGS = {one.name: one.meaning for one in ESTIMANDS}
SHOWN_ELSEWHERE = frozenset(
    {"completion", "unsafe", "sound", "repair", "harm", "gate_false_pass", "gate_false_rejection"}
)
"""Estimands that stand in a table of their own."""
NO_GATE = (
    "Gate errors are not reported: this source has no proposals with the gate's answers. "
    "A replayed root has them."
)
NO_COST = (
    "Cost is not reported: this source has no actions, tokens or seconds, only outcomes. "
    "A root has them."
)
NO_ATTEMPTS = "Attempts are not reported: this source keeps no record of them. A root does."


def completions(study: Study) -> tuple[Block, ...]:
    """Counts per cell, the three main endpoints with their share."""
    cells = study.analysis.cells
    names = [
        name
        for name in ENDPOINT_HEADS
        if any(cell.endpoints.get(name) is not None for cell in cells)
    ]
    rows = [
        [_name(study, cell), _settled(cell), *(_tally(cell, n) for n in names)] for cell in cells
    ]
    head = [_corner(study), "settled", *(ENDPOINT_HEADS[name] for name in names)]
    note = (
        "Rollouts; shares are of the settled ones. Tasks, not rollouts, are the independent units."
    )
    if "empty_submission" in names:
        note += " Empty: the accepted state is the base tree."
    return (table("Completions per cell", head, rows, note=note),)


def _name(study: Study, cell: Cell) -> str:
    return cell_label(study.plan, cell.levels)


def _corner(study: Study) -> str:
    return cell_order(study.plan)


def _settled(cell: Cell) -> str:
    return f"{cell.coverage.settled}/{cell.coverage.planned}"


def _tally(cell: Cell, name: str) -> str:
    count = cell.endpoints.get(name)
    if count is None or name not in MAIN_ENDPOINTS or not cell.coverage.settled:
        return whole(count)
    return f"{count} ({percent(Fraction(count, cell.coverage.settled))})"


def gate_errors(study: Study) -> tuple[Block, ...]:
    """False passes over wrong proposals and false rejections over right ones, per cell."""
    rows = []
    for cell in study.analysis.cells:
        if cell.gate is None:
            return absent(NO_GATE)
        gate = cell.gate
        rows.append(
            (
                _name(study, cell),
                share(gate["gate_false_passes"], gate["wrong_proposals"]),
                share(gate["gate_false_rejections"], gate["right_proposals"]),
            )
        )
    total = _gate_total(study)
    head = (_corner(study), "false passes / wrong proposals", "false rejections / right proposals")
    note = "Wrong and right: by the evaluator's replay of every proposal, after the fact."
    return (table("Errors of the gate", head, (*rows, ("all cells", *total)), note=note),)


def _gate_total(study: Study) -> tuple[str, str]:
    gates = [cell.gate or {} for cell in study.analysis.cells]

    def total(name: str) -> int:
        return sum(gate.get(name, 0) for gate in gates)

    return (
        share(total("gate_false_passes"), total("wrong_proposals")),
        share(total("gate_false_rejections"), total("right_proposals")),
    )


def cost(study: Study) -> tuple[Block, ...]:
    """Sums per cell, and per sound completion where there is one."""
    if study.facts.costs is None:
        return absent(NO_COST)
    heads = [_name(study, cell) for cell in study.analysis.cells]
    sums = [[COST_WORDS[n], *(whole(costs[n]) for costs in study.facts.costs)] for n in COSTS]
    made = [table("Cost per cell: sums over its settled rollouts", ["cost", *heads], sums)]
    each = [[*shown] for name, *shown in _rates(study) if name in PER_COMPLETION]
    if each:
        counts = [cell.endpoints["sound"] for cell in study.analysis.cells]
        each.append(["sound completions", whole(_sum(counts)), *map(whole, counts)])
        note = f"{NOT_REPORTED}: no sound completion, so that the ratio is not defined."
        head = ["cost / sound", "all cells", *heads]
        made.append(table("Cost per sound completion", head, each, note=note))
    return tuple(made)


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count for count in counts if count is not None)


def rates(study: Study) -> tuple[Block, ...]:
    """Every descriptive rate that no other table shows, task-equal, with events and trials."""
    found = [row for row in _rates(study) if row[0] not in SHOWN_ELSEWHERE | PER_COMPLETION]
    never = [_never(rate) for rate in study.analysis.rates if not rate.levels and not rate.events]
    silent = {name for name, _ in never}
    shown = [row for name, *row in found if name not in silent]
    blocks: list[Block] = []
    if shown:
        head = ["rate", "all cells", *(_name(study, cell) for cell in study.analysis.cells)]
        note = (
            "Task-equal; in brackets events over trials. Descriptive: no interval and no p-value "
            "belongs to them."
        )
        blocks.append(table("Rates", head, shown, note=note))
    if words := [text for name, text in never if name not in SHOWN_ELSEWHERE | PER_COMPLETION]:
        blocks.append(Paragraph(f"No event in any cell: {'; '.join(words)}."))
    return tuple(blocks)


def _never(rate: Rate) -> tuple[str, str]:
    return rate.estimand, f"{MEANINGS[rate.estimand]} (0/{whole(rate.trials)})"


def _rates(study: Study) -> Iterator[list[str]]:
    """One line per estimand: its name, its words, all cells, each cell."""
    found: dict[str, list[Rate]] = {}
    for rate in (*study.analysis.rates, *study.analysis.timing):
        found.setdefault(rate.estimand, []).append(rate)
    for name, rows in found.items():
        yield [name, MEANINGS[name], *map(_rate, rows)]


def _rate(rate: Rate) -> str:
    if rate.task_equal is None:
        return NOT_REPORTED
    if rate.estimand in PER_COMPLETION:
        return f"{rate.task_equal:,.1f}"
    return f"{percent(rate.task_equal)} ({whole(rate.events)}/{whole(rate.trials)})"


def friction(study: Study) -> tuple[Block, ...]:
    """Invalid actions, interceptions, deadline hits and budget ends per cell."""
    cells = study.analysis.cells
    rows = [
        [shown, *(whole(cell.behaviour.get(name)) for cell in cells)]
        for name, shown in BEHAVIOUR.items()
        if any(cell.behaviour.get(name) is not None for cell in cells)
    ]
    if not rows:
        return absent("Friction and deadlines are not reported by this source.")
    heads = [_name(study, cell) for cell in cells]
    note = "Where no deadline fires, results do not depend on the speed of the machine."
    return (table("Friction and deadlines per cell", ["count", *heads], rows, note=note),)


def attempts(study: Study) -> tuple[Block, ...]:
    """How attempts ended, by reason, per cell: the retry rule is blind to arm and outcome."""
    found = study.facts.attempts
    if found is None:
        return absent(NO_ATTEMPTS)
    cells = study.analysis.cells
    kinds = sorted({(one.outcome, one.reason) for one in found}, key=_settled_first)
    counts = {(one.outcome, one.reason, one.cell): one.attempts for one in found}
    rows = [
        [outcome, reason or NOT_REPORTED]
        + [str(counts.get((outcome, reason, at), 0)) for at in range(len(cells))]
        for outcome, reason in kinds
    ]
    head = ["attempt ended as", "reason", *(_name(study, cell) for cell in cells)]
    note = "A rollout whose attempt met an infrastructure fault starts again from nothing."
    if any(outcome == RUNNING for outcome, _ in kinds):
        note += f" “{RUNNING}”: the process was killed."
    return (table("Attempts per cell", head, rows, left=2, note=note),)


def _settled_first(kind: tuple[str, str]) -> tuple[bool, str, str]:
    return kind[0] != "settled", *kind
