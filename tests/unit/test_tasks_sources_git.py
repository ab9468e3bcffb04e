"""A git source gives the trees of a commit and of its one child; it never runs any of it."""

import os
from collections.abc import Mapping
from pathlib import Path

import pygit2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygit2.enums import FileMode, ObjectType

from orchestrator.repo.files import EXECUTABLE, REGULAR, SYMLINK
from orchestrator.spec.errors import BadInput
from orchestrator.tasks.eligibility import RULES, Ineligible
from orchestrator.tasks.sources import Endpoints, Expected, objects, read_endpoints
from orchestrator.tasks.sources.expected import expected_bytes
from tests.unit.git_support import FIX, PATHS_BUGGY, Content, Repo, git_task, pinned, plain, texts


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return tmp_path / "tasks.yaml"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.create(tmp_path / "repo")


def read(manifest: Path, *arguments: str, **more: object) -> Endpoints:
    return read_endpoints(git_task("repo", *arguments, **more), manifest)


def test_parent_and_child_become_endpoints(repo: Repo, manifest: Path) -> None:
    buggy, fixed = repo.pair()
    found = read(manifest, buggy, fixed)
    assert texts(found.buggy) == plain(PATHS_BUGGY)
    assert texts(found.fixed) == plain({**PATHS_BUGGY, **FIX})
    assert (found.name, found.version, found.relation) == ("adder", "1.2", "parent and child")
    assert found.notes == {"version": "from the tree"} and found.expected is None
    assert found == read(manifest, buggy, fixed)


def test_the_id_pins_the_trees_and_not_their_place(repo: Repo, manifest: Path) -> None:
    buggy, fixed = repo.pair()
    first = read(manifest, buggy, fixed)
    absolute = git_task(manifest.parent / "repo" / ".git", buggy, fixed)
    assert read_endpoints(absolute, manifest) == first
    other = repo.commit({**PATHS_BUGGY, **FIX, "more.txt": "x"}, buggy)
    ids = {first.source_id, read(manifest, buggy, other).source_id}
    ids.add(read(manifest, buggy, fixed, path="src").source_id)
    assert len(ids) == 3 and all(len(name) == 64 for name in ids)


# ------------------------------------------------------------------------------- one child


def refused(manifest: Path, buggy: str, fixed: str) -> str:
    with pytest.raises(Ineligible) as caught:
        read(manifest, buggy, fixed)
    assert caught.value.rule == "direct-parent" and caught.value.rule in RULES
    return caught.value.detail


def test_other_relations_are_refused_by_name(repo: Repo, manifest: Path) -> None:
    buggy, fixed = repo.pair()
    root = repo.commit({"a.py": ""})
    grandchild = repo.commit({**PATHS_BUGGY, **FIX, "a.py": ""}, fixed)
    merge = repo.commit({**PATHS_BUGGY, **FIX}, buggy, root)
    assert refused(manifest, buggy, root) == f"the fixed commit {root} has no parent"
    assert refused(manifest, buggy, grandchild) == (
        f"the parent of {grandchild} is {fixed}, not {buggy}"
    )
    assert refused(manifest, fixed, buggy) == f"the fixed commit {buggy} has no parent"
    assert refused(manifest, buggy, merge) == (
        f"the fixed commit {merge} is a merge of {buggy}, {root}"
    )
    assert "has no parent" in refused(manifest, buggy, buggy)


def test_grafts_and_replacements_do_not_change_history(repo: Repo, manifest: Path) -> None:
    buggy, fixed = repo.pair()
    grandchild = repo.commit({"a.py": ""}, fixed)
    forged = repo.commit({"a.py": ""}, buggy)
    repo.repository.references.create(f"refs/replace/{grandchild}", forged)
    (repo.git_directory / "info").mkdir(exist_ok=True)
    (repo.git_directory / "info" / "grafts").write_text(f"{grandchild} {buggy}\n")
    assert "the parent of" in refused(manifest, buggy, grandchild)


# ------------------------------------------------------------------------------- a folder of it


