"""Mirrors and patches are git's own formats: the git program agrees with every one of them."""

import errno
import os
import pickle
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.repo.files import (
    EXECUTABLE,
    REGULAR,
    SYMLINK,
    Files,
    apply_delta,
    delta_between,
    read_directory,
    write_directory,
)
from orchestrator.repo.mirror import Mirror, commit_id_of
from orchestrator.repo.patch import apply_patch, make_patch
from orchestrator.repo.pool import prune
from orchestrator.spec.errors import BadInput, InfrastructureFault, IntegrityError

BASE: Files = {
    "a-b": (REGULAR, b"sorted before a/\n"),
    "a/file.py": (REGULAR, b"".join(b"line %d\n" % i for i in range(40))),
    "binary": (REGULAR, bytes(range(256)) * 3),
    "crlf": (REGULAR, b"one\r\ntwo\r\n"),
    "empty": (REGULAR, b""),
    "gone/deep/file": (EXECUTABLE, b"#!/bin/sh\n"),
    "latin": (REGULAR, "é".encode("latin-1") + b"\n"),
    "link": (SYMLINK, b"a/file.py"),
    "no newline": (REGULAR, b"x\ny"),
    "tool": (REGULAR, b"#!/bin/sh\n"),
}
OTHER: Files = {
    "a-b": (REGULAR, b""),
    "a/file.py": (REGULAR, BASE["a/file.py"][1].replace(b"line 3\n", b"LINE\n") + b"end"),
    "binary": (REGULAR, bytes(300)),
    "crlf": (REGULAR, b"one\r\ntwo\nthree\r\n"),
    "empty": (REGULAR, b"filled\n"),
    "latin": (REGULAR, b"\xff\xfe\n"),
    "link": (REGULAR, b"now a file\n"),
    "made \"up\"/ü\t\n": (EXECUTABLE, b"new"),
    "new empty": (REGULAR, b""),
    "no newline": (REGULAR, b"x\ny\n"),
    "tool": (EXECUTABLE, b"#!/bin/sh\n"),
}  # fmt: skip


