"""Trees survive every way out and back: directories, mirrors, deltas, patches, hard resets."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from orchestrator.repo.files import (
    EXECUTABLE,
    REGULAR,
    SYMLINK,
    Files,
    apply_delta,
    check_files,
    delta_between,
    read_directory,
    tree_of,
    write_directory,
)
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import apply_patch, make_patch
from orchestrator.repo.worktree import reset, worktree
from orchestrator.spec.errors import IntegrityError

NAMES = st.sampled_from(
    ["a", "b.py", "c d", "é", "日本", 'q"t', "back\\s", "tab\tx", "nl\ny", "-x"]
)
LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b""])
LINES = st.lists(
    st.tuples(
        st.sampled_from([b"", b"x", b"y = 1", b"\xff\xfe", b"@@ -1 +1 @@", b"\\ No"]), LINE_ENDS
    )
)
CONTENTS = st.one_of(
    LINES.map(lambda lines: b"".join(text + end for text, end in lines)),
    st.binary(max_size=200),
    st.sampled_from([b"", b"\n", b"no newline", b"\0\1\2", bytes(range(256)) * 5]),
)
REGULARS = st.tuples(st.sampled_from([REGULAR, EXECUTABLE]), CONTENTS)
SYMLINKS = st.tuples(st.just(SYMLINK), st.sampled_from([b"a", b"../out", b"/etc/passwd", b"\xff"]))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def _is_tree(files: Files) -> bool:
    try:
        check_files(files)
    except IntegrityError:
        return False
    return True


def trees(max_size: int = 6) -> SearchStrategy[Files]:
    drawn = st.dictionaries(PATHS, st.one_of(REGULARS, REGULARS, SYMLINKS), max_size=max_size)
    return drawn.filter(_is_tree)


@contextmanager
def fresh_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp())
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@given(trees())
@settings(max_examples=60, deadline=None)
def test_a_directory_gives_back_what_was_written(files: Files) -> None:
    with fresh_directory() as directory:
        write_directory(files, directory / "deep" / "er")
        assert read_directory(directory / "deep" / "er") == files


@given(trees(), trees())
@settings(max_examples=200, deadline=None)
def test_patches_round_trip(base: Files, other: Files) -> None:
    delta = delta_between(base, other)
    assert apply_delta(base, delta) == other
    patch = make_patch(base, delta)
    assert patch == make_patch(base, delta)
    assert apply_patch(base, patch) == delta
    assert (patch == b"") == (base == other)


@given(CONTENTS, CONTENTS, CONTENTS)
@settings(max_examples=200, deadline=None)
def test_a_patch_fits_only_its_base(before: bytes, after: bytes, elsewhere: bytes) -> None:
    base: Files = {"f": (REGULAR, before)}
    patch = make_patch(base, delta_between(base, {"f": (REGULAR, after)}))
    if before in (after, elsewhere):
        return
    with pytest.raises(IntegrityError):
        apply_patch({"f": (REGULAR, elsewhere)}, patch)


@given(st.binary(max_size=400), trees())
@settings(max_examples=100, deadline=None)
def test_arbitrary_bytes_are_refused_or_applied_never_a_crash(noise: bytes, base: Files) -> None:
    for patch in (noise, b"diff --git a/a b/a\n" + noise + b"\n"):
        try:
            assert _is_tree(apply_delta(base, apply_patch(base, patch)))
        except IntegrityError:
            continue


@given(trees(), trees(), st.integers(0, 4000), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_a_damaged_patch_is_refused_or_changes_nothing_that_counts(
    base: Files, other: Files, at: int, byte: int
) -> None:
    patch = bytearray(make_patch(base, delta_between(base, other)))
    if not patch:
        return
    patch[at % len(patch)] = byte
    with suppress(IntegrityError):
        assert _is_tree(apply_delta(base, apply_patch(base, bytes(patch))))


@given(trees(4), trees(4))
@settings(max_examples=25, deadline=None)
def test_a_mirror_gives_back_its_branches_with_equal_ids(main: Files, other: Files) -> None:
    with fresh_directory() as directory:
        branches = {"main": main, "side/one": other}
        first = Mirror.create(directory / "first", branches, "base")
        second = Mirror.create(directory / "second", branches, "base")
        for branch, files in branches.items():
            assert first.files(branch) == files
            assert first.tree(branch).state_id == tree_of(files).state_id
            assert first.commit_id(branch) == second.commit_id(branch)
        assert read_directory(first.path) == read_directory(second.path)


@given(trees(), trees())
@settings(max_examples=60, deadline=None)
def test_reset_restores_exactly_from_any_other_tree(wanted: Files, found: Files) -> None:
    with fresh_directory() as scratch, worktree(found, scratch) as directory:
        touched = reset(directory, wanted)
        assert read_directory(directory) == wanted
        assert reset(directory, wanted) == ()
        assert (touched == ()) == (wanted == found)