def test_only_the_folder_of_a_monorepo_counts(repo: Repo, manifest: Path) -> None:
    inside = {f"packages/core/{path}": text for path, text in PATHS_BUGGY.items()}
    outside: dict[str, Content] = {"pyproject.toml": "x", "packages/other/a.py": "a = 1\n"}
    fix = {f"packages/core/{path}": text for path, text in FIX.items()}
    buggy, fixed = repo.pair({**inside, **outside}, {**fix, "packages/other/a.py": "a = 2\n"})
    found = read(manifest, buggy, fixed, path="packages/core")
    assert texts(found.buggy) == plain(PATHS_BUGGY)
    assert texts(found.fixed) == plain({**PATHS_BUGGY, **FIX})
    for path in ("packages/none", "pyproject.toml", "packages/core/pyproject.toml"):
        with pytest.raises(BadInput, match=f"has no folder '{path}'"):
            read(manifest, buggy, fixed, path=path)


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", ".", "../a", "a/../b", "./a"])
def test_a_folder_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(BadInput) as caught:
        git_task("repo", "0" * 40, "1" * 40, path=path)
    assert caught.value.field == "source.git.path"


PART = st.sampled_from(["a", "b", "lib", "x y", "é"])
FILE = st.sampled_from(["m.py", "n.txt", "ö.md"])
PLACES = st.lists(st.tuples(st.lists(PART, max_size=3), FILE), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(places=PLACES, number=st.integers(0, 11))
def test_a_folder_is_the_whole_cut_down_to_it(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[list[str], str]], number: int
) -> None:
    directory = tmp_path_factory.mktemp("folder")
    repo = Repo.create(directory / "repo")
    files: dict[str, Content] = {"/".join([*parts, name]): name for parts, name in places}
    buggy, fixed = repo.pair(files, {"new.txt": "x"})
    whole = read(directory / "tasks.yaml", buggy, fixed)
    folders = [path.rpartition("/")[0] for path in sorted(files) if "/" in path]
    if folders:
        folder = folders[number % len(folders)]
        part = read(directory / "tasks.yaml", buggy, fixed, path=folder)
        prefix = f"{folder}/"
        expected = {
            path.removeprefix(prefix): file
            for path, file in whole.buggy.items()
            if path.startswith(prefix)
        }
        assert part.buggy == part.fixed == expected


# ------------------------------------------------------------------------------- hostile


EVIL_CONFIG = """\
[core]
    repositoryformatversion = 99
    fsmonitor = "touch {marker}"
    hooksPath = {hooks}
    sshCommand = "touch {marker}"
    attributesFile = {hooks}/attributes
[include]
    path = {hooks}/included
[filter "evil"]
    smudge = "touch {marker}"
    clean = "touch {marker}"
    process = "touch {marker}"
    required = true
[submodule "sub"]
    url = "ext::sh -c touch% {marker}"
    update = "!touch {marker}"
[extensions]
    objectformat = nonsense
"""


def test_a_hostile_repository_runs_nothing(repo: Repo, tmp_path: Path, manifest: Path) -> None:
    marker, hooks = tmp_path / "ran", tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "included").write_text(f"[core]\n\tpager = touch {marker}\n")
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    traps: dict[str, Content] = {
        ".gitattributes": "*.py filter=evil\n*.bin filter=lfs\n* ident eol=crlf\n",
        ".gitmodules": '[submodule "sub"]\n\tpath = sub\n\turl = ext::sh -c touch% x\n',
        ".lfsconfig": f"[lfs]\n\turl = file://{tmp_path}\n",
        "sub": (FileMode.COMMIT, "1" * 40),
        "data.bin": pointer,
        "id.py": "rev = '$Id$'\n",
    }
    buggy, fixed = repo.pair({**PATHS_BUGGY, **traps})
    for name in ("post-checkout", "pre-commit", "fsmonitor-watchman", "reference-transaction"):
        for folder in (hooks, repo.git_directory / "hooks"):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
            (folder / name).chmod(0o755)
    config = EVIL_CONFIG.format(marker=marker, hooks=hooks)
    (repo.git_directory / "config").write_text(config)
    found = read(manifest, buggy, fixed)
    assert not marker.exists()
    assert texts(found.buggy)["id.py"] == "rev = '$Id$'\n"
    assert found.buggy["data.bin"] == (REGULAR, pointer)
    assert "sub" not in found.buggy
    assert found.notes == {
        "submodules": "1: sub",
        "lfs_pointers": "1: data.bin",
        "filters": "2: evil, lfs",
        "version": "from the tree",
    }


