"""Hostile proposals on the real way: edit → workspace → delta → patch → what the evaluator judges,
and shell → overlay. Each kind is refused, or split off and recorded; nothing is followed or lost.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent.actions import Change, Create, Delete, Edit, Replace
from orchestrator.agent.edits import MAX_FILE_BYTES, Edited, apply_edit
from orchestrator.agent.workspace import Refusal, Workspace
from orchestrator.cluster.shell import SandboxShell
from orchestrator.evaluator.candidate import Candidate, accepted
from orchestrator.evaluator.suites import Bundle, load_bundle
from orchestrator.repo.files import Files, delta_between, read_directory, tree_of
from orchestrator.repo.patch import apply_patch, make_patch
from orchestrator.repo.worktree import reset, worktree
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import Entry, sha256_hex
from orchestrator.spec.ports import Delta, FileChange, Limits
from tests.unit import evaluator_support as support

REGULAR, EXECUTABLE, SYMLINK, GITLINK = 0o100644, 0o100755, 0o120000, 0o160000
CORE = "src/calc/core.py"
NFC, NFD = "src/calc/caf\u00e9.py", "src/calc/cafe\u0301.py"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(support.build_tasks(tmp_path_factory.mktemp("tasks")), support.TASK)


def proposed(*changes: Change) -> Edited | Refusal:
    return apply_edit(Workspace.of(support.BASE), Edit(changes=changes))


def rule(*changes: Change) -> str:
    result = proposed(*changes)
    assert isinstance(result, Refusal), "the edit was accepted"
    return result.rule


def delta_of(path: str, mode: int, content: bytes) -> Delta:
    return {path: FileChange(Entry(mode, sha256_hex(content)), content)}


def judged(bundle: Bundle, files: Files) -> Candidate:
    """What the evaluator takes of a tree, whose patch must lead to the same tree."""
    delta = delta_between(bundle.base, files)
    patch = make_patch(bundle.base, delta)
    assert apply_patch(bundle.base, patch) == delta
    return accepted(bundle, tree_of(files).state_id, delta)


# ------------------------------------------------------------------------------- edits


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("../outside.py", "edit.path"),
        ("src/../../outside.py", "edit.path"),
        ("/etc/cron.d/x", "edit.path"),
        ("src//calc/x.py", "edit.path"),
        ("src/./x.py", "edit.path"),
        ("src\\..\\..\\x.py", "edit.path"),
        ("src/a\nb.py", "edit.path"),
        ("src/a\u202eyp.py", "edit.path"),
        (f"src/{'a' * 260}.py", "edit.path"),
        (f"{CORE}/x.py", "edit.path"),
        ("src", "edit.path"),
        (".git/config", "edit.protected"),
        (".GIT/hooks/post-checkout", "edit.protected"),
        ("src/.git/config", "edit.protected"),
        ("GIT~1/config", "edit.protected"),
        (".gitattributes", "edit.protected"),
        ("src/.gitmodules", "edit.protected"),
        (".gitignore", "edit.protected"),
        ("tests/test_core.py", "edit.protected"),
        ("Tests/test_core.py", "edit.protected"),
        ("src/CONFTEST.py", "edit.protected"),
        ("PyProject.toml", "edit.protected"),
        ("src/calc/Core.py", "edit.collision"),
        ("SRC/calc/new.py", "edit.collision"),
    ],
)
def test_an_edit_cannot_name_it(path: str, expected: str) -> None:
    assert rule(Create(path=path, create="x = 1\n")) == expected


def test_one_bad_path_refuses_the_whole_edit() -> None:
    good = Replace(path=CORE, find="a - b", replace="a + b")
    assert rule(good, Create(path="conftest.py", create="")) == "edit.protected"


def test_both_compositions_of_a_name_cannot_be_created() -> None:
    one = Create(path=NFC, create="x = 1\n")
    assert isinstance(proposed(one), Edited)
    assert rule(one, Create(path=NFD, create="x = 2\n")) == "edit.collision"


@pytest.mark.parametrize(
    "change",
    [
        Replace(path="src/calc/link.py", find="a", replace="b"),
        Delete(path="src/calc/link.py", delete=True),
    ],
)
def test_a_link_of_the_base_tree_is_not_edited(change: Change) -> None:
    files: Files = {**support.BASE, "src/calc/link.py": (SYMLINK, b"/etc/passwd")}
    result = apply_edit(Workspace.of(files), Edit(changes=(change,)))
    assert isinstance(result, Refusal) and result.rule == "edit.symlink"


def test_a_file_below_a_link_is_not_created() -> None:
    files: Files = {**support.BASE, "src/out": (SYMLINK, b"/tmp")}
    change = Create(path="src/out/x.py", create="")
    result = apply_edit(Workspace.of(files), Edit(changes=(change,)))
    assert isinstance(result, Refusal) and result.rule == "edit.path"


def test_huge_and_binary_contents_are_refused() -> None:
    assert (
        rule(Create(path="src/big.py", create="\U0001f40d" * (MAX_FILE_BYTES // 4 + 1)))
        == "edit.too-large"
    )
    assert rule(Create(path="src/bin.py", create="a\0b")) == "edit.nul"


def test_an_edit_cannot_change_a_mode(bundle: Bundle) -> None:
    files: Files = {**support.BASE, CORE: (EXECUTABLE, support.BASE[CORE][1])}
    changes = (Delete(path=CORE, delete=True), Create(path=CORE, create="x = 1\n"))
    result = apply_edit(Workspace.of(files), Edit(changes=changes))
    assert isinstance(result, Edited)
    assert result.workspace.files[CORE] == (EXECUTABLE, b"x = 1\n")


def test_an_accepted_edit_arrives_whole_at_the_evaluator(bundle: Bundle) -> None:
    result = proposed(
        Replace(path=CORE, find="a - b", replace="a + b"), Create(path=NFC, create="x = 1\n")
    )
    assert isinstance(result, Edited)
    candidate = judged(bundle, dict(result.workspace.files))
    assert candidate.files == dict(result.workspace.files)
    assert candidate.flags == ()


# ------------------------------------------------------------------------------- deltas


@pytest.mark.parametrize(
    ("path", "mode", "content", "problem"),
    [
        ("vendored", GITLINK, b"1" * 40, "mode 160000"),
        ("src/pipe", 0o010644, b"", "mode 10644"),
        ("src/disk", 0o060644, b"", "mode 60644"),
        ("src/suid", 0o104755, b"", "mode 104755"),
        (".git/config", REGULAR, b"[core]\n", "git's own"),
        ("src/.GIT/hooks/x", EXECUTABLE, b"", "git's own"),
        ("../x.py", REGULAR, b"", "climbs"),
        ("/x.py", REGULAR, b"", "absolute"),
        ("src/a\0b", REGULAR, b"", "NUL"),
        (f"{CORE}/x.py", REGULAR, b"", "passes through the file"),
        ("src/empty", SYMLINK, b"", "without a valid target"),
    ],
)
def test_a_delta_cannot_hold_it(
    bundle: Bundle, path: str, mode: int, content: bytes, problem: str
) -> None:
    delta = delta_of(path, mode, content)
    with pytest.raises(IntegrityError, match=problem):
        accepted(bundle, "0" * 64, delta)


def test_a_delta_cannot_write_through_a_link(bundle: Bundle) -> None:
    delta = {**delta_of("src/out", SYMLINK, b"/tmp"), **delta_of("src/out/x.py", REGULAR, b"")}
    with pytest.raises(IntegrityError, match="passes through the symlink"):
        accepted(bundle, "0" * 64, delta)


@pytest.mark.parametrize(
    "patch",
    [
        b"diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1111111\n"
        b"--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit " + b"1" * 40 + b"\n",
        b"diff --git a/../x b/../x\nnew file mode 100644\n",
        b"diff --git a/.git/config b/.git/config\nnew file mode 100644\n",
    ],
)
def test_a_patch_cannot_hold_it(patch: bytes) -> None:
    with pytest.raises(IntegrityError):
        apply_patch(support.BASE, patch)


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py",
        "tests/conftest.py",
        "TESTS/test_core.py",
        "src/calc/test_new.py",
        "pytest.ini",
        "Pytest.INI",
        ".gitattributes",
        ".gitmodules",
        "src/.g\u200cit/config",
        "git~1/config",
        "sitecustomize/__init__.py",
        "x.pth",
        "x-1.0.dist-info/entry_points.txt",
    ],
)
def test_protected_paths_are_split_off_and_recorded(bundle: Bundle, path: str) -> None:
    files = {**support.BASE, path: (REGULAR, b"x = 1\n"), CORE: (REGULAR, b"y = 2\n")}
    candidate = judged(bundle, files)
    assert path not in candidate.files
    assert candidate.files[CORE] == (REGULAR, b"y = 2\n")
    assert candidate.flags == ("left-out.protected",)


@pytest.mark.parametrize("path", ["unittest.py", "json/__init__.py", "src/tests.so", "ast.py"])
def test_modules_in_the_place_of_others_are_split_off_and_recorded(
    bundle: Bundle, path: str
) -> None:
    candidate = judged(bundle, {**support.BASE, path: (REGULAR, b"x = 1\n")})
    assert candidate.files == bundle.base
    assert candidate.flags == ("left-out.shadowing",)


def test_links_at_protected_places_are_split_off_and_links_to_tests_are_not_followed(
    bundle: Bundle, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    links = {
        "tests": (SYMLINK, b"src"),
        "conftest.py": (SYMLINK, b"src/calc/core.py"),
        "src/calc/peek.py": (SYMLINK, os.fsencode(secret)),
    }
    candidate = judged(bundle, {**support.BASE, **links})
    laid = bundle.laid_down(candidate.files)
    assert "conftest.py" not in candidate.files
    assert laid[support.FILE] == support.SEALED[support.FILE], "a link cannot take tests' place"
    with worktree(laid, tmp_path / "scratch") as tree:
        assert (tree / "src/calc/peek.py").is_symlink()
        assert reset(tree, laid) == ()
    assert secret.read_text() == "secret"


def test_names_that_some_disks_take_for_one_stay_two(bundle: Bundle, tmp_path: Path) -> None:
    files = {
        **support.BASE,
        "src/calc/Core.py": (REGULAR, b"upper\n"),
        NFC: (REGULAR, b"composed\n"),
        NFD: (REGULAR, b"decomposed\n"),
    }
    candidate = judged(bundle, files)
    with worktree(candidate.files, tmp_path) as tree:
        assert read_directory(tree) == candidate.files
        assert (tree / CORE).read_bytes() == support.BASE[CORE][1]


def test_binary_contents_modes_and_links_keep_their_identity(bundle: Bundle) -> None:
    files: Files = {
        **support.BASE,
        CORE: (EXECUTABLE, support.BASE[CORE][1]),
        "src/calc/data.bin": (REGULAR, bytes(range(256)) * 64),
        "src/calc/link.py": (SYMLINK, b"core.py"),
        "src/calc/big.txt": (REGULAR, b"x" * (4 << 20)),
    }
    assert judged(bundle, files).files == files


def test_a_state_that_is_not_the_deltas_is_refused(bundle: Bundle) -> None:
    with pytest.raises(IntegrityError, match="not " + "0" * 64):
        accepted(bundle, "0" * 64, delta_of("src/calc/x.py", REGULAR, b""))


# ------------------------------------------------------------------------------- overlay


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxShell]:
    scratch = tmp_path_factory.mktemp("shell")
    scratch.chmod(0o711)
    sandbox = BwrapSandbox(scratch / "sandbox")
    git, overlays = scratch / "repo.git", scratch / "overlays"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    overlays.mkdir()
    yield SandboxShell(sandbox, overlays, git, Limits(scratch_bytes=8 << 20), sandbox.uid)
    assert list(overlays.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        (f"ln -sf /etc/passwd {CORE}", (CORE,)),
        (f"ln {CORE} hard.py; echo x >> hard.py", ("hard.py", CORE)),
        (f"chmod +x {CORE}", (CORE,)),
        ("mkfifo src/pipe; mknod src/disk b 8 0 2>/dev/null; :", ("src/pipe",)),
        (
            "touch src/calc/Core.py conftest.py tests.py",
            ("conftest.py", "src/calc/Core.py", "tests.py"),
        ),
        (f"touch {NFC} {NFD}", (NFD, NFC)),
        ("truncate -s 100G src/huge; :", ("src/huge",)),
        ("head -c 100000 /dev/urandom > src/noise.bin", ("src/noise.bin",)),
        ("mkdir -p sub/.git; echo x > sub/.git/config", ("sub/.git/config",)),
        ("echo x > ../outside; echo x > /workspace/y; :", ()),
        ("rm -rf src; ln -s / src", ("src", "src/calc/__init__.py", CORE)),
    ],
)
def test_what_a_shell_writes_is_counted_and_lost(
    shell: SandboxShell, command: str, writes: tuple[str, ...]
) -> None:
    workspace = Workspace.of(support.BASE)
    before = workspace.state_id
    result = shell.run(dict(workspace.files), command)
    assert result.writes == writes
    assert Workspace.of(workspace.files).state_id == before
    assert not list(shell.scratch.iterdir())


def test_a_shell_cannot_write_the_git_directory(shell: SandboxShell) -> None:
    command = "echo '[core]' > .git/config; rm -rf .git; mv .git other; cat .git/HEAD"
    result = shell.run(support.BASE, command)
    assert b"refs/heads/main" in result.output
    assert sorted(p.name for p in shell.git_directory.iterdir()) == ["HEAD"]


def test_a_directory_with_a_pipe_or_an_odd_name_is_refused_as_a_tree(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="FIFO"):
        read_directory(tmp_path)
    (tmp_path / "pipe").unlink()
    (tmp_path / os.fsdecode(b"a\xff.py")).touch()
    with pytest.raises(BadInput, match="UTF-8"):
        read_directory(tmp_path)
