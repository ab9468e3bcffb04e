"""Compares the test ids that a source itself lists with those that real runs found. Pure."""

from collections.abc import Iterable, Sequence

from orchestrator.evaluator.suites import function_of
from orchestrator.tasks.eligibility import Ineligible, Sheet
from orchestrator.tasks.sources import Expected

RULE = "listed-oracles"


def check_listed(
    expected: Expected | None, failing: Sequence[str], passing: Sequence[str], sheet: Sheet
) -> None:
    """Rule ``listed-oracles``: pass where all is found as listed, flag where some is not.

    A listed id may name a test, a function without its parameters, a class or a file. Raises
    Ineligible where none of the listed fail-to-pass ids is found to be one.
    """
    if expected is None or not (expected.fail_to_pass or expected.pass_to_pass):
        sheet.passes(RULE, "the source lists no tests")
        return
    bugs, bugs_listed = _found(expected.fail_to_pass, failing), len(expected.fail_to_pass)
    kept, kept_listed = _found(expected.pass_to_pass, passing), len(expected.pass_to_pass)
    figure = f"{bugs} of {bugs_listed} fail-to-pass, {kept} of {kept_listed} pass-to-pass as listed"
    if bugs_listed and not bugs:
        raise Ineligible(sheet.task_id, RULE, figure)
    sheet.notes(RULE, figure, (bugs, kept) != (bugs_listed, kept_listed))


def _found(listed: Iterable[str], ids: Iterable[str]) -> int:
    names = {name for test_id in ids for name in _names(test_id)}
    return sum(test_id in names for test_id in listed)


def _names(test_id: str) -> list[str]:
    """The id and everything that it belongs to: its function, its classes, its file."""
    parts = function_of(test_id).split("::")
    return [test_id, *("::".join(parts[:n]) for n in range(1, len(parts) + 1))]
