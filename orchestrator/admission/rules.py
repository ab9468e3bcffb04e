"""The guards of a session that the transaction itself does not have: pure functions, stable ids.

``session`` decides when a guard is asked, this module what it says. The conformance cases switch
these, and those of ``contract.rules``, off one at a time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from orchestrator.admission.project import matches
from orchestrator.contract.events import Outcome
from orchestrator.contract.verdicts import Verdict
from orchestrator.repo.files import SYMLINK, Files
from orchestrator.spec.paths import folded, protection
from orchestrator.spec.ports import ExitClass

Purpose = Literal["diagnostic", "gate", "certification"]
Boundary = Literal["action", "terminal"]
MAX_LINKS = 40
"""Symlinks followed before a path counts as a loop, as in Linux."""


class AdmissionRule(StrEnum):
    """Why, beyond the rules of the transaction. The values are stable ids."""

    MALFORMED_ACTION = "admission.malformed-action"
    UNREADABLE_TREE = "admission.unreadable-tree"
    PROTECTED_PATH = "admission.protected-path"
    ESCAPING_SYMLINK = "admission.escaping-symlink"
    STATE_DRIFTED = "admission.state-drifted"
    VERIFIER_TIMEOUT = "admission.verifier-timeout"
    REPEATED_REJECTION = "admission.repeated-rejection"
    OSCILLATION = "admission.oscillation"


VERDICT_OF: dict[AdmissionRule, Verdict] = {
    AdmissionRule.MALFORMED_ACTION: Verdict.ABSTAINED,
    AdmissionRule.UNREADABLE_TREE: Verdict.ABSTAINED,
    AdmissionRule.PROTECTED_PATH: Verdict.REJECTED,
    AdmissionRule.ESCAPING_SYMLINK: Verdict.REJECTED,
    AdmissionRule.STATE_DRIFTED: Verdict.STALE,
    AdmissionRule.VERIFIER_TIMEOUT: Verdict.ABSTAINED,
    AdmissionRule.REPEATED_REJECTION: Verdict.ESCALATED,
    AdmissionRule.OSCILLATION: Verdict.ESCALATED,
}

# --------------------------------------------------------------------------------- the tree


def tree_violation(
    base: Files, candidate: Files, protected: tuple[str, ...]
) -> AdmissionRule | None:
    """Why a candidate is refused unseen: a protected path differs, or a symlink leaves the tree."""
    changed = [p for p in base.keys() | candidate.keys() if base.get(p) != candidate.get(p)]
    if any(is_protected(path, protected) for path in changed):
        return AdmissionRule.PROTECTED_PATH
    links = (path for path, (mode, _) in candidate.items() if mode == SYMLINK)
    if not all(stays_inside(candidate, path) for path in links):
        return AdmissionRule.ESCAPING_SYMLINK
    return None


def is_protected(path: str, protected: tuple[str, ...]) -> bool:
    """Tests, test configuration, start-up hooks, git's files, and what the manifest names."""
    named = matches(protected, path) or matches(tuple(map(folded, protected)), folded(path))
    return named or protection(path) is not None


def stays_inside(files: Files, path: str) -> bool:
    """Whether a symlink, followed through every other one of the tree, ends inside of it."""
    place, waiting, links = list[str](), path.split("/")[::-1], 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not place:
                return False
            place.pop()
            continue
        mode, content = files.get("/".join([*place, part]), (0, b""))
        if mode != SYMLINK:
            place.append(part)
            continue
        links += 1
        if links > MAX_LINKS or content.startswith(b"/"):
            return False
        waiting.extend(content.decode("utf-8", "surrogateescape").split("/")[::-1])
    return True


# --------------------------------------------------------------------------------- evidence


@dataclass(frozen=True)
class GateResult:
    """How one command of a suite ended. ``exit_code`` is None where a limit ended it."""

    name: str
    layer: str
    binding: bool
    command_id: str
    outcome: Outcome
    exit_code: int | None


OUTCOME_OF: dict[ExitClass, Outcome] = {
    ExitClass.OK: "pass",
    ExitClass.FAILED: "fail",
    ExitClass.TIMEOUT: "timeout",
    ExitClass.OUT_OF_MEMORY: "fail",
    ExitClass.KILLED: "fail",
    ExitClass.ENGINE_FAULT: "void",
}
"""Only a clean exit with code 0 is a pass."""


def outcome_of(ended: ExitClass) -> Outcome:
    """What a command's ending says."""
    return OUTCOME_OF[ended]


