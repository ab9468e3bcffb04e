"""The catalogue: 35 failures, what must hold, and for each the case that proves it or the reason
why it is pending.
"""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.admission.conformance import (
    cases_accountability,
    cases_evidence,
    cases_isolation,
    cases_transaction,
)
from orchestrator.admission.conformance.bench import Bench
from orchestrator.admission.conformance.fixtures import NODE, PYTHON, Fixture
from orchestrator.admission.conformance.guards import GUARDS, Guard, switched
from orchestrator.admission.conformance.observation import Observation

Inject = Callable[[Bench], Observation]


@dataclass(frozen=True)
class Case:
    """One obligation. ``fixture``: the project it is shown on."""

    id: str
    injection: str
    expected: str
    fixture: Fixture
    inject: Inject

    @property
    def guard(self) -> Guard:
        """The guard that the case proves."""
        return GUARDS[self.id]

    def run(self, bench: Bench, guard: bool = True) -> Observation:
        """Inject the failure and observe; without its guard this is the negative control."""
        with switched(self.guard, on=guard):
            return self.inject(bench)


@dataclass(frozen=True)
class Pending:
    """An obligation that nothing here can show yet; it counts as not passed."""

    id: str
    injection: str
    expected: str
    reason: str


OUTSIDE = "needs an integration with outside agents, which is not part of this version"

_evidence, _contract = cases_evidence, cases_transaction
_isolation, _accounts = cases_isolation, cases_accountability

CATALOGUE: tuple[Case | Pending, ...] = (
    Case("SB001", "evidence of an earlier tree is replayed", "cannot advance a new tree", PYTHON,
         _evidence.replayed),
    Case("SB002", "the tree is edited after it was verified", "STALE", PYTHON, _evidence.drifted),
    Case("SB003", "evidence from a wrong branch or tree", "REJECTED or STALE", PYTHON,
         _evidence.wrong_tree),
    Case("SB004", "same suite name, other command or working directory",
         "a different evidence identity", PYTHON, _evidence.other_command),
    Case("SB005", "the suite changes after a pass", "old evidence invalid", PYTHON,
         _evidence.suite_changed),
    Case("SB006", "the policy changes after a pass", "old evidence invalid", PYTHON,
         _evidence.policy_changed),
    Case("SB007", "a receipt is fabricated or edited", "integrity failure, no authority", PYTHON,
         _evidence.forged),
    Case("SB008", "correct, then a regression",
         "the checkpoint is freshly recertified and admitted", NODE, _contract.regression),
    Case("SB009", "a failed proposal overwrites files", "the checkpoint does not move", NODE,
         _contract.overwritten),
    Case("SB010", "the candidate budget runs out",
         "the checkpoint is freshly recertified and admitted", PYTHON, _contract.budget),
    Case("SB011", "a verifier times out", "REJECTED or ABSTAINED, as the policy says", PYTHON,
         _contract.timeout),
    Case("SB012", "recertification of the checkpoint fails", "completion not admitted", PYTHON,
         _contract.uncertified),
    Case("SB013", "a protected path is changed, or a symlink leaves the tree", "rejected", NODE,
         _isolation.protected),
    Case("SB014", "a malformed action", "ABSTAINED, checkpoint preserved", PYTHON,
         _contract.malformed),
    Case("SB015", "only the terminal state was observed", "coverage says terminal-only", PYTHON,
         _accounts.terminal_only),
    Case("SB016", "untracked residue lies about at restore", "the exact checkpoint tree comes back",
         PYTHON, _contract.residue),
    Case("SB017", "the verifier's working directory is a file", "a deterministic exit code (126)",
         PYTHON, _isolation.file_as_directory),
    Case("SB018", "a secret in the agent's environment", "the verifier does not inherit it", PYTHON,
         _isolation.secret),
    Case("SB019", "the verifier leaves a background child", "its process group is ended", PYTHON,
         _isolation.background),
    Case("SB020", "the agent's wall budget runs out",
         "its processes stop, the checkpoint is recertified and admitted", PYTHON,
         _isolation.wall_budget),
    Pending("SB021", "a native lifecycle hook marks a good boundary, then the agent regresses",
            "the boundary survives", OUTSIDE),
    Case("SB022", "adoption modes", "shadow observes, warn records an override, enforce blocks",
         PYTHON, _contract.adoption),
    Pending("SB023", "six further agents' lifecycle events", "each makes a recoverable boundary",
            OUTSIDE),
    Case("SB024", "build caches inside a sandboxed agent",
         "writable, and outside candidate identity", PYTHON, _isolation.caches),
    Case("SB025", "the same rejected state again and again",
         "escalates instead of burning its budget", NODE, _accounts.repeated),
    Pending("SB026", "the integration is installed into, and removed from, a user's agent "
            "configuration", "unrelated settings survive byte for byte", OUTSIDE),
    Pending("SB027", "delivery over MCP to a desktop agent",
            "the source stays untouched until the exact receipt is applied", OUTSIDE),
    Case("SB028", "the gate rejects every candidate",
         "no checkpoint; safety is not reported as delivery", NODE, _accounts.nothing_delivered),
    Case("SB029", "a sound candidate meets a faulty gate",
         "the false rejection is visible as cost", PYTHON, _accounts.false_rejection),
    Case("SB030", "a bad candidate meets a weak passing gate",
         "admitted only with explicit coverage and residual risk", PYTHON, _accounts.weak_gate),
    Case("SB031", "admission passes, completion fails", "no admission", PYTHON,
         _contract.completion_fails),
    Pending("SB032", "first use without approval", "fails closed, project untouched", OUTSIDE),
    Case("SB033", "further attempts oscillate", "a bounded ESCALATED", PYTHON,
         _accounts.oscillating),
    Case("SB034", "only a minimal gate is configured", "the missing coverage layers are stated",
         PYTHON, _accounts.minimal_gate),
    Case("SB035", "a code-changing task returns the base tree", "the empty candidate is rejected",
         NODE, _contract.empty_candidate),
)  # fmt: skip
