"""Which paths of a repository are tests, test configuration or otherwise not production code.

One table, used by curation (what is stripped from the agent's mirror), by the agent's edit action
(what is protected) and by the evaluator (what is restored). Lessons 2 and 5 of the curation notes.
"""

import unicodedata
from pathlib import PurePosixPath

TEST_CONFIG = frozenset(
    {
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
    }
)
TEST_DIRECTORIES = frozenset({"test", "tests"})
HOOK_MODULES = frozenset({"conftest", "sitecustomize", "usercustomize"})
"""Modules that are run without being asked for, as a file, a package or a compiled module."""
METADATA_SUFFIXES = (".egg-info", ".dist-info")
AGENT_INSTRUCTIONS = frozenset(
    {"AGENTS.md", "CLAUDE.md", ".cursorrules", "copilot-instructions.md"}
)


def is_test_path(path: str) -> bool:
    """Whether a path holds tests: under ``test``/``tests``, ``test_*.py``, ``*_test.py``, conftest.

    ``testing.py`` and ``testing/`` are production code and do not match.
    """
    pure = PurePosixPath(path)
    if TEST_DIRECTORIES & set(pure.parts[:-1]):
        return True
    name = pure.name
    return name == "conftest.py" or (
        name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
    )


def protection(path: str) -> str | None:
    """Why an edit of ``path`` is refused, or None where it is production code.

    Protected: tests, test configuration, start-up hooks, installed metadata, git's own files, each
    however it is spelled: readers of some of these names ignore case.
    """
    return _protection(path) or _protection(folded(path))


def folded(path: str) -> str:
    """What a path is on a file system that ignores case, Unicode composition and characters that
    are not seen (``.g\u200cit`` is git's folder to some).
    """
    if path.isascii():
        return path.lower()
    seen = "".join(c for c in path if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", seen).casefold())


def _protection(path: str) -> str | None:
    pure = PurePosixPath(path)
    if is_test_path(path):
        return "test path"
    if pure.name in TEST_CONFIG:
        return "test configuration"
    modules = {part.partition(".")[0] for part in pure.parts}
    if pure.suffix == ".pth" or modules & HOOK_MODULES:
        return "start-up file"
    if any(part.endswith(METADATA_SUFFIXES) for part in pure.parts):
        return "package metadata"
    if any(part.lower().startswith((".git", "git~")) for part in pure.parts):
        return "git file"
    return None
