"""Perturbed twins: a sealed test whose expected value was altered, so that it must fail.

Pure. A twin has the path and the name of its test and runs in a sandbox of its own in its place: a
candidate that makes tests pass by who they are makes the twin pass too, and one whose objects equal
everything equals the altered value. An altered value looks like one that a person wrote, so that a
candidate that reads the test and obeys it obeys the twin. In each function one assertion is
altered, chosen by digest; one whose assertions stand elsewhere, in helpers, fails at its end.
"""

import ast
import string
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from orchestrator.evaluator.syntax import Edit, FunctionNode, parsed, replaced, test_functions
from orchestrator.repo.files import SYMLINK, Files
from orchestrator.spec.identity import digest_json

UNRELATED: Final = (
    "KeyError", "IndexError", "ZeroDivisionError", "RecursionError", "FileExistsError",
    "NotADirectoryError", "UnboundLocalError", "BlockingIOError", "ModuleNotFoundError",
)  # fmt: skip
"""Ordinary exceptions that are caught as no other of them; one that a function does raise makes a
twin that curation finds out (it passes on the gold patch) and leaves out."""
FAILS: Final = "assert 0"
EQUAL: Final = frozenset(
    {
        "assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual",
        "assertSetEqual", "assertMultiLineEqual", "assertSequenceEqual", "assertCountEqual",
    }
)  # fmt: skip
OPPOSITE: Final = {
    name: other
    for pair in (
        ("assertTrue", "assertFalse"), ("assertIn", "assertNotIn"), ("assertIs", "assertIsNot"),
        ("assertIsNone", "assertIsNotNone"), ("assertIsInstance", "assertNotIsInstance"),
        ("assertRegex", "assertNotRegex"), ("assertLess", "assertGreaterEqual"),
        ("assertGreater", "assertLessEqual"), ("assertNotEqual", "assertEqual"),
    )
    for name, other in (pair, pair[::-1])
    if name != "assertEqual"
}  # fmt: skip
RAISES: Final = frozenset({"raises", "assertRaises", "assertRaisesRegex"})

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Twins:
    """``files``: the sealed files that hold twins, altered; ``functions``: those that have one."""

    files: Files
    functions: frozenset[str]


def make_twins(sealed: Files, functions: Collection[str]) -> Twins:
    """Twins of those ``functions`` (``path::name``) that can have one."""
    files: Files = {}
    made: set[str] = set()
    for path in sorted({function.partition("::")[0] for function in functions}):
        if path not in sealed or sealed[path][0] == SYMLINK or not path.endswith(".py"):
            continue
        names = {f.partition("::")[2] for f in functions if f.startswith(path + "::")}
        text, done = perturbed(sealed[path][1], names)
        if done:
            files[path] = (sealed[path][0], text)
            made |= {f"{path}::{name}" for name in done}
    return Twins(files, frozenset(made))


def perturbed(data: bytes, names: Collection[str]) -> tuple[bytes, frozenset[str]]:
    """A test file with one assertion altered in each named function, and the names of those found.

    >>> perturbed(b"def test_a():\\n    assert f(1) == 2\\n", ["test_a"])[0]
    b'def test_a():\\n    assert f(1) == 3\\n'
    """
    tree = parsed(data)
    if tree is None:
        return data, frozenset()
    source, edits = data.decode("utf-8", "replace"), {}
    for name, node in test_functions(tree).items():
        if name in names:
            choices = _choices(node, source) or [_failing_end(node, data)]
            edits[name] = _one_of(choices, name)
    text = replaced(data, list(edits.values()))
    return (text, frozenset(edits)) if parsed(text) is not None else (data, frozenset())


def _choices(function: FunctionNode, source: str) -> list[Edit]:
    """What can be altered: in what always runs; where that holds no assertion, anywhere."""
    straight = [edit for node in _straight(function.body) for edit in _edits(node, source)]
    if straight:
        return straight
    return [edit for node in _nested(function) for edit in _edits(node, source)]


