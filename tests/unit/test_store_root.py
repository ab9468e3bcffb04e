"""A root belongs to one lock and has one writer."""

import multiprocessing
from pathlib import Path

import pytest

from orchestrator.spec.errors import BadInput, IntegrityError, LockMismatch
from orchestrator.store.root import DIRECTORIES, Root
from orchestrator.store.writer import Writer
from tests.unit.store_children import hold_writer
from tests.unit.store_support import lock_bytes, open_root, small_lock

LOCK = small_lock()


def test_open_makes_the_layout_and_returns_to_it(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    assert root.lock() == LOCK
    assert {entry.name for entry in root.path.iterdir()} == {*DIRECTORIES, "lock.json"}
    assert open_root(tmp_path / "root", LOCK) == root == Root.existing(tmp_path / "root")


def test_open_refuses_another_lock_and_names_what_differs(tmp_path: Path) -> None:
    open_root(tmp_path / "root", LOCK)
    other = lock_bytes(LOCK).replace(b'"code": "code"', b'"code": "changed"')
    with pytest.raises(LockMismatch) as caught:
        Root.open(tmp_path / "root", other)
    assert caught.value.differences == ("code: frozen code, now changed",)
    assert caught.value.exit_code == 2
    assert Root.existing(tmp_path / "root").lock_path.read_bytes() == lock_bytes(LOCK)


@pytest.mark.parametrize("other", [lock_bytes(LOCK) + b"\n", b"no JSON"])
def test_open_wants_identical_bytes(tmp_path: Path, other: bytes) -> None:
    open_root(tmp_path / "root", LOCK)
    with pytest.raises(LockMismatch, match="bytes of the two locks differ"):
        Root.open(tmp_path / "root", other)


def test_open_refuses_a_directory_with_other_things(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"notes\.txt"):
        open_root(tmp_path, LOCK)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_open_goes_on_after_a_start_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / ".0123456789abcdef.tmp").write_bytes(b"{half a lock")
    assert open_root(tmp_path, LOCK).lock() == LOCK


def test_existing_wants_a_lock(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"lock\.json"):
        Root.existing(tmp_path)


def test_edited_lock_is_noticed(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    edited = root.lock_path.read_bytes().replace(b'"code": "code"', b'"code": "changed"')
    root.lock_path.write_bytes(edited)
    with pytest.raises(IntegrityError, match="lock_id"):
        root.lock()
    root.lock_path.write_bytes(b"{")
    with pytest.raises(BadInput, match="not a lock"):
        root.lock()


def test_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    child = context.Process(target=hold_writer, args=(str(root.path), there))
    child.start()
    try:
        assert here.recv() == "ready"
        with pytest.raises(BadInput, match=f"process {child.pid}"), root.writer():
            pass
        with pytest.raises(IntegrityError, match="without being its writer"):
            Writer(root, LOCK)
    finally:
        child.kill()
        child.join()
    with root.writer():  # the right ended with the process
        Writer(root, LOCK)


def test_writer_is_one_per_process_too(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    with root.writer():
        with pytest.raises(BadInput, match="another run writes here"), root.writer():
            pass
        Writer(root, LOCK)  # the refused attempt took nothing away
    with pytest.raises(IntegrityError, match="without being its writer"):
        Writer(root, LOCK)


def test_writer_removes_leftovers_of_its_kind_only(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    half = root.scratch / ".half.tmp"
    half.mkdir(parents=True)
    (half / "rollout.parquet").write_bytes(b"torn")
    worker = root.path / "tmp" / "worker-0"
    worker.mkdir()
    with root.writer():
        Writer(root, LOCK)
        assert list(root.scratch.iterdir()) == []
        assert worker.is_dir()


def test_scratch_is_on_no_readers_path(tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    half = root.scratch / ".half.tmp"
    half.mkdir(parents=True)
    (half / "rollout.parquet").write_bytes(b"torn")
    assert list(root.path.glob("records/*/rollout.parquet")) == []
