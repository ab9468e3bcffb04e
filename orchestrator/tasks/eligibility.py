"""The rules by which a candidate becomes a task, as a table, and what each rule said of one.

Rules are applied without looking at any model's output (protocol §1 "eligibility"); the same
candidate is refused by the same rule everywhere. A :class:`Sheet` collects one ruling per rule; it
holds no times, so that it has the same bytes on every machine.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from orchestrator.spec.errors import FactorialError, IntegrityError
from orchestrator.spec.manifest import Frozen
from orchestrator.tasks.classify import Classification, Layout

MAX_GOLD_FILES = 5
MAX_GOLD_LINES = 200
"""Largest gold production patch: "Looping Is Not Reliability", repository study, eligibility."""

SUITE_LIMIT_SECONDS = 60.0
"""A longer suite is possible, but a rollout's gate and replay would take hours."""

STATEMENT_CHARS = 20

RULES: dict[str, str] = {
    "direct-parent": "the fixed end is the direct child of the buggy one (or the next release)",
    "statement": "the problem statement says something and holds no line of the fix",
    "gold-present": "the ends differ in production Python, not only in version or layout",
    "gold-files": f"the gold patch changes at most {MAX_GOLD_FILES} files",
    "gold-lines": f"the gold patch changes at most {MAX_GOLD_LINES} lines",
    "tests-present": "the fixed end ships tests",
    "passes-on-gold": "at least one test passes on the buggy tree with the gold patch",
    "suite-finishes": "every run of the suite ends by itself within its time limit",
    "suite-duration": f"the whole suite takes at most {SUITE_LIMIT_SECONDS:.0f} s (median)",
    "fail-to-pass": "at least one test runs and fails on the base tree and passes with the patch",
    "hidden-api": "fail-to-pass tests do not merely call a name or keyword that the base lacks",
    "gold-python-alone": "the gold patch's Python is enough, without other files of the fixed end",
    "stable": "ids and outcomes agree in three repeats under different hash seeds",
    "shuffled": "outcomes agree in a shuffled order, too",
    "pass-to-pass": "at least one test passes on both trees",
    "alone": "each frozen suite behaves alone as it does within the whole",
    "no-ignored-oracle": "every listed test is collected and runs to its end in its suite",
    "base-fails": "the base tree fails every fail-to-pass test and passes every pass-to-pass test",
    "gold-passes": "the buggy tree with the gold patch passes every listed test",
    "listed-oracles": "fail-to-pass tests that the source lists are found as listed",
    "offline": "the suites pass where there is no network but the loopback",
    "residue": "the suites leave nothing behind in a tree that they may write",
}
"""Rule -> what it demands, in the order in which a table shows them."""


class Verdict(StrEnum):
    """What a rule says. ``FLAG``: eligible, but a reviewer should know."""

    PASS = "pass"
    FAIL = "fail"
    FLAG = "flag"
    NOT_REACHED = "not reached"


class Ruling(Frozen):
    """One rule's verdict on one candidate, with its figure in words."""

    rule: str
    verdict: Annotated[Verdict, Field(strict=False)]
    figure: str


@dataclass
class Ineligible(FactorialError):
    """A candidate that one of :data:`RULES` refuses as a task (exit code 2).

    ``rulings``: what every rule said until then, in the order of the table; filled in by the build.
    ``log``: the end of the output of the run that decided it, if one did.
    """

    task_id: str
    rule: str
    detail: str
    rulings: tuple[Ruling, ...] = ()
    log: str = ""
    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        return (
            f"task {self.task_id}: not eligible by rule {self.rule} ({RULES[self.rule]}): "
            f"{self.detail}. Choose another candidate."
        )


@dataclass
class Sheet:
    """The rulings on one candidate while it is judged. A rule passes once."""

    task_id: str
    _rulings: dict[str, Ruling] = field(default_factory=dict)

    def passes(self, rule: str, figure: str) -> None:
        self._note(rule, Verdict.PASS, figure)

    def flags(self, rule: str, figure: str) -> None:
        self._note(rule, Verdict.FLAG, figure)

    def fails(self, rule: str, figure: str) -> None:
        """The last word on a rule, also where an earlier look had passed it."""
        self._rulings.pop(rule, None)
        self._note(rule, Verdict.FAIL, figure)

    def notes(self, rule: str, figure: str, flagged: bool) -> None:
        """Pass, or flag where ``flagged``."""
        self._note(rule, Verdict.FLAG if flagged else Verdict.PASS, figure)

    def _note(self, rule: str, verdict: Verdict, figure: str) -> None:
        if rule not in RULES or rule in self._rulings:
            raise IntegrityError(f"task {self.task_id}", f"rule {rule} is unknown or ruled twice")
        self._rulings[rule] = Ruling(rule=rule, verdict=verdict, figure=figure)

    def rulings(self) -> tuple[Ruling, ...]:
        """One ruling per rule, in the order of the table; ``not reached`` where there is none."""
        return tuple(
            self._rulings.get(rule, Ruling(rule=rule, verdict=Verdict.NOT_REACHED, figure=""))
            for rule in RULES
        )


def some(number: int, noun: str) -> str:
    """A count with its noun: ``1 file``, ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def check_patch(change: Classification, layout: Layout, sheet: Sheet) -> None:
    """The rules that need no run: size of the gold patch, presence of tests. Raises Ineligible."""
    counts = ", ".join(f"{number} {kind}" for kind, number in change.counts().items() if number)
    figures = {
        "gold-present": (bool(change.gold), f"changed paths: {counts or 'none'}"),
        "gold-files": (
            len(change.gold_files) <= MAX_GOLD_FILES,
            f"{some(len(change.gold_files), 'file')} of {MAX_GOLD_FILES}",
        ),
        "gold-lines": (
            change.gold_lines <= MAX_GOLD_LINES,
            f"{some(change.gold_lines, 'line')} of {MAX_GOLD_LINES}",
        ),
        "tests-present": (
            bool(layout.test_paths),
            ", ".join(layout.test_paths) or "no test module was found",
        ),
    }
    for rule, (holds, figure) in figures.items():
        if not holds:
            raise Ineligible(sheet.task_id, rule, figure)
        sheet.passes(rule, figure)


def check_statement(statement: str, gold_lines: frozenset[bytes], sheet: Sheet) -> None:
    """Rule ``statement``; ``gold_lines``: telling lines that the fix adds, without indentation.

    White space is compared as one blank. Raises Ineligible.
    """
    text = " ".join(statement.split())
    if len(text) < STATEMENT_CHARS:
        raise Ineligible(sheet.task_id, "statement", f"{len(text)} characters")
    lines = (" ".join(line.decode("utf-8", "replace").split()) for line in sorted(gold_lines))
    shown = [line for line in lines if line in text]
    if shown:
        raise Ineligible(
            sheet.task_id, "statement", f"{some(len(shown), 'line')} of gold, e.g. {shown[0]!r}"
        )
    sheet.passes("statement", f"{len(text)} characters, no line of gold")
