"""Watches the interpreter that runs the tests, from before any candidate code is imported.

An audit hook, which nothing can remove, and a record of the functions that decide outcomes. What it
finds is told at once to a writer that nothing can take back; what happens afterwards inside the
process does not matter. Stands alone: Python 3.8 or later, pytest 7.4 or later.

Code is trusted by the file that it came from: the interpreter, its packages and this folder are
*library*, the suite's files are *sealed*, everything else, generated code too, is *foreign*.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import types
import unittest.case
from collections.abc import Callable, Generator, Iterable
from typing import Any

import _pytest
import pytest
from _pytest.config import default_plugins

LIBRARY, SEALED, FOREIGN = "library", "sealed", "foreign"
Tell = Callable[[str, str], None]

RUNNER = ("_pytest", "pluggy", "pytest", "factorial_watch", "__main__")
"""Modules, with all below them, whose functions must stay what they are at every moment."""
DECIDING = [
    "AssertionError",
    "BaseException",
    "Exception",
    "KeyError",
    "StopIteration",
    "TypeError",
    "ValueError",
    "__build_class__",
    "all",
    "any",
    "bool",
    "bytes",
    "callable",
    "classmethod",
    "compile",
    "delattr",
    "dict",
    "enumerate",
    "eval",
    "exec",
    "filter",
    "float",
    "frozenset",
    "getattr",
    "hasattr",
    "hash",
    "id",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "list",
    "map",
    "max",
    "min",
    "next",
    "object",
    "property",
    "range",
    "repr",
    "reversed",
    "set",
    "setattr",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "vars",
    "zip",
]
"""Builtins that decide outcomes; a test may patch others for longer than itself (open, print)."""
RUN_HOOKS = [
    "pytest_runtest_protocol",
    "pytest_runtest_logstart",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
    "pytest_runtest_logreport",
    "pytest_runtest_logfinish",
    "pytest_pyfunc_call",
    "pytest_fixture_setup",
    "pytest_runtestloop",
]

CALLS = {
    "gc.get_objects": "gc",
    "gc.get_referrers": "gc",
    "gc.get_referents": "gc",
    "sys._current_frames": "frames",
    "sys._current_exceptions": "frames",
    "sys.settrace": "trace",
    "sys.setprofile": "trace",
    "sys.monitoring.register_callback": "trace",
    "sys.addaudithook": "hook",
}
"""Events that only a test itself may cause -> the rule that they break otherwise."""
SET_BY_CODE = ("__code__", "__defaults__", "__kwdefaults__")


class Places:
    """Tells by its file name whose code a frame runs."""

    def __init__(self, library: Iterable[str], sealed: Iterable[str]) -> None:
        self._library = (*library, "<frozen ")
        self._known = dict.fromkeys(sealed, SEALED)

    def kind(self, filename: str) -> str:
        known = self._known.get(filename)
        if known is None:
            known = LIBRARY if filename.startswith(self._library) else FOREIGN
            if len(self._known) < 100_000:
                self._known[filename] = known
        return known

    def origin(self, frame: Any) -> str:
        """Whose code caused what happens in ``frame``: the innermost that is not the library's.

        A stack of library code alone is foreign: a thread may have been given a function to call.
        """
        while frame is not None:
            kind = self.kind(frame.f_code.co_filename)
            if kind != LIBRARY:
                return kind
            frame = frame.f_back
        return FOREIGN

    def pure(self, frame: Any) -> bool:
        """Whether nothing but library code is on the stack."""
        while frame is not None:
            if self.kind(frame.f_code.co_filename) != LIBRARY:
                return False
            frame = frame.f_back
        return True


def library_places(own: str) -> list[str]:
    """Where the interpreter, its packages and this folder lie."""
    standard = os.path.dirname(os.__file__)  # noqa: PTH120
    return [folder.rstrip("/") + "/" for folder in (sys.prefix, standard, own)]


# ------------------------------------------------------------------------------- audit hook


def install_hook(places: Places, tell: Tell, report: str, unwatched: Iterable[str]) -> None:
    """Watch what happens in this process, for good."""
    off = frozenset(unwatched)
    frame_of, judges = sys._getframe, _judges(places, report)

    def hook(event: str, args: Any) -> None:
        judge = judges.get(event)
        if judge is None:
            return
        rule = judge(args, frame_of(1))
        if rule and rule not in off:
            tell(rule, event)

    sys.addaudithook(hook)


def _judges(places: Places, report: str) -> dict[str, Callable[[Any, Any], str]]:
    """Event -> which rule it breaks, given its arguments and the frame that caused it, or ''."""

    def only_by_tests(rule: str) -> Callable[[Any, Any], str]:
        return lambda _args, frame: "" if places.origin(frame) == SEALED else rule

    def of_a_name(name: Any, frame: Any) -> str:
        # Code that says it came from the library would be trusted as the library's.
        forged = isinstance(name, (str, bytes)) and places.kind(os.fsdecode(name)) == LIBRARY
        return "code" if forged and places.kind(frame.f_code.co_filename) == FOREIGN else ""

    def set_attribute(args: Any, frame: Any) -> str:
        target, name = args[0], args[1]
        if name not in SET_BY_CODE or not isinstance(target, types.FunctionType):
            return ""
        theirs = places.kind(target.__code__.co_filename) == FOREIGN
        if frame.f_code.co_filename == types.__file__ and frame.f_code.co_name == "coroutine":
            return ""  # sets a flag of a function that asyncio defines
        return "" if theirs or places.origin(frame) == SEALED else "code"

    def foreign_call(rule: str) -> Callable[[Any, Any], str]:
        def judge(_args: Any, frame: Any) -> str:
            while frame is not None and "/ctypes/" in frame.f_code.co_filename:
                frame = frame.f_back
            foreign = frame is None or places.kind(frame.f_code.co_filename) == FOREIGN
            return rule if foreign else ""

        return judge

    def touched(args: Any, frame: Any) -> str:
        try:
            path = os.fsdecode(args[0])
        except TypeError:  # a descriptor
            return ""
        memory = path.startswith("/proc/") and (path.endswith(("/mem", "/maps")) or "/fd/" in path)
        touches = memory or path == report
        return "files" if touches and places.origin(frame) == FOREIGN else ""

    return {
        **{event: only_by_tests(rule) for event, rule in CALLS.items()},
        **{f"ctypes.{name}": foreign_call("ctypes") for name in CTYPES},
        "marshal.loads": foreign_call("code"),
        "compile": lambda args, frame: of_a_name(args[1], frame),
        "code.__new__": lambda args, frame: of_a_name(args[1], frame),
        "object.__setattr__": set_attribute,
        "open": touched,
        "os.truncate": touched,
    }


CTYPES = [
    "dlopen",
    "dlsym",
    "dlsym/handle",
    "cdata",
    "cdata/buffer",
    "string_at",
    "wstring_at",
    "addressof",
    "call_function",
    "PyObj_FromPtr",
    "memoryview_at",
]


# ------------------------------------------------------------------------------- functions

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

    __slots__ = ("configured", "finders", "freeze", "hooks", "item", "runner", "start", "tests")
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

        def item(one: Any) -> None:
            if not OWN_RUN.isdisjoint(vars(one)):
                say("runner", "an item's own methods")

        def configured() -> None:
            for place, (space, name, value) in enumerate(runner):
                now = space.get(name)
                if now is not value and _of_pytest(now):
                    runner[place] = (space, name, now)

        self.start = lambda: runner.extend(runner_entries())
        self.configured = configured
        self.runner = lambda: check(runner, "runner")
        self.tests = lambda: check(tests, "tests")
        self.item = item
        self.finders = _finder_check(say)
        self.freeze, self.hooks = _hook_checks(places, say)


def _of_pytest(value: Any) -> bool:
    """Whether a function is one of pytest's own, which changes some of its classes as it starts."""
    code = getattr(getattr(value, "fget", value), "__code__", None)
    return code is not None and code.co_filename.startswith(PYTEST)