def git(*arguments: str, cwd: Path, stdin: bytes = b"") -> bytes:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(cwd),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    command = ["git", *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=environment, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------- patches


def test_git_applies_our_patches(tmp_path: Path) -> None:
    write_directory(BASE, tmp_path / "tree")
    git("init", "-q", cwd=tmp_path / "tree")
    patch = make_patch(BASE, delta_between(BASE, OTHER))
    git("apply", "--whitespace=nowarn", "-", cwd=tmp_path / "tree", stdin=patch)
    assert read_directory(tmp_path / "tree") == OTHER


def test_we_apply_gits_patches(tmp_path: Path) -> None:
    noise = bytes((i * i * 31 + i // 7) % 251 for i in range(200_000))
    base: Files = {**BASE, "large": (REGULAR, b"\0" + noise)}
    other: Files = {**OTHER, "large": (REGULAR, b"\0" + noise[:90_000] + b"cut" + noise[90_100:])}
    mirror = Mirror.create(tmp_path / "mirror", {"main": base, "other": other}, "x")
    options = ("--no-renames", "--no-color", "--no-ext-diff")
    theirs = git("diff", "--binary", *options, "main", "other", cwd=mirror.path)
    assert b"\ndelta " in theirs
    assert apply_delta(base, apply_patch(base, theirs)) == other
    with pytest.raises(IntegrityError):
        apply_patch({**base, "large": (REGULAR, b"\1" + noise)}, theirs)
    text = {**other, "binary": base["binary"], "large": base["large"]}
    abbreviated = git("diff", *options, "main", "other", "--", ":!binary", ":!large",
                      cwd=mirror.path)  # fmt: skip
    assert apply_delta(base, apply_patch(base, abbreviated)) == text


@pytest.mark.parametrize(
    ("find", "replace", "message"),
    [
        (b"index ", b"index 0123456789", "blob id|index"),
        (b"-line 3\n", b"-line 4\n", "fit"),
        (b"@@ -1,7", b"@@ -2,7", "fit"),
        (b"@@ -1,7", b"@@ -1,6", "malformed|counts|fit|expected|cut"),
        (b"a/a/file.py b/a/file.py", b"a/a/file.py b/other", "one path"),
        (b"diff --git", b"diff --cc", "diff --git"),
        (b"+end\n\\ No newline at end of file\n", b"", "fit|cut|malformed|expected"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(find: bytes, replace: bytes, message: str) -> None:
    base = {"a/file.py": BASE["a/file.py"]}
    patch = make_patch(base, delta_between(base, {"a/file.py": OTHER["a/file.py"]}))
    assert find in patch
    with pytest.raises(IntegrityError, match=message):
        apply_patch(base, patch.replace(find, replace, 1))


def test_a_patch_is_refused_on_another_base() -> None:
    patch = make_patch(BASE, delta_between(BASE, OTHER))
    with pytest.raises(IntegrityError):
        apply_patch(OTHER, patch)
    with pytest.raises(IntegrityError, match="not in the base"):
        apply_patch({}, patch)
    with pytest.raises(IntegrityError, match="mode"):
        base = {"tool": (EXECUTABLE, b"x")}
        apply_patch(base, b"diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n")


def test_a_patch_cannot_leave_the_tree() -> None:
    for path in ("../out", ".git/hooks/x", "link/x"):
        patch = f"diff --git a/{path} b/{path}\nnew file mode 100644\n".encode()
        with pytest.raises(IntegrityError):
            apply_patch(BASE, patch)
    assert apply_patch(BASE, b"") == {}


# ------------------------------------------------------------------------------- mirrors


def test_git_finds_a_mirror_sound_and_exactly_as_given(tmp_path: Path) -> None:
    mirror = Mirror.create(tmp_path / "mirror", {"main": BASE, "side": OTHER}, "base tree")
    assert git("fsck", "--strict", "--full", "--unreachable", cwd=mirror.path) == b""
    commits = git("log", "--all", "--format=%H %P|%s", cwd=mirror.path).decode().splitlines()
    assert sorted(commits) == sorted(f"{mirror.commit_id(b)} |base tree" for b in ("main", "side"))
    assert not (mirror.path / "logs").exists() and not (mirror.path / "hooks").exists()
    archived = tmp_path / "archive.tar"
    archived.write_bytes(git("archive", "main", cwd=mirror.path))
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", archived, "-C", tmp_path / "unpacked"], check=True)
    assert read_directory(tmp_path / "unpacked").keys() == BASE.keys()


def test_a_mirror_works_as_the_git_directory_of_a_worktree(tmp_path: Path) -> None:
    write_directory(BASE, tmp_path / "tree")
    Mirror.create(tmp_path / "tree" / ".git", {"main": BASE}, "base tree")
    assert git("status", "--porcelain", cwd=tmp_path / "tree") == b""
    (tmp_path / "tree" / "crlf").write_bytes(b"changed")
    assert git("status", "--porcelain", cwd=tmp_path / "tree") == b" M crlf\n"


def test_the_head_is_main_or_the_first_branch(tmp_path: Path) -> None:
    Mirror.create(tmp_path / "a", {"x": BASE, "main": OTHER}, "m")
    Mirror.create(tmp_path / "b", {"x": BASE, "y": OTHER}, "m")
    assert (tmp_path / "a" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert (tmp_path / "b" / "HEAD").read_text() == "ref: refs/heads/x\n"


def test_a_mirror_travels_and_its_contents_are_not_shared(tmp_path: Path) -> None:
    mirror = Mirror.create(tmp_path / "mirror", {"main": BASE}, "m")
    mirror.files("main").clear()
    assert mirror.files("main") == BASE
    assert pickle.loads(pickle.dumps(mirror)).commit_id("main") == mirror.commit_id("main")


def test_bad_requests_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    Mirror.create(tmp_path / "mirror", {"main": BASE}, "m")
    with pytest.raises(BadInput, match="already exists"):
        Mirror.create(tmp_path / "mirror", {"main": BASE}, "m")
    with pytest.raises(BadInput, match="branch name"):
        Mirror.create(tmp_path / "other", {"../up": BASE}, "m")
    with pytest.raises(BadInput, match="no branch"):
        Mirror.create(tmp_path / "other", {}, "m")
    with pytest.raises(IntegrityError):
        Mirror.create(tmp_path / "other", {"main": {"../x": (REGULAR, b"")}}, "m")
    assert [path.name for path in tmp_path.iterdir()] == ["mirror"]
    with pytest.raises(IntegrityError, match="no branch"):
        Mirror(tmp_path / "mirror").commit_id("none")


# ------------------------------------------------------------------------------- shared objects


def objects_of(mirror: Mirror) -> dict[str, Path]:
    return {f"{p.parent.name}{p.name}": p for p in (mirror.path / "objects").glob("??/*")}


def test_the_same_files_have_the_same_commit_everywhere(tmp_path: Path) -> None:
    first = Mirror.create(tmp_path / "a", {"main": BASE, "side": OTHER}, "m")
    second = Mirror.create(tmp_path / "deep" / "b", {"main": BASE}, "m", tmp_path / "pool")
    assert first.commit_id("main") == second.commit_id("main") == commit_id_of(BASE, "m")
    assert first.commit_id("side") == commit_id_of(OTHER, "m") != commit_id_of(OTHER, "n")


def test_mirrors_of_a_pool_share_equal_objects_and_nothing_else(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    first = Mirror.create(tmp_path / "a", {"main": BASE}, "m", pool)
    second = Mirror.create(tmp_path / "b", {"main": OTHER}, "m", pool)
    alone = Mirror.create(tmp_path / "c", {"main": OTHER}, "m")
    mine, theirs = objects_of(first), objects_of(second)
    common = mine.keys() & theirs.keys()
    assert common and common != mine.keys()
    for name in mine.keys() | theirs.keys():
        paths = [found[name] for found in (mine, theirs) if name in found]
        paths.append(pool / name[:2] / name[2:])
        assert len({path.stat().st_ino for path in paths}) == 1
        assert paths[0].stat().st_mode & 0o777 == 0o444
    assert second.files("main") == OTHER
    listed = {path.relative_to(second.path): path.read_bytes() for path in all_files(second.path)}
    assert listed == {p.relative_to(alone.path): p.read_bytes() for p in all_files(alone.path)}
    assert not list((second.path / "objects").glob("info/*")), "no way from a mirror to the pool"


def all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_damaged_object_of_the_pool_reaches_no_mirror_and_is_replaced(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    Mirror.create(tmp_path / "a", {"main": BASE}, "m", pool)
    for stored in all_files(pool):
        stored.unlink()
        stored.write_bytes(b"")  # what a crash can leave of a file
    assert Mirror.create(tmp_path / "b", {"main": BASE}, "m", pool).files("main") == BASE
    assert all(stored.stat().st_size for stored in all_files(pool))


def test_without_hard_links_a_mirror_keeps_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    mirror = Mirror.create(tmp_path / "a", {"main": BASE}, "m", tmp_path / "pool")
    assert mirror.files("main") == BASE and all_files(tmp_path / "pool") == []
    monkeypatch.undo()
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(InfrastructureFault, match="broken"):
        Mirror.create(tmp_path / "b", {"main": BASE}, "m", tmp_path / "pool")
    assert not (tmp_path / "b").exists()


def test_many_builders_share_one_pool(tmp_path: Path) -> None:
    def make(number: int) -> Mirror:
        files = BASE if number % 2 else OTHER
        return Mirror.create(tmp_path / f"{number}", {"main": files}, "m", tmp_path / "pool")

    with ThreadPoolExecutor(4) as builders:
        mirrors = list(builders.map(make, range(12)))
    assert all(m.files("main") == (BASE if n % 2 else OTHER) for n, m in enumerate(mirrors))
    names = set(objects_of(mirrors[0])) | set(objects_of(mirrors[1]))
    assert {f"{p.parent.name}{p.name}" for p in all_files(tmp_path / "pool")} == names


def test_a_pool_is_pruned_of_what_no_mirror_uses(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    kept = Mirror.create(tmp_path / "a", {"main": BASE}, "m", pool)
    gone = Mirror.create(tmp_path / "b", {"main": OTHER}, "m", pool)
    lost = objects_of(gone).keys() - objects_of(kept).keys()
    shutil.rmtree(gone.path)
    left = next(iter(objects_of(kept).values()))
    os.link(left, pool / left.parent.name / f".{left.name}.1-1")  # of a killed builder
    assert prune(pool) == len(lost) + 1
    assert {f"{p.parent.name}{p.name}" for p in all_files(pool)} == set(objects_of(kept))
    assert kept.files("main") == BASE


def test_a_damaged_mirror_is_found_out(tmp_path: Path) -> None:
    mirror = Mirror.create(tmp_path / "mirror", {"main": BASE}, "m")
    for stored in (mirror.path / "objects").glob("??/*"):
        stored.chmod(0o644)
        stored.write_bytes(b"")
    with pytest.raises(IntegrityError, match="damaged"):
        mirror.files("main")
    reference = mirror.path / "refs" / "heads" / "main"
    reference.write_text("not a commit\n")
    with pytest.raises(IntegrityError):
        Mirror(mirror.path).files("main")
