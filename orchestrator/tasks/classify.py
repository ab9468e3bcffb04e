"""Says what each changed path between two releases is, and derives import root and test paths.

Pure: two trees in, a :class:`Classification` out. Only *production* Python whose change can alter
behaviour is gold; version stamps, copyright years, line ends and layout are not, nor are build
scripts, documentation and examples.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from orchestrator.repo.files import Files, delta_between
from orchestrator.spec.paths import TEST_CONFIG, TEST_DIRECTORIES, is_test_path
from orchestrator.spec.ports import Delta
from orchestrator.tasks.lines import changed_lines


class PathClass(StrEnum):
    """What a changed path is. Only ``GOLD`` belongs to the gold patch."""

    TEST = "test"
    GOLD = "gold"
    METADATA = "metadata"
    FORMAT = "format"
    PACKAGE_DATA = "package_data"
    OTHER = "other"


NOT_PRODUCTION_FOLDERS = frozenset(
    {
        "artwork", "bench", "benchmark", "benchmarks", "bin", "build", "ci", "contrib", "debian",
        "demo", "demos", "dist", "doc", "docs", "example", "examples", "requirements", "sample",
        "samples", "script", "scripts", "tool", "tools", "utils",
    }
)  # fmt: skip
"""Top-level folders that ship beside a package; deeper folders of these names are production."""

NOT_PRODUCTION_FILES = frozenset(
    {
        "benchmark.py", "benchmarks.py", "build.py", "conf.py", "ez_setup.py", "fabfile.py",
        "hatch_build.py", "noxfile.py", "release.py", "setup.py", "tasks.py", "versioneer.py",
    }
)  # fmt: skip
"""Top-level scripts that build, release or measure a project."""

DEFINES_TESTS = re.compile(rb"^\s*(?:async\s+)?def test[_A-Z0-9]", re.MULTILINE)

METADATA_FILES = frozenset({"_version.py", "__about__.py"})
METADATA_LINE = re.compile(
    r"""^\s*(?:
        __version(?:_info|_tuple)?__\s*(?::[^=]+)?=
      | __(?:date|release_date|released|author|copyright|email|license)__\s*(?::[^=]+)?=
      | version(?:_info|_tuple)?\s*(?::[^=]+)?=\s*["'(]
      | \#.*\(c\).*\b(?:19|20)\d\d\b
      | .*\bcopyright\b.*\b(?:19|20)\d\d\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""A version stamp, a release date or a header's years: lines that every release changes."""


@dataclass(frozen=True)
class Layout:
    """``import_root`` (``"src"`` or ``"."``) and what pytest is given, relative to the tree."""

    import_root: str
    test_paths: tuple[str, ...]


@dataclass(frozen=True)
class Classification:
    """Every changed path with its class; ``gold`` is the part that is the fix.

    ``gold_lines``: lines of gold files that changed, as :func:`~.lines.changed_lines` counts.
    """

    classes: Mapping[str, PathClass]
    gold: Delta
    gold_lines: int

    @property
    def gold_files(self) -> tuple[str, ...]:
        return tuple(sorted(self.gold))

    def counts(self) -> dict[str, int]:
        """Number of changed paths per class; every class is named."""
        found = Counter(self.classes.values())
        return {kind.value: found[kind] for kind in PathClass}


# ------------------------------------------------------------------------------- layout


def derive_layout(
    files: Files, import_root: str | None = None, test_paths: tuple[str, ...] | None = None
) -> Layout:
    """Where a tree is imported from and where its tests lie; given values win over derived ones."""
    root = import_root if import_root is not None else _import_root(files)
    return Layout(root, test_paths if test_paths is not None else _test_paths(files))


def _import_root(files: Iterable[str]) -> str:
    """``src`` where Python lies in it and it is no package itself, else the tree's top."""
    paths = set(files)
    below = any(path.startswith("src/") and path.endswith(".py") for path in paths)
    return "src" if below and "src/__init__.py" not in paths else "."


def _test_paths(files: Files) -> tuple[str, ...]:
    """Topmost test folders that hold Python, and modules outside of them that define tests."""
    found: set[str] = set()
    for path, (_, data) in files.items():
        if not path.endswith(".py") or not is_test_path(path) or _beside(path):
            continue
        folder = _test_folder(path)
        if folder is not None:
            found.add(folder)
        elif DEFINES_TESTS.search(data):
            found.add(path)
    return tuple(sorted(found))


def _test_folder(path: str) -> str | None:
    parts = PurePosixPath(path).parts[:-1]
    depth = next((n for n, part in enumerate(parts, 1) if part in TEST_DIRECTORIES), None)
    return None if depth is None else "/".join(parts[:depth])


def _beside(path: str) -> bool:
    """Whether a path lies in a folder that is neither the project nor its tests."""
    top, _, rest = path.partition("/")
    return bool(rest) and (top in NOT_PRODUCTION_FOLDERS or top.startswith("."))


# ------------------------------------------------------------------------------- production


def is_production(path: str, import_root: str) -> bool:
    """Whether a path is Python that a user of the package imports."""
    if not path.endswith(".py") or is_test_path(path):
        return False
    if import_root != ".":
        return path.startswith(f"{import_root}/")
    return not _beside(path) and path not in NOT_PRODUCTION_FILES


def top_level_modules(files: Iterable[str], import_root: str) -> tuple[str, ...]:
    """Names under which the tree's production code is imported, sorted."""
    prefix = "" if import_root == "." else f"{import_root}/"
    names = set()
    for path in files:
        if is_production(path, import_root):
            names.add(path.removeprefix(prefix).partition("/")[0].removesuffix(".py"))
    return tuple(sorted(name for name in names if name.isidentifier()))


def _package_folders(files: Iterable[str], import_root: str) -> frozenset[str]:
    """Top folder of each package, relative to the tree."""
    depth = 1 if import_root == "." else 2
    return frozenset(
        "/".join(PurePosixPath(path).parts[:depth])
        for path in files
        if is_production(path, import_root) and len(PurePosixPath(path).parts) > depth
    )


# ------------------------------------------------------------------------------- changes


def classify(buggy: Files, fixed: Files, layout: Layout) -> Classification:
    """Classify every path that differs between the releases and derive the gold patch."""
    delta = delta_between(buggy, fixed)
    packages = _package_folders({*buggy, *fixed}, layout.import_root)
    classes = {
        path: _classify_path(path, buggy.get(path), fixed.get(path), layout, packages)
        for path in delta
    }
    gold = {path: change for path, change in delta.items() if classes[path] is PathClass.GOLD}
    lines = changed_lines((_content(buggy, path), _content(fixed, path)) for path in sorted(gold))
    return Classification(classes, gold, lines)


def _content(files: Files, path: str) -> bytes:
    return files[path][1] if path in files else b""


def _classify_path(
    path: str,
    old: tuple[int, bytes] | None,
    new: tuple[int, bytes] | None,
    layout: Layout,
    packages: frozenset[str],
) -> PathClass:
    if is_test_path(path) or PurePosixPath(path).name in TEST_CONFIG or _under(path, layout):
        return PathClass.TEST
    if is_production(path, layout.import_root):
        return _classify_production(path, _text(old), _text(new), old is None or new is None)
    inside = any(path.startswith(f"{package}/") for package in packages)
    return PathClass.PACKAGE_DATA if inside and not path.endswith(".py") else PathClass.OTHER


def _under(path: str, layout: Layout) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in layout.test_paths)


def _classify_production(path: str, old: str, new: str, whole: bool) -> PathClass:
    if PurePosixPath(path).name in METADATA_FILES:
        return PathClass.METADATA
    return PathClass.GOLD if whole else _kind_of_edit(old, new)


def _kind_of_edit(old: str, new: str) -> PathClass:
    if _lines(old) == _lines(new):
        return PathClass.FORMAT
    before, after = (_without_metadata(text) for text in (old, new))
    stamped = before == after
    if not stamped and _same_syntax(old, new):
        return PathClass.FORMAT
    if stamped or _same_syntax("\n".join(before), "\n".join(after)):
        return PathClass.METADATA
    return PathClass.GOLD


def _text(file: tuple[int, bytes] | None) -> str:
    """Content as text; latin-1 where it is not UTF-8, which keeps lines comparable."""
    data = file[1] if file else b""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _lines(text: str) -> list[str]:
    """Lines without line ends, trailing blanks and empty lines."""
    stripped = (line.rstrip() for line in text.splitlines())
    return [line for line in stripped if line]


def _without_metadata(text: str) -> list[str]:
    return [line for line in _lines(text) if not METADATA_LINE.match(line)]


def _same_syntax(old: str, new: str) -> bool:
    """Equal syntax trees: only layout and comments differ, so behaviour cannot."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes of the code that is compared
            return ast.dump(ast.parse(old)) == ast.dump(ast.parse(new))
    except (SyntaxError, ValueError, RecursionError):
        return False
