"""Edits: what is refused, why, and that a refusal anywhere refuses the whole edit."""

import pytest

from orchestrator.agent.actions import Change, Create, Delete, Edit, Replace
from orchestrator.agent.edits import MAX_FILE_BYTES, Edited, apply_edit
from orchestrator.agent.workspace import Files, Refusal, Workspace

FILES: Files = {
    "pkg/a.py": (0o100644, b"one\ntwo\none\n"),
    "pkg/tool.py": (0o100755, b"x = 1\n"),
    "pkg/dos.py": (0o100644, b"a\r\nb\r\n"),
    "pkg/empty.py": (0o100755, b""),
    "pkg/latin.py": (0o100644, b"\xe9"),
    "pkg/link.py": (0o120000, b"a.py"),
    "caf\u00e9/x.py": (0o100644, b"x\n"),
    "tests/test_a.py": (0o100644, b"assert 1\n"),
    "setup.cfg": (0o100644, b"[x]\n"),
}


def edited(*changes: Change) -> Edited | Refusal:
    return apply_edit(Workspace.of(FILES), Edit(changes=changes))


def refusal(*changes: Change) -> Refusal:
    result = edited(*changes)
    assert isinstance(result, Refusal)
    return result


def content(result: Edited | Refusal, path: str) -> bytes:
    assert isinstance(result, Edited)
    return result.workspace.files[path][1]


def test_one_occurrence_is_replaced() -> None:
    result = edited(Replace(path="pkg/a.py", find="two", replace="three"))
    assert content(result, "pkg/a.py") == b"one\nthree\none\n"


@pytest.mark.parametrize("find, count", [("one", 2), ("four", 0), ("o", 3)])
def test_any_other_number_of_occurrences_is_refused_with_the_number(find: str, count: int) -> None:
    found = refusal(Replace(path="pkg/a.py", find=find, replace=""))
    assert found.rule == "edit.find" and f"occurs {count} times" in found.reason


def test_overlapping_occurrences_are_ambiguous() -> None:
    files: Files = {"a.py": (0o100644, b"aaa")}
    change = Replace(path="a.py", find="aa", replace="b")
    result = apply_edit(Workspace.of(files), Edit(changes=(change,)))
    assert isinstance(result, Refusal) and "2 times" in result.reason


def test_many_occurrences_are_counted_up_to_a_bound() -> None:
    files: Files = {"a.py": (0o100644, b"a" * 5000)}
    change = Replace(path="a.py", find="a", replace="b")
    result = apply_edit(Workspace.of(files), Edit(changes=(change,)))
    assert isinstance(result, Refusal) and "1000 or more times" in result.reason


def test_changes_are_applied_in_order() -> None:
    result = edited(
        Replace(path="pkg/a.py", find="one\ntwo", replace="two"),
        Replace(path="pkg/a.py", find="one", replace="1"),
    )
    assert content(result, "pkg/a.py") == b"two\n1\n"


def test_an_edit_is_all_or_nothing() -> None:
    good = Replace(path="pkg/tool.py", find="1", replace="2")
    assert refusal(good, Replace(path="pkg/a.py", find="missing", replace="")).rule == "edit.find"
    assert isinstance(edited(good), Edited)


def test_files_are_created_and_deleted() -> None:
    result = edited(Create(path="pkg/new/b.py", create="b\n"), Delete(path="pkg/a.py", delete=True))
    assert isinstance(result, Edited)
    assert result.changed == ("pkg/a.py", "pkg/new/b.py")
    assert result.workspace.files["pkg/new/b.py"] == (0o100644, b"b\n")
    assert "pkg/a.py" not in result.workspace.files


def test_modes_are_kept() -> None:
    result = edited(
        Replace(path="pkg/tool.py", find="1", replace="2"),
        Delete(path="pkg/empty.py", delete=True),
        Create(path="pkg/empty.py", create="now something\n"),
    )
    assert isinstance(result, Edited)
    assert {result.workspace.files[p][0] for p in result.changed} == {0o100755}


