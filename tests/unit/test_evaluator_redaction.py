"""A diagnostic run's sealed files hold what it needs, and no gate or held-out test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluator.redaction import Redaction, redact
from orchestrator.evaluator.suites import load_bundle
from orchestrator.spec.ports import SuiteName
from tests.unit import evaluator_support as support
from tests.unit.evaluator_support import text_files

FILE = """\
import pytest
from helpers import Base, build


@pytest.mark.parametrize(
    "x", ["MARKER-1", "MARKER-2"],
)
def test_gate(x):
    assert build(x) == "MARKER-3"


class TestAll(Base):
    size = 3

    def test_shown(self):
        assert build(1) == 1

    @staticmethod
    def test_hidden():
        # MARKER-4
        assert build("MARKER-5") == '''
MARKER-6
'''


class TestOnly:
    def test_hidden_too(self): assert "MARKER-7"


def test_last():
    assert test_used() == 1


def test_used():
    return 1
"""
PATH = "tests/test_a.py"
FUNCTIONS = {
    f"{PATH}::{name}"
    for name in (
        "test_gate",
        "TestAll::test_shown",
        "TestAll::test_hidden",
        "TestOnly::test_hidden_too",
        "test_last",
        "test_used",
    )
}
SHOWN = {f"{PATH}::TestAll::test_shown", f"{PATH}::test_last"}
SEALED = text_files({PATH: FILE, "tests/helpers.py": "class Base: pass\n", "tests/x.txt": "MARKER"})


def cut(text: str, functions: set[str], shown: set[str]) -> Redaction:
    return redact(text_files({PATH: text}), functions, shown)


def test_nothing_of_another_suites_test_is_left_and_lines_keep_their_numbers() -> None:
    found = redact(SEALED, FUNCTIONS, SHOWN)
    assert found.files.keys() == {PATH}
    text = found.files[PATH][1].decode()
    assert "MARKER" not in text
    assert "test_hidden" not in text
    before, after = FILE.splitlines(), text.splitlines()
    assert len(before) == len(after)
    assert all(
        new in ("", old) or new.strip() == "pass" for old, new in zip(before, after, strict=True)
    )
    compile(text, PATH, "exec")


def test_what_others_use_stays_and_is_named() -> None:
    found = redact(SEALED, FUNCTIONS, SHOWN)
    assert found.kept == {f"{PATH}::test_used"}
    assert found.cut == FUNCTIONS - SHOWN - found.kept
    assert "def test_used" in found.files[PATH][1].decode()


def test_a_method_that_the_diagnostic_inherits_stays() -> None:
    text = "class TestBase:\n    def test_a(self): pass\n\n\nclass TestB(TestBase):\n    pass\n"
    functions = {f"{PATH}::TestBase::test_a", f"{PATH}::TestB::test_a"}
    found = cut(text, functions, {f"{PATH}::TestB::test_a"})
    assert (found.files, found.kept) == ({}, {f"{PATH}::TestBase::test_a"})


def test_what_only_other_suites_inherit_is_cut_where_it_is_written() -> None:
    text = "class Base:\n    def test_a(self): 'MARKER'\n\n\nclass TestB(Base):\n    pass\n"
    found = cut(text, {f"{PATH}::TestB::test_a"}, set())
    assert "MARKER" not in found.files[PATH][1].decode()


def test_a_file_that_can_be_executed_is_cut_too() -> None:
    sealed = {PATH: (0o100755, FILE.encode())}
    assert redact(sealed, FUNCTIONS, SHOWN).files[PATH][0] == 0o100755


def test_a_file_that_cannot_be_read_or_is_to_stay_whole_stays_whole() -> None:
    broken = cut("def test_a(:\n", {f"{PATH}::test_a"}, set())
    assert (broken.files, broken.whole) == ({}, {PATH})
    whole = redact(SEALED, FUNCTIONS, SHOWN, {PATH})
    assert (whole.files, whole.whole, whole.cut) == ({}, {PATH}, frozenset())


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_tabs_and_line_ends_are_kept(newline: str) -> None:
    text = "class TestA:\n\tdef test_a(self):\n\t\tassert 1\n\tdef test_b(self): pass\n"
    found = cut(text.replace("\n", newline), {f"{PATH}::TestA::test_a", f"{PATH}::TestA::test_b"},
                {f"{PATH}::TestA::test_b"})  # fmt: skip
    expected = "class TestA:\n\tpass\n\n\tdef test_b(self): pass\n".replace("\n", newline)
    assert found.files[PATH][1].decode() == expected


@given(st.sets(st.sampled_from(sorted(FUNCTIONS))))
def test_any_choice_compiles_and_cuts_only_what_is_not_shown(shown: set[str]) -> None:
    found = redact(SEALED, FUNCTIONS, shown)
    assert not found.cut & shown
    assert found.cut | found.kept == FUNCTIONS - shown
    for path, (_, text) in found.files.items():
        compile(text, path, "exec")


def test_a_bundle_cuts_what_its_own_suites_say(tmp_path: object) -> None:
    bundle = load_bundle(support.build_tasks(tmp_path), support.TASK)  # type: ignore[arg-type]
    functions = {test_id.partition("[")[0] for test_id in bundle.suites[SuiteName.FULL].ids}
    shown = {test_id.partition("[")[0] for test_id in bundle.suites[SuiteName.DIAGNOSTIC].ids}
    assert bundle.redaction.cut == functions - shown
