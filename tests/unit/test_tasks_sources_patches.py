"""A patch source gives a commit's tree and that tree with two patches, or names what misfits."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.repo.files import EXECUTABLE, REGULAR, Files, delta_between
from orchestrator.repo.patch import make_patch
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.tasks.sources import Endpoints, read_endpoints
from orchestrator.tasks.sources.patches import patched
from tests.unit.git_support import FIX, PATHS_BUGGY, Repo, pinned, plain, task_of, texts

TESTS = "tests/test_adder.py"


def values(texts: dict[str, str]) -> Files:
    return {path: (REGULAR, text.encode()) for path, text in texts.items()}


BASE = values({path: str(text) for path, text in PATHS_BUGGY.items()})


def change(**contents: str) -> bytes:
    """A patch of ``BASE``; keys are file names of the fix."""
    return make_patch(BASE, delta_between(BASE, {**BASE, **values(contents)}))


FIX_PATCH = change(**{path: str(text) for path, text in FIX.items() if path != TESTS})
TEST_PATCH = change(**{TESTS: str(FIX[TESTS])})


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.create(tmp_path / "repo")


def read(
    tmp_path: Path, base: str, patch: bytes = FIX_PATCH, test_patch: bytes = TEST_PATCH, **more: str
) -> Endpoints:
    source = {"kind": "patches", "name": "adder", "url": "repo", "base": base, **more}
    files = {
        "patch": pinned(tmp_path / "fix.patch", patch),
        "test_patch": pinned(tmp_path / "test.patch", test_patch),
    }
    return read_endpoints(task_of({**source, **files}), tmp_path / "tasks.yaml")


def test_both_patches_make_the_fixed_end(repo: Repo, tmp_path: Path) -> None:
    base = repo.commit(PATHS_BUGGY)
    found = read(tmp_path, base)
    assert texts(found.buggy) == plain(PATHS_BUGGY)
    assert texts(found.fixed) == plain({**PATHS_BUGGY, **FIX})
    assert (found.relation, found.version, found.name) == ("patch on base", "1.2", "adder")
    empty = change()
    with pytest.raises(BadInput, match="no line begins with `diff --git`"):
        read(tmp_path, base, test_patch=empty)
    swapped = read(tmp_path, base, patch=TEST_PATCH, test_patch=FIX_PATCH)
    assert swapped.fixed == found.fixed and swapped.source_id != found.source_id


def test_a_folder_of_a_monorepo_takes_its_part_of_the_patches(repo: Repo, tmp_path: Path) -> None:
    base = repo.commit({f"core/{path}": text for path, text in PATHS_BUGGY.items()} | {"a": "1\n"})
    outside = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"

    def below(patch: bytes) -> bytes:
        for name in (b"src/", b"tests/"):
            patch = patch.replace(b" a/" + name, b" a/core/" + name)
            patch = patch.replace(b" b/" + name, b" b/core/" + name)
        return patch

    found = read(tmp_path, base, outside + below(FIX_PATCH), below(TEST_PATCH), path="core")
    assert texts(found.fixed) == plain({**PATHS_BUGGY, **FIX})


def test_what_does_not_fit_is_named(repo: Repo, tmp_path: Path) -> None:
    base = repo.commit({**PATHS_BUGGY, "src/adder/__init__.py": "other\n"})
    with pytest.raises(BadInput) as caught:
        read(tmp_path, base)
    assert caught.value.file == str(tmp_path / "fix.patch")
    assert caught.value.field == "src/adder/__init__.py" and base in caught.value.problem


def test_a_patch_file_that_is_another_is_refused(repo: Repo, tmp_path: Path) -> None:
    base = repo.commit(PATHS_BUGGY)
    source = {"kind": "patches", "name": "adder", "url": "repo", "base": base}
    files = {
        "patch": pinned(tmp_path / "fix.patch", FIX_PATCH),
        "test_patch": pinned(tmp_path / "test.patch", TEST_PATCH),
    }
    (tmp_path / "test.patch").write_bytes(TEST_PATCH + b"\n")
    with pytest.raises(BadInput, match="hash mismatch") as caught:
        read_endpoints(task_of({**source, **files}), tmp_path / "tasks.yaml")
    assert caught.value.field == "tasks.adder-1.source.test_patch.sha256"


# ------------------------------------------------------------------------------- git's format

OLD = values({"a.py": "one\ntwo\nthree\n", "keep.py": "k\n", 'od"d é.txt': "x\n"})
RENAMED = b"""\
From 1234 Mon Sep 17 00:00:00 2001
Subject: [PATCH] Move

