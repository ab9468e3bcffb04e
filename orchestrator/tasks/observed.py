"""What runs of the whole suite showed: which functions can be relied on, and which ids are
fail-to-pass, pass-to-pass and full. Pure.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import function_of
from orchestrator.tasks.eligibility import Ineligible, some

FAILING: Final = frozenset({"failed", "error"})
NOT_RUN: Final = frozenset({"skipped", "xfailed", "xpassed"})
NEW_KEYWORD: Final = re.compile(r"^TypeError: .*unexpected keyword argument", re.MULTILINE)
"""How a test fails on base that passes an argument which only the fixed end takes: a feature."""
MISSING_NAME: Final = re.compile(
    r"^(?:AttributeError: (?:partially initialized )?module .* has no attribute"
    r"|(?:ImportError|ModuleNotFoundError):?)(?P<rest>.*)",
    re.MULTILINE,
)
"""How a test fails on base that uses a name of a module which only the fixed end has."""
QUOTED: Final = re.compile(r"'([\w.]+)'")
WORD: Final = re.compile(r"\w+")


@dataclass
class Runs:
    """Runs of the whole suite on both trees; ``dropped`` functions take no part any more.

    ``statement``: what the agent is told; a name that stands there is not hidden.
    """

    statement: str = ""
    gold: list[TestRun] = field(default_factory=list)
    base: list[TestRun] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)

    def drop(self, functions: Iterable[str], rule: str) -> None:
        for function in functions:
            self.dropped.setdefault(function, rule)

    def dropped_by(self, *rules: str) -> int:
        return sum(rule in rules for rule in self.dropped.values())


def unstable_functions(runs: Sequence[TestRun]) -> set[str]:
    """Functions whose ids or outcomes differ between runs, or that report an id twice."""
    seen = [_by_function(run) for run in runs]
    names = {name for by_function in seen for name in by_function}
    differing = {n for n in names if len({by_function.get(n) for by_function in seen}) > 1}
    return differing | {function_of(test_id) for run in runs for test_id in run.repeated}


def _by_function(run: TestRun) -> dict[str, frozenset[tuple[str, str]]]:
    groups: dict[str, set[tuple[str, str]]] = {}
    for test_id, outcome in run.outcomes.items():
        groups.setdefault(function_of(test_id), set()).add((test_id, outcome))
    return {name: frozenset(pairs) for name, pairs in groups.items()}


def always(runs: Sequence[TestRun], wanted: Iterable[str], dropped: Mapping[str, str]) -> set[str]:
    """Ids whose outcome is one of ``wanted`` in every run, without dropped functions."""
    allowed = frozenset(wanted)
    sets = [{i for i, outcome in run.outcomes.items() if outcome in allowed} for run in runs]
    return {i for i in set.intersection(*sets) if function_of(i) not in dropped}


def functions_of(ids: Iterable[str]) -> set[str]:
    return {function_of(test_id) for test_id in ids}


def hidden_api(runs: Runs) -> set[str]:
    """Functions that pass on gold and fail on base for want of something nobody could know of."""
    told = frozenset(WORD.findall(runs.statement))
    return {name for name, message in _candidates(runs) if is_hidden(message, told)}


def told_api(runs: Runs) -> set[str]:
    """Functions that fail on base for want of a name that the statement gives."""
    missing = {name for name, message in _candidates(runs) if MISSING_NAME.search(message)}
    return missing - hidden_api(runs)


def _candidates(runs: Runs) -> list[tuple[str, str]]:
    """Function and message on base of each id that always fails there and passes on gold."""
    failing = always(runs.base, FAILING, runs.dropped)
    messages = runs.base[0].messages
    ids = failing & always(runs.gold, {"passed"}, runs.dropped)
    return [(function_of(test_id), messages.get(test_id, "")) for test_id in ids]


def is_hidden(message: str, told: Collection[str]) -> bool:
    """Whether a failure is for want of a keyword, or of a name that is not among those told.

    >>> is_hidden("AttributeError: module 'm' has no attribute 'new'", {"new"})
    False
    >>> is_hidden("TypeError: f() got an unexpected keyword argument 'new'", {"new"})
    True
    """
    if NEW_KEYWORD.search(message):
        return True
    missing = MISSING_NAME.search(message)
    if missing is None:
        return False
    names = QUOTED.findall(missing["rest"])
    return not names or names[0].rpartition(".")[2] not in told


def ids_of(task_id: str, runs: Runs) -> tuple[list[str], list[str], list[str]]:
    """Fail-to-pass, pass-to-pass and full ids, sorted; Ineligible where one must not be empty.

    Ids that are absent on base (its module does not import there) are never fail-to-pass.
    """
    full = always(runs.gold, {"passed"}, runs.dropped)
    candidates = full & always(runs.base, FAILING, runs.dropped)
    hidden = hidden_api(runs)
    failing = {i for i in candidates if function_of(i) not in hidden}
    passing = full & always(runs.base, {"passed"}, runs.dropped)
    if not failing:
        raise _nothing_fails(task_id, runs, candidates)
    if not passing:
        raise Ineligible(task_id, "pass-to-pass", f"{len(full)} tests pass on gold, none on base")
    return sorted(failing), sorted(passing), sorted(full)


def _nothing_fails(task_id: str, runs: Runs, hidden: set[str]) -> Ineligible:
    if hidden:
        detail = f"all {len(hidden)} fail on base for want of a name, e.g. {min(hidden)}"
        return Ineligible(task_id, "hidden-api", detail)
    gold, base = runs.gold[:1], runs.base[:1]
    before = always(gold, {"passed"}, {}) & always(base, FAILING, {})
    lost = sorted(i for i in before if function_of(i) in runs.dropped)
    if lost:
        rule = runs.dropped[function_of(lost[0])]
        return Ineligible(task_id, rule, f"every candidate is dropped, e.g. {lost[0]}")
    if before:
        return Ineligible(task_id, "stable", f"every candidate is unstable, e.g. {min(before)}")
    absent = always(runs.gold, {"passed"}, {}) - set(runs.base[0].outcomes)
    errors = len(runs.base[0].collection_errors)
    return Ineligible(
        task_id,
        "fail-to-pass",
        f"none; absent on base: {some(len(absent), 'test')} of gold; "
        f"{some(errors, 'module')} could not be collected there",
        log=runs.base[0].log_tail,
    )


def not_python_alone(fixed: TestRun, runs: Runs, failing: Iterable[str]) -> set[str]:
    """Functions that always fail on base and pass on the fixed end, but not on gold."""
    candidates = always(runs.base, FAILING, runs.dropped) & always([fixed], {"passed"}, {})
    return functions_of(candidates) - functions_of(failing) - hidden_api(runs)
