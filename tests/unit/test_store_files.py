"""Durable files: whole or absent; a refused write changes nothing."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.spec.errors import InfrastructureFault
from orchestrator.store import files


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_write_atomic_creates_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    files.write_atomic(target, b"one")
    files.write_atomic(target, b"two")
    assert target.read_bytes() == b"two"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_write_exclusive_never_replaces(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    files.write_exclusive(target, b"first")
    with pytest.raises(FileExistsError):
        files.write_exclusive(target, b"second")
    assert target.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_temporary_names_match_no_readers_glob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        files, "fsync_directory", lambda _: seen.extend(p.name for p in tmp_path.iterdir())
    )
    files.write_exclusive(tmp_path / "a.parquet", b"data")
    (temporary,) = [name for name in seen if name != "a.parquet"]
    for pattern in ("*.parquet", "*.json", "*.patch", "*.jsonl"):
        assert not Path(temporary).match(pattern)


def test_every_data_file_is_synced_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, scratch = tmp_path / "directory", tmp_path / "scratch"
    scratch.mkdir()
    order: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real_fsync(descriptor)

    def rename(self: Path, name: Path) -> Path:
        order.append("rename")
        return real_rename(self, name)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    files.write_directory(target, {"a": b"1", "b": b"2"}, scratch)
    assert (order[:2], order[3:]) == (["a", "b"], ["rename", tmp_path.name])
    assert order[2].endswith(".tmp")  # the scratch directory, whose entries must be durable too


def test_write_directory_is_all_or_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    target = tmp_path / "record"
    with pytest.raises(InfrastructureFault), largest_file(100):
        files.write_directory(target, {"a": b"1", "b": b"2" * 200}, scratch)
    assert not target.exists()
    assert list(scratch.iterdir()) == []
    files.write_directory(target, {"a": b"1"}, scratch)
    with pytest.raises(FileExistsError):
        files.write_directory(target, {"a": b"2"}, scratch)
    assert (target / "a").read_bytes() == b"1"
    assert list(scratch.iterdir()) == []


def test_write_directory_refuses_an_empty_one_too(tmp_path: Path) -> None:
    """rename(2) alone would replace it."""
    scratch, target = tmp_path / "scratch", tmp_path / "record"
    scratch.mkdir()
    target.mkdir()
    with pytest.raises(FileExistsError):
        files.write_directory(target, {"a": b"1"}, scratch)
    assert list(target.iterdir()) == []


def test_write_addressed_keeps_what_exists(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    old, new = tmp_path / "ab" / "old", tmp_path / "cd" / "new"
    files.write_addressed({old: b"old"}, scratch)
    before = old.stat().st_ino
    files.write_addressed({old: b"old", new: b"new"}, scratch)
    assert old.stat().st_ino == before
    assert new.read_bytes() == b"new"
    assert list(scratch.iterdir()) == []


def test_append_adds_lines_with_or_without_newline(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    files.append_durable(path, b"one")
    files.append_durable(path, b"two\n")
    assert files.read_lines(path) == [b"one", b"two"]
    with pytest.raises(ValueError, match="newline"):
        files.append_durable(path, b"a\nb")
    assert files.read_lines(path) == [b"one", b"two"]


def test_failed_append_leaves_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    files.append_durable(path, b"one")
    with pytest.raises(InfrastructureFault) as caught, largest_file(10):
        files.append_durable(path, b"x" * 100)
    assert caught.value.boundary == "disk"
    assert path.read_bytes() == b"one\n"


def test_read_lines_leaves_out_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"one\ntw")
    assert files.read_lines(path) == [b"one"]
    assert files.read_lines(tmp_path / "absent") == []


def test_full_disk_is_a_fault_that_names_the_file(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    files.write_atomic(target, b"old")
    with pytest.raises(InfrastructureFault) as caught, largest_file(10):
        files.write_atomic(target, b"new" * 10)
    assert caught.value.boundary == "disk"
    assert str(target) in caught.value.detail
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_other_errors_are_not_blamed_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write_atomic(tmp_path / "absent" / "file", b"data")


def test_remove_tree_does_not_follow_links(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"data")
    link = tmp_path / "link"
    link.symlink_to(kept)
    files.remove_tree(link)
    files.remove_tree(tmp_path / "absent")
    assert not link.is_symlink()
    assert (kept / "file").exists()
    files.remove_tree(kept)
    assert not kept.exists()
