"""Each changed path is what a maintainer would call it; the layout is found without help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.repo.files import Files, apply_delta
from orchestrator.tasks.classify import (
    Layout,
    PathClass,
    classify,
    derive_layout,
    top_level_modules,
)
from orchestrator.tasks.lines import changed_lines

FLAT = Layout(".", ("tests",))


def files(texts: dict[str, str]) -> Files:
    return {path: (0o100644, text.encode()) for path, text in texts.items()}


def class_of(path: str, old: str | None, new: str | None, layout: Layout = FLAT) -> PathClass:
    anchor = {"pkg/__init__.py": "", "src/pkg/__init__.py": ""}
    buggy = files(anchor | ({path: old} if old is not None else {}))
    fixed = files(anchor | ({path: new} if new is not None else {}))
    return classify(buggy, fixed, layout).classes[path]


KINDS: list[tuple[str, str, str, PathClass]] = [
    ("pkg/a.py", "x = 1\n", "x = 2\n", PathClass.GOLD),
    ("pkg/testing.py", "x = 1\n", "x = 2\n", PathClass.GOLD),
    ("pkg/testing/a.py", "x = 1\n", "x = 2\n", PathClass.GOLD),
    ("pkg/tools/a.py", "x = 1\n", "x = 2\n", PathClass.GOLD),
    ("module.py", "x = 1\n", "x = 2\n", PathClass.GOLD),
    ("pkg/test/test_a.py", "x = 1\n", "x = 2\n", PathClass.TEST),
    ("pkg/tests/data.py", "x = 1\n", "x = 2\n", PathClass.TEST),
    ("tests/data.yaml", "x: 1\n", "x: 2\n", PathClass.TEST),
    ("test_module.py", "x = 1\n", "x = 2\n", PathClass.TEST),
    ("conftest.py", "x = 1\n", "x = 2\n", PathClass.TEST),
    ("pytest.ini", "[pytest]\n", "[pytest]\nx=1\n", PathClass.TEST),
    ("setup.py", "x = 1\n", "x = 2\n", PathClass.OTHER),
    ("hatch_build.py", "x = 1\n", "x = 2\n", PathClass.OTHER),
    ("benchmark.py", "x = 1\n", "x = 2\n", PathClass.OTHER),
    ("docs/conf.py", "x = 1\n", "x = 2\n", PathClass.OTHER),
    ("examples/a.py", "x = 1\n", "x = 2\n", PathClass.OTHER),
    (".idea/workspace.xml", "1", "2", PathClass.OTHER),
    ("CHANGES", "1", "2", PathClass.OTHER),
    ("pkg/locale/de.mo", "1", "2", PathClass.PACKAGE_DATA),
    ("pkg/__init__.py", '__version__ = "1"\n', '__version__ = "2"\n', PathClass.METADATA),
    ("pkg/_version.py", "a = 1\n", "b = 2\n", PathClass.METADATA),
    ("pkg/a.py", "# Copyright 2020 A\nx = 1\n", "# Copyright 2021 A\nx = 1\n", PathClass.METADATA),
    ("pkg/a.py", '"""\ncopyright 2020\n"""\n', '"""\ncopyright 2021\n"""\n', PathClass.METADATA),
    ("pkg/a.py", 'VERSION = (1, 2)\nx = 1\n', 'VERSION = (1, 3)\nx = 1\n', PathClass.METADATA),
    ("pkg/a.py", '__date__ = "1"\n', '__date__ = "2"\n', PathClass.METADATA),
    ("pkg/a.py", 'x = 1\n__version__ = "1"\n', 'x = 2\n__version__ = "2"\n', PathClass.GOLD),
    ("pkg/a.py", "version = parse(a)\n", "version = parse(b)\n", PathClass.GOLD),
    ("pkg/a.py", "if f(c) == 2020: pass\n", "if f(c) == 2021: pass\n", PathClass.GOLD),
    ("pkg/a.py", "x = 1\n", "x = 1\r\n", PathClass.FORMAT),
    ("pkg/a.py", "x = 1\n", "x = 1   \n\n", PathClass.FORMAT),
    ("pkg/a.py", "f( 1,2 )\n", "f(\n    1,\n    2,\n)  # call\n", PathClass.FORMAT),
    ("pkg/a.py", "if x:\n    y()\nz()\n", "if x:\n    y()\n    z()\n", PathClass.GOLD),
    ("pkg/a.py", "print 'old'\n", "print 'new'\n", PathClass.GOLD),
]  # fmt: skip


@pytest.mark.parametrize(("path", "old", "new", "kind"), KINDS)
def test_changed_paths(path: str, old: str, new: str, kind: PathClass) -> None:
    assert class_of(path, old, new) is kind


def test_whole_modules_count_and_an_empty_one_too() -> None:
    assert class_of("pkg/new.py", None, "x = 1\n") is PathClass.GOLD
    assert class_of("pkg/old.py", "x = 1\n", None) is PathClass.GOLD


def test_below_a_src_root_nothing_else_is_production() -> None:
    layout = Layout("src", ("tests",))
    assert class_of("src/pkg/a.py", "x = 1\n", "x = 2\n", layout) is PathClass.GOLD
    assert class_of("pkg/a.py", "x = 1\n", "x = 2\n", layout) is PathClass.OTHER
    assert class_of("src/pkg/a.txt", "1", "2", layout) is PathClass.PACKAGE_DATA


def test_gold_is_exactly_the_production_change() -> None:
    buggy = files({"pkg/a.py": "x = 1\n", "pkg/__init__.py": "v = 1\n", "tests/t.txt": "1"})
    fixed = files({"pkg/a.py": "x = 2\ny = 3\n", "pkg/__init__.py": "v = 1\n", "tests/t.txt": "2"})
    change = classify(buggy, fixed, FLAT)
    assert (change.gold_files, change.gold_lines) == (("pkg/a.py",), 3)
    assert apply_delta(buggy, change.gold) == {**fixed, "tests/t.txt": buggy["tests/t.txt"]}
    assert change.counts() == {
        "test": 1, "gold": 1, "metadata": 0, "format": 0, "package_data": 0, "other": 0
    }  # fmt: skip


# ------------------------------------------------------------------------------- lines


def count(old: str, new: str) -> int:
    return changed_lines([(old.encode(), new.encode())])


MODULE = "import os\n\n\ndef first(a, b):\n    c = a + b\n    return c\n\n\n"
OTHER = "def second(x):\n    y = x * 2\n    return y\n\n\n"


def test_line_ends_and_trailing_blanks_do_not_count_as_changed_lines() -> None:
    assert count("a\nb\nc\n", "a\r\nB  \r\nc\r\n") == 2
    assert count("", "a\nb\n") == 2
    assert count("a = 1\nb = 2\n", "a = 1   \nb = 2\t\n") == 0


def test_a_block_that_moved_within_or_between_files_does_not_count() -> None:
    assert count(MODULE + OTHER, OTHER + MODULE) <= 2  # blank lines around it may
    files = [((MODULE + OTHER).encode(), MODULE.encode()), (b"", OTHER.encode())]
    assert changed_lines(files) <= 4
    assert changed_lines([(b"x = 1\n", b""), (b"", b"x = 1\n")]) == 2  # too short to be a move


def test_a_moved_block_that_was_edited_counts_where_it_was_edited() -> None:
    edited = OTHER.replace("x * 2", "x * 3")
    assert count(MODULE + OTHER, edited + MODULE) >= 2


def test_new_indentation_counts_since_it_can_change_what_runs() -> None:
    assert count("a()\nb()\nc()\nd()\ne()\n", "a()\nif x:\n    b()\nc()\nd()\ne()\n") == 3


def test_a_reformatted_file_is_counted_on_its_syntax() -> None:
    old = "".join(f"def f{n}(a,b):\n  return [a,\n          b]\n" for n in range(30))
    new = "".join(f"def f{n}(a, b):\n    # tidy\n    return [a, b]\n\n\n" for n in range(30))
    assert count(old, new) == 0
    assert count(old, new.replace("def f7(a, b):\n    # tidy\n    return [a, b]",
                                  "def f7(a, b):\n    # tidy\n    return [b, a]")) == 2  # fmt: skip
    assert count("print 'a'\nprint 'b'\n", "print 'c'\nprint 'd'\n") == 4  # does not parse


@given(st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c\r\n"])))
def test_changed_lines_of_equal_and_swapped_contents(lines: list[bytes]) -> None:
    data = b"".join(lines)
    assert changed_lines([(data, data)]) == 0
    assert changed_lines([(data, b"x\n")]) == changed_lines([(b"x\n", data)])


LAYOUTS: list[tuple[list[str], str, tuple[str, ...]]] = [
    (["pkg/a.py", "tests/test_a.py"], ".", ("tests",)),
    (["src/pkg/a.py", "src/pkg/tests/test_a.py"], "src", ("src/pkg/tests",)),
    (["pkg/a.py", "pkg/test/test_a.py", "pkg/test/deep/tests/x.py"], ".", ("pkg/test",)),
    (["module.py", "test_module.py"], ".", ("test_module.py",)),
    (["src/__init__.py", "src/a.py"], ".", ()),
    (["pkg/a.py", "pkg/tests/data.txt"], ".", ()),
    (["pkg/a.py", "examples/x/tests/test_x.py", "tests/test_a.py"], ".", ("tests",)),
]


@pytest.mark.parametrize(("paths", "root", "tests"), LAYOUTS)
def test_layout_is_derived(paths: list[str], root: str, tests: tuple[str, ...]) -> None:
    tree = files(dict.fromkeys(paths, "def test_it(): pass\n"))
    assert derive_layout(tree) == Layout(root, tests)


def test_a_helper_named_like_a_test_is_not_run() -> None:
    tree = files({"pkg/test_tools.py": "class TestCase: pass\n", "tests/test_a.py": ""})
    assert derive_layout(tree).test_paths == ("tests",)


def test_the_manifest_has_the_last_word() -> None:
    tree = files({"src/pkg/a.py": "", "tests/test_a.py": ""})
    assert derive_layout(tree, ".", ("checks",)) == Layout(".", ("checks",))


def test_top_level_modules_are_those_that_can_be_imported() -> None:
    tree = [
        "pkg/__init__.py",
        "module.py",
        "setup.py",
        "docs/conf.py",
        "tests/test_a.py",
        "a-b/x.py",
    ]
    assert top_level_modules(tree, ".") == ("module", "pkg")
    assert top_level_modules(["src/pkg/a.py", "src/one.py", "x.py"], "src") == ("one", "pkg")
