"""The command line refuses bad input with one sentence, exit code 2 and no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.locks import is_lock, lock_bytes, require_folder, study_of
from orchestrator.sandbox import capabilities
from orchestrator.spec.errors import BadInput
from orchestrator.store.writer import Writer
from tests.unit.cli_support import REPOSITORY, Command
from tests.unit.store_support import complete_run, open_root, settle, small_lock

STUDY = str(REPOSITORY / "manifests" / "studies" / "quickstart.yaml")
LOCK = small_lock()
IDS = [planned.rollout_id for planned in LOCK.rollouts]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FACTORIAL_TASKS", raising=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", STUDY, "--workers", "0"), "--workers"),
        (("run", STUDY, "--workers", "many"), "--workers"),
        (("run", STUDY, "--through", "nothing"), "'rollouts', 'replay', 'report'"),
        (("run", STUDY, "--wrokers", "1"), "--workers"),
        (("run",), "Missing argument"),
        (("freeze", STUDY), "--out"),
        (("frobnicate",), "frobnicate"),
        (("run", "nope.yaml"), "nope.yaml: no such file"),
        (("run", "nope.json"), "nope.json: no such file"),
        (("run", "."), "is a folder, not a file"),
        (("tasks", "build", "nope.yaml"), "nope.yaml: no such file"),
        (("tasks", "build", STUDY), "schema: input should be 'factorial/tasks@1'"),
        (("tasks", "audit", "nope"), "no built tasks"),
        (("status", "nope"), "not the root of a run"),
        (("verify", "nope"), "not the root of a run"),
        (("replay", "nope"), "not the root of a run"),
        (("analyze", "nope"), "not the root of a run"),
        (("trace", "nope", "x"), "not the root of a run"),
        (("analyze",), "--outcomes with --study"),
        (("analyze", "root", "--study", STUDY), "--outcomes with --study"),
        (("analyze", "--outcomes", "nope.csv"), "--outcomes with --study"),
        (("analyze", "--outcomes", "nope.csv", "--study", STUDY), "nope.csv: no such file"),
    ],
)
def test_mistakes_of_the_command_line(
    command: Command, arguments: tuple[str, ...], words: str
) -> None:
    assert words in command.refused(*arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "not JSON"),
        ("[1]", "not a lock"),
        ('{"schema": "factorial/stack@1"}', "not a lock"),
        ('{"schema": "factorial/lock@1", "lock_id": ""}', "schema: input should be"),
    ],
)
def test_files_that_are_no_locks(command: Command, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert words in command.refused("run", "x.json")


def test_an_edited_lock_is_refused(command: Command, tmp_path: Path) -> None:
    content = json.loads(lock_bytes(LOCK))
    content["code"] = "other"
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert "edited after freezing" in command.refused("run", "x.json")


def test_a_lock_is_known_by_its_content_too(tmp_path: Path) -> None:
    (tmp_path / "frozen.lock").write_bytes(lock_bytes(LOCK))
    assert is_lock(tmp_path / "frozen.lock")
    assert not is_lock(Path(STUDY))


def test_places_that_cannot_be_written_are_found_before_anything_is_built(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("")
    assert "is a folder. Name a file" in command.refused("freeze", STUDY, "--out", ".")
    assert "is not a folder" in command.refused("freeze", STUDY, "--out", "file/x.json")
    assert "is not a folder" in command.refused("run", STUDY, "--root", "file")
    assert "holds files but no lock.json" in command.refused("run", STUDY, "--root", "full")
    assert "is not a folder" in command.refused("tasks", "build", STUDY, "--out", "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"], "nothing is made"


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(BadInput, match="not writable"):
        require_folder(tmp_path / "new" / "deep", "--root")


def test_a_missing_sandbox_is_named_with_its_remedy(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    capabilities.capabilities.cache_clear()
    try:
        assert "apt-get install bubblewrap" in command.refused("run", STUDY)
        plain, data = command("doctor"), command("doctor", "--json")
    finally:
        monkeypatch.undo()
        capabilities.capabilities.cache_clear()
    assert plain.code == data.code == 1
    assert "problem: the program bwrap is missing. Run `apt-get install bubblewrap`" in plain.out
    answer = json.loads(data.out)
    assert not answer["usable"]
    assert {"bubblewrap", "util-linux"} <= {
        word.strip("`.") for problem in answer["problems"] for word in problem["remedy"].split()
    }


def test_an_unknown_rollout_is_answered_with_close_ones(command: Command, tmp_path: Path) -> None:
    complete_run(tmp_path / "root", LOCK)
    said = command.refused("trace", "root", IDS[0].replace("__s1", "__s2"))
    assert IDS[0] in said
    assert IDS[0] in command.refused("trace", "root", "zzz") or "for example" in said


def test_a_rollout_that_has_not_settled(command: Command, tmp_path: Path) -> None:
    root = open_root(tmp_path / "root", LOCK)
    with root.writer():
        settle(Writer(root, LOCK), LOCK, IDS[1])
    assert "has not settled" in command.refused("trace", "root", IDS[0])


def test_the_study_of_a_lock_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "runs" / "r").mkdir(parents=True)
    (home / LOCK.study_path).write_text("")
    lock_path = home / "runs" / "r" / "lock.json"
    for folder in (home, home / "runs", tmp_path):
        monkeypatch.chdir(folder)
        assert study_of(LOCK, lock_path).resolve() == home / LOCK.study_path
    (home / LOCK.study_path).unlink()
    with pytest.raises(BadInput, match="study_path"):
        study_of(LOCK, lock_path)


def test_a_closed_pipe_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr
