"""Trees: the exact one comes back, caches have no identity, the store gives what it was given."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.admission import snapshot
from orchestrator.admission.files import write_once
from orchestrator.admission.objects import ObjectStore
from orchestrator.repo.files import (
    EXECUTABLE,
    REGULAR,
    SYMLINK,
    Files,
    read_directory,
    tree_of,
    write_directory,
)
from orchestrator.spec.errors import IntegrityError

NAMES = st.sampled_from(["a", "b", "cache", "d.txt", "é"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
FILES = st.one_of(
    st.tuples(st.sampled_from([REGULAR, EXECUTABLE]), st.binary(max_size=4)),
    st.tuples(st.just(SYMLINK), st.sampled_from([b"a", b"../x", b"/etc/hosts"])),
)


def sound(files: dict[str, tuple[int, bytes]]) -> Files:
    """Without paths that pass through files."""
    return {
        path: file
        for path, file in files.items()
        if not any(path.startswith(f"{other}/") for other in files)
    }


TREES = st.dictionaries(PATHS, FILES, max_size=6).map(sound)
UNTIMED = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@UNTIMED
@given(wanted=TREES, left=TREES, folders=st.lists(PATHS, max_size=3), sealed=st.booleans())
def test_restore_is_exact(
    tmp_path_factory: pytest.TempPathFactory,
    wanted: Files,
    left: Files,
    folders: list[str],
    sealed: bool,
) -> None:
    """Whatever lies about (files, links, modes, empty or closed folders), the tree comes back."""
    place = tmp_path_factory.mktemp("tree") / "worktree"
    write_directory(left, place)
    for folder in folders:
        if not any(
            os.path.lexists(place / part) and not (place / part).is_dir()
            for part in (folder, *_above(folder))
        ):
            (place / folder).mkdir(parents=True, exist_ok=True)
            if sealed:
                (place / folder).chmod(0o500)
    snapshot.restore(place, wanted)
    assert read_directory(place) == wanted
    empty = [
        p for p in place.rglob("*") if p.is_dir() and not p.is_symlink() and not any(p.iterdir())
    ]
    assert not empty
    assert snapshot.restore(place, wanted) == ()


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


@UNTIMED
@given(tree=TREES, other=TREES)
def test_the_store_gives_back_what_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, tree: Files, other: Files
) -> None:
    store = ObjectStore(tmp_path_factory.mktemp("store"))
    ids = [store.put(tree), store.put(other), store.put(tree)]
    assert ids[0] == ids[2] == tree_of(tree).state_id
    assert store.get(ids[0]) == tree
    assert store.get(ids[1]) == other


@pytest.mark.parametrize("kind", ["blobs", "trees"])
@pytest.mark.parametrize("change", ["edit", "remove"])
def test_a_damaged_store_is_found(tmp_path: Path, kind: str, change: str) -> None:
    store = ObjectStore(tmp_path)
    state_id = store.put({"a": (REGULAR, b"content")})
    (place,) = (tmp_path / kind).iterdir()
    if change == "edit":
        place.write_bytes(place.read_bytes().replace(b"cont", b"c0nt").replace(b'"a"', b'"b"'))
    else:
        place.unlink()
    with pytest.raises(IntegrityError):
        store.get(state_id)


def test_a_tree_that_lists_another_is_found(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    one, other = store.put({"a": (REGULAR, b"1")}), store.put({"a": (REGULAR, b"2")})
    trees = tmp_path / "trees"
    (trees / f"{one}.json").write_bytes((trees / f"{other}.json").read_bytes())
    with pytest.raises(IntegrityError, match="identity"):
        store.get(one)


def test_what_is_written_once_stays(tmp_path: Path) -> None:
    write_once(tmp_path / "x", b"first")
    write_once(tmp_path / "x", b"second")
    assert (tmp_path / "x").read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 1


def test_caches_are_outside_the_candidate(tmp_path: Path) -> None:
    files: Files = {
        "src/a.py": (REGULAR, b"1"),
        "src/__pycache__/a.pyc": (REGULAR, b"2"),
        "build/out.o": (REGULAR, b"3"),
        "src/build/kept": (REGULAR, b"4"),
    }
    write_directory(files, tmp_path / "tree")
    taken = snapshot.capture(tmp_path / "tree", ("__pycache__", "build/*.o"))
    assert set(taken) == {"src/a.py", "src/build/kept"}


SUITE: Files = {"tests/check.py": (REGULAR, b"owner's")}


@pytest.mark.parametrize(
    "candidate",
    [
        {},
        {"tests/check.py": (REGULAR, b"candidate's")},
        {"tests/extra.py": (REGULAR, b"more")},
        {"tests": (REGULAR, b"a file where the folder was")},
        {"tests": (SYMLINK, b"src")},
        {"tests/check.py/inside": (REGULAR, b"a folder where the file was")},
    ],
)
def test_the_owners_suite_is_laid_over_whatever_the_candidate_made_of_it(candidate: Files) -> None:
    code: Files = {"src/a.py": (REGULAR, b"1")}
    assert snapshot.with_suite({**code, **candidate}, SUITE, ("tests/**",)) == {**code, **SUITE}