def suite_outcome(results: Sequence[GateResult]) -> Outcome:
    """A suite passes where every binding command passes; the worst ending is the suite's."""
    outcomes = {result.outcome for result in results if result.binding}
    ranked: tuple[Outcome, ...] = ("void", "timeout", "fail")
    return next((worst for worst in ranked if worst in outcomes), "pass")


def was_asked(asked: str, told: str) -> bool:
    """Evidence is of the execution that the broker asked for, not of one from another session."""
    return told == asked


def may_reuse(purpose: Purpose) -> bool:
    """An earlier verdict on a state may answer, but never for a completion."""
    return purpose != "certification"


def is_current(state_id: str, current: str) -> bool:
    """A completion is of the tree that was judged, not of what was made of it afterwards."""
    return state_id == current


def environment(
    declared: Mapping[str, str], passed: Iterable[str], host: Mapping[str, str]
) -> dict[str, str]:
    """What a verifier is given: the declared variables and the allowed ones, nothing else."""
    return {**{name: host[name] for name in passed if name in host}, **declared}


# --------------------------------------------------------------------------------- attempts


@dataclass(frozen=True)
class Attempt:
    """One candidate that was judged."""

    state_id: str
    admitted: bool


def within_budget(candidates: int, budget: int) -> bool:
    """Whether one more candidate may be judged."""
    return candidates < budget


def wall_left(budget_s: float, used_s: float) -> float:
    """Seconds that the agent may still use; never negative."""
    return max(0.0, budget_s - used_s)


def repeats(attempts: Sequence[Attempt], limit: int) -> bool:
    """Whether the last state has now been rejected ``limit`` times."""
    last = attempts[-1]
    return not last.admitted and attempts.count(last) >= limit


def oscillates(attempts: Sequence[Attempt], limit: int) -> bool:
    """Whether the agent came back to earlier states, others in between, ``limit`` times."""
    states = [attempt.state_id for attempt in attempts]
    returns = [s for i, s in enumerate(states) if i and s != states[i - 1] and s in states[:i]]
    return len(returns) >= limit


# --------------------------------------------------------------------------------- accounts

LAYERS = ("L0", "L1", "L2", "L3")


def covered_layers(results: Iterable[GateResult]) -> dict[str, tuple[str, ...]]:
    """Layer -> what covers it. L0 is the ledger's; a gate covers its own layer by passing."""
    by: dict[str, list[str]] = {layer: [] for layer in LAYERS}
    by["L0"] = ["identity", "ledger"]
    for result in results:
        if result.binding and result.outcome == "pass" and result.name not in by[result.layer]:
            by[result.layer].append(result.name)
    return {layer: tuple(names) for layer, names in by.items()}


def observation(boundaries: Collection[Boundary]) -> str:
    """Whether the agent's steps were seen, only what it left at its end, or no candidate at all."""
    if not boundaries:
        return "nothing"
    return "action-boundaries" if "action" in boundaries else "terminal-only"


def is_delivery(accepted_state_id: str | None) -> bool:
    """Something was delivered only where a state was accepted: keeping harm out is not delivery."""
    return accepted_state_id is not None


def is_false_rejection(results: Sequence[GateResult]) -> bool:
    """Binding gates refused what every advisory gate, and there is one, calls sound."""
    advisory = [result.outcome == "pass" for result in results if not result.binding]
    return suite_outcome(results) != "pass" and bool(advisory) and all(advisory)


RISKS: dict[str, str] = {
    "risk.suite-incomplete": "A pass of the gates is not a proof of correctness.",
    "risk.same-process": "Candidate code ran in the processes that judged it.",
    "risk.own-checks-uncovered": "None of the project's own checks (L1) passed on the state.",
    "risk.domain-uncovered": "No domain acceptance check (L2) passed on the state.",
    "risk.environment-uncovered": "No protected environment (L3) was used.",
    "risk.advisory-failed": "An advisory gate failed on the accepted state.",
    "risk.terminal-only": "Only the final tree was observed, not how it came about.",
    "risk.flaky": "A certification disagreed with the gates' earlier verdict.",
    "risk.overridden": "A verdict was overridden by the mode of adoption.",
}
"""Residual risk sentences by stable id, in the order of a receipt."""


def residual_risks(present: Mapping[str, bool]) -> tuple[str, ...]:
    """The risks that remain."""
    return tuple(risk for risk in RISKS if present[risk])
