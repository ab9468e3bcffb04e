"""Directories, deltas and worktrees: what is refused, what is restored, what is cleaned up."""

import os
import socket
from pathlib import Path

import pytest

from orchestrator.repo import files as module
from orchestrator.repo.files import (
    EXECUTABLE,
    REGULAR,
    SYMLINK,
    Files,
    apply_delta,
    check_files,
    read_directory,
    tree_of,
    write_directory,
)
from orchestrator.repo.worktree import remove, reset, worktree
from orchestrator.spec.errors import BadInput, InfrastructureFault, IntegrityError
from orchestrator.spec.identity import Entry, sha256_hex
from orchestrator.spec.ports import FileChange

BASE: Files = {
    ".gitignore": (REGULAR, b"*.pyc\n"),
    "run.sh": (EXECUTABLE, b"#!/bin/sh\n"),
    "src/pkg/__init__.py": (REGULAR, b""),
    "src/pkg/link": (SYMLINK, b"../../run.sh"),
}


def change(data: bytes, mode: int = REGULAR) -> FileChange:
    return FileChange(Entry(mode, sha256_hex(data)), data)


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/x": (REGULAR, b"")},
        {"../x": (REGULAR, b"")},
        {"a/../../x": (REGULAR, b"")},
        {"a//b": (REGULAR, b"")},
        {"./a": (REGULAR, b"")},
        {"a/": (REGULAR, b"")},
        {"": (REGULAR, b"")},
        {"a\0b": (REGULAR, b"")},
        {"\udcff": (REGULAR, b"")},
        {"x" * 256: (REGULAR, b"")},
        {".git/hooks/post-checkout": (EXECUTABLE, b"")},
        {"a/.GIT/config": (REGULAR, b"")},
        {"a": (SYMLINK, b"/tmp"), "a/b": (REGULAR, b"")},
        {"a": (REGULAR, b""), "a/b/c": (REGULAR, b"")},
        {"a": (0o160000, b"")},
        {"a": (0o100666, b"")},
        {"a": (SYMLINK, b"")},
        {"a": (SYMLINK, b"x\0y")},
    ],
)
def test_what_is_no_tree_is_refused_before_anything_is_written(
    files: Files, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError):
        write_directory({"first": (REGULAR, b""), **files}, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_directory(BASE, tmp_path / "new")
    finally:
        os.umask(before)
    modes = {p.name: p.lstat().st_mode & 0o777 for p in (tmp_path / "new").rglob("*")}
    assert modes["run.sh"] == modes["src"] == modes["pkg"] == 0o755
    assert modes[".gitignore"] == modes["__init__.py"] == 0o644
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755


def test_ownership_is_given_to_everything(tmp_path: Path) -> None:
    uid = 64001 if os.geteuid() == 0 else os.geteuid()
    write_directory(BASE, tmp_path / "new", uid=uid)
    owners = {p.lstat().st_uid for p in ((tmp_path / "new"), *(tmp_path / "new").rglob("*"))}
    assert owners == {uid}


def test_a_directory_that_holds_something_is_not_fresh(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    with pytest.raises(IntegrityError, match="fresh"):
        write_directory(BASE, tmp_path)


def test_reading_skips_git_and_refuses_special_files(tmp_path: Path) -> None:
    write_directory(BASE, tmp_path / "tree")
    (tmp_path / "tree" / "src" / ".git").mkdir()
    (tmp_path / "tree" / "src" / ".git" / "config").write_text("x")
    (tmp_path / "tree" / "empty").mkdir()
    assert read_directory(tmp_path / "tree") == BASE
    os.mkfifo(tmp_path / "tree" / "src" / "pipe")
    with pytest.raises(BadInput, match="src/pipe"):
        read_directory(tmp_path / "tree")
    remove(tmp_path / "tree" / "src" / "pipe")
    with socket.socket(socket.AF_UNIX) as unix, pytest.raises(BadInput, match="sock"):
        unix.bind(str(tmp_path / "tree" / "sock"))
        read_directory(tmp_path / "tree")


def test_reading_refuses_names_that_are_not_utf8(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("")
    with pytest.raises(BadInput, match="UTF-8"):
        read_directory(tmp_path)


def test_a_full_disk_is_infrastructure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "write", full)
    with pytest.raises(InfrastructureFault) as fault:
        write_directory(BASE, tmp_path / "new")
    assert fault.value.boundary == "disk"


# ------------------------------------------------------------------------------- deltas


def test_deltas_change_create_and_delete() -> None:
    after = apply_delta(BASE, {"run.sh": None, "new": change(b"n"), "absent": None})
    assert after == {**{k: v for k, v in BASE.items() if k != "run.sh"}, "new": (REGULAR, b"n")}
    assert tree_of(after).state_id != tree_of(BASE).state_id


def test_a_delta_with_a_wrong_digest_or_path_is_refused() -> None:
    wrong = FileChange(Entry(REGULAR, sha256_hex(b"other")), b"this")
    with pytest.raises(IntegrityError, match="digest"):
        apply_delta(BASE, {"a": wrong})
    with pytest.raises(IntegrityError, match="passes through"):
        apply_delta(BASE, {"src/pkg/link/x": change(b"")})


def test_the_identity_agrees_with_the_specification() -> None:
    changes = {"run.sh": None, "new": change(b"n")}
    entries = {path: made and made.entry for path, made in changes.items()}
    assert tree_of(apply_delta(BASE, changes)) == tree_of(BASE).replaced(entries)


# ------------------------------------------------------------------------------- worktrees


def test_a_worktree_is_fresh_patched_and_removed_whatever_it_became(tmp_path: Path) -> None:
    with worktree(BASE, tmp_path / "scratch", delta={"run.sh": None}) as directory:
        assert read_directory(directory) == {k: v for k, v in BASE.items() if k != "run.sh"}
        assert f"-{os.getpid()}-" in directory.name
        with worktree(BASE, tmp_path / "scratch") as other:
            assert other != directory
        locked = directory / "locked" / "inner"
        locked.mkdir(parents=True)
        (locked / "file").write_text("x")
        (directory / "outward").symlink_to(tmp_path)
        locked.chmod(0)
        locked.parent.chmod(0)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_worktree_is_removed_when_its_user_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), worktree(BASE, tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_reset_names_residue_and_restores_contents_modes_and_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    with worktree(BASE, tmp_path) as tree:
        (tree / "cache.pyc").write_text("ignored by git")
        (tree / ".git" / "hooks").mkdir(parents=True)
        (tree / "empty").mkdir()
        (tree / "run.sh").chmod(0o644)
        (tree / "src" / "pkg" / "link").unlink()
        (tree / "src" / "pkg" / "link").symlink_to(outside)
        (tree / ".gitignore").unlink()
        (tree / ".gitignore").hardlink_to(outside)
        (tree / "src" / "pkg" / "__init__.py").unlink()
        (tree / "src").chmod(0o700)
        touched = reset(tree, BASE)
        assert touched == (
            ".git/", ".gitignore", "cache.pyc", "empty/", "run.sh", "src/pkg/__init__.py",
            "src/pkg/link",
        )  # fmt: skip
        assert read_directory(tree) == BASE
        assert (tree / "src").stat().st_mode & 0o777 == 0o755
        assert not (tree / ".git").exists() and not (tree / "empty").exists()
    assert outside.read_text() == "precious"


def test_a_hard_link_with_the_right_contents_is_still_replaced(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(BASE[".gitignore"][1])
    with worktree(BASE, tmp_path) as tree:
        (tree / ".gitignore").unlink()
        (tree / ".gitignore").hardlink_to(outside)
        assert reset(tree, BASE) == (".gitignore",)
        outside.write_text("changed later")
        assert read_directory(tree) == BASE


def test_reset_turns_a_symlinked_folder_back_without_following_it(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    with worktree(BASE, tmp_path) as tree:
        remove(tree / "src")
        (tree / "src").symlink_to(elsewhere)
        assert "src" in reset(tree, BASE)
        assert read_directory(tree) == BASE
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


def test_a_vanished_worktree_is_infrastructure(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureFault):
        reset(tmp_path / "gone", BASE)


def test_a_plain_tree_passes_the_check() -> None:
    check_files(BASE)
