"""What commands print: help with examples that parse, JSON alone on stdout, readable traces."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.console import Console

from orchestrator.cli.main import app
from orchestrator.cli.trace import readable
from orchestrator.store.writer import Writer
from tests.unit.cli_support import REPOSITORY, Command, nested
from tests.unit.store_support import complete_run, open_root, settle, small_lock

LOCK = small_lock()
IDS = [planned.rollout_id for planned in LOCK.rollouts]


def commands() -> Iterator[tuple[str, ...]]:
    yield from below((), typer.main.get_command(app))


def below(name: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    """Names of the commands below a group, groups themselves left out."""
    inside = nested(command)
    if inside is None:
        yield name
    for inner, found in (inside or {}).items():
        yield from below((*name, inner), found)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize("name", list(commands()), ids=" ".join)
def test_every_command_shows_an_example_of_itself_whose_files_exist(
    command: Command, name: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    done = command(*name, "--help")
    assert done.code == 0
    (examples,) = re.findall(r"Example: (.*)", done.out)
    called = examples.split(", or ")
    for example in called:
        words = shlex.split(example.strip())
        assert words[: 1 + len(name)] == ["factorial", *name]
        for word in words:
            assert not word.startswith("manifests/") or (REPOSITORY / word).is_file(), word
        for option in (word for word in words if word.startswith("--")):
            assert option in done.out.split("Options", 1)[1]


@pytest.mark.parametrize("name", [(), ("tasks",), *commands()], ids=" ".join)
def test_help_fits_80_columns_and_keeps_its_words(
    command: Command, name: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = command(*name, "--help")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "runs/ where" not in done.out, "an angle bracket was taken for markup"


def test_the_version(command: Command) -> None:
    assert re.fullmatch(r"factorial \d+\.\d+\.\d+\n", command("--version").out)


def test_json_is_all_that_is_on_stdout(command: Command, tmp_path: Path) -> None:
    root = complete_run(tmp_path / "root", LOCK)
    status = json.loads(command("status", str(root.path), "--json").out)
    assert (status["settled"], status["owed"]) == (4, 0)
    trace = json.loads(command("trace", str(root.path), IDS[0], "--json").out)
    assert [action["turn"] for action in trace["actions"]] == [1, 2, 3]
    doctor = json.loads(command("doctor", "--json").out)
    assert doctor["usable"] is True


@pytest.mark.parametrize("width", ["80", "120"])
def test_status_and_trace_fit_the_terminal(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    root = complete_run(tmp_path / "root", LOCK)
    monkeypatch.setenv("COLUMNS", width)
    for arguments in (("status", str(root.path)), ("trace", str(root.path), IDS[0])):
        done = command(*arguments)
        assert done.code == 0
        assert max(map(len, done.out.splitlines())) <= int(width)


def test_a_trace_tells_the_whole_story(command: Command, tmp_path: Path) -> None:
    done = command("trace", str(complete_run(tmp_path / "root", LOCK).path), IDS[0])
    for words in ("1. view: done", "gate passed, kept", "certification", "accepted via submission"):
        assert words in done.out


def test_a_rollout_that_infrastructure_ended_can_be_traced(
    command: Command, tmp_path: Path
) -> None:
    root = open_root(tmp_path / "root", LOCK)
    with root.writer():
        writer = Writer(root, LOCK)
        settle(writer, LOCK, IDS[1])
        attempt = writer.begin_attempt(IDS[0], {})
        writer.end_attempt(attempt, "infrastructure", "server: gone")
        writer.commit_without_outcome(IDS[0], "infrastructure", "server")
    done = command("trace", str(root.path), IDS[0])
    assert done.code == 0
    assert "end: server; nothing accepted" in done.out


def shown(reply: str) -> list[str]:
    return readable(reply).plain.splitlines()


def test_an_edit_is_shown_as_lines() -> None:
    changes = [
        {"path": "a.py", "find": "x = 1\ny = 2\n", "replace": "x = 2\n"},
        {"path": "b.py", "create": "new\n"},
        {"path": "c.py", "delete": True},
    ]
    reply = json.dumps({"action": "edit", "changes": changes})
    expected = ["a.py", "-x = 1", "-y = 2", "+x = 2", "b.py", "+new", "c.py (deleted)"]
    assert shown(reply) == expected


@pytest.mark.parametrize(
    "reply",
    ["", "no json", "[1]", '{"a": 1}', '{"action": "edit", "changes": ["x"]}', "[bold]not markup"],
)
def test_other_replies_are_shown_as_they_are(reply: str) -> None:
    text = readable(reply)
    assert text.plain == reply
    Console(quiet=True).print(text)


def test_a_command_is_shown_by_key() -> None:
    assert shown('{"action": "shell", "command": "ls -l"}') == ["shell", "command: ls -l"]


def test_an_outcome_table_from_elsewhere(command: Command, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "howto.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```\n(task_id,.*?)```", page, flags=re.S)
    (tmp_path / "table.csv").write_text(table)
    study = str(REPOSITORY / "manifests" / "studies" / "quickstart.yaml")
    arguments = ("analyze", "--outcomes", str(tmp_path / "table.csv"), "--study", study)
    done = command(*arguments, "--json")
    assert done.code == 0
    assert json.loads(done.out)["bootstrap_draws"] == 200000
    (tmp_path / "table.csv").write_text(table.replace("accepted", "acepted"))
    assert "accepted: the column is missing" in command.refused(*arguments)
