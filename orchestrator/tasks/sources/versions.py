"""The version of a tree, and the version module that a build would have added to it.

Read statically, in the order in which packaging tools give precedence. Pure.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.repo.files import REGULAR, Files
from orchestrator.tasks.declared import (
    literal,
    parsed,
    pkg_info,
    pyproject,
    setup_cfg,
    setup_py,
    table,
    text_of,
)

ROOTS = ("", "src/", "lib/")
VERSION_MODULES = ("__init__", "__about__", "_version", "version", "__version__", "_about")
VERSION_NAMES = frozenset({"__version__", "VERSION", "version", "__VERSION__"})
HATCH_PATTERN = re.compile(
    r"""^(?:__version__|VERSION)\s*(?::[^=]+)?=\s*['"]v?([^'"]+)['"]""", re.M
)


def static_version(files: Files, name: str) -> str | None:
    """The version that a tree states in a literal, or None where it states none that is valid."""
    return next((found for found in _stated(files, name) if _valid(found)), None)


def _valid(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(Version(text))
    except InvalidVersion:
        return False


def _stated(files: Files, name: str) -> Iterator[str]:
    yield from _texts(pkg_info(files).get("Version"))
    yield from _of_pyproject(files)
    yield from _of_setup_cfg(files)
    yield from _texts(setup_py(files).get("version"))
    yield from _of_modules(files, name)


def _texts(*values: object) -> Iterator[str]:
    yield from (value.strip() for value in values if isinstance(value, str))


def _of_pyproject(files: Files) -> Iterator[str]:
    top = pyproject(files)
    yield from _texts(table(top, "project").get("version"))
    yield from _texts(table(top, "tool", "poetry").get("version"))
    dynamic = table(top, "tool", "setuptools", "dynamic", "version")
    yield from _of_attribute(files, dynamic.get("attr"))
    yield from _of_file(files, dynamic.get("file"))
    hatch = table(top, "tool", "hatch", "version").get("path")
    text = text_of(files, hatch) if isinstance(hatch, str) else None
    yield from HATCH_PATTERN.findall(text or "")[:1]


def _of_setup_cfg(files: Files) -> Iterator[str]:
    stated = setup_cfg(files).get("metadata", {}).get("version", "")
    kind, _, rest = stated.partition(":")
    if kind == "attr":
        yield from _of_attribute(files, rest.strip())
    elif kind == "file":
        yield from _of_file(files, rest.strip())
    else:
        yield from _texts(stated)


def _of_file(files: Files, path: object) -> Iterator[str]:
    first = path[0] if isinstance(path, list) and path else path
    yield from _texts(text_of(files, first) if isinstance(first, str) else None)


def _of_attribute(files: Files, attribute: object) -> Iterator[str]:
    """``package.module.NAME``, as setuptools' ``attr:`` names a variable."""
    if not isinstance(attribute, str) or "." not in attribute:
        return
    module, _, variable = attribute.rpartition(".")
    stem = module.replace(".", "/")
    for root in ROOTS:
        for path in (f"{root}{stem}/__init__.py", f"{root}{stem}.py"):
            yield from _variable(files, path, frozenset({variable}))


def _of_modules(files: Files, name: str) -> Iterator[str]:
    """A version variable of the package that is called as the distribution is."""
    stem = canonicalize_name(name).replace("-", "_")
    for root in ROOTS:
        for package in _named(files, root, stem):
            yield from _variable(files, f"{package}.py", VERSION_NAMES)
            for module in VERSION_MODULES:
                yield from _variable(files, f"{package}/{module}.py", VERSION_NAMES)


def _named(files: Iterable[str], root: str, stem: str) -> list[str]:
    """Packages and modules right below ``root`` whose name is ``stem`` in another spelling."""
    tops = {path.removeprefix(root).split("/")[0] for path in files if path.startswith(root)}
    names = {top.removesuffix(".py") for top in tops}
    return sorted(root + top for top in names if top.lower().replace("-", "_") == stem)


def _variable(files: Files, path: str, names: frozenset[str]) -> Iterator[str]:
    """Literal text assigned at the top of a module to one of ``names``."""
    for node in parsed(text_of(files, path) or "").body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id in names for target in targets):
            yield from _texts(literal(getattr(node, "value", None)))


# ------------------------------------------------------------------------------- made by builds


def version_module(files: Files, version: str) -> Files:
    """The version module that the project's build writes from git's tags, where it is absent.

    Packages of setuptools-scm and hatch-vcs import it, and git does not keep it. It is the same at
    both ends of a fix, so it is part of neither the gold patch nor the tests.
    """
    paths = {path for path in _declared_modules(files) if _fits(files, path)}
    return {path: (REGULAR, _module_text(version).encode()) for path in sorted(paths)}


def _declared_modules(files: Files) -> Iterator[str]:
    tools = table(pyproject(files), "tool")
    scm = table(tools, "setuptools_scm")
    hook = table(tools, "hatch", "build", "hooks", "vcs")
    old = table(setup_py(files), "use_scm_version")
    yield from _texts(scm.get("version_file"), scm.get("write_to"), hook.get("version-file"))
    yield from _texts(old.get("version_file"), old.get("write_to"))


def _fits(files: Files, path: str) -> bool:
    """Whether a declared path is an absent Python module in a folder that the tree has."""
    pure = PurePosixPath(path)
    normal = str(pure) == path and not pure.is_absolute() and ".." not in pure.parts
    beside = any(other.startswith(f"{pure.parent}/") for other in files)
    return normal and pure.suffix == ".py" and path not in files and beside


def _module_text(version: str) -> str:
    release = tuple(Version(version).release) if _valid(version) else (0,)
    return (
        f"__version__ = version = {version!r}\n__version_tuple__ = version_tuple = {release!r}\n"
        "__commit_id__ = commit_id = None\n"
    )
