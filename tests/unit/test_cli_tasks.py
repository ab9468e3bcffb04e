"""What ``factorial tasks`` prints: a line per rule, reasons of rejections, findings, exit codes."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.cli import auditing
from orchestrator.cli import tasks as commands
from orchestrator.cli.building import BuildView, described, summary
from orchestrator.cluster.curation import Kind, Outcome
from orchestrator.tasks.compartments import Places
from orchestrator.tasks.eligibility import RULES, Ineligible
from orchestrator.tasks.findings import Finding
from orchestrator.tasks.scan import Depth
from tests.unit import tasks_support as support
from tests.unit.cli_support import Command
from tests.unit.tasks_support import Built, build

UNTESTED = {path: text for path, text in support.FIXED.items() if not path.startswith("tests/")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """A folder with one eligible task and one rejected candidate."""
    with support.own_cache(tmp_path_factory.mktemp("cli")) as home:
        done = build(home / "out", support.manifest(home / "manifest"))
        with pytest.raises(Ineligible):
            build(home / "out", support.manifest(home / "bad", fixed=UNTESTED, task_id="bad"))
        yield done


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


# ------------------------------------------------------------------------------- audit


def test_an_audit_shows_a_line_per_rule_with_its_figure(built: Built, command: Command) -> None:
    done = command("tasks", "audit", str(built.out), "--task", support.TASK)
    assert done.code == 0, done
    lines = [line.split(maxsplit=2) for line in done.out.splitlines() if line.startswith("  ")]
    assert [words[0] for words in lines[: len(RULES)]] == list(RULES)
    shown = {words[0]: " ".join(words[1:]) for words in lines[: len(RULES)]}
    assert shown["gold-files"] == "pass 2 files of 5"
    assert shown["hidden-api"] == "flag 1 function dropped"
    assert shown["suite-duration"].startswith("pass median ")
    assert "nothing sealed is reachable" in done.out
    assert done.out.splitlines()[-1] == "1 eligible, 0 rejected, 0 findings"


def test_a_rejected_candidate_keeps_its_row_and_reason(built: Built, command: Command) -> None:
    done = command("tasks", "audit", str(built.out))
    assert done.code == 0, done
    assert "bad: rejected by tests-present: no test module was found" in done.out
    assert "1 eligible, 1 rejected, 0 findings" in done.out
    rows = json.loads(command("tasks", "audit", str(built.out), "--json", "--sandbox", "none").out)
    bad, good = sorted(rows, key=lambda row: str(row["task_id"]))
    assert (bad["eligible"], good["eligible"], good["findings"]) == (False, True, [])
    assert [rule["rule"] for rule in bad["rules"]] == list(RULES)
    verdicts = {rule["rule"]: rule["verdict"] for rule in bad["rules"]}
    assert verdicts["tests-present"] == "fail" and verdicts["stable"] == "not reached"


def test_a_leak_and_a_touched_record_are_findings(
    built: Built, command: Command, tmp_path: Path
) -> None:
    copy = built.copy(tmp_path / "copy")
    quick = ("--sandbox", "none")
    (copy.places.agent / "notes.txt").write_text(support.CORE_FIXED)
    done = command("tasks", "audit", str(copy.out), *quick)
    assert done.code == 1 and "FINDING" in done.out and "notes.txt" in done.out
    (copy.places.agent / "notes.txt").unlink()
    text = copy.places.eligibility.read_text()
    copy.places.eligibility.write_text(text.replace("2 files", "1 file"))
    done = command("tasks", "audit", str(copy.out), "--json", *quick)
    assert done.code == 1
    assert "eligibility record" in json.loads(done.out)[0]["findings"][0]


def test_what_is_found_in_the_agents_sandbox_is_a_finding(
    built: Built, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def scan(out: Path, names: list[str], depth: Depth, **_: object) -> list[Finding]:
        asked.append((out, names, depth))
        return [Finding(support.TASK, "no-gold-line", "sandbox", "/tmp/x has a line of gold")]

    monkeypatch.setattr(auditing, "scan_sandbox", scan)
    done = command("tasks", "audit", str(built.out), "--sandbox", "own")
    assert (done.code, asked) == (1, [(built.out, [support.TASK], Depth.OWN)])
    assert "FINDING  tally-1.0-1.1: no-gold-line: sandbox: /tmp/x has a line of gold" in done.out


def test_a_damaged_rejection_is_a_finding(built: Built, command: Command, tmp_path: Path) -> None:
    copy = built.copy(tmp_path / "copy")
    place = Places(copy.out, "torn").rejected
    place.parent.mkdir()
    place.write_text("{")
    done = command("tasks", "audit", str(copy.out), "--task", "torn")
    assert done.code == 1 and "cannot be read" in done.out


def test_what_is_not_there_is_bad_input(built: Built, command: Command, tmp_path: Path) -> None:
    assert "no built tasks" in command.refused("tasks", "audit", str(tmp_path))
    assert "no task 'other'" in command.refused("tasks", "audit", str(built.out), "--task", "other")


# ------------------------------------------------------------------------------- build

GOOD = Outcome(
    "good", Kind.ELIGIBLE, True, "", "certificate", "3 fail-to-pass functions", "", 12.0, 1 << 20,
    200 << 20, 50 << 20,
)  # fmt: skip
BAD = replace(GOOD, task_id="bad", kind=Kind.REJECTED, rule="stable", message="all unstable")
WRONG = replace(BAD, expected=False)
FAILED = replace(GOOD, kind=Kind.FAILED, expected=False, step="environment", message="no wheel",
                 log="line 1\nline 2")  # fmt: skip


def test_outcomes_in_words() -> None:
    assert described(GOOD) == "eligible, 3 fail-to-pass functions (12 s)"
    assert described(BAD) == "rejected, as it should be, by rule stable (all unstable)"
    assert described(WRONG) == "rejected, by rule stable (all unstable)"
    assert described(FAILED) == ("failed at step environment: no wheel\n    line 1\n    line 2")


def test_a_summary_has_counts_seconds_disk_and_memory() -> None:
    assert summary([GOOD, BAD, WRONG, FAILED]).splitlines() == [
        "1 eligible, 2 rejected (1 of them unexpectedly), 1 failed",
        "seconds per task: median 12, longest 12; disk per task: 1.0 MiB",
        "peak memory: builder 200 MiB, suite 50 MiB",
    ]


def test_steps_are_told_once_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with BuildView(2, Console(stderr=True, width=100)) as view:
        for steps in ({"a": "sources"}, {"a": "sources", "b": "suites"}, {"b": "suites"}):
            view.watch(steps)
        view.done(replace(GOOD, task_id="a"))
    assert capsys.readouterr().err.splitlines() == [
        "a: sources", "b: suites", "[1/2] a: eligible, 3 fail-to-pass functions (12 s)"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("outcomes", "code"), [([GOOD, BAD], 0), ([GOOD, WRONG], 1), ([GOOD, FAILED], 1)]
)
def test_a_build_fails_where_a_task_failed_or_was_rejected_unexpectedly(
    built: Built,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[Outcome],
    code: int,
) -> None:
    asked: dict[str, object] = {}

    def builds(_tasks: object, _path: Path, out: Path, **options: object) -> list[Outcome]:
        asked.update(options, out=out)
        return outcomes

    monkeypatch.setattr(commands, "build_tasks", builds)
    arguments = ("tasks", "build", str(built.manifest), "--out", str(built.out), "--jobs", "3")
    done = command(*arguments, "--task", support.TASK, "--json")
    assert done.code == code
    assert [row["kind"] for row in json.loads(done.out)] == [o.kind.value for o in outcomes]
    assert (asked["jobs"], asked["only"], asked["out"]) == (3, [support.TASK], built.out)
    assert command(*arguments).out == summary(outcomes) + "\n"
