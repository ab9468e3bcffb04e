"""Watches the interpreter that runs the tests, from before any candidate code is imported.

Beside the audit hook of :mod:`factorial_hook`, a record of the functions that decide outcomes,
which is compared around every test. Stands alone with that module: Python 3.8 or later, pytest 7.4
or later.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import types
import unittest.case
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

import _pytest
import pytest
from _pytest.config import default_plugins
from factorial_hook import FOREIGN, LIBRARY, Places, install_hook

if TYPE_CHECKING:
    from factorial_hook import Tell

RUNNER = ("_pytest", "pluggy", "pytest", "factorial_hook", "factorial_watch", "__main__")
"""Modules, with all below them, whose functions must stay what they are at every moment."""
DECIDING = [
    "AssertionError", "BaseException", "Exception", "KeyError", "StopIteration", "TypeError",
    "ValueError", "__build_class__", "all", "any", "bool", "bytes", "callable", "classmethod",
    "compile", "delattr", "dict", "enumerate", "eval", "exec", "filter", "float", "frozenset",
    "getattr", "hasattr", "hash", "id", "int", "isinstance", "issubclass", "iter", "len", "list",
    "map", "max", "min", "next", "object", "property", "range", "repr", "reversed", "set",
    "setattr", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "vars", "zip",
]  # fmt: skip
"""Builtins that decide outcomes; a test may patch others for longer than itself (open, print)."""
RUN_HOOKS = [
    "pytest_runtest_protocol", "pytest_runtest_logstart", "pytest_runtest_setup",
    "pytest_runtest_call", "pytest_runtest_teardown", "pytest_runtest_makereport",
    "pytest_runtest_logreport", "pytest_runtest_logfinish", "pytest_pyfunc_call",
    "pytest_fixture_setup", "pytest_runtestloop",
]  # fmt: skip

PYTEST = os.path.dirname(_pytest.__file__) + "/"  # noqa: PTH120
OWN_RUN = frozenset({"runtest", "setup", "teardown", "ihook", "repr_failure", "nodeid"})
"""What an item's class decides; an item that has its own was given it."""

METHODS = (types.FunctionType, staticmethod, classmethod, property)


def runner_entries() -> list[Any]:
    """(namespace, name, value) of every function of the runner, all its modules imported first."""
    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    names = [name for name in sys.modules if name.split(".")[0] in RUNNER]
    return [entry for name in names for entry in _module_entries(sys.modules[name], RUNNER)]


def test_entries() -> list[Any]:
    """The same of what tests decide with: unittest's cases and the deciding builtins."""
    space = vars(builtins)
    decided = [(space, name, space[name]) for name in DECIDING if name in space]
    return [*decided, *_module_entries(unittest.case, ("unittest",))]


def _module_entries(module: Any, owners: tuple[str, ...]) -> list[Any]:
    """Functions and classes that the owners define, and their methods; not what they import: a test
    may replace ``time.perf_counter`` wherever it is.
    """
    entries: list[Any] = []
    space = vars(module)
    for name, value in list(space.items()):
        if str(getattr(value, "__module__", "")).split(".")[0] not in owners:
            continue
        if isinstance(value, type):
            inside = vars(value)
            own = [(inside, key, each) for key, each in inside.items()]
            entries += [(space, name, value), *(e for e in own if isinstance(e[2], METHODS))]
        elif isinstance(value, types.FunctionType):
            entries.append((space, name, value))
    return entries


def changed(entries: list[Any]) -> str:
    """The name of the first function that is not what it was, or ''."""
    for space, name, value in entries:
        if space.get(name) is not value:
            return str(name)
    return ""


def implementations(config: Any) -> list[Any]:
    """(implementation, its function, its plugin) of every hook that runs tests, in their order."""
    callers = [getattr(config.hook, name, None) for name in RUN_HOOKS]
    return [
        (impl, impl.function, impl.plugin)
        for caller in callers
        if caller is not None
        for impl in caller.get_hookimpls()
    ]


def _same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(
        a is b
        for first, second in zip(before, now)  # noqa: B905  (Python 3.8 has no strict)
        for a, b in zip(first, second)  # noqa: B905
    )