---
 a.py => b.py | 2 +-

diff --git a/a.py b/b.py
similarity index 66%
rename from a.py
rename to b.py
index 4cb29ea..7d2c5b6 100644
--- a/a.py
+++ b/b.py
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
diff --git a/keep.py b/copies/keep two.py
similarity index 100%
copy from keep.py
copy to copies/keep two.py
diff --git "a/od\\"d \\303\\251.txt" "b/\\303\\251.txt"
similarity index 100%
rename from "od\\"d \\303\\251.txt"
rename to "\\303\\251.txt"
diff --git a/a.py b/a.py
new file mode 100755
--- /dev/null
+++ b/a.py
@@ -0,0 +1 @@
+new
diff --git a/sub b/sub
index 1111111..2222222 160000
--- a/sub
+++ b/sub
@@ -1 +1 @@
-Subproject commit 1111111111111111111111111111111111111111
+Subproject commit 2222222222222222222222222222222222222222
diff --git a/sub2 b/sub2
new file mode 160000
index 0000000..2222222
--- /dev/null
+++ b/sub2
@@ -0,0 +1 @@
+Subproject commit 2222222222222222222222222222222222222222
--\x20
2.39.5

"""


def test_renames_copies_mails_and_submodules_are_seen_through() -> None:
    patch = RENAMED.replace(b"index 4cb29ea..7d2c5b6 100644\n", b"")
    assert patched(OLD, patch) == {
        "a.py": (EXECUTABLE, b"new\n"),
        "b.py": (REGULAR, b"one\nTWO\nthree\n"),
        "keep.py": (REGULAR, b"k\n"),
        "copies/keep two.py": (REGULAR, b"k\n"),
        "é.txt": (REGULAR, b"x\n"),
    }


def test_the_blob_ids_of_a_patch_are_checked() -> None:
    with pytest.raises(IntegrityError, match="blob id"):
        patched(OLD, RENAMED.replace(b"4cb29ea", b"1111111"))


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (b"", "no line begins"),
        (b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+x\n", "no line begins"),
        (b"diff --git a/a.png b/a.png\nBinary files a/a.png and b/a.png differ\n", "is binary"),
        (b"diff --git a/a b/b\nrename from a\nrename to b\n", "which the tree does not have"),
        (b"diff --git a/a.py b/keep.py\nrename from a.py\nrename to keep.py\n", "there already"),
        (b"diff --git a/a.py b/../x\nrename from a.py\nrename to ../x\n", "climbs"),
        (b"diff --git a/a.py b/\xff\nrename from a.py\nrename to \xff\n", "not UTF-8"),
        (b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -2 +2 @@\n-one\n+x\n", "not fit"),
        (b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n", "cut off"),
        (b"diff --git a/n b/n\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-one\n+x\n", "not in the base"),
    ],
)
def test_patches_that_cannot_be_applied_are_refused(patch: bytes, words: str) -> None:
    with pytest.raises(IntegrityError, match=words):
        patched(OLD, patch)


PATHS = st.sampled_from(["a.py", "b.py", "lib/c.py", "lib/d é.txt", 'q"x', "z"])
CONTENT = st.one_of(
    st.lists(st.sampled_from(["x", "y", "", "-- ", "diff --git"]), max_size=6).map(
        lambda lines: "\n".join(lines).encode()
    ),
    st.binary(max_size=40),
)
TREES = st.dictionaries(PATHS, st.tuples(st.sampled_from([REGULAR, EXECUTABLE]), CONTENT))


@settings(max_examples=120, deadline=None)
@given(old=TREES, new=TREES)
def test_a_made_patch_leads_to_the_tree_it_was_made_of(old: Files, new: Files) -> None:
    patch = make_patch(old, delta_between(old, new))
    if patch:
        assert patched(old, b"Some words before\n" + patch) == new


@settings(max_examples=60, deadline=None)
@given(old=TREES, new=TREES)
def test_a_folder_takes_its_own_changes_only(old: Files, new: Files) -> None:
    def below(files: Files) -> Files:
        return {f"pkg/{path}": file for path, file in files.items()}

    outer_old, outer_new = {**below(old), "top": (REGULAR, b"1\n")}, below(new)
    patch = make_patch(outer_old, delta_between(outer_old, outer_new))
    assert patched(old, patch, "pkg") == new