def _finder_check(say: Tell) -> Callable[[], None]:
    start = frozenset(map(id, [*sys.meta_path, *sys.path_hooks]))
    kept = [*sys.meta_path, *sys.path_hooks]  # so that no other gets an id of theirs

    def finders() -> None:
        for finder in [*sys.meta_path, *sys.path_hooks]:
            if id(finder) not in start and type(finder).__module__ != REWRITING:
                say("imports", f"beside {len(kept)} finders")

    return finders


def _hook_checks(places: Places, say: Tell) -> tuple[Callable[[Any], None], Callable[[], None]]:
    """Takes down the hook implementations once all are there, and compares them later."""
    frozen: list[Any] = []

    def freeze(config: Any) -> None:
        frozen[:] = [config, implementations(config)]
        for _impl, function, _plugin in frozen[1]:
            code = getattr(function, "__code__", None)
            if code is not None and places.kind(code.co_filename) == FOREIGN:
                say("plugins", str(code.co_name))

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


def places_of(launcher: str, sealed: Iterable[str]) -> Places:
    """The places for a launcher (its file) and the paths of the suite's files."""
    return Places(library_places(os.path.dirname(os.path.abspath(launcher))), sealed)  # noqa: PTH100, PTH120


def watch(places: Places, report: str, unwatched: Iterable[str], tell: Tell) -> Guard:
    """Start watching, before any candidate code is there; returns the plugin that takes part."""
    guard = Guard(Checks(places, tell, unwatched))
    install_hook(places, tell, report, unwatched)
    return guard


PYTEST = os.path.dirname(_pytest.__file__) + "/"  # noqa: PTH120
REWRITING = "_pytest.assertion.rewrite"
OWN_RUN = frozenset({"runtest", "setup", "teardown", "ihook", "repr_failure", "nodeid"})
"""What an item's class decides; an item that has its own was given it."""
