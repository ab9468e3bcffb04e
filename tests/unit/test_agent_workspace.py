"""Looking at the working tree: bounded, numbered, in path order, the same every time."""

import re

import pytest

from orchestrator.agent.actions import Search, View
from orchestrator.agent.workspace import (
    MAX_LINE_CHARACTERS,
    MAX_MATCHES,
    MAX_VIEW_LINES,
    Files,
    Refusal,
    Workspace,
    listing,
    search,
    view,
)
from orchestrator.repo.files import tree_of

FILES: Files = {
    "b/two.py": (0o100644, b"import os\n\ndef f():\n    return os\n"),
    "a.py": (0o100644, "größe = 1\nos = 2".encode()),
    "B/three.py": (0o100644, b"os\r\nx\r\n"),
    "link.py": (0o120000, b"os"),
    "bin": (0o100644, b"os\xff"),
}
WORKSPACE = Workspace.of(FILES)


def found(pattern: str, path: str | None = None) -> list[str]:
    result = search(WORKSPACE, Search(pattern=pattern, path=path))
    assert isinstance(result, str)
    return result.splitlines()


def test_identity_is_that_of_the_tree() -> None:
    assert WORKSPACE.state_id == tree_of(FILES).state_id


def test_matches_are_lines_in_path_order_text_files_only() -> None:
    assert found("os") == [
        "B/three.py:1: os",
        "a.py:2: os = 2",
        "b/two.py:1: import os",
        "b/two.py:4:     return os",
    ]


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("^os", ["B/three.py:1: os", "a.py:2: os = 2"]),
        ("2$", ["a.py:2: os = 2"]),
        ("gr..e", ["a.py:1: größe = 1"]),
        ("os\\n\\ndef", ["b/two.py:1: import os"]),
        ("(?i)IMPORT|größe", ["a.py:1: größe = 1", "b/two.py:1: import os"]),
        ("nothing", ["no match"]),
    ],
)
def test_patterns(pattern: str, expected: list[str]) -> None:
    assert found(pattern) == expected


def test_the_path_is_a_prefix() -> None:
    assert [line.split(":")[0] for line in found("os", "b/")] == ["b/two.py"] * 2
    assert found("os", "nowhere") == ["no match"]


def test_an_empty_match_is_a_match_on_each_line() -> None:
    assert len(found("x*", "b/two.py")) == 4


@pytest.mark.parametrize("pattern", ["(", "a{5000}", "(?<=a)b", r"\p{Nope}", "é[", "(a?){1000}z"])
def test_a_bad_pattern_is_refused_without_a_trace_on_stderr(
    pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = search(WORKSPACE, Search(pattern=pattern))
    assert isinstance(result, Refusal) and "(?m)" not in result.reason
    assert capfd.readouterr().err == ""


def test_matches_and_lines_are_bounded() -> None:
    files: Files = {"a.py": (0o100644, b"y" * 1000 + b"\n" + b"y\n" * 500)}
    result = search(Workspace.of(files), Search(pattern="y"))
    assert isinstance(result, str)
    lines = result.splitlines()
    assert len(lines) == MAX_MATCHES + 1 and str(MAX_MATCHES) in lines[-1]
    assert len(lines[0]) < MAX_LINE_CHARACTERS + 20


def test_a_pattern_that_ruins_backtracking_matchers_takes_linear_time() -> None:
    files: Files = {"a.py": (0o100644, b"a" * 5000)}
    assert search(Workspace.of(files), Search(pattern="(a*)*b")) == "no match"


def test_line_numbers_agree_with_python() -> None:
    text = FILES["b/two.py"][1].decode()
    for pattern in ("o", "r", "$", "^ "):
        numbers = {int(line.split(":")[1]) for line in found(pattern, "b/two.py")}
        lines = text.splitlines()
        assert numbers == {n for n, line in enumerate(lines, 1) if re.search(pattern, line)}


def shown(path: str, start: int | None = None, end: int | None = None) -> str:
    result = view(WORKSPACE, View(path=path, start_line=start, end_line=end))
    return result.reason if isinstance(result, Refusal) else result


def test_a_view_is_numbered_and_says_how_long_the_file_is() -> None:
    assert shown("b/two.py").splitlines() == [
        "b/two.py (4 lines)",
        "    1  import os",
        "    2  ",
        "    3  def f():",
        "    4      return os",
    ]
    assert shown("b/two.py", 3, 3).splitlines()[1:] == ["    3  def f():"]
    assert shown("b/two.py", 4, 99).splitlines()[1:] == ["    4      return os"]


@pytest.mark.parametrize(
    "path, start, end",
    [
        ("gone.py", None, None),
        ("bin", None, None),
        ("link.py", None, None),
        ("a.py", 3, None),
        ("a.py", 2, 1),
    ],
)
def test_what_cannot_be_viewed_is_refused(path: str, start: int | None, end: int | None) -> None:
    assert isinstance(view(WORKSPACE, View(path=path, start_line=start, end_line=end)), Refusal)


def test_an_empty_file_has_no_lines() -> None:
    empty = Workspace.of({"a": (0o100644, b"")})
    assert view(empty, View(path="a")) == "a (0 lines)"
    assert isinstance(view(empty, View(path="a", start_line=2)), Refusal)


def test_a_view_is_bounded() -> None:
    files: Files = {"a.py": (0o100644, b"y\n" * 5000)}
    result = view(Workspace.of(files), View(path="a.py", start_line=100))
    assert isinstance(result, str)
    assert len(result.splitlines()) == MAX_VIEW_LINES + 1 and "(5000 lines)" in result


def test_a_listing_is_bounded_and_says_what_is_left_out() -> None:
    assert listing(WORKSPACE, 1000).splitlines() == sorted(FILES, key=str.encode)
    assert listing(WORKSPACE, 20).splitlines() == ["B/three.py", "a.py", "(and 3 more files)"]
