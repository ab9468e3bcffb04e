"""What the agent does not get, and what makes a project count as installed."""

import pytest

from orchestrator.repo.files import Files
from orchestrator.tasks.classify import Layout
from orchestrator.tasks.trees import (
    base_tree,
    entry_points,
    metadata_files,
    removed_paths,
    sealed_tree,
    withheld,
)

LAYOUT = Layout("src", ("tests", "checks"))
NAME, VERSION = "Some.Tool", "1.0"


def files(texts: dict[str, str]) -> Files:
    return {path: (0o100644, text.encode()) for path, text in texts.items()}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("src/tool/a.py", None),
        ("src/tool/testing.py", None),
        ("pyproject.toml", None),
        ("setup.cfg", None),
        ("CHANGES.rst", None),
        ("docs/index.md", None),
        ("tests/data.txt", "test or test configuration"),
        ("checks/a.py", "test or test configuration"),
        ("src/tool/tests/a.py", "test or test configuration"),
        ("conftest.py", "test or test configuration"),
        ("tox.ini", "test or test configuration"),
        ("pytest.ini", "test or test configuration"),
        ("AGENTS.md", "agent instructions"),
        ("docs/CLAUDE.md", "agent instructions"),
        ("agents.md", "agent instructions"),
        ("GEMINI.md", "agent instructions"),
        (".windsurf/rules.md", "agent instructions"),
        ("src/tool/agents.py", None),
        (".cursor/rules/a.md", "agent instructions"),
        (".github/copilot-instructions.md", "agent instructions"),
        (".gitattributes", "git file"),
        (".github/workflows/a.yml", "git file"),
        ("src/Tool.egg-info/PKG-INFO", "build residue"),
        ("PKG-INFO", "build residue"),
        ("src/tool/__pycache__/a.pyc", "build residue"),
    ],
)
def test_what_is_withheld_from_the_agent(path: str, reason: str | None) -> None:
    assert withheld(path, LAYOUT) == reason
    assert (path in base_tree(files({path: ""}), LAYOUT)) == (reason is None)


def test_the_fixed_tests_replace_the_buggy_ones_whole() -> None:
    buggy = files({"src/a.py": "1", "tests/old.py": "1", "tests/a.py": "1", "setup.cfg": "1"})
    fixed = files({"src/a.py": "2", "tests/a.py": "2", "tests/b.json": "2", "pytest.ini": "2"})
    base, sealed = base_tree(buggy, LAYOUT), sealed_tree(buggy, fixed, NAME, VERSION, LAYOUT)
    assert {*base} == {"src/a.py", "setup.cfg"}
    metadata = {path for path in sealed if ".dist-info/" in path}
    assert {path: sealed[path] for path in sealed if path not in metadata} == {
        path: fixed[path] for path in ("tests/a.py", "tests/b.json", "pytest.ini")
    }
    assert removed_paths(base, sealed) == ("setup.cfg",)


def test_metadata_is_that_of_the_buggy_release() -> None:
    found = metadata_files(files({"PKG-INFO": "Name: Some.Tool\n"}), NAME, VERSION, LAYOUT)
    assert found == files({"src/some_tool-1.0.dist-info/METADATA": "Name: Some.Tool\n"})
    (made,) = metadata_files({}, NAME, VERSION, Layout(".", ())).items()
    assert made[0] == "some_tool-1.0.dist-info/METADATA"
    assert made[1][1] == b"Metadata-Version: 2.1\nName: Some.Tool\nVersion: 1.0\n"


EGG = """\
[pytest11]
plugin = tool.plugin

[b.group]
Name.X = tool:b

[a.group]
x = tool:a [extra]
"""
PROJECT = """\
[project]
name = "tool"
[project.entry-points.pytest11]
plugin = "tool.plugin"
[project.entry-points."b.group"]
"Name.X" = "tool:b"
[project.entry-points."a.group"]
x = "tool:a [extra]"
"""
POINTS = b"[a.group]\nx = tool:a [extra]\n[b.group]\nName.X = tool:b\n"


def test_entry_points_are_kept_but_for_plugins_of_the_runner() -> None:
    assert entry_points(files({"src/Tool.egg-info/entry_points.txt": EGG})) == POINTS
    assert entry_points(files({"pyproject.toml": PROJECT})) == POINTS


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"a.egg-info/entry_points.txt": "no section\n"},
        {"a.egg-info/entry_points.txt": "[pytest11]\nplugin = tool.plugin\n"},
        {"pyproject.toml": "not [toml"},
        {"pyproject.toml": "[project]\nname = 'x'\n"},
        {"pyproject.toml": "project = 1\n"},
    ],
)
def test_without_usable_entry_points_there_are_none(texts: dict[str, str]) -> None:
    assert entry_points(files(texts)) == b""
