"""The evaluator on this machine: candidates in, verdicts out (``spec.ports.Verifier``).

Each suite run has a fresh worktree that only the evaluator owns (base tree, then the candidate's
production files, then the suite's files) and a fresh sandbox that sees it read-only. Of a gate run
one bit leaves; certification and audit neither read nor write the verdict cache.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from orchestrator.evaluator.cache import VerdictCache
from orchestrator.evaluator.candidate import Candidate, accepted
from orchestrator.evaluator.doubts import Desk, Doubt, doubted, settle
from orchestrator.evaluator.ground import SUITE_LIMITS
from orchestrator.evaluator.hardening import FULL, Hardening, Watch
from orchestrator.evaluator.judge import Judgement, judge, timed_out, voided
from orchestrator.evaluator.runner import run_tests
from orchestrator.evaluator.suites import Bundle, Suite, load_bundle, runner_id
from orchestrator.repo.files import Files
from orchestrator.repo.worktree import reset, worktree
from orchestrator.spec.errors import InfrastructureFault, IntegrityError
from orchestrator.spec.identity import digest_json
from orchestrator.spec.ports import (
    Limits,
    Purpose,
    Sandbox,
    SuiteName,
    SuiteOutcome,
    SuiteRequest,
    SuiteVerdict,
)

ADJUDICATION: Final = (SuiteName.FAIL_TO_PASS, SuiteName.PASS_TO_PASS, SuiteName.FULL)
"""The suites of a replay, in this order (protocol §1 "Evaluator replay")."""

ALLOWED: Final[dict[Purpose, frozenset[SuiteName]]] = {
    Purpose.DIAGNOSTIC: frozenset({SuiteName.DIAGNOSTIC}),
    Purpose.GATE: frozenset({SuiteName.GATE}),
    Purpose.CERTIFICATION: frozenset({SuiteName.GATE}),
    Purpose.REPLAY: frozenset(ADJUDICATION),
    Purpose.AUDIT: frozenset(SuiteName),
}
"""Which suites may run for which purpose; the completion suite is the gate, never adjudication."""

ONE_BIT: Final = frozenset({Purpose.GATE, Purpose.CERTIFICATION})
DOUBTING: Final = frozenset({Purpose.GATE, Purpose.CERTIFICATION, Purpose.REPLAY})
"""For these a pass is doubted (:mod:`orchestrator.evaluator.doubts`) before it counts."""
CACHED: Final = frozenset({Purpose.DIAGNOSTIC, Purpose.GATE, Purpose.REPLAY})


class LocalVerifier:
    """Runs suites in ``sandbox`` below ``scratch``.

    ``tasks_dir`` holds ``evaluator/`` and ``environments/``. Bundles are loaded and checked once.
    ``scratch`` must be passable (mode x) for the sandbox's user. Not for use by several threads at
    once; several processes may share ``cache_dir``.
    """

    def __init__(
        self,
        tasks_dir: Path,
        cache_dir: Path,
        sandbox: Sandbox,
        scratch: Path,
        limits: Limits = SUITE_LIMITS,
        hardening: Hardening = FULL,
    ) -> None:
        self._tasks_dir = tasks_dir
        self._cache = VerdictCache(cache_dir)
        self._sandbox = sandbox
        self._scratch = scratch
        self._limits = limits
        self._hardening = hardening
        self._bundles: dict[str, Bundle] = {}
        self._doubts: dict[str, Doubt] = {}

    def bundle(self, task_id: str) -> Bundle:
        """The task's sealed bundle, checked when it is first asked for."""
        if task_id not in self._bundles:
            self._bundles[task_id] = load_bundle(self._tasks_dir, task_id)
        return self._bundles[task_id]

    def suite_id(self, task_id: str, suite: SuiteName) -> str:
        """Identity of a frozen suite (``h_suite``)."""
        return self.bundle(task_id).suites[suite].suite_id

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        """One verdict. IntegrityError where the delta does not give the state it claims, or where
        the purpose does not go with the suite.
        """
        judgement, cached = self.judgement(request)
        suite = self.bundle(request.task_id).suites[request.suite]
        return _verdict(request, suite, judgement, cached)

    def judgement(self, request: SuiteRequest) -> tuple[Judgement, bool]:
        """The whole judgement, for the evaluator's own use, and whether the cache gave it."""
        if request.suite not in ALLOWED[request.purpose]:
            raise IntegrityError(
                f"request {request.execution_id}",
                f"suite {request.suite} does not run for {request.purpose}",
            )
        bundle = self.bundle(request.task_id)
        candidate = accepted(bundle, request.state_id, request.delta, self._hardening)
        suite = bundle.suites[request.suite]
        with _evaluator_faults():
            if request.purpose not in CACHED:
                return self._execute(bundle, suite, candidate, request), False
            key = self._key(bundle, suite, request)
            kept = self._cache.get(key)
            if kept is not None:
                return kept, True
            judgement = self._execute(bundle, suite, candidate, request)
            self._cache.put(key, judgement)
            return judgement, False

    def _execute(
        self, bundle: Bundle, suite: Suite, candidate: Candidate, request: SuiteRequest
    ) -> Judgement:
        """Run the suite and, for a pass that is to count, everything that doubts it."""
        files = bundle.laid_down(candidate.files, protected=self._hardening.protected)
        if request.purpose is Purpose.DIAGNOSTIC:
            files |= bundle.redaction.files  # gate and held-out tests are not there to be read
        watch = Watch(sorted(bundle.sealed), bundle.unwatched) if self._hardening.audit else None
        desk = Desk(self._sandbox, self._scratch, self._limits, request.wall_seconds, watch)
        with worktree(files, self._scratch) as tree:
            run = run_tests(
                self._sandbox,
                bundle.ground,
                tree,
                suite.ids,
                wall_seconds=request.wall_seconds,
                scratch=self._scratch,
                limits=self._limits,
                watch=watch,
                authentic=self._hardening.report,
            )
            judgement = judge(suite, run, reset(tree, files))
            if judgement.outcome is SuiteOutcome.PASS and request.purpose in DOUBTING:
                doubt = self._doubt(bundle, suite, candidate, request, files, tree, desk)
                judgement = _settled(judgement, suite, doubt)
        return replace(judgement, flags=candidate.flags)

    def _doubt(
        self,
        bundle: Bundle,
        suite: Suite,
        candidate: Candidate,
        request: SuiteRequest,
        files: Files,
        tree: Path,
        desk: Desk,
    ) -> Doubt:
        """What becomes of a pass. A state that passes a suite again, as a certification asks it to,
        was doubted when it passed first: the run is new each time, its doubts are settled once.
        """
        key = digest_json(self._key(bundle, suite, request))
        kept = self._doubts.get(key)
        if kept is None:
            functions = doubted(bundle, suite.name, bool(candidate.flags))
            kept = settle(bundle, self._hardening, functions, files, tree, desk)
            if kept.outcome is not SuiteOutcome.TIMEOUT:
                self._doubts[key] = replace(kept, seconds=0.0)
        return kept

    def _key(self, bundle: Bundle, suite: Suite, request: SuiteRequest) -> dict[str, object]:
        """Everything that decides a verdict; also limits and sandbox, which can."""
        return {
            "doubting": request.purpose in DOUBTING,
            "environment_id": bundle.environment_id,
            "hardening": asdict(self._hardening),
            "limits": asdict(self._limits),
            "runner_id": runner_id(),
            "sandbox": dict(self._sandbox.identity()),
            "state_id": request.state_id,
            "suite_id": suite.suite_id,
            "task_id": request.task_id,
            "wall_seconds": request.wall_seconds,
        }


