"""The watcher's first half: whose code is on the stack, and an audit hook that nothing can remove.

Code is trusted by the file that it came from: the interpreter, its packages and this folder are
*library*, the suite's files are *sealed*, everything else, generated code too, is *foreign*. What
the hook finds is told at once to a writer that nothing can take back. Stands alone: Python 3.8 or
later.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.8 cannot subscript it
    Tell = Callable[[str, str], None]

LIBRARY, SEALED, FOREIGN = "library", "sealed", "foreign"

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


def places_of(launcher: str, sealed: Iterable[str]) -> Places:
    """The places for a launcher (its file) and the paths of the suite's files."""
    return Places(library_places(os.path.dirname(os.path.abspath(launcher))), sealed)  # noqa: PTH100, PTH120


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
