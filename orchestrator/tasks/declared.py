"""What a project says about itself in its tree, read without running any of it.

Reads ``PKG-INFO``, ``pyproject.toml``, ``setup.cfg`` and the literal keywords of ``setup.py``. A
file that is absent, malformed or computes what it says counts as saying nothing.
"""

import ast
import configparser
import tomllib
import warnings
from collections.abc import Mapping
from email.parser import Parser

from orchestrator.repo.files import SYMLINK, Files

Table = Mapping[str, object]


def text_of(files: Files, path: str) -> str | None:
    """A file as text, or None where it is absent, a symlink or not UTF-8."""
    mode, data = files.get(path, (SYMLINK, b""))
    if mode == SYMLINK:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def pkg_info(files: Files) -> Mapping[str, str]:
    """Fields of ``PKG-INFO``."""
    return dict(Parser().parsestr(text_of(files, "PKG-INFO") or "", headersonly=True).items())


def pyproject(files: Files) -> Table:
    """Top table of ``pyproject.toml``."""
    try:
        return tomllib.loads(text_of(files, "pyproject.toml") or "")
    except (ValueError, RecursionError):
        return {}


def table(value: object, *keys: str) -> Table:
    """The table at ``keys`` below ``value``, or an empty one where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def ini(text: str) -> dict[str, dict[str, str]]:
    """Section -> key -> value of an INI file with case kept; nothing where it is malformed."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {section: dict(parser.items(section)) for section in parser.sections()}


def setup_cfg(files: Files) -> dict[str, dict[str, str]]:
    """Sections of ``setup.cfg``."""
    return ini(text_of(files, "setup.cfg") or "")


def setup_py(files: Files) -> Table:
    """Keywords of the call of ``setup`` in ``setup.py`` whose values are literals."""
    for node in ast.walk(parsed(text_of(files, "setup.py") or "")):
        if isinstance(node, ast.Call) and _name(node.func) == "setup":
            found = {word.arg: literal(word.value) for word in node.keywords if word.arg}
            return {key: value for key, value in found.items() if value is not None}
    return {}


def parsed(text: str) -> ast.Module:
    """Syntax tree of Python text; an empty one where it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def literal(node: ast.expr | None) -> object:
    """Value of a literal expression, or None where it is none."""
    try:
        value: object = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


# ------------------------------------------------------------------------------- entry points

Points = dict[str, dict[str, str]]


def entry_point_groups(files: Files) -> Points:
    """Group -> name -> object reference, from the most authoritative place that has any.

    An sdist's ``.egg-info`` is what a build made of everything else; without it the declarations
    of pyproject, setup.cfg and setup.py are read.
    """
    built = sorted(path for path in files if path.endswith(".egg-info/entry_points.txt"))
    if built:
        return _filled(ini(text_of(files, built[0]) or ""))
    places = (_of_project(files), _of_poetry(files), _of_setup_cfg(files), _of_setup_py(files))
    return next((groups for groups in places if groups), {})


def _of_project(files: Files) -> Points:
    project = table(pyproject(files), "project")
    groups = {name: _points(points) for name, points in table(project, "entry-points").items()}
    groups["console_scripts"] = _points(project.get("scripts"))
    groups["gui_scripts"] = _points(project.get("gui-scripts"))
    return _filled(groups)


def _of_poetry(files: Files) -> Points:
    poetry = table(pyproject(files), "tool", "poetry")
    groups = {name: _points(points) for name, points in table(poetry, "plugins").items()}
    groups["console_scripts"] = _points(poetry.get("scripts"))
    return _filled(groups)


def _of_setup_cfg(files: Files) -> Points:
    section = setup_cfg(files).get("options.entry_points", {})
    return _filled({name: _lines(value.splitlines()) for name, value in section.items()})


def _of_setup_py(files: Files) -> Points:
    declared = setup_py(files).get("entry_points")
    if isinstance(declared, str):
        return _filled(ini(declared))
    groups = declared.items() if isinstance(declared, Mapping) else ()
    return _filled({str(name): _lines(lines) for name, lines in groups})


def _points(value: object) -> dict[str, str]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {name: point for name, point in pairs if isinstance(point, str)}


def _lines(lines: object) -> dict[str, str]:
    """``name = reference`` lines, as setuptools takes them."""
    listed = lines.splitlines() if isinstance(lines, str) else lines
    if not isinstance(listed, list | tuple | set):
        return {}
    parts = (line.partition("=") for line in listed if isinstance(line, str))
    return {name.strip(): point.strip() for name, _, point in parts if name.strip() and point}


def _filled(groups: Points) -> Points:
    """Groups with points, but for texts of several lines: they would forge further sections."""
    plain = {
        group: {name: point for name, point in points.items() if _one_line(group + name + point)}
        for group, points in groups.items()
    }
    return {group: points for group, points in plain.items() if points}


def _one_line(text: str) -> bool:
    return len(text.splitlines()) == 1