def test_links_and_modes_are_values(repo: Repo, tmp_path: Path, manifest: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    odd: dict[str, Content] = {
        "run.sh": (FileMode.BLOB_EXECUTABLE, b"#!/bin/sh\n"),
        "link": (FileMode.LINK, b"run.sh"),
        "docs/up": (FileMode.LINK, b"../run.sh"),
        "out": (FileMode.LINK, b"../../secret"),
        "docs/absolute": (FileMode.LINK, os.fsencode(tmp_path / "secret")),
        "loop": (FileMode.LINK, b"loop"),
    }
    buggy, fixed = repo.pair({**PATHS_BUGGY, **odd})
    found = read(manifest, buggy, fixed)
    assert found.buggy["run.sh"] == (EXECUTABLE, b"#!/bin/sh\n")
    assert found.buggy["link"] == (SYMLINK, b"run.sh")
    assert found.buggy["docs/up"] == (SYMLINK, b"../run.sh")
    assert found.notes["links_out"] == "2: docs/absolute, out"
    assert not any(b"secret" in data for _, data in found.buggy.values())


def raw_tree(repo: Repo, *entries: tuple[bytes, bytes, str]) -> pygit2.Oid:
    """A tree object that git's library would not make."""
    data = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
    return pygit2.Oid(hex=repo.write(ObjectType.TREE, data))


def blob(repo: Repo, data: bytes = b"x") -> str:
    return str(repo.repository.create_blob(data))


HOSTILE: Mapping[str, tuple[tuple[bytes, bytes], str]] = {
    "git's directory": ((b"100644", b".GIT"), "names git's own directory"),
    "climbing": ((b"100644", b".."), "climbs"),
    "slash": ((b"100644", b"/etc"), "absolute"),
    "device": ((b"020000", b"null"), "mode 20000"),
    "empty name": ((b"100644", b""), "damaged"),
    "no mode": ((b"x", b"a"), "damaged"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_trees_are_refused(repo: Repo, manifest: Path, kind: str) -> None:
    (mode, name), words = HOSTILE[kind]
    buggy = repo.commit_tree(raw_tree(repo, (mode, name, blob(repo))))
    fixed = repo.commit(PATHS_BUGGY, buggy)
    with pytest.raises(BadInput, match=words) as caught:
        read(manifest, buggy, fixed)
    assert caught.value.file == str(manifest) and "tasks.adder-1.source" in caught.value.field


def test_old_modes_and_foreign_names_are_seen_through(repo: Repo, manifest: Path) -> None:
    entries = (b"100664", b"a.py", blob(repo)), (b"100644", b"\xff.py", blob(repo))
    buggy = repo.commit_tree(raw_tree(repo, *entries))
    found = read(manifest, buggy, repo.commit(PATHS_BUGGY, buggy))
    assert found.buggy == {"a.py": (REGULAR, b"x")}
    assert found.notes["names_not_utf8"] == "1: \\xff.py"


def test_trees_that_unfold_without_end_are_refused(
    repo: Repo, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = str(raw_tree(repo))
    for _ in range(30):
        tree = str(raw_tree(repo, *((b"40000", name, tree) for name in (b"a", b"b"))))
    buggy = repo.commit_tree(pygit2.Oid(hex=tree))
    fixed = repo.commit(PATHS_BUGGY, buggy)
    with pytest.raises(BadInput, match="the tree has more than"):
        read(manifest, buggy, fixed)
    good = repo.pair()
    monkeypatch.setattr(objects, "TREE_BYTES", 60)
    with pytest.raises(BadInput, match="the tree has more than"):
        read(manifest, *good)


def test_a_damaged_or_forged_object_is_refused(repo: Repo, manifest: Path) -> None:
    buggy, fixed = repo.pair()
    oid = str(repo.repository.get(fixed).peel(pygit2.Tree)["src/adder/__init__.py"].id)
    other = blob(repo, b"forged\n")
    loose = repo.git_directory / "objects" / oid[:2] / oid[2:]
    forged = (repo.git_directory / "objects" / other[:2] / other[2:]).read_bytes()
    for content in (forged, b"nothing"):
        loose.chmod(0o644)
        loose.write_bytes(content)
        with pytest.raises(BadInput, match=f"object {oid} is damaged"):
            read(manifest, buggy, fixed)
    loose.unlink()
    with pytest.raises(BadInput, match=f"object {oid} is missing"):
        read(manifest, buggy, fixed)


# ------------------------------------------------------------------------------- where it lies


def test_what_is_missing_is_named(repo: Repo, tmp_path: Path, manifest: Path) -> None:
    buggy, fixed = repo.pair()
    for arguments in ((buggy, "1" * 40), ("1" * 40, fixed)):
        with pytest.raises(BadInput, match=f"object {'1' * 40} is missing"):
            read(manifest, *arguments)
    tag = repo.repository.create_tag(
        "v1",
        pygit2.Oid(hex=fixed),
        ObjectType.COMMIT,
        pygit2.Signature("A", "a@b", 0, 0),
        "tag",
    )
    with pytest.raises(BadInput, match=r"is a tag, not a commit\. Give the full id of a commit"):
        read(manifest, buggy, str(tag))
    (repo.git_directory / "shallow").write_text(f"{fixed}\n")
    with pytest.raises(BadInput, match=r"shallow clone\. Fetch its history"):
        read(manifest, "1" * 40, fixed)
    (tmp_path / "empty").mkdir()
    for place in ("empty", "absent", "~nobody/repo", "~/absent-repository"):
        with pytest.raises(BadInput, match="is no git repository"):
            read_endpoints(git_task(place, buggy, fixed), manifest)


def test_bare_packed_shared_and_linked_repositories_read_alike(
    repo: Repo, tmp_path: Path, manifest: Path
) -> None:
    buggy, fixed = repo.pair()
    expected = read(manifest, buggy, fixed)
    repo.branch("main", fixed)

    pygit2.clone_repository(str(tmp_path / "repo"), str(tmp_path / "bare.git"), bare=True)
    repo.repository.set_head("refs/heads/main")
    repo.repository.add_worktree("linked", str(tmp_path / "linked"))
    shared = Repo.create(tmp_path / "shared.git", bare=True)
    (shared.git_directory / "objects" / "info" / "alternates").write_text(
        f"{repo.git_directory / 'objects'}\n"
    )
    relative = Repo.create(tmp_path / "relative.git", bare=True)
    (relative.git_directory / "objects" / "info" / "alternates").write_text(
        "../../shared.git/objects\n"
    )
    packed = Repo.create(tmp_path / "packed")
    count = repo.repository.pack(str(packed.git_directory / "objects" / "pack"))
    assert count > 0 and not list((packed.git_directory / "objects").glob("??"))
    for place in ("bare.git", "linked", "shared.git", "relative.git", "packed"):
        assert read_endpoints(git_task(place, buggy, fixed), manifest) == expected, place


def test_a_path_may_begin_at_home(
    repo: Repo, tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    buggy, fixed = repo.pair()
    elsewhere = tmp_path / "a" / "tasks.yaml"
    assert read_endpoints(git_task("~/repo", buggy, fixed), elsewhere).name == "adder"


# ------------------------------------------------------------------------------- version, lists


@pytest.mark.parametrize(
    ("stated", "given", "version", "origin"),
    [
        ("1.2", None, "1.2", "the tree"),
        ("1.2", "9", "1.2", "the tree"),
        (None, "9", "9", "the manifest"),
        (None, None, "0", "nowhere"),
    ],
)
def test_the_version_is_that_of_the_tree_or_else_of_the_manifest(
    repo: Repo, manifest: Path, stated: str | None, given: str | None, version: str, origin: str
) -> None:
    project = f'[project]\nversion = "{stated}"\n' if stated else ""
    buggy, fixed = repo.pair({**PATHS_BUGGY, "pyproject.toml": project})
    found = read(manifest, buggy, fixed, version=given)
    assert (found.version, found.notes["version"]) == (version, f"from {origin}")


def test_the_version_module_of_a_build_is_made_at_both_ends(repo: Repo, manifest: Path) -> None:
    project = '[tool.setuptools_scm]\nwrite_to = "src/adder/_version.py"\n'
    buggy, fixed = repo.pair({**PATHS_BUGGY, "pyproject.toml": project})
    found = read(manifest, buggy, fixed, version="2.0.1")
    made = found.buggy["src/adder/_version.py"]
    assert made == found.fixed["src/adder/_version.py"]
    module: dict[str, object] = {}
    exec(made[1], module)
    assert (module["version"], module["__version_tuple__"]) == ("2.0.1", (2, 0, 1))
    assert found.notes["generated"] == "1: src/adder/_version.py"


def test_listed_ids_are_carried(repo: Repo, tmp_path: Path, manifest: Path) -> None:
    buggy, fixed = repo.pair()
    lists = Expected(("tests/a.py::test_a[é]",), ())
    file = pinned(tmp_path / "ids.json", expected_bytes(lists))
    assert read(manifest, buggy, fixed, expected=file).expected == lists
    for data, words in ((b"{", "is not JSON"), (b'{"fail": []}', "unknown key")):
        with pytest.raises(BadInput, match=words):
            read(manifest, buggy, fixed, expected=pinned(tmp_path / "ids.json", data))
    (tmp_path / "ids.json").write_bytes(b"{}")
    with pytest.raises(BadInput, match="hash mismatch"):
        read(manifest, buggy, fixed, expected=file)
    (tmp_path / "ids.json").unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        read(manifest, buggy, fixed, expected=file)
