"""Reading a report that hostile code could write to, and canonical messages."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluator.canonical import MESSAGE_CHARS, canonical, short
from orchestrator.evaluator.report import LINE_BYTES, Report, read_report
from tests.unit.evaluator_support import FINISHED, outcome, report_line

KEY = b"k" * 32
FACTS: list[dict[str, object]] = [
    {"kind": "collected", "id": "a"},
    {"kind": "collected", "id": "b"},
    outcome("a", "passed"),
    outcome("b", "failed", "AssertionError"),
    FINISHED,
]


def lines(facts: list[dict[str, object]], key: bytes = KEY) -> list[bytes]:
    return [report_line(key, number, fact) for number, fact in enumerate(facts)]


def parsed(directory: Path, data: bytes, **options: int) -> Report:
    path = directory / "report.jsonl"
    path.write_bytes(data)
    return read_report(path, KEY, **options)


def test_an_honest_report(tmp_path: Path) -> None:
    report = parsed(tmp_path, b"".join(lines(FACTS)))
    assert report.outcomes == {"a": "passed", "b": "failed"}
    assert report.messages == {"b": "AssertionError"}
    assert list(report.collected) == ["a", "b"]
    assert report.finished
    assert not report.malformed
    assert not report.repeated


@given(st.integers(0, 4), st.data())
def test_any_change_of_a_line_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, number: int, data: st.DataObject
) -> None:
    written = lines(FACTS)
    line = bytearray(written[number])
    place = data.draw(st.integers(0, len(line) - 2))
    line[place] ^= data.draw(st.integers(1, 127))
    written[number] = bytes(line)
    report = parsed(tmp_path_factory.mktemp("r"), b"".join(written))
    assert report.malformed
    assert not report.finished


@pytest.mark.parametrize(
    "order", [[0, 1, 2, 3, 4, 4], [1, 0, 2, 3, 4], [0, 1, 3, 4], [0, 0, 1, 2, 3, 4], [4]]
)
def test_lines_repeated_moved_or_dropped_are_noticed(tmp_path: Path, order: list[int]) -> None:
    written = lines(FACTS)
    assert parsed(tmp_path, b"".join(written[place] for place in order)).malformed


@pytest.mark.parametrize(
    "fact",
    [
        {"kind": "verdict", "id": "a"},
        {"kind": "outcome", "id": "a", "outcome": "solved", "message": ""},
        {"kind": "outcome", "id": "a", "outcome": "passed"},
        {"kind": "outcome", "id": 1, "outcome": "passed", "message": ""},
        {"kind": "finished", "status": True},
        {"kind": ["outcome"]},
        {},
    ],
)
def test_a_line_that_states_no_known_fact_is_noticed(
    tmp_path: Path, fact: dict[str, object]
) -> None:
    assert parsed(tmp_path, b"".join(lines([fact, FINISHED]))).malformed


def test_nested_beyond_reason_is_no_fact(tmp_path: Path) -> None:
    payload = b"[" * 100_000 + b"]" * 100_000
    assert parsed(tmp_path, signed(payload)).malformed


def signed(payload: bytes) -> bytes:
    import hashlib

    mac = hashlib.blake2b(b"0 " + payload, key=KEY, digest_size=16).hexdigest()
    return mac.encode() + b" " + payload + b"\n"


def test_a_line_after_the_end_is_noticed(tmp_path: Path) -> None:
    assert parsed(tmp_path, b"".join(lines([FINISHED, outcome("a", "passed")]))).malformed


def test_an_id_twice_is_named(tmp_path: Path) -> None:
    facts = [outcome("a", "failed"), outcome("a", "passed"), FINISHED]
    assert parsed(tmp_path, b"".join(lines(facts))).repeated == {"a"}
    twice = [FACTS[0], FACTS[0], FINISHED]
    assert parsed(tmp_path, b"".join(lines(twice))).repeated == {"a"}


def test_a_cut_last_line_is_an_unfinished_report_not_a_forged_one(tmp_path: Path) -> None:
    report = parsed(tmp_path, b"".join(lines(FACTS))[:-10])
    assert not report.finished
    assert not report.malformed
    assert report.outcomes == {"a": "passed", "b": "failed"}


@pytest.mark.parametrize("status", [2, 3, 4, 99])
def test_an_interrupted_session_has_not_finished(tmp_path: Path, status: int) -> None:
    facts = [outcome("a", "passed"), {"kind": "finished", "status": status}]
    assert not parsed(tmp_path, b"".join(lines(facts))).finished


def test_a_line_longer_than_any_honest_one_is_noticed(tmp_path: Path) -> None:
    fact: dict[str, object] = {"kind": "outcome", "id": "a", "outcome": "failed"}
    longest = b"\n".join(lines([{**fact, "message": "x" * (LINE_BYTES - 200)}]))
    assert not parsed(tmp_path, longest).malformed
    longer = b"\n".join(lines([{**fact, "message": "x" * LINE_BYTES}]))
    assert "too long" in parsed(tmp_path, longer).malformed


def test_links_pipes_and_oversize_are_refused(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.write_bytes(b"".join(lines(FACTS)))
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(real)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path, tmp_path / "absent"):
        assert read_report(path, KEY).malformed
    assert read_report(real, KEY, limit=50).malformed
    assert read_report(real, KEY).finished


# --------------------------------------------------------------------------------- messages

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<Foo object at 0x7f12ab34cd56>", "<Foo object at 0xADDR>"),
        ("mask 0xff", "mask 0xff"),
        ("open /tmp/tmpab12_xyz/a.txt", "open /tmp/TMP/a.txt"),
        ("/tmp/pytest-of-root/pytest-7/test_a0/f", "/tmp/pytest-of-USER/pytest-N/test_a0/f"),
        ("took 0.0312345 seconds", "took DURATION"),
        ("'1.5 seconds' != '2 seconds'", "'1.5 seconds' != '2 seconds'"),
        ("at 2026-03-04T05:06:07.123+00:00", "at TIME"),
        ("at 2026-03-04 05:06", "at TIME"),
        ("at 2019-03-04 05:06", "at 2019-03-04 05:06"),
        ("datetime.datetime(2026, 3, 4, 5, 6)", "TIME"),
        ("datetime(2020, 2, 29, 0, 0)", "datetime(2020, 2, 29, 0, 0)"),
        ("2026-13-45", "2026-13-45"),
        (f"t={NOW.timestamp() + 5:.3f}", "t=TIME"),
        ("t=1577836800", "t=1577836800"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("root 4096 Mar  4 05:06 .git", "root 4096 TIME .git"),
        ("Wed Mar  4 05:06:07 UTC 2026", "TIME"),
        ("Mar  4 05:06:07 2019", "Mar  4 05:06:07 2019"),
        ("Jan  1  2000 a.py", "Jan  1  2000 a.py"),
        ("254:0 /srv/a/factorial-12-x_y/plugin /opt", "254:0 /TMP/plugin /opt"),
    ],
)
def test_only_what_differs_from_run_to_run_is_taken_out(text: str, expected: str) -> None:
    assert canonical(text, NOW.timestamp()) == expected


def test_the_turn_of_the_year_is_near() -> None:
    assert canonical("Dec 31 23:59", datetime(2026, 1, 1, tzinfo=UTC).timestamp()) == "TIME"


@given(st.integers(0, 86_399))
def test_clock_times_of_a_run_look_the_same_whenever_it_runs(offset: int) -> None:
    moment = NOW + timedelta(seconds=offset)
    text = f"now is {moment.isoformat()} or {moment.timestamp()}"
    assert canonical(text, NOW.timestamp()) == "now is TIME or TIME"


@given(st.text())
def test_messages_are_bounded_and_already_short_ones_are_kept(text: str) -> None:
    assert len(short(text)) <= MESSAGE_CHARS
    assert short(short(text)) == short(text)
