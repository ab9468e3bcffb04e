"""From a run of tests to a verdict on a suite: a pure function, and the text that evidence is.

PASS needs every enumerated id reported ``passed`` exactly once by a run that ended by itself.
Absent, skipped, expected failures: all count as failed. A report that an untouched launcher does
not write is VOID and none of its lines count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.evaluator.hardening import VoidReason
from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Suite
from orchestrator.spec.ports import ExitClass, SuiteOutcome

PAYLOAD_CHARS = 4_000
VOID_TEXT = "The test report is not valid, so no test counts as passed.\n"


@dataclass(frozen=True)
class Judgement:
    """What a suite run showed, before anything of it is withheld.

    ``failed_ids``: expected ids that did not pass, sorted. ``payload``: the canonical text, without
    times. ``residue``: paths that the run changed in its read-only tree (must be empty).
    ``void_reason`` is empty unless ``outcome`` is VOID; ``flags``: ids of what the scan of the
    candidate's added lines found, sorted, and of what was left out of it.
    """

    outcome: SuiteOutcome
    expected: int
    passed: int
    failed_ids: tuple[str, ...]
    payload: str
    duration_seconds: float
    residue: tuple[str, ...] = ()
    void_reason: str = VoidReason.NONE.value
    flags: tuple[str, ...] = ()


def voided(judgement: Judgement, suite: Suite, reason: VoidReason) -> Judgement:
    """The same run, void for ``reason``: none of its ids counts as passed."""
    return replace(
        judgement,
        outcome=SuiteOutcome.VOID,
        passed=0,
        failed_ids=suite.ids,
        void_reason=reason.value,
        payload=f"0 of {judgement.expected} tests passed.\n{VOID_TEXT}",
    )


def timed_out(judgement: Judgement) -> Judgement:
    """A pass that could not be confirmed in the time that there was: no pass."""
    return replace(judgement, outcome=SuiteOutcome.TIMEOUT)


def judge(suite: Suite, run: TestRun, residue: tuple[str, ...] = ()) -> Judgement:
    """Verdict of one run on one suite."""
    reason = _void_reason(run, residue)
    outcome = _outcome(suite, run) if reason is VoidReason.NONE else SuiteOutcome.VOID
    counted = {} if outcome is SuiteOutcome.VOID else run.outcomes
    failed = tuple(test_id for test_id in suite.ids if counted.get(test_id) != "passed")
    return Judgement(
        outcome=outcome,
        expected=len(suite.ids),
        passed=len(suite.ids) - len(failed),
        failed_ids=failed,
        payload=_payload(suite, run, outcome, failed),
        duration_seconds=run.duration_seconds,
        residue=residue,
        void_reason=reason.value,
    )


def _void_reason(run: TestRun, residue: tuple[str, ...]) -> VoidReason:
    if run.tampered:
        return VoidReason.RUNNER_TAMPERED
    if run.forged:
        return VoidReason.REPORT_FORGED
    return VoidReason.RESIDUE if residue else VoidReason.NONE


def _outcome(suite: Suite, run: TestRun) -> SuiteOutcome:
    if run.timed_out:
        return SuiteOutcome.TIMEOUT
    complete = all(run.outcomes.get(test_id) == "passed" for test_id in suite.ids)
    return SuiteOutcome.PASS if complete and run.clean else SuiteOutcome.FAIL


def _payload(suite: Suite, run: TestRun, outcome: SuiteOutcome, failed: Sequence[str]) -> str:
    """Counts, how the run ended, then one block for each file or test that failed."""
    head = f"{len(suite.ids) - len(failed)} of {len(suite.ids)} tests passed.\n{_end(run, outcome)}"
    if outcome is SuiteOutcome.VOID:
        return head
    return _bounded(head, list(_blocks(run, failed)))


def _end(run: TestRun, outcome: SuiteOutcome) -> str:
    if outcome is SuiteOutcome.VOID:
        return VOID_TEXT
    if run.timed_out:
        return "The run hit its time limit and was stopped.\n"
    if run.exit_class is ExitClass.OUT_OF_MEMORY:
        return "The run went out of memory and was stopped.\n"
    return "" if run.clean else "The run ended before pytest was done.\n"


def _blocks(run: TestRun, failed: Sequence[str]) -> Iterator[str]:
    for path, message in sorted(run.collection_errors.items()):
        yield f"ERROR while collecting {path}\n{_indented(message)}"
    for test_id in failed:
        status = run.outcomes.get(test_id, "not run").upper()
        yield f"{status} {test_id}\n{_indented(run.messages.get(test_id, ''))}"


def _indented(message: str) -> str:
    return "".join(f"    {line}\n" for line in message.splitlines())


def _bounded(head: str, blocks: Sequence[str]) -> str:
    """Whole blocks while they fit into 4,000 characters, then how many were left out."""
    text, room = head, PAYLOAD_CHARS - 40
    for number, block in enumerate(blocks):
        if len(text) + len(block) > room:
            return f"{text[:room]}... and {len(blocks) - number} more\n"
        text += block
    return text
