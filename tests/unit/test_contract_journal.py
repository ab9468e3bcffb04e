"""An event is on the disk before what it announces begins: kills in between, and syncs."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.agent.broker import Journal
from orchestrator.agent.loop import RolloutPorts, run_rollout
from orchestrator.contract.receipt import replay
from orchestrator.repo.patch import make_patch
from orchestrator.store.files import read_lines
from orchestrator.store.writer import journal_for
from tests.unit.agent_support import FakeShell, FakeVerifier, ScriptedCoder, roll, setup_of
from tests.unit.journal_children import ANNOUNCED_BY, SCRIPT, killed_at

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.unit.journal_children"])


@pytest.mark.parametrize("number", range(1, len(ANNOUNCED_BY) + 1))
def test_a_kill_at_a_side_effect_leaves_the_event_that_announced_it(
    tmp_path: Path, number: int
) -> None:
    path = tmp_path / "attempt.ledger.jsonl"
    child = CONTEXT.Process(target=killed_at, args=(str(path), number))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    lines = read_lines(path)
    assert json.loads(lines[-1])["kind"] == ANNOUNCED_BY[number - 1]
    assert lines == roll(SCRIPT, "BAC").record.ledger[: len(lines)]
    state, head = replay(lines)
    assert head.length == len(lines) and state.end is None


class Disk:
    """What has been synced: bytes of the journal, and whether its name has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.path, self.size, self.named = path, 0, False
        real, real_named = os.fdatasync, os.fsync

        def fdatasync(descriptor: int) -> None:
            real(descriptor)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                self.size = os.fstat(descriptor).st_size

        def fsync(descriptor: int) -> None:
            real_named(descriptor)
            if os.path.samestat(os.fstat(descriptor), path.parent.stat()):
                self.named = path.exists()

        monkeypatch.setattr(os, "fdatasync", fdatasync)
        monkeypatch.setattr(os, "fsync", fsync)

    def holds_everything(self) -> bool:
        return self.named and 0 < self.size == self.path.stat().st_size


def synced_at_each_side_effect(disk: Disk, journal: Journal) -> list[bool]:
    """Whether the disk held the whole journal when each suite or shell command began."""
    seen: list[bool] = []

    class Verifier(FakeVerifier):
        run = watched(FakeVerifier.run, disk, seen)

    class Shell(FakeShell):
        run = watched(FakeShell.run, disk, seen)

    ports = RolloutPorts(ScriptedCoder(SCRIPT), Verifier(), Shell(), journal, make_patch)
    run_rollout(setup_of("BAC"), ports)
    return seen


def watched(real: Callable[..., object], disk: Disk, seen: list[bool]) -> Callable[..., object]:
    def run(*arguments: object) -> object:
        seen.append(disk.holds_everything())
        return real(*arguments)

    return run


def test_everything_is_synced_before_each_side_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "attempt.ledger.jsonl"
    disk = Disk(monkeypatch, path)
    assert synced_at_each_side_effect(disk, journal_for(path)) == [True] * len(ANNOUNCED_BY)


def test_a_journal_that_is_only_written_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "attempt.ledger.jsonl"

    def written(line: bytes) -> None:
        with path.open("ab") as stream:
            stream.write(line + b"\n")

    disk = Disk(monkeypatch, path)
    assert synced_at_each_side_effect(disk, written) == [False] * len(ANNOUNCED_BY)
