"""Carries a choice of cases out, one after the other, and says of each how it ended.

A case that cannot be tried here is ``unavailable``, one that nothing can show yet ``pending``;
neither is a pass. What a case raises is its result, never the command's end.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic

from orchestrator.admission.conformance.bench import Bench
from orchestrator.admission.conformance.catalogue import CATALOGUE, Case, Pending
from orchestrator.admission.conformance.fixtures import FIXTURES, Fixture, unavailable
from orchestrator.admission.conformance.observation import Observation
from orchestrator.contract.verdicts import Verdict
from orchestrator.repo.files import tree_of
from orchestrator.sandbox.bwrap import BwrapSandbox

ALL = "all"
SLOT = 900
"""Far from the slots of a run's workers: the command may run beside one."""


class Outcome(StrEnum):
    """How a case or a fixture ended; only ``passed`` is a pass."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    UNAVAILABLE = "unavailable"
    PENDING = "pending"


@dataclass(frozen=True)
class Result:
    """One line. ``without_guard`` names the guard that was off, or is empty. ``seconds``: wall."""

    id: str
    outcome: Outcome
    expected: str
    fixture: str
    without_guard: str
    broken: tuple[str, ...]
    detail: str
    seconds: float


@dataclass(frozen=True)
class Choice:
    """Which cases to run, and of which of them the guard is off. No case: all of them."""

    only: frozenset[str]
    without: frozenset[str]

    @classmethod
    def of(cls, only: Collection[str], without: Collection[str]) -> "Choice":
        """``all`` among ``without`` stands for every case; without ``only``, those alone run."""
        every = frozenset(entry.id for entry in CATALOGUE if isinstance(entry, Case))
        off = every if ALL in without else frozenset(without)
        return cls(frozenset(only) or (off if without else frozenset()), off)

    @property
    def entries(self) -> list[Case | Pending]:
        """The chosen entries in the order of the catalogue."""
        return [entry for entry in CATALOGUE if not self.only or entry.id in self.only]


def run_cases(bench: Bench, choice: Choice) -> Iterator[Result]:
    """The chosen cases, each as soon as it has ended."""
    for entry in choice.entries:
        if isinstance(entry, Pending):
            yield Result(entry.id, Outcome.PENDING, entry.expected, "", "", (), entry.reason, 0.0)
        else:
            yield _run(bench, entry, guard=entry.id not in choice.without)


def run_fixtures(bench: Bench) -> Iterator[Result]:
    """Each fixture, verified by its own toolchain through a session of its own."""
    for fixture in FIXTURES.values():
        expected = f"base and bad changes fail, the sound change passes ({fixture.toolchain})"
        yield _observed(fixture.name, expected, fixture, "", partial(_verified, bench, fixture))


def open_bench(scratch: Path) -> Bench:
    """A bench with this machine's sandbox; BadInput where there is none."""
    return Bench(scratch, BwrapSandbox(scratch / "sandbox", slot=SLOT))


def succeeded(results: Collection[Result]) -> bool:
    """Whether every result that is not pending is a pass."""
    return all(result.outcome in (Outcome.PASSED, Outcome.PENDING) for result in results)


# --------------------------------------------------------------------------------- parts


def _run(bench: Bench, case: Case, guard: bool) -> Result:
    off = "" if guard else case.guard.name
    return _observed(case.id, case.expected, case.fixture, off, lambda: case.run(bench, guard))


def _observed(
    id: str, expected: str, fixture: Fixture, off: str, observe: Callable[[], Observation]
) -> Result:
    if (missing := unavailable(fixture)) is not None:
        return Result(id, Outcome.UNAVAILABLE, expected, fixture.name, off, (), missing, 0.0)
    started = monotonic()
    try:
        broken, detail = observe().broken, ""
        outcome = Outcome.FAILED if broken else Outcome.PASSED
    except Exception as error:  # a broker without its guard may do anything; that is the result
        broken, detail = (), f"{type(error).__name__}: {error}"
        outcome = Outcome.ERROR
    return Result(id, outcome, expected, fixture.name, off, broken, detail, monotonic() - started)


def _verified(bench: Bench, fixture: Fixture) -> Observation:
    desk = bench.desk(fixture)
    session = desk.open()
    desk.leave(desk.bad())
    bad = session.propose()
    desk.leave(desk.good)
    good = session.propose()
    end = session.complete()
    body = desk.receipt()
    verdicts = [bad.verdict, good.verdict, end.verdict]
    ran = [run["outcome"] for run in body["evidence"] if run["purpose"] == "gate"]
    return Observation(
        verdict={
            "bad, good, complete": verdicts
            == [Verdict.REJECTED, Verdict.ADMITTED, Verdict.ADMITTED]
        },
        state={"the sound tree is accepted": session.checkpoint == tree_of(desk.good).state_id},
        evidence={"its tests failed, then passed": ran == ["fail", "pass"]},
        receipt={"L1 is covered by them": body["coverage"]["layers"]["L1"]["by"] == ["tests"]},
    )
