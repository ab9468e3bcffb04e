"""Which passes are doubted, and what curation may except from it."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.evaluator.doubts import FLAGGED_SAMPLE, SAMPLE, doubted, twins_of
from orchestrator.evaluator.suites import Bundle, Suite, function_of, load_bundle
from orchestrator.spec.ports import SuiteName
from tests.unit import evaluator_support as support

MANY = tuple(f"{support.FILE}::test_kept_{n}[{k}]" for n in range(40) for k in "ab")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    loaded = load_bundle(support.build_tasks(tmp_path), support.TASK)
    full = Suite(SuiteName.FULL, (*loaded.suites[SuiteName.FULL].ids, *MANY), "s")
    return replace(loaded, suites={**loaded.suites, SuiteName.FULL: full})


def test_every_fail_to_pass_function_is_doubted_with_all_its_ids(bundle: Bundle) -> None:
    found = doubted(bundle, SuiteName.FAIL_TO_PASS, flagged=False)
    assert found.keys() == {function_of(test_id) for test_id in support.BUG}
    assert sorted(i for ids in found.values() for i in ids) == sorted(support.BUG)


def test_of_the_others_a_sample_by_digest_and_more_where_there_is_a_flag(bundle: Bundle) -> None:
    bugs = {function_of(test_id) for test_id in support.BUG}
    few = doubted(bundle, SuiteName.FULL, flagged=False)
    many = doubted(bundle, SuiteName.FULL, flagged=True)
    assert (len(few), len(many)) == (SAMPLE, FLAGGED_SAMPLE)
    assert few.keys() < many.keys()
    assert not few.keys() & bugs
    assert few == doubted(bundle, SuiteName.FULL, flagged=False)


def test_the_gate_has_both_and_the_other_suites_none(bundle: Bundle) -> None:
    gate = {function_of(test_id) for test_id in bundle.suites[SuiteName.GATE].ids}
    assert doubted(bundle, SuiteName.GATE, flagged=False).keys() == gate
    for suite in (SuiteName.PASS_TO_PASS, SuiteName.DIAGNOSTIC):
        assert doubted(bundle, suite, flagged=True) == {}


def test_a_function_whose_twin_was_seen_to_pass_has_none(bundle: Bundle) -> None:
    functions = doubted(bundle, SuiteName.FAIL_TO_PASS, flagged=False)
    whole = twins_of(bundle, functions)
    assert whole.functions == functions.keys()
    first = min(functions)
    assert twins_of(replace(bundle, untwinned=(first,)), functions).functions == (
        functions.keys() - {first}
    )
