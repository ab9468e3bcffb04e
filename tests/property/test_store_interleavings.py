"""Any interleaving of begin, end, commit and restart keeps the books: planned = settled + owed."""

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.spec.errors import IntegrityError
from orchestrator.store import reading
from orchestrator.store.integrity import validate_matrix
from orchestrator.store.writer import Writer, abandoned
from tests.unit.store_support import (
    CHECKS,
    example_record,
    ledger_of,
    open_root,
    small_lock,
)

LOCK = small_lock()
IDS = [planned.rollout_id for planned in LOCK.rollouts]
ROLLOUTS = st.sampled_from(IDS)


class Books(RuleBasedStateMachine):
    """A writer beside a model of what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.root = open_root(self.home / "root", LOCK)
        self.settled: dict[str, str] = {}
        self.begun: dict[str, int] = dict.fromkeys(IDS, 0)
        self.open: list[str] = []
        self.failed: dict[str, int] = {}
        self.stack = ExitStack()
        self._start()

    def _start(self) -> None:
        self.stack.enter_context(self.root.writer())
        self.writer = Writer(self.root, LOCK)

    def teardown(self) -> None:
        found = validate_matrix(LOCK, self.root, CHECKS)
        missing = {line.partition(":")[0] for line in found} - {"matrix"}
        assert missing == set(IDS) - self.settled.keys()
        self.stack.close()
        shutil.rmtree(self.home)

    @rule(rollout_id=ROLLOUTS)
    def begin(self, rollout_id: str) -> None:
        if rollout_id in self.settled:
            with pytest.raises(IntegrityError):
                self.writer.begin_attempt(rollout_id, {})
            return
        self.begun[rollout_id] += 1
        attempt = self.writer.begin_attempt(rollout_id, {})
        assert attempt == f"{rollout_id}.a{self.begun[rollout_id]}"
        for line in ledger_of(rollout_id):
            self.writer.journal(attempt)(line)
        self.open.append(attempt)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), outcome=st.sampled_from(["infrastructure", "unknown"]))
    def fail(self, data: st.DataObject, outcome: str) -> None:
        attempt = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.writer.end_attempt(attempt, outcome, "a fault")
        rollout_id = attempt.rpartition(".a")[0]
        self.failed[rollout_id] = self.failed.get(rollout_id, 0) + 1

    @precondition(lambda self: self.open)
    @rule(data=st.data(), end=st.booleans())
    def commit(self, data: st.DataObject, end: bool) -> None:
        """Two attempts of one rollout may both come in; the second is a no-op or is refused."""
        attempt = data.draw(st.sampled_from(self.open))
        rollout_id = attempt.rpartition(".a")[0]
        record = example_record(LOCK, rollout_id, attempt)
        if rollout_id not in self.settled:
            assert self.writer.commit(record) is True
            self.settled[rollout_id] = "agent"
            if end:
                self.writer.end_attempt(attempt, "settled", "")
                self.open.remove(attempt)
        elif self.settled[rollout_id] == "agent":
            assert self.writer.commit(record) is False
        else:
            with pytest.raises(IntegrityError):
                self.writer.commit(record)

    @rule(rollout_id=ROLLOUTS)
    def give_up(self, rollout_id: str) -> None:
        allowed = self.begun[rollout_id] and self.settled.get(rollout_id) != "agent"
        if allowed:
            new = self.writer.commit_without_outcome(rollout_id, "infrastructure", "server")
            assert new is (rollout_id not in self.settled)
            self.settled[rollout_id] = "infrastructure"
        else:
            with pytest.raises(IntegrityError):
                self.writer.commit_without_outcome(rollout_id, "infrastructure", "server")

    @rule()
    def restart(self) -> None:
        """The process dies and a new one goes on."""
        self.stack.close()
        self._start()
        assert sorted(self.writer.close_abandoned()) == sorted(self.open)
        self.open.clear()

    @invariant()
    def books_balance(self) -> None:
        assert reading.settled(self.root) == self.settled
        assert reading.owed(LOCK, self.root) == [i for i in IDS if i not in self.settled]
        now = reading.progress(self.root, LOCK)
        assert now.settled + now.owed == now.planned == len(IDS)
        assert sum(now.attempts_by.values()) == sum(self.begun.values())

    @invariant()
    def attempts_are_kept(self) -> None:
        assert abandoned(self.root) == sorted(self.open)
        failed = reading.failed_attempts(self.root)
        assert {name: len(ends) for name, ends in failed.items()} == self.failed

    @invariant()
    def nothing_temporary_is_left(self) -> None:
        assert list(self.root.scratch.iterdir()) == []


Books.TestCase.settings = settings(max_examples=20, stateful_step_count=12, deadline=None)
TestBooks = Books.TestCase
