"""What an audit shows of one task: a line per rule, then whatever was found to be wrong."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from orchestrator.cluster.sealing import scan_sandbox
from orchestrator.spec.errors import IntegrityError
from orchestrator.tasks.audit import audit_task
from orchestrator.tasks.build import built_facts, sandbox_bench
from orchestrator.tasks.compartments import (
    Places,
    environments,
    read_built,
    read_eligibility,
    read_measured,
    read_rejected,
)
from orchestrator.tasks.eligibility import SUITE_LIMIT_SECONDS, Ruling, Verdict
from orchestrator.tasks.scan import Depth
from orchestrator.tasks.signatures import audit_signatures

WIDTH = 118


class Look(StrEnum):
    """How much of an agent's sandbox is looked through: nothing, all but the system's folders,
    these for whole files too, or every line of everything.
    """

    NONE = "none"
    OWN = "own"
    SIZES = "sizes"
    ALL = "all"


@dataclass(frozen=True)
class Audited:
    """One task or rejected candidate: every ruling, and findings (empty where all is well)."""

    task_id: str
    eligible: bool
    reason: str
    rulings: tuple[Ruling, ...]
    findings: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "task_id": self.task_id,
            "eligible": self.eligible,
            "reason": self.reason,
            "rules": [ruling.model_dump(mode="json") for ruling in self.rulings],
            "findings": list(self.findings),
        }


def audited(out: Path, task_id: str, signatures: bool) -> Audited:
    """Read what the build recorded of a task, certify it again, and compare."""
    if read_built(out, task_id) is None:
        return _rejected(out, task_id)
    try:
        findings = _findings(out, task_id, signatures)
        rulings = read_eligibility(out, task_id).rulings
    except IntegrityError as error:
        return Audited(task_id, True, "", (), (str(error),))
    return Audited(task_id, True, "", _with_times(out, task_id, rulings), findings)


def _rejected(out: Path, task_id: str) -> Audited:
    record = read_rejected(out, task_id)
    if record is None:
        unreadable = IntegrityError(str(Places(out, task_id).rejected), "cannot be read")
        return Audited(task_id, False, "", (), (str(unreadable),))
    reason, findings = f"{record.rule}: {record.detail}", ()
    return Audited(task_id, False, reason, record.rulings, findings)


def _findings(out: Path, task_id: str, signatures: bool) -> tuple[str, ...]:
    built = built_facts(out, task_id)
    found = [str(finding) for finding in audit_task(out, task_id)]
    if signatures:
        with sandbox_bench(out, environments(out) / built.environment_id) as bench:
            found += [str(finding) for finding in audit_signatures(out, task_id, bench)[1]]
    return tuple(found)


def _with_times(out: Path, task_id: str, rulings: Iterable[Ruling]) -> tuple[Ruling, ...]:
    """The record holds no times; what was measured goes beside it."""
    measured = read_measured(out, task_id)
    if measured is None or measured.suite_seconds is None:
        return tuple(rulings)
    duration = f"median {measured.suite_seconds:.1f} s of {SUITE_LIMIT_SECONDS:.0f} s"
    paths = ", ".join(measured.residue)
    figures = {"suite-duration": duration, **({"residue": paths} if paths else {})}
    return tuple(
        ruling.model_copy(update={"figure": figures.get(ruling.rule, ruling.figure)})
        for ruling in rulings
    )


def looked_through(out: Path, many: Sequence[Audited], look: Look) -> list[Audited]:
    """The same tasks with what was found in their agents' sandboxes."""
    whole = [one.task_id for one in many if one.eligible and one.rulings]
    if look is Look.NONE or not whole:
        return list(many)
    found: dict[str, tuple[str, ...]] = {}
    for finding in scan_sandbox(out, whole, Depth(look.value), say=_say):
        found[finding.task_id] = (*found.get(finding.task_id, ()), str(finding))
    return [replace(one, findings=one.findings + found.get(one.task_id, ())) for one in many]


def _say(line: str) -> None:
    typer.echo(line, err=True)


def table_of(one: Audited) -> str:
    """A readable block of lines for one task."""
    what = "eligible" if one.eligible else f"rejected by {one.reason}"
    table = Table(box=None, padding=(0, 2), show_header=False)
    for ruling in one.rulings:
        figure = "" if ruling.verdict is Verdict.NOT_REACHED else ruling.figure
        table.add_row(f"  {ruling.rule}", ruling.verdict.value, figure)
    stream = io.StringIO()
    Console(file=stream, width=WIDTH, highlight=False, markup=False).print(table)
    sealing = [f"  FINDING  {finding}" for finding in one.findings]
    if one.eligible and not sealing:
        sealing = ["  nothing sealed is reachable"]
    rules = [line.rstrip() for line in stream.getvalue().splitlines()]
    return "\n".join([f"{one.task_id}: {what}", *rules, *sealing, ""])


def findings_of(many: Iterable[Audited]) -> list[str]:
    """All findings, in order."""
    return [finding for one in many for finding in one.findings]
