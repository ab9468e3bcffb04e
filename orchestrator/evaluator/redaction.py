"""What a diagnostic run lays down: sealed files without the tests that it has no business with.

Candidate code can read every file of the tree that its tests run in, and what it reads it can put
into a failure message. So of each sealed test file those functions are cut that the full suite runs
and the diagnostic does not: gate and held-out tests, with decorators and parameters. Pure; lines
keep their numbers; everything else of a file stays, fixtures, helpers and data.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.evaluator.syntax import FunctionNode, parsed, test_functions
from orchestrator.repo.files import SYMLINK, Files


@dataclass(frozen=True)
class Redaction:
    """``files``: sealed files that lose something, as they are then; ``cut``: the functions that
    were cut (``path::name``); ``kept``: those of the full suite that were not, since others use
    them or since they are not written down there; ``whole``: files that stay whole.
    """

    files: Files
    cut: frozenset[str]
    kept: frozenset[str]
    whole: frozenset[str]


def redact(
    sealed: Files, full: Collection[str], diagnostic: Collection[str], whole: Collection[str] = ()
) -> Redaction:
    """Cut from ``sealed`` the functions of ``full`` that are not in ``diagnostic``.

    Both hold functions (``path::Class::name``). A function stays whose name anything else in the
    sealed files uses, or that a class of the diagnostic may inherit. A file that would no longer
    compile stays whole, and so do those named ``whole``.
    """
    wanted = _by_path({*full} - {*diagnostic})
    trees = {path: parsed(sealed[path][1]) for path in sealed if _is_code(path, sealed)}
    needed = _used_names(trees) | _inherited(trees, diagnostic)
    files: Files = {}
    cut: set[str] = set()
    stuck = {path for path in wanted if path in whole or trees.get(path) is None}
    for path in sorted(wanted.keys() - stuck):
        tree = trees[path]
        nodes = test_functions(tree) if tree is not None else {}
        chosen = _to_cut(nodes, wanted[path], needed)
        text = without(sealed[path][1], [nodes[name] for name in chosen])
        if chosen and parsed(text) is None:
            stuck.add(path)
        elif chosen:
            files[path] = (sealed[path][0], text)
            cut |= {f"{path}::{name}" for name in chosen}
    return Redaction(
        files, frozenset(cut), frozenset({*full} - {*diagnostic} - cut), frozenset(stuck)
    )


def _to_cut(
    nodes: Mapping[str, FunctionNode], wanted: Collection[str], needed: Collection[str]
) -> list[str]:
    """Definitions of wanted functions; also what a class of theirs inherits within the file."""
    inherited = {name.rpartition("::")[2] for name in wanted if name not in nodes}
    return [
        name
        for name, node in nodes.items()
        if node.name not in needed and (name in wanted or node.name in inherited)
    ]


def without(data: bytes, functions: Collection[FunctionNode]) -> bytes:
    """A file with ``pass`` in the place of each function and its decorators; other lines stay."""
    lines = data.split(b"\n")
    for node in functions:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        last = node.end_lineno or node.lineno
        ending = b"\r" if lines[first].endswith(b"\r") else b""
        indentation = lines[node.lineno - 1][: node.col_offset]
        lines[first] = indentation + b"pass" + ending
        lines[first + 1 : last] = [ending] * (last - first - 1)
    return b"\n".join(lines)


def _is_code(path: str, sealed: Files) -> bool:
    return path.endswith(".py") and sealed[path][0] != SYMLINK


def _by_path(functions: Collection[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for function in sorted(functions):
        path, _, name = function.partition("::")
        groups.setdefault(path, []).append(name)
    return groups


def _used_names(trees: Mapping[str, ast.Module | None]) -> set[str]:
    """Every name that some sealed file reads, takes as an attribute or imports."""
    return {
        name for tree in trees.values() if tree for node in ast.walk(tree) for name in _read(node)
    }


def _read(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.alias(name=name):
            yield name


def _inherited(trees: Mapping[str, ast.Module | None], diagnostic: Collection[str]) -> set[str]:
    """Names of diagnostic functions that their own file does not define where their id says: any
    class may be where they come from.
    """
    return {
        function.rpartition("::")[2]
        for path, names in _by_path(diagnostic).items()
        for function in names
        if (tree := trees.get(path)) is None or function not in test_functions(tree)
    }