def _settled(judgement: Judgement, suite: Suite, doubt: Doubt) -> Judgement:
    """A pass after it was doubted; its duration is that of everything that was run."""
    seconds = judgement.duration_seconds + doubt.seconds
    judgement = replace(judgement, duration_seconds=seconds)
    if doubt.outcome is SuiteOutcome.VOID:
        return voided(judgement, suite, doubt.reason)
    return judgement if doubt.outcome is SuiteOutcome.PASS else timed_out(judgement)


def _verdict(
    request: SuiteRequest, suite: Suite, judgement: Judgement, cached: bool
) -> SuiteVerdict:
    """What leaves the evaluator. For gate and certification: pass or not, no id, count or text."""
    one_bit = request.purpose in ONE_BIT
    passed = judgement.passed
    if one_bit:
        passed = judgement.expected if judgement.outcome is SuiteOutcome.PASS else 0
    return SuiteVerdict(
        task_id=request.task_id,
        suite=request.suite,
        suite_id=suite.suite_id,
        state_id=request.state_id,
        execution_id=request.execution_id,
        outcome=judgement.outcome,
        expected=judgement.expected,
        passed=passed,
        failed_ids=() if one_bit else judgement.failed_ids,
        payload="" if one_bit else judgement.payload,
        duration_seconds=judgement.duration_seconds,
        cached=cached,
        void_reason=judgement.void_reason,
        flags=judgement.flags,
    )


@contextmanager
def _evaluator_faults() -> Iterator[None]:
    """Faults of sandbox and disk are, seen from the agent's side, faults of the evaluator."""
    try:
        yield
    except InfrastructureFault as fault:
        raise InfrastructureFault("evaluator", str(fault)) from fault
