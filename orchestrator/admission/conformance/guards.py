"""The guards by name, and how one is switched off: for one run, in this process, by a swap.

Each negative control replaces exactly the predicate that a case is about; what replaces it is what
a broker without that guard would do. No other module of the project imports this one.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.admission import actions, identities, receipt, rules, snapshot
from orchestrator.admission.actions import Action
from orchestrator.contract import modes
from orchestrator.contract import rules as contract
from orchestrator.contract.modes import Disposition
from orchestrator.contract.verdicts import Rule
from orchestrator.repo.files import SYMLINK, Files
from orchestrator.sandbox import bwrap, cgroup
from orchestrator.sandbox.capabilities import NAMESPACES
from orchestrator.spec.identity import digest_json


@dataclass(frozen=True)
class Swap:
    """One attribute of a module or class, and what stands in for it while the guard is off."""

    owner: Any
    name: str
    without: Any


@dataclass(frozen=True)
class Guard:
    """What a guard does, in a few words, and the swaps that take it away."""

    name: str
    swaps: tuple[Swap, ...]


@contextmanager
def switched(guard: Guard, *, on: bool) -> Iterator[None]:
    """The guard as it is, or off until the block ends, however it ends."""
    if on:
        yield
        return
    kept = [(swap, getattr(swap.owner, swap.name)) for swap in guard.swaps]
    try:
        for swap in guard.swaps:
            setattr(swap.owner, swap.name, swap.without)
        yield
    finally:
        for swap, original in kept:
            setattr(swap.owner, swap.name, original)


# --------------------------------------------------------------------------------- stand-ins


def _always(value: object) -> Callable[..., Any]:
    return lambda *_, **__: value


def _lenient_parse(message: bytes) -> Action | None:
    """Reads an action out of any text that mentions one."""
    found = (action for action in Action if action.encode() in message)
    return next(found, None)


def _overwrite(directory: Path, files: Files) -> tuple[str, ...]:
    """Writes the wanted files over what is there and removes nothing."""
    for path, (mode, data) in files.items():
        place = directory / path
        if mode != SYMLINK:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return ()


def _inherited(
    declared: Mapping[str, str], _passed: object, host: Mapping[str, str]
) -> dict[str, str]:
    return {**host, **declared}


def _believed(root: Path) -> str | None:
    """Takes a receipt at its word."""
    said = json.loads((root / receipt.RECEIPT).read_bytes())["delivered_state_id"]
    return None if said is None else str(said)


def _named(check: Any) -> str:
    """A command known by its name alone."""
    return digest_json(check.name)


def _everything_covers(*_: object, **__: object) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(rules.LAYERS, ("assumed",))


def _let_go(group: cgroup.Group) -> None:
    """Leaves the processes of a group to their own devices, outside of it."""
    for directory in group.directories:
        while processes := (directory / "cgroup.procs").read_text().split():
            for process in processes:
                with suppress(ProcessLookupError):  # it ended by itself
                    (directory.parent / "cgroup.procs").write_text(process)


def _one(owner: Any, name: str, without: Any) -> tuple[Swap, ...]:
    return (Swap(owner, name, without),)


ENTER_ANYWHERE = 'cd -P -- "$1" 2>/dev/null; shift; exec "$@"'
"""Enters the working directory where it can, and runs the command in any case."""

SHARED_PROCESSES = tuple(flag for flag in NAMESPACES if flag != "--unshare-pid")

GUARDS: dict[str, Guard] = {
    "SB001": Guard(
        "an execution counts once, where it was asked for",
        (
            Swap(rules, "was_asked", _always(True)),
            Swap(contract, "is_fresh", _always(True)),
        ),
    ),
    "SB002": Guard("completion is of the judged tree", _one(rules, "is_current", _always(True))),
    "SB003": Guard("evidence is of the state asked for", _one(contract, "answers", _always(True))),
    "SB004": Guard("a command's identity is all of it", _one(identities, "command_id", _named)),
    "SB005": Guard("suite files have identity", _one(identities, "suite_files_id", _always("0"))),
    "SB006": Guard("the policy has identity", _one(identities, "policy_id", _always("0"))),
    "SB007": Guard("receipts are derived again", _one(receipt, "authority", _believed)),
    "SB008": Guard("a rejected proposal is rolled back", _one(contract, "retains", _always(True))),
    "SB009": Guard(
        "the checkpoint moves by a pass only", _one(contract, "moves_checkpoint", _always(True))
    ),
    "SB010": Guard("candidates are budgeted", _one(rules, "within_budget", _always(True))),
    "SB011": Guard("only a clean exit is a pass", _one(rules, "outcome_of", _always("pass"))),
    "SB012": Guard(
        "a certification has to pass",
        _one(contract, "certify", _always(Rule.COMPLETION_CERTIFIED)),
    ),
    "SB013": Guard("paths and links are guarded", _one(rules, "tree_violation", _always(None))),
    "SB014": Guard("actions are parsed strictly", _one(actions, "parse", _lenient_parse)),
    "SB015": Guard(
        "coverage says what was observed",
        _one(rules, "observation", _always("action-boundaries")),
    ),
    "SB016": Guard("a restore removes residue", _one(snapshot, "restore", _overwrite)),
    "SB017": Guard("no command runs elsewhere", _one(bwrap, "ENTER", ENTER_ANYWHERE)),
    "SB018": Guard("variables are allowed by name", _one(rules, "environment", _inherited)),
    "SB019": Guard(
        "processes end with their command",
        (
            Swap(bwrap, "NAMESPACES", SHARED_PROCESSES),
            Swap(cgroup.Group, "empty", _let_go),
        ),
    ),
    "SB020": Guard("the agent's time is bounded", _one(rules, "wall_left", _always(60.0))),
    "SB022": Guard(
        "dispositions follow the mode", _one(modes, "disposition", _always(Disposition.ALLOWED))
    ),
    "SB024": Guard("caches have no identity", _one(snapshot, "is_ignored", _always(False))),
    "SB025": Guard("repetition escalates", _one(rules, "repeats", _always(False))),
    "SB028": Guard("delivery needs acceptance", _one(rules, "is_delivery", _always(True))),
    "SB029": Guard(
        "false rejections are counted", _one(rules, "is_false_rejection", _always(False))
    ),
    "SB030": Guard("residual risks are listed", _one(rules, "residual_risks", _always(()))),
    "SB031": Guard("a completion is run afresh", _one(rules, "may_reuse", _always(True))),
    "SB033": Guard("oscillation escalates", _one(rules, "oscillates", _always(False))),
    "SB034": Guard(
        "coverage is what gates showed", _one(rules, "covered_layers", _everything_covers)
    ),
    "SB035": Guard("the base tree is no candidate", _one(contract, "is_empty", _always(False))),
}
"""Case id -> the guard that it proves."""
