"""Killed at any moment, read at any moment, out of disk at any moment: nothing torn or lost."""

import json
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import duckdb

from orchestrator.spec.lock import Lock
from orchestrator.spec.records import Row
from orchestrator.store import reading
from orchestrator.store.integrity import validate_matrix
from orchestrator.store.parquet import sort_table, table_of
from orchestrator.store.root import Root
from orchestrator.store.schemas import TABLES, outcome_columns
from orchestrator.store.writer import Writer, abandoned
from tests.unit.store_children import commit_what_is_owed
from tests.unit.store_support import (
    CHECKS,
    example_record,
    open_root,
    settle,
    small_lock,
)

KILLS = 20
REPOSITORY = Path(__file__).parents[2]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.unit.store_children"])


def first_settled(path: Path, lock: Lock) -> Root:
    """A root with one record, so that DuckDB's pattern matches a file from the start."""
    root = open_root(path, lock)
    with root.writer():
        settle(Writer(root, lock), lock, lock.rollouts[0].rollout_id)
    return root


def start_child(root: Root) -> tuple[BaseProcess, Connection]:
    here, there = CONTEXT.Pipe()
    child = CONTEXT.Process(target=commit_what_is_owed, args=(str(root.path), there))
    child.start()
    there.close()
    assert here.recv() == "ready"
    return child, here


def rollouts_in(root: Root) -> list[str]:
    """What a reader sees; fails for a torn, doubled or incomplete record."""
    records = root.path / "records" / "*"
    rows = duckdb.sql(
        f"""
        SELECT r.rollout_id, r.actions, a.actions, p.proposals, v.verdicts
        FROM read_parquet('{records}/rollout.parquet') AS r
        LEFT JOIN (SELECT rollout_id, count(*) AS actions
                   FROM read_parquet('{records}/actions.parquet') GROUP BY ALL) AS a
            USING (rollout_id)
        LEFT JOIN (SELECT rollout_id, count(*) AS proposals
                   FROM read_parquet('{records}/proposals.parquet') GROUP BY ALL) AS p
            USING (rollout_id)
        LEFT JOIN (SELECT rollout_id, count(*) AS verdicts
                   FROM read_parquet('{records}/verdicts.parquet') GROUP BY ALL) AS v
            USING (rollout_id)
        """
    ).fetchall()
    assert {row[1:] for row in rows} == {(3, 3, 1, 2)}
    ids = [row[0] for row in rows]
    assert len(ids) == len(set(ids))
    return ids


def said(pipe: Connection, at_most: int | None = None) -> set[str]:
    """What the child names next: so many rollouts, or (None) all that it named before it died."""
    words: set[str] = set()
    try:
        while (at_most is None and pipe.poll()) or (at_most is not None and len(words) < at_most):
            word = pipe.recv()
            if word == "done":
                break
            words.add(word)
    except EOFError:
        pass
    return words


def assert_rows_are_what_was_committed(root: Root, lock: Lock) -> None:
    """Every outcome column of every row is what an undisturbed run would hold."""
    records = [example_record(lock, planned.rollout_id, "") for planned in lock.rollouts]
    for name in ("actions", "proposals", "verdicts"):
        expected = [row for record in records for row in getattr(record, name)]
        assert_equal_rows(root, name, expected)
    assert_equal_rows(root, "rollout", [record.rollout for record in records])


def assert_equal_rows(root: Root, name: str, expected: list[Row]) -> None:
    columns = outcome_columns(name)
    stored = reading.read_table(root, name, columns=columns)
    given = sort_table(table_of(TABLES[name], expected), name).select(columns)
    assert stored.to_pylist() == given.to_pylist()


def test_killed_twenty_times_nothing_is_lost_doubled_or_torn(tmp_path: Path) -> None:
    lock = small_lock(tasks=15)
    root = first_settled(tmp_path / "killed", lock)
    moments = random.Random(20260101)
    acknowledged = {lock.rollouts[0].rollout_id}
    in_the_middle = 0
    for _ in range(KILLS):
        child, pipe = start_child(root)
        acknowledged |= said(pipe, at_most=moments.randrange(3))
        time.sleep(moments.uniform(0.0, 0.05))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        acknowledged |= said(pipe)
        assert acknowledged <= set(rollouts_in(root))
        in_the_middle += bool(abandoned(root))
    assert in_the_middle > 0  # or the test would prove nothing
    child, pipe = start_child(root)  # resume to the end
    while pipe.recv() != "done":
        pass
    child.kill()
    child.join()
    assert validate_matrix(lock, root, CHECKS) == []
    assert len(rollouts_in(root)) == len(lock.rollouts)
    tries = reading.attempts(root)
    assert all(attempt.end is not None for attempt in tries)
    assert len(tries) == len({attempt.attempt_id for attempt in tries}) >= len(lock.rollouts)
    assert_rows_are_what_was_committed(root, lock)


def test_a_reader_beside_the_writer_always_sees_whole_rows(tmp_path: Path) -> None:
    lock = small_lock(tasks=6)
    root = first_settled(tmp_path / "root", lock)
    child, pipe = start_child(root)
    seen, done = 1, False
    try:
        while not done:
            while pipe.poll():
                done = pipe.recv() == "done"
            now = len(rollouts_in(root))
            assert now >= seen  # the settled set only grows
            assert reading.progress(root, lock).settled >= now
            seen = now
    finally:
        child.kill()
        child.join()
    assert seen == len(lock.rollouts)


MOUNT = 'mount -t tmpfs -o size=2m tmpfs "$1" && shift && exec "$@"'


def can_mount(directory: Path) -> bool:
    """Whether a private tmpfs can be had here (user and mount namespaces)."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    probe = [unshare, "-rm", "sh", "-c", MOUNT, "sh", str(directory), "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def test_full_disk_loses_nothing_and_the_run_goes_on_with_room(tmp_path: Path) -> None:
    """A real, small, full file system; where none can be mounted, a limit on file sizes."""
    real = can_mount(tmp_path)
    module = ["-m", "tests.unit.store_children", str(tmp_path), "real" if real else "limit"]
    command = [sys.executable, *module]
    if real:
        command = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", str(tmp_path), *command]
    done = subprocess.run(command, capture_output=True, check=False, cwd=REPOSITORY, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["faults"] == ["disk"]
    assert 0 < len(seen["acknowledged"]) < seen["planned"]
    assert set(seen["acknowledged"]) <= set(seen["at_fault"])
    assert seen["damaged"] == seen["leftovers"] == seen["after"] == []


def test_a_limit_on_file_sizes_is_a_full_disk_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.store_children", str(tmp_path), "limit"]
    done = subprocess.run(command, capture_output=True, check=False, cwd=REPOSITORY, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["faults"] == ["disk"]
    assert len(seen["acknowledged"]) == 5
    assert seen["damaged"] == seen["leftovers"] == seen["after"] == []