class Checks:
    """Compares what decides outcomes with what it was when this was made; tells what differs.

    What is kept is held by closures, not by attributes that could be assigned.
    """

    __slots__ = (
        "configured", "finders", "freeze", "hooks", "item", "outcome", "runner", "start", "tests",
    )  # fmt: skip
    outcome: Callable[[], None]
    start: Callable[[], None]
    configured: Callable[[], None]
    runner: Callable[[], None]
    tests: Callable[[], None]
    finders: Callable[[], None]
    hooks: Callable[[], None]
    freeze: Callable[[Any], None]
    item: Callable[[Any], None]

    def __init__(self, places: Places, tell: Tell, unwatched: Iterable[str]) -> None:
        off = frozenset(unwatched)
        runner: list[Any] = []
        tests = test_entries()

        def say(rule: str, detail: str) -> None:
            if rule not in off:
                tell(rule, detail)

        def check(entries: list[Any], rule: str) -> None:
            name = changed(entries)
            if name:
                say(rule, name)

        seen = [0]

        def item(one: Any) -> None:
            seen[0] += 1
            if not OWN_RUN.isdisjoint(vars(one)):
                say("runner", "an item's own methods")

        def configured() -> None:
            for place, (space, name, value) in enumerate(runner):
                now = space.get(name)
                if now is not value and _of_pytest(now):
                    runner[place] = (space, name, now)

        def outcome() -> None:
            if not seen[0]:
                say("plugins", "the guard was taken out")
            seen[0] = 0
            check(runner, "runner")
            check(tests, "tests")
            self.hooks()

        self.outcome = outcome
        self.start = lambda: runner.extend(runner_entries())
        self.configured = configured
        self.runner = lambda: check(runner, "runner")
        self.tests = lambda: check(tests, "tests")
        self.item = item
        self.finders = _finder_check(places, say)
        self.freeze, self.hooks = _hook_checks(places, say)


def _of_pytest(value: Any) -> bool:
    """Whether a function is one of pytest's own, which changes some of its classes as it starts."""
    code = getattr(getattr(value, "fget", value), "__code__", None)
    return code is not None and code.co_filename.startswith(PYTEST)


def _finder_check(places: Places, say: Tell) -> Callable[[], None]:
    """Looks for import hooks that are neither the interpreter's, nor a package's like six."""
    kept = [*sys.meta_path, *sys.path_hooks]  # kept, so that no other gets an id of theirs
    start = frozenset(map(id, kept))

    def finders() -> None:
        for finder in [*sys.meta_path, *sys.path_hooks]:
            if id(finder) not in start and _code_place(places, finder) != LIBRARY:
                say("imports", type(finder).__name__)

    return finders


def _code_place(places: Places, finder: Any) -> str:
    find = getattr(type(finder), "find_spec", getattr(type(finder), "find_module", finder))
    code = getattr(find, "__code__", None)
    return FOREIGN if code is None else str(places.kind(code.co_filename))


def _hook_checks(places: Places, say: Tell) -> tuple[Callable[[Any], None], Callable[[], None]]:
    """Takes down the hook implementations once all are there, and compares them later."""
    frozen: list[Any] = []

    def freeze(config: Any) -> None:
        frozen[:] = [config, implementations(config)]
        for _impl, function, _plugin in frozen[1]:
            code = getattr(function, "__code__", None)
            if code is None or places.kind(code.co_filename) == FOREIGN:
                say("plugins", str(getattr(code, "co_name", type(function).__name__)))

    def hooks() -> None:
        if frozen and not _same(frozen[1], implementations(frozen[0])):
            say("plugins", "hook implementations")

    return freeze, hooks


class Guard:
    """A plugin that has things compared around every test.

    The runner before each of its steps, so that nothing can be changed and changed back in between;
    builtins and unittest only after a test's teardown, since tests may patch them.
    """

    __slots__ = ("_checks",)

    def __init__(self, checks: Checks) -> None:
        self._checks = checks

    @property
    def outcome(self) -> Callable[[], None]:
        """To be called before an outcome is written, whoever was unregistered meanwhile."""
        return self._checks.outcome

    def pytest_load_initial_conftests(self) -> None:
        self._checks.start()  # before any conftest, and after pytest has changed itself

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        self._checks.configured()
        self._checks.runner()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: Any) -> None:
        self._checks.runner()
        self._checks.finders()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: Any) -> None:
        self._checks.freeze(session.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._checks.runner()
        self._checks.hooks()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        self._checks.runner()
        self._checks.item(item)
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._checks.runner()
        self._checks.tests()
        self._checks.hooks()
        self._checks.finders()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Any, exitstatus: Any) -> None:
        self._checks.runner()
        self._checks.tests()


def hide_names() -> None:
    """Keep the running test's id out of the environment, where pytest tells it to anyone: a
    candidate could do what the test's name promises. That a test runs may still be seen.
    """
    runner = importlib.import_module("_pytest.runner")
    environ, name = os.environ, "PYTEST_CURRENT_TEST"

    def update(item: Any, when: str | None) -> None:
        if when:
            environ[name] = f"a test ({when})"
        else:
            environ.pop(name, None)

    vars(runner)["_update_current_test_var"] = update


def watch(places: Places, report: str, unwatched: Iterable[str], tell: Tell) -> Guard:
    """Start watching, before any candidate code is there; returns the plugin that takes part."""
    guard = Guard(Checks(places, tell, unwatched))
    install_hook(places, tell, report, unwatched)
    return guard
