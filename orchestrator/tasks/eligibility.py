"""The rules by which a pair of releases becomes a task, as a table, and the error that names one.

Rules are applied without looking at any model's output (protocol §1 "eligibility"); the same pair
is refused by the same rule everywhere.
"""

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.spec.errors import FactorialError
from orchestrator.tasks.classify import Classification, Layout

MAX_GOLD_FILES = 5
MAX_GOLD_LINES = 200
"""Largest gold production patch: "Looping Is Not Reliability", repository study, eligibility."""

RULES: dict[str, str] = {
    "gold-present": "the releases differ in production Python, not only in version or layout",
    "gold-files": f"the gold patch changes at most {MAX_GOLD_FILES} files",
    "gold-lines": f"the gold patch changes at most {MAX_GOLD_LINES} lines",
    "tests-present": "the fixed release ships tests",
    "passes-on-gold": "at least one test passes on the buggy tree with the gold patch",
    "suite-finishes": "every run of the suite ends by itself within its time limit",
    "stable": "fail-to-pass ids and outcomes agree in three repeats",
    "fail-to-pass": "at least one test runs and fails on the base tree and passes with the patch",
    "hidden-api": "fail-to-pass tests do not merely call a name or keyword that the base lacks",
    "pass-to-pass": "at least one test passes on both trees",
    "alone": "each frozen suite behaves alone as it does within the whole",
}


@dataclass
class Ineligible(FactorialError):
    """A pair of releases that one of :data:`RULES` refuses as a task (exit code 2)."""

    task_id: str
    rule: str
    detail: str
    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        return (
            f"task {self.task_id}: not eligible by rule {self.rule} ({RULES[self.rule]}): "
            f"{self.detail}. Choose another pair of releases."
        )


def check_patch(task_id: str, change: Classification, layout: Layout) -> None:
    """The rules that need no run: size of the gold patch, presence of tests."""
    if not change.gold:
        counts = ", ".join(f"{number} {kind}" for kind, number in change.counts().items() if number)
        raise Ineligible(task_id, "gold-present", f"changed paths: {counts or 'none'}")
    if len(change.gold) > MAX_GOLD_FILES:
        raise Ineligible(task_id, "gold-files", f"{len(change.gold)} files")
    if change.gold_lines > MAX_GOLD_LINES:
        raise Ineligible(task_id, "gold-lines", f"{change.gold_lines} lines")
    if not layout.test_paths:
        raise Ineligible(task_id, "tests-present", "no test module was found")