def _failing_end(function: FunctionNode, data: bytes) -> Edit:
    """The last statement, and after it one that fails (in the place of a ``return``)."""
    last = function.body[-1]
    if isinstance(last, ast.Return | ast.Pass):
        return Edit(last, FAILS)
    lines = data.splitlines()[last.lineno - 1 : last.end_lineno]
    first, text = lines[0], b"\n".join(lines)
    tail = len(lines[-1]) - (last.end_col_offset or 0)
    own = text[last.col_offset : len(text) - tail].decode("utf-8", "replace")
    indentation = first[: last.col_offset].decode("utf-8", "replace")
    compound = hasattr(last, "body") or isinstance(last, ast.Match)
    return Edit(last, f"{own}\n{indentation}{FAILS}" if compound else f"{own}; {FAILS}")


def _straight(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run whatever happens, up to the first that may leave."""
    for node in body:
        if isinstance(node, ast.Return):
            return
        yield node
        if isinstance(node, ast.With):
            yield from _straight(node.body)


def _nested(function: FunctionNode) -> Iterator[ast.stmt]:
    """Every statement of the function, without those of functions inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.stmt):
            yield node
        pending += ast.iter_child_nodes(node)


def _edits(node: ast.stmt, source: str) -> Iterator[Edit]:
    def text(expression: ast.expr) -> str:
        return ast.get_source_segment(source, expression) or ast.unparse(expression)

    match node:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            yield _other(left if isinstance(left, ast.Constant) else right, text)
        case ast.Assert(test=test):
            yield Edit(test, f"not ({text(test)})")
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) as method, args=args) as call):
            yield from _method_edits(name, method, args, text)
            yield from _raises_edits(call)
        case ast.With(items=items):
            for item in items:
                if isinstance(item.context_expr, ast.Call):
                    yield from _raises_edits(item.context_expr)


def _method_edits(
    name: str, method: ast.Attribute, args: list[ast.expr], text: Callable[[ast.expr], str]
) -> Iterator[Edit]:
    if name in EQUAL and len(args) >= 2:
        yield _other(args[0] if isinstance(args[0], ast.Constant) else args[1], text)
    elif name in OPPOSITE:
        yield Edit(method, f"{text(method.value)}.{OPPOSITE[name]}")


def _raises_edits(call: ast.Call) -> Iterator[Edit]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in RAISES and call.args and "BaseException" not in ast.unparse(call.args[0]):
        expected = ast.unparse(call.args[0])
        others = [name for name in UNRELATED if name not in expected]
        yield Edit(call.args[0], _one_of(others, expected))


def _other(expected: ast.expr, text: Callable[[ast.expr], str]) -> Edit:
    """Another value in the place of ``expected``, of the same type where it is written down."""
    inner = _first_value(expected)
    if inner is None:
        return Edit(expected, f"[{text(expected)}]")
    return inner


def _first_value(node: ast.expr) -> Edit | None:
    """The first literal inside an expected value, altered, or None."""
    inside: list[ast.expr] = []
    match node:
        case ast.Constant(value=value):
            return Edit(node, _altered(value))
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return Edit(node, "[0]" if isinstance(node, ast.List) else "{0: 0}")
        case ast.List(elts=inside) | ast.Tuple(elts=inside) | ast.Dict(values=inside):
            pass
        case ast.Call(args=[ast.Constant(value=int() | float()) as number, *_]):
            inside = [number]
        case ast.Call(args=[ast.List() | ast.Dict() | ast.Tuple() as collection, *_]):
            inside = [collection]
    return next((edit for each in inside if (edit := _first_value(each))), None)


def _altered(value: object) -> str:
    match value:
        case bool():
            return repr(not value)
        case int() | float():
            return repr(value + 1)
        case str():
            return repr(_respelt(value))
        case bytes():
            return repr(_respelt(value.decode("latin-1")).encode("latin-1"))
    return "0"


def _respelt(value: str) -> str:
    """One letter or digit replaced by another of its kind; one more where there is none."""
    places = [at for at, one in enumerate(value) if one.isascii() and one.isalnum()]
    if not places:
        return value + "0"
    at = _one_of(places, value)
    kinds = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    kind = next(kind for kind in kinds if value[at] in kind)
    other = kind[(kind.index(value[at]) + 1) % len(kind)]
    return value[:at] + other + value[at + 1 :]


def _one_of(choices: Sequence[Choice], key: str) -> Choice:
    """A choice that looks like chance and is the same every time."""
    return choices[int(digest_json(["twin", key])[:8], 16) % len(choices)]
