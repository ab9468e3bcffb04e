"""Twins differ from their tests in one expected value, and only there."""

import ast

import pytest

from orchestrator.evaluator.twins import make_twins, perturbed
from tests.unit.evaluator_support import text_files

ALTERED = {
    "assert f(1) == 2": "assert f(1) == 3",
    "assert 2 == f(1)": "assert 3 == f(1)",
    "assert f() == 'a'": "assert f() == 'b'",
    "assert f() == b'a'": "assert f() == b'b'",
    "assert f() == ''": "assert f() == '0'",
    "assert f() == '<Z9>'": "assert f() == '<A9>'",
    "assert f() == 1.5": "assert f() == 2.5",
    "assert f() == None": "assert f() == 0",
    "assert f() == True": "assert f() == False",
    "assert f() == []": "assert f() == [0]",
    "assert f() == {}": "assert f() == {0: 0}",
    "assert f() == [1, 'x']": "assert f() == [2, 'x']",
    "assert f() == {'k': (x, 'v')}": "assert f() == {'k': (x, 'w')}",
    "assert f() == expected": "assert f() == [expected]",
    "assert f() == Date(2020, 1)": "assert f() == Date(2021, 1)",
    "assert f() == Odd([1], b)": "assert f() == Odd([2], b)",
    "assert f() == 'née' # é": "assert f() == 'néf' # é",
    "assert f()": "assert not (f())",
    "assert a != b, 'why'": "assert not (a != b), 'why'",
    "assert 1 in f()": "assert not (1 in f())",
    "assert f() is None": "assert not (f() is None)",
    "self.assertEqual(f(), 2)": "self.assertEqual(f(), 3)",
    "self.assertEqual(2, f())": "self.assertEqual(3, f())",
    "self.assertTrue(f())": "self.assertFalse(f())",
    "self.assertNotIn(1, f())": "self.assertIn(1, f())",
    "self.assertNotEqual(1, f())": "self.assertEqual(1, f())",
    "self.assertRaises(KeyError, f, 1)": "self.assertRaises(ModuleNotFoundError, f, 1)",
    "with pytest.raises(KeyError) as e: f()": "with pytest.raises(ModuleNotFoundError) as e: f()",
    "with raises((A, B), match='x'): f()": "with raises(ZeroDivisionError, match='x'): f()",
}


@pytest.mark.parametrize("line", ALTERED)
def test_an_expected_value_is_altered_and_nothing_else(line: str) -> None:
    text, done = perturbed(f"def test_a(self):\n    {line}\n".encode(), {"test_a"})
    assert done == {"test_a"}
    assert text.decode() == f"def test_a(self):\n    {ALTERED[line]}\n"


ENDS = {
    "f()": "f(); assert 0",
    "check(f(), 'é')  # c": "check(f(), 'é'); assert 0  # c",
    "pass": "assert 0",
    "return f()": "assert 0",
    "f(\n        1,\n    )": "f(\n        1,\n    ); assert 0",
    "with raises(BaseException): f()": "with raises(BaseException): f()\n    assert 0",
    "if f():\n        g()": "if f():\n        g()\n    assert 0",
}


@pytest.mark.parametrize("body", ENDS)
def test_a_function_without_assertions_fails_at_its_end(body: str) -> None:
    text, done = perturbed(f"def test_a():\n    {body}\n\n\nx = 1\n".encode(), {"test_a"})
    assert done == {"test_a"}
    assert text.decode() == f"def test_a():\n    {ENDS[body]}\n\n\nx = 1\n"


def test_a_function_on_one_line_fails_at_its_end() -> None:
    assert perturbed(b"def test_a(): f()\n", {"test_a"})[0] == b"def test_a(): f(); assert 0\n"


SUITE = """\
import unittest


def helper():
    assert 1 == 1


class TestA:
    def test_same(self):
        if helper():
            assert 0 == 1
        with helper():
            assert "x" == (
                helper()
            )

    class TestB:
        async def test_same(self):
            for _ in ():
                assert helper() == 1


def test_other():
    def inner():
        assert 5 == 5
    return inner
    assert 6 == 6
"""


def test_functions_are_found_by_their_whole_name_and_straight_code_comes_first() -> None:
    names = {"TestA::test_same", "TestA::TestB::test_same", "test_other", "test_absent"}
    text, done = perturbed(SUITE.encode(), names)
    assert done == {"TestA::test_same", "TestA::TestB::test_same", "test_other"}
    before, after = SUITE.splitlines(), text.decode().splitlines()
    changed = {new.strip() for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {"assert 'y' == (", "assert helper() == 2", "assert 7 == 6"}
    ast.parse(text)


def test_twins_keep_the_path_of_their_file_and_leave_the_rest_alone() -> None:
    sealed = text_files({"t/test_a.py": SUITE, "t/data.txt": "x", "t/broken.py": "def"})
    functions = {"t/test_a.py::TestA::test_same", "t/broken.py::test_x", "t/gone.py::test_x"}
    twins = make_twins(sealed, functions)
    assert twins.functions == {"t/test_a.py::TestA::test_same"}
    assert twins.files.keys() == {"t/test_a.py"}
    assert make_twins(sealed, functions) == twins


def test_windows_line_ends_do_not_shift_what_is_altered() -> None:
    text, _ = perturbed(b"x = 1\r\n\r\ndef test_a():\r\n    assert x == 1\r\n", {"test_a"})
    assert text == b"x = 1\r\n\r\ndef test_a():\r\n    assert x == 2\r\n"
