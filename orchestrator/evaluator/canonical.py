"""Makes failure messages the same in every run: no addresses, temporary names, clocks or timings.

What the agent is shown must not differ between two runs of one state (protocol §1 "Seeds"). Dates
that a test merely computes with are kept, since they explain the failure: only times close to the
run's own clock are taken out.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

MESSAGE_CHARS = 400
MESSAGE_LINES = 6
_NEAR_SECONDS = 2 * 86_400

_FIXED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), ""),
    (re.compile(r"0x[0-9a-fA-F]{5,}"), "0xADDR"),
    (re.compile(r"pytest-of-[^/\s]+/pytest-\d+"), "pytest-of-USER/pytest-N"),
    (re.compile(r"/tmp/tmp[A-Za-z0-9_]{6,}"), "/tmp/TMP"),
    (re.compile(r"\b\d+\.\d{5,} ?(?:s|ms|us|µs|secs?|seconds?)\b"), "DURATION"),
)
_ISO = re.compile(
    r"\b(\d{4})-(\d{2})-(\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2}\b)?"
)
_CALL = re.compile(r"\b(?:datetime\.)?(?:datetime|date)\((\d{4}), (\d{1,2}), (\d{1,2})[^()]*\)")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LISTED = re.compile(
    rf"\b(?:[A-Z][a-z]{{2}} )?({'|'.join(_MONTHS)}) {{1,2}}(\d{{1,2}}) \d{{2}}:\d{{2}}(?::\d{{2}})?"
    r"(?: UTC)?(?: (\d{4})\b)?"
)
_OURS = re.compile(r"(?:/[\w.+@-]{1,255}){0,40}/factorial-\d+-[\w-]+")
"""Temporary directories of this project, with the host's path to them (mount tables show it)."""
_EPOCH = re.compile(r"\b\d{10}(?:\.\d+)?\b")


def canonical(text: str, now: float | None = None) -> str:
    """``text`` without what differs from run to run; ``now`` is the run's clock (Unix seconds)."""
    clock = time.time() if now is None else now
    for pattern, replacement in _FIXED:
        text = pattern.sub(replacement, text)
    return without_clock(text, clock)


def without_clock(text: str, now: float) -> str:
    """``text`` without times close to ``now`` and without this project's temporary directories."""
    text = _OURS.sub("/TMP", text)
    for pattern in (_ISO, _CALL):
        text = pattern.sub(_unless_far(now, _day), text)
    text = _LISTED.sub(_unless_far(now, lambda match: _listed_day(match, now)), text)
    return _EPOCH.sub(_unless_far(now, _seconds), text)


def short(text: str) -> str:
    """The first lines of a message, at most 6 lines and 400 characters."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    cut = "\n".join(lines[:MESSAGE_LINES])
    if len(lines) > MESSAGE_LINES or len(cut) > MESSAGE_CHARS:
        cut = cut[: MESSAGE_CHARS - 4].rstrip() + " ..."
    return cut


def _unless_far(
    clock: float, moment: Callable[[re.Match[str]], float | None]
) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        seconds = moment(match)
        near = seconds is not None and abs(seconds - clock) <= _NEAR_SECONDS
        return "TIME" if near else match.group()

    return replace


def _day(match: re.Match[str]) -> float | None:
    try:
        day = datetime(int(match[1]), int(match[2]), int(match[3]), tzinfo=UTC)
    except ValueError:
        return None
    return day.timestamp()


def _listed_day(match: re.Match[str], now: float) -> float | None:
    """A day as ``ls`` and ``date`` write it; without a year it is the one nearest to ``now``."""
    this = datetime.fromtimestamp(now, UTC).year
    years = [int(match[3])] if match[3] else [this - 1, this, this + 1]
    month = _MONTHS.index(match[1]) + 1
    try:
        days = [datetime(year, month, int(match[2]), tzinfo=UTC).timestamp() for year in years]
    except ValueError:
        return None
    return min(days, key=lambda day: abs(day - now))


def _seconds(match: re.Match[str]) -> float | None:
    return float(match.group())
