"""From a delta to the files that are judged: what of it takes part, and what it looks like."""

from dataclasses import dataclass

from orchestrator.evaluator.hardening import FULL, Hardening
from orchestrator.evaluator.scan import scan
from orchestrator.evaluator.suites import Bundle
from orchestrator.repo.files import Files, apply_delta, tree_of
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.paths import protection
from orchestrator.spec.ports import Delta, FileChange


@dataclass(frozen=True)
class Candidate:
    """What is judged: base with the accepted part of a delta, and flags that say what it is like.

    Flags are ids of the scan's rules and ``left-out.protected`` or ``left-out.shadowing`` where a
    part of the delta does not take part.
    """

    files: Files
    flags: tuple[str, ...]


def accepted(bundle: Bundle, state_id: str, delta: Delta, hardening: Hardening = FULL) -> Candidate:
    """Base tree and the production part of ``delta``.

    The state id must be that of base + the whole delta, so that nothing was lost on the way;
    changes of protected paths are then left out (tests, their configuration, start-up files), and
    so is what would be imported in the place of the runner's or the tests' own modules.
    """
    whole = apply_delta(bundle.base, delta)
    found = tree_of(whole).state_id
    if found != state_id:
        raise IntegrityError(f"candidate of task {bundle.task_id}", f"is {found}, not {state_id}")
    left_out = {path: flag for path in delta if (flag := _left_out(bundle, path, delta[path]))}
    if not hardening.protected:
        left_out = {}
    production = {path: change for path, change in delta.items() if path not in left_out}
    hits = scan(bundle.base, production) if hardening.scan else ()
    files = whole if not left_out else apply_delta(bundle.base, production)
    return Candidate(files, tuple(sorted({*left_out.values(), *hits})))


def _left_out(bundle: Bundle, path: str, change: FileChange | None) -> str:
    if protection(path) is not None:
        return "left-out.protected"
    return "left-out.shadowing" if change is not None and bundle.shadows(path) else ""