def test_line_ends_and_what_is_not_touched_stay_byte_for_byte() -> None:
    result = edited(Replace(path="pkg/dos.py", find="b", replace="c"))
    assert content(result, "pkg/dos.py") == b"a\r\nc\r\n"


@pytest.mark.parametrize(
    "changes",
    [
        (Replace(path="pkg/tool.py", find="1", replace="1"),),
        (
            Replace(path="pkg/tool.py", find="1", replace="2"),
            Replace(path="pkg/tool.py", find="2", replace="1"),
        ),
        (Create(path="new.py", create="x"), Delete(path="new.py", delete=True)),
    ],
)
def test_a_no_op_is_refused(changes: tuple[Change, ...]) -> None:
    assert refusal(*changes).rule == "edit.no-op"


@pytest.mark.parametrize(
    "path, rule",
    [
        ("/etc/passwd", "edit.path"),
        ("../x.py", "edit.path"),
        ("pkg/../x.py", "edit.path"),
        ("pkg/./x.py", "edit.path"),
        ("pkg//x.py", "edit.path"),
        ("pkg/", "edit.path"),
        ("pkg\\x.py", "edit.path"),
        ("pkg/x\0.py", "edit.path"),
        ("pkg/x\n.py", "edit.path"),
        ("pkg/\u202ex.py", "edit.path"),
        ("x" * 256, "edit.path"),
        ("pkg/a.py/b.py", "edit.path"),
        ("pkg/link.py/b.py", "edit.path"),
        ("pkg", "edit.path"),
        ("tests/test_new.py", "edit.protected"),
        ("Tests/new.py", "edit.protected"),
        ("pkg/conftest.py", "edit.protected"),
        ("CONFTEST.py", "edit.protected"),
        ("pyproject.toml", "edit.protected"),
        ("sitecustomize.py", "edit.protected"),
        ("sitecustomize/__init__.py", "edit.protected"),
        ("pkg/conftest/__init__.py", "edit.protected"),
        ("x.EGG-INFO/entry_points.txt", "edit.protected"),
        ("x.pth", "edit.protected"),
        (".git/hooks/pre-commit", "edit.protected"),
        (".gitattributes", "edit.protected"),
        ("x.dist-info/METADATA", "edit.protected"),
        ("pkg/A.py", "edit.collision"),
        ("PKG/new.py", "edit.collision"),
        ("cafe\u0301/x.py", "edit.collision"),
        ("cafe\u0301/new.py", "edit.collision"),
        ("pkg/a.py", "edit.exists"),
        ("pkg/link.py", "edit.exists"),
    ],
)
def test_where_nothing_can_be_created(path: str, rule: str) -> None:
    assert refusal(Create(path=path, create="x\n")).rule == rule


@pytest.mark.parametrize(
    "path, rule",
    [
        ("missing.py", "edit.no-such-file"),
        ("pkg/latin.py", "edit.not-text"),
        ("pkg/link.py", "edit.symlink"),
        ("tests/test_a.py", "edit.protected"),
        ("setup.cfg", "edit.protected"),
        ("./pkg/a.py", "edit.path"),
    ],
)
def test_what_cannot_be_changed_or_deleted(path: str, rule: str) -> None:
    assert refusal(Replace(path=path, find="x", replace="y")).rule == rule
    assert refusal(Delete(path=path, delete=True)).rule == rule


def test_sizes_are_bounded_and_nul_is_refused() -> None:
    grow = Replace(path="pkg/tool.py", find="1", replace="1" * 300_000)
    big = [Create(path=f"big{i}.py", create="x" * 300_000) for i in range(2)]
    assert isinstance(edited(grow, *big), Edited)
    files: Files = {"a.py": (0o100644, b"1" + b"x" * MAX_FILE_BYTES)}
    change = Replace(path="a.py", find="1", replace="2")
    result = apply_edit(Workspace.of(files), Edit(changes=(change,)))
    assert isinstance(result, Refusal) and result.rule == "edit.too-large"
    assert refusal(Create(path="n.py", create="a\0b")).rule == "edit.nul"
