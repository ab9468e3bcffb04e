"""The second runner's outside: has each test function run by itself and says which are confirmed.

Every function has a fresh sandbox, a process and a nonce of its own, another hash seed and order;
the answer is one digest that only this side can check. Nothing of the first run's report is used.
"""

import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.evaluator.ground import ENVIRONMENT, PLUGIN, REPO, Ground
from orchestrator.evaluator.hardening import Watch
from orchestrator.evaluator.runner import (
    WATCHING,
    check_host,
    desk,
    offered,
    order,
    run_limits,
)
from orchestrator.spec.identity import digest_json
from orchestrator.spec.ports import Command, ExitClass, Limits, Sandbox

SOURCES: Final = ("factorial_single.py", *WATCHING)
HASH_SEED: Final = 1
"""Another than the first run's, and one that curation has tried."""
SHORTEST_SECONDS: Final = 1.0
"""A function is not started with less left of the time for all of them."""


@dataclass(frozen=True)
class Confirmation:
    """``refuted``: functions that did not pass by themselves; ``owed``: not run, or stopped, for
    want of time; ``seconds``: of all runs together.
    """

    refuted: tuple[str, ...]
    owed: tuple[str, ...]
    seconds: float


def confirm(
    sandbox: Sandbox,
    ground: Ground,
    tree: Path,
    functions: Mapping[str, Sequence[str]],
    *,
    wall_seconds: float,
    scratch: Path,
    limits: Limits,
    watch: Watch | None,
) -> Confirmation:
    """Run each function's ids (function -> ids) by themselves on ``tree``, in an order by digest.

    ``wall_seconds`` is for all of them. Raises InfrastructureFault where the sandbox failed.
    """
    started = time.monotonic()
    refuted, owed = [], []
    for function in sorted(functions, key=lambda name: digest_json(["second", name])):
        left = wall_seconds - (time.monotonic() - started)
        if left < SHORTEST_SECONDS:
            owed.append(function)
            continue
        ids, own = functions[function], run_limits(limits, left)
        outcome = _passes(sandbox, ground, tree, ids, own, scratch, watch)
        if outcome is None:
            owed.append(function)
        elif not outcome:
            refuted.append(function)
    return Confirmation(tuple(sorted(refuted)), tuple(sorted(owed)), time.monotonic() - started)


def _passes(
    sandbox: Sandbox,
    ground: Ground,
    tree: Path,
    ids: Sequence[str],
    limits: Limits,
    scratch: Path,
    watch: Watch | None,
) -> bool | None:
    """Whether all ids pass in one process; None where the time was up."""
    nonce = secrets.token_bytes(32)
    with desk(scratch, SOURCES) as (plugin, answer), offered(plugin / "key", nonce):
        command = Command(
            argv=(f"{ENVIRONMENT}/bin/python", "-s", f"{PLUGIN}/{SOURCES[0]}"),
            cwd=REPO,
            env=ground.variables(HASH_SEED),
            mounts=ground.mounts(tree, plugin, answer),
            limits=limits,
            stdin=order(ground, tree, ids, watch),
        )
        completed = sandbox.run(command)
        passed = _answered(answer, nonce, ids)
        check_host(completed, passed, scratch)
    if completed.exit_class is ExitClass.TIMEOUT:
        return None
    return passed and completed.exit_class is ExitClass.OK


def _answered(path: Path, nonce: bytes, ids: Sequence[str]) -> bool:
    text = "\n".join(sorted(ids)).encode()
    expected = hashlib.blake2b(text, key=nonce, digest_size=32).hexdigest().encode()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return regular and hmac.compare_digest(os.read(descriptor, len(expected) + 1), expected)
    finally:
        os.close(descriptor)
