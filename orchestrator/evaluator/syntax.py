"""Finds the test functions of a sealed file in its syntax tree, and replaces pieces of its text.

Pure. Functions are named as in node ids without the path (``TestA::test_b``). Positions are those
of :mod:`ast`: lines from 1, columns in UTF-8 bytes from 0.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Edit:
    """Replaces the text of one expression or statement."""

    node: ast.expr | ast.stmt
    text: str


def parsed(data: bytes) -> ast.Module | None:
    """The syntax tree of a file, or None where this interpreter cannot read it."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def test_functions(tree: ast.Module) -> dict[str, FunctionNode]:
    """Qualified name -> definition; of several of one name the last, which is the one that runs."""
    return dict(_functions(tree.body, ""))


def _functions(body: Iterable[ast.stmt], above: str) -> Iterator[tuple[str, FunctionNode]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield above + node.name, node
            case ast.ClassDef():
                yield from _functions(node.body, f"{above}{node.name}::")
            case ast.If() | ast.Try() | ast.With():
                yield from _functions(node.body, above)
                yield from _functions(getattr(node, "orelse", []), above)


def replaced(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file with every edit made; edits must not overlap."""
    starts = _line_starts(data)
    for edit in sorted(edits, key=lambda edit: _begin(edit.node, starts), reverse=True):
        begin = _begin(edit.node, starts)
        end = starts[(edit.node.end_lineno or 1) - 1] + (edit.node.end_col_offset or 0)
        data = data[:begin] + edit.text.encode() + data[end:]
    return data


def _begin(node: ast.expr | ast.stmt, starts: Sequence[int]) -> int:
    return starts[node.lineno - 1] + node.col_offset


def _line_starts(data: bytes) -> list[int]:
    """Offset of each line as the parser counts them (a form feed ends no line there)."""
    return [0, *(end.end() for end in re.finditer(rb"\r\n|\n|\r", data))]
