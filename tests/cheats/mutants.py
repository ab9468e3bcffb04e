"""Honest wrong patches: gold with one small slip, as a person makes it, in a line of code.

Another comparison, operator or constant at one place of a production file that gold changes; the
places are drawn with a seed. A slip that happens to be right does no harm: only voids are counted.
"""

import ast
import random
from collections.abc import Iterator

from orchestrator.evaluator.syntax import Edit, parsed, replaced
from orchestrator.repo.files import Files

COMPARISONS = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.Mod: "+"}


def mutants(base: Files, gold: Files, count: int, seed: int) -> list[Files]:
    """At most ``count`` different trees, each gold with one slip."""
    made = [
        {**gold, path: (mode, text)}
        for path, (mode, source) in sorted(gold.items())
        if path.endswith(".py") and base.get(path) != gold[path]
        for edit in _slips(source)
        if parsed(text := replaced(source, [edit])) is not None
    ]
    random.Random(seed).shuffle(made)
    return made[:count]


def _slips(source: bytes) -> Iterator[Edit]:
    tree = parsed(source)
    for function in ast.walk(tree) if tree is not None else ():
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body[1:] or function.body:
                yield from _slips_of(statement)


def _slips_of(statement: ast.stmt) -> Iterator[Edit]:
    for node in ast.walk(statement):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                text = f"({ast.unparse(left)}) {COMPARISONS[type(operator)]} ({ast.unparse(right)})"
                yield Edit(node, text)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                text = f"({ast.unparse(left)}) {OPERATORS[type(operator)]} ({ast.unparse(right)})"
                yield Edit(node, text)
            case ast.Constant(value=bool() as value):
                yield Edit(node, repr(not value))
            case ast.Constant(value=int() as value):
                yield Edit(node, repr(value + 1))
