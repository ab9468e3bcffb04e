"""Adjudication after unsealing: a state against all fail-to-pass, all pass-to-pass, the full suite.

Also the baseline audit: what the untouched base tree does on every suite, recorded before any
candidate is replayed. Who may call this, and when, is decided elsewhere (protocol §1 "Evaluator
replay": only after the whole matrix validates).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.evaluator.judge import Judgement
from orchestrator.evaluator.verifier import ADJUDICATION, LocalVerifier
from orchestrator.spec.identity import digest_json
from orchestrator.spec.ports import Delta, Purpose, SuiteName, SuiteOutcome, SuiteRequest

SUITE_WALL_SECONDS = 600.0
FAILED_IDS_KEPT = 50
"""The evaluations table keeps this many ids of a state; the count is always whole."""


@dataclass(frozen=True)
class Evaluation:
    """One state adjudicated. ``resolved``: all three suites passed.

    ``failed_ids``: expected ids of any of the three that did not pass, sorted, at most 50;
    ``failed_count`` counts all of them. ``duration_seconds`` is that of the three runs, original
    where ``cached`` (every one of them came from the verdict cache). ``void_reason``: of the first
    of the three that is void, else empty; ``flags``: ids of what the candidate's lines look like.
    """

    task_id: str
    state_id: str
    fail_to_pass: bool
    pass_to_pass: bool
    full: bool
    resolved: bool
    failed_ids: tuple[str, ...]
    failed_count: int
    duration_seconds: float
    cached: bool
    outcomes: Mapping[SuiteName, SuiteOutcome]
    void_reason: str = ""
    flags: tuple[str, ...] = ()

    @property
    def gravest(self) -> SuiteOutcome:
        """The gravest outcome of the three runs, so that a timeout is not taken for a failure."""
        return max(self.outcomes.values(), key=list(SuiteOutcome).index)


@dataclass(frozen=True)
class BaseAudit:
    """The base tree on all five suites, never from the cache.

    ``problems``: fail-to-pass ids that pass on base, and pass-to-pass ids that do not. ``residue``:
    paths that any run changed in its tree. Sound tasks have neither.
    """

    evaluation: Evaluation
    outcomes: Mapping[SuiteName, SuiteOutcome]
    problems: tuple[str, ...]
    residue: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems and not self.residue


def evaluate_state(
    verifier: LocalVerifier,
    task_id: str,
    state_id: str,
    delta: Delta,
    *,
    wall_seconds: float = SUITE_WALL_SECONDS,
) -> Evaluation:
    """Adjudicate base + ``delta``; each suite run ends after ``wall_seconds``."""
    request = SuiteRequest(
        task_id, SuiteName.FULL, Purpose.REPLAY, state_id, delta, "", wall_seconds
    )
    results = {suite: _judged(verifier, request, suite) for suite in ADJUDICATION}
    judgements = {suite: judgement for suite, (judgement, _) in results.items()}
    cached = all(from_cache for _, from_cache in results.values())
    return _evaluation(task_id, state_id, judgements, cached)


def audit_base(
    verifier: LocalVerifier, task_id: str, *, wall_seconds: float = SUITE_WALL_SECONDS
) -> BaseAudit:
    """Run every suite of a task on its base tree and say what is not as a historical bug has it."""
    state_id = verifier.bundle(task_id).base_state_id
    request = SuiteRequest(task_id, SuiteName.FULL, Purpose.AUDIT, state_id, {}, "", wall_seconds)
    order = (*ADJUDICATION, SuiteName.GATE, SuiteName.DIAGNOSTIC)
    judgements = {suite: _judged(verifier, request, suite)[0] for suite in order}
    return BaseAudit(
        evaluation=_evaluation(task_id, state_id, judgements, cached=False),
        outcomes={suite: judgement.outcome for suite, judgement in judgements.items()},
        problems=_problems(verifier, task_id, judgements),
        residue=tuple(sorted({path for j in judgements.values() for path in j.residue})),
    )


def _judged(
    verifier: LocalVerifier, request: SuiteRequest, suite: SuiteName
) -> tuple[Judgement, bool]:
    execution_id = digest_json([request.purpose, request.task_id, suite, request.state_id])
    return verifier.judgement(replace(request, suite=suite, execution_id=execution_id))


def _evaluation(
    task_id: str, state_id: str, judgements: Mapping[SuiteName, Judgement], cached: bool
) -> Evaluation:
    judged = {suite: judgements[suite] for suite in ADJUDICATION}
    outcomes = {suite: judgement.outcome for suite, judgement in judged.items()}
    passed = {suite: outcome is SuiteOutcome.PASS for suite, outcome in outcomes.items()}
    failed = sorted({test_id for judgement in judged.values() for test_id in judgement.failed_ids})
    return Evaluation(
        task_id=task_id,
        state_id=state_id,
        fail_to_pass=passed[SuiteName.FAIL_TO_PASS],
        pass_to_pass=passed[SuiteName.PASS_TO_PASS],
        full=passed[SuiteName.FULL],
        resolved=all(passed.values()),
        failed_ids=tuple(failed[:FAILED_IDS_KEPT]),
        failed_count=len(failed),
        duration_seconds=sum(judgement.duration_seconds for judgement in judged.values()),
        cached=cached,
        outcomes=outcomes,
        void_reason=next((j.void_reason for j in judged.values() if j.void_reason), ""),
        flags=tuple(sorted({flag for judgement in judged.values() for flag in judgement.flags})),
    )


def _problems(
    verifier: LocalVerifier, task_id: str, judgements: Mapping[SuiteName, Judgement]
) -> tuple[str, ...]:
    bugs = verifier.bundle(task_id).suites[SuiteName.FAIL_TO_PASS].ids
    fixed = sorted({*bugs} - {*judgements[SuiteName.FAIL_TO_PASS].failed_ids})
    broken = judgements[SuiteName.PASS_TO_PASS].failed_ids
    return (
        *(f"fail-to-pass id passes on base: {test_id}" for test_id in fixed),
        *(f"pass-to-pass id does not pass on base: {test_id}" for test_id in broken),
    )
