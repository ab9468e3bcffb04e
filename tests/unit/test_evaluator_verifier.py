"""Verdicts, what of them leaves the evaluator, cache, replay and audit; no test really runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.evaluator import verifier as module
from orchestrator.evaluator.cache import VerdictCache
from orchestrator.evaluator.doubts import Doubt
from orchestrator.evaluator.hardening import Hardening, VoidReason
from orchestrator.evaluator.judge import PAYLOAD_CHARS, Judgement, judge
from orchestrator.evaluator.replay import audit_base, evaluate_state
from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Suite, function_of
from orchestrator.evaluator.verifier import LocalVerifier
from orchestrator.repo.files import Files
from orchestrator.spec.errors import InfrastructureFault, IntegrityError
from orchestrator.spec.ports import (
    Command,
    Completed,
    ExitClass,
    Purpose,
    SuiteName,
    SuiteOutcome,
    SuiteRequest,
)
from tests.unit import evaluator_support as support
from tests.unit.evaluator_support import ScriptedSandbox

GOLD = support.with_core(support.FIXED)
PLAIN = Hardening(twins=False, second_runner=False)
"""One run for each verdict; what doubts a pass is tried in real sandboxes."""
SUITE_FOR = {
    Purpose.DIAGNOSTIC: SuiteName.DIAGNOSTIC,
    Purpose.GATE: SuiteName.GATE,
    Purpose.CERTIFICATION: SuiteName.GATE,
    Purpose.REPLAY: SuiteName.FULL,
}


@pytest.fixture
def sandbox() -> ScriptedSandbox:
    return ScriptedSandbox()


@pytest.fixture
def verifier(tmp_path: Path, sandbox: ScriptedSandbox) -> LocalVerifier:
    return make(tmp_path, sandbox)


def make(directory: Path, sandbox: ScriptedSandbox, **changes: object) -> LocalVerifier:
    tasks = directory / "tasks"
    if not tasks.exists():
        support.build_tasks(tasks, **changes)
    return LocalVerifier(
        tasks, directory / "cache", sandbox, directory / "scratch", hardening=PLAIN
    )


def asked(files: Files, purpose: Purpose, **changes: object) -> SuiteRequest:
    state_id, delta = support.candidate(files)
    request = SuiteRequest(
        support.TASK, SUITE_FOR[purpose], purpose, state_id, delta, "execution", 60.0
    )
    return replace(request, **changes)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize("purpose", SUITE_FOR)
def test_gold_passes_and_base_fails(verifier: LocalVerifier, purpose: Purpose) -> None:
    gold = verifier.run(asked(GOLD, purpose))
    base = verifier.run(asked(support.BASE, purpose))
    assert gold.ok
    assert base.outcome is SuiteOutcome.FAIL
    assert gold.suite_id == base.suite_id == verifier.suite_id(support.TASK, SUITE_FOR[purpose])
    assert (gold.passed, gold.failed_ids, gold.execution_id) == (gold.expected, (), "execution")
    assert gold.state_id != base.state_id


@pytest.mark.parametrize("purpose", [Purpose.GATE, Purpose.CERTIFICATION])
def test_the_gate_says_one_bit(verifier: LocalVerifier, purpose: Purpose) -> None:
    verdict = verifier.run(asked(support.BASE, purpose))
    shown = verifier.run(asked(support.BASE, Purpose.DIAGNOSTIC))
    assert (verdict.passed, verdict.failed_ids, verdict.payload) == (0, (), "")
    assert shown.failed_ids
    assert shown.payload


def test_a_diagnostic_payload_names_what_failed(tmp_path: Path) -> None:
    sandbox = ScriptedSandbox()
    verdict = make(tmp_path, sandbox).run(asked(support.BASE, Purpose.DIAGNOSTIC))
    assert verdict.payload.startswith(f"{verdict.passed} of {verdict.expected} tests passed.\n")
    assert all(f"FAILED {test_id}\n" in verdict.payload for test_id in verdict.failed_ids)


@pytest.mark.parametrize(
    ("exit_class", "outcome"),
    [
        (ExitClass.OK, SuiteOutcome.PASS),
        (ExitClass.FAILED, SuiteOutcome.PASS),
        (ExitClass.TIMEOUT, SuiteOutcome.TIMEOUT),
        (ExitClass.OUT_OF_MEMORY, SuiteOutcome.FAIL),
        (ExitClass.KILLED, SuiteOutcome.FAIL),
    ],
)
def test_exit_codes_decide_nothing_but_limits_do(
    tmp_path: Path, exit_class: ExitClass, outcome: SuiteOutcome
) -> None:
    verifier = make(tmp_path, ScriptedSandbox(exit_class=exit_class))
    assert verifier.run(asked(GOLD, Purpose.GATE)).outcome is outcome


@pytest.mark.parametrize("result", ["skipped", "xfailed", "xpassed", "error", "failed"])
def test_only_passed_counts(tmp_path: Path, result: str) -> None:
    odd = ScriptedSandbox(lambda test_id, _: result if test_id == support.BUG[0] else "passed")
    verdict = make(tmp_path, odd).run(asked(GOLD, Purpose.REPLAY))
    assert verdict.outcome is SuiteOutcome.FAIL
    assert verdict.failed_ids == (support.BUG[0],)


@pytest.mark.parametrize("test_id", [support.BUG[0], "tests/test_core.py::test_planted"])
def test_an_id_twice_or_unexpected_voids_the_run(tmp_path: Path, test_id: str) -> None:
    sandbox = ScriptedSandbox(extra=(support.outcome(test_id, "passed"),))
    verdict = make(tmp_path, sandbox).run(asked(GOLD, Purpose.REPLAY))
    assert verdict.outcome is SuiteOutcome.VOID
    assert verdict.passed == 0


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ((support.outcome("tests/test_core.py::x", "passed"),), VoidReason.REPORT_FORGED),
        (({"kind": "tampered", "rule": "gc", "detail": ""},), VoidReason.RUNNER_TAMPERED),
    ],
)
def test_a_void_run_says_why_in_verdict_and_evaluation(
    tmp_path: Path, extra: tuple[dict[str, object], ...], reason: VoidReason
) -> None:
    verifier = make(tmp_path, ScriptedSandbox(extra=extra))
    verdict = verifier.run(asked(GOLD, Purpose.GATE))
    assert (verdict.outcome, verdict.void_reason) == (SuiteOutcome.VOID, reason)
    evaluation = evaluate_state(verifier, support.TASK, *support.candidate(GOLD))
    assert (evaluation.resolved, evaluation.void_reason) == (False, reason)
    assert evaluation.gravest is SuiteOutcome.VOID


def test_flags_say_what_lines_look_like_and_what_took_no_part(
    verifier: LocalVerifier, tmp_path: Path
) -> None:
    files = support.changed({"src/calc/core.py": "import gc\n" + support.FIXED, "conftest.py": ""})
    for _ in range(2):  # once run, once from the cache
        verdict = verifier.run(asked(files, Purpose.GATE))
        assert verdict.ok
        assert verdict.flags == ("left-out.protected", "scan.memory")
    assert evaluate_state(verifier, support.TASK, *support.candidate(files)).flags == verdict.flags
    assert verifier.run(asked(GOLD, Purpose.GATE)).flags == ()


def test_hardening_is_part_of_the_key(
    verifier: LocalVerifier, sandbox: ScriptedSandbox, tmp_path: Path
) -> None:
    verifier.run(asked(GOLD, Purpose.GATE))
    weaker = LocalVerifier(
        tmp_path / "tasks",
        tmp_path / "cache",
        sandbox,
        tmp_path / "scratch",
        hardening=replace(PLAIN, audit=False),
    )
    assert not weaker.run(asked(GOLD, Purpose.GATE)).cached
    orders = [json.loads(command.stdin)["watch"] for command in sandbox.commands]
    assert orders[0]["sealed"]
    assert orders[1] is None


def test_without_the_report_layer_a_forged_line_is_believed(tmp_path: Path) -> None:
    sandbox = ScriptedSandbox(extra=tuple(support.outcome(i, "passed") for i in support.PASSING))
    make(tmp_path, sandbox)
    off = replace(PLAIN, report=False)
    verifier = LocalVerifier(
        tmp_path / "tasks", tmp_path / "cache", sandbox, tmp_path / "scratch", hardening=off
    )
    assert verifier.run(asked(support.BASE, Purpose.REPLAY)).ok


def test_a_diagnostic_tree_lacks_the_tests_of_other_suites(tmp_path: Path) -> None:
    texts: list[str] = []

    def look(test_id: str, tree: Path) -> str:
        texts.append((tree / support.FILE).read_text())
        return support.honest(test_id, tree)

    verifier = make(tmp_path, ScriptedSandbox(look))
    verifier.run(asked(GOLD, Purpose.DIAGNOSTIC))
    verifier.run(asked(GOLD, Purpose.GATE))
    suites = verifier.bundle(support.TASK).suites
    shown = {function_of(i) for i in suites[SuiteName.DIAGNOSTIC].ids}
    others = {function_of(i) for i in suites[SuiteName.FULL].ids} - shown
    assert all(f"def {name.rpartition('::')[2]}(" in texts[0] for name in shown)
    assert not any(f"def {name.rpartition('::')[2]}(" in texts[0] for name in others)
    assert texts[-1] == support.TESTS


def test_a_fault_of_the_sandbox_is_no_verdict(tmp_path: Path) -> None:
    class Broken(ScriptedSandbox):
        def run(self, command: Command) -> Completed:
            raise InfrastructureFault("engine", "gone")

    for sandbox in (Broken(), ScriptedSandbox(exit_class=ExitClass.ENGINE_FAULT)):
        with pytest.raises(InfrastructureFault) as caught:
            make(tmp_path, sandbox).run(asked(GOLD, Purpose.GATE))
        assert caught.value.boundary == "evaluator"


def test_residue_in_the_tree_voids_the_run(tmp_path: Path) -> None:
    def write(_: str, tree: Path) -> str:
        (tree / "left.txt").write_text("x")
        return "passed"

    verdict = make(tmp_path, ScriptedSandbox(write)).run(asked(GOLD, Purpose.GATE))
    assert verdict.outcome is SuiteOutcome.VOID


def test_nothing_is_left_in_scratch(verifier: LocalVerifier, tmp_path: Path) -> None:
    verifier.run(asked(GOLD, Purpose.GATE))
    assert not list((tmp_path / "scratch").iterdir())


# --------------------------------------------------------------------------------- candidates


def test_a_delta_that_is_not_the_state_it_claims_is_refused(verifier: LocalVerifier) -> None:
    _, other = support.candidate(support.with_core("# nothing\n"))
    with pytest.raises(IntegrityError, match="candidate of task"):
        verifier.run(asked(GOLD, Purpose.GATE, delta=other))


@pytest.mark.parametrize(
    ("purpose", "suite"),
    [
        (Purpose.CERTIFICATION, SuiteName.FULL),
        (Purpose.GATE, SuiteName.DIAGNOSTIC),
        (Purpose.DIAGNOSTIC, SuiteName.GATE),
        (Purpose.REPLAY, SuiteName.GATE),
    ],
)
def test_a_purpose_has_its_suites(
    verifier: LocalVerifier, purpose: Purpose, suite: SuiteName
) -> None:
    with pytest.raises(IntegrityError, match="does not run for"):
        verifier.run(asked(GOLD, purpose, suite=suite))


def test_protected_paths_of_a_candidate_are_ignored(tmp_path: Path) -> None:
    trees: list[set[str]] = []

    def look(test_id: str, tree: Path) -> str:
        trees.append({p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()})
        assert (tree / support.FILE).read_text() == support.TESTS
        return support.honest(test_id, tree)

    planted = {
        "conftest.py": "",
        "sitecustomize.py": "",
        "src/calc.pth": "",
        "pytest.ini": "",
        "src/calc-1.dist-info/entry_points.txt": "",
        "src/calc-1.EGG-INFO/entry_points.txt": "",
        "sitecustomize/__init__.py": "",
        "src/conftest/__init__.py": "",
        "faulthandler.py": "",
        "src/json/__init__.py": "",
        support.FILE: "def test_add(): pass",
    }
    verifier = make(tmp_path, ScriptedSandbox(look))
    files = support.changed({"src/calc/core.py": support.FIXED, "src/calc/new.py": "", **planted})
    assert verifier.run(asked(files, Purpose.GATE)).ok
    assert not trees[0] & (planted.keys() - {support.FILE})
    assert "src/calc/new.py" in trees[0]
    assert not verifier.run(asked(support.changed(planted), Purpose.GATE)).ok


def test_each_run_has_a_fresh_tree_and_a_read_only_view_of_it(
    verifier: LocalVerifier, sandbox: ScriptedSandbox
) -> None:
    for purpose in SUITE_FOR:
        verifier.run(asked(GOLD, purpose))
    sources = [c.mounts[0].source for c in sandbox.commands]
    assert len(set(sources)) == len(sources) == len(SUITE_FOR)
    writable = {m.target for c in sandbox.commands for m in c.mounts if m.writable}
    assert writable == {"/out/report.jsonl"}


# --------------------------------------------------------------------------------- cache


def test_a_tree_is_evaluated_once(verifier: LocalVerifier, sandbox: ScriptedSandbox) -> None:
    first = verifier.run(asked(GOLD, Purpose.GATE))
    again = verifier.run(asked(GOLD, Purpose.GATE, execution_id="other"))
    assert (first.cached, again.cached) == (False, True)
    assert again.duration_seconds == first.duration_seconds
    assert again.execution_id == "other"
    assert len(sandbox.commands) == 1


@pytest.mark.parametrize("files", [GOLD, support.BASE])
def test_the_cache_answers_what_the_run_answered(verifier: LocalVerifier, files: Files) -> None:
    first = verifier.run(asked(files, Purpose.DIAGNOSTIC))
    again = verifier.run(asked(files, Purpose.DIAGNOSTIC))
    assert replace(again, cached=False) == first


def test_certification_neither_reads_nor_writes_the_cache(
    verifier: LocalVerifier, sandbox: ScriptedSandbox
) -> None:
    assert verifier.run(asked(GOLD, Purpose.CERTIFICATION)).ok
    assert not verifier.run(asked(GOLD, Purpose.GATE)).cached
    sandbox.decide = lambda *_: "failed"
    assert verifier.run(asked(GOLD, Purpose.GATE)).ok
    assert not verifier.run(asked(GOLD, Purpose.CERTIFICATION)).ok
    assert verifier.run(asked(GOLD, Purpose.GATE)).ok


@pytest.mark.parametrize("exit_class", [ExitClass.TIMEOUT, ExitClass.KILLED])
def test_a_timeout_is_not_kept(tmp_path: Path, exit_class: ExitClass) -> None:
    sandbox = ScriptedSandbox(exit_class=exit_class)
    verifier = make(tmp_path, sandbox)
    verdicts = [verifier.run(asked(GOLD, Purpose.GATE)) for _ in range(2)]
    assert verdicts[1].cached == (exit_class is not ExitClass.TIMEOUT)


@pytest.mark.parametrize("other", [asked(GOLD, Purpose.REPLAY), asked(GOLD, Purpose.DIAGNOSTIC)])
def test_another_suite_is_another_key(verifier: LocalVerifier, other: SuiteRequest) -> None:
    verifier.run(asked(GOLD, Purpose.GATE))
    assert not verifier.run(other).cached


def test_another_wall_limit_is_another_key(verifier: LocalVerifier) -> None:
    verifier.run(asked(GOLD, Purpose.GATE))
    assert not verifier.run(asked(GOLD, Purpose.GATE, wall_seconds=30.0)).cached


def test_a_damaged_record_is_run_again_and_mended(
    verifier: LocalVerifier, sandbox: ScriptedSandbox, tmp_path: Path
) -> None:
    verifier.run(asked(support.BASE, Purpose.GATE))
    (record,) = (tmp_path / "cache").rglob("*.json")
    forged = json.loads(record.read_bytes())
    forged["judgement"]["outcome"] = "pass"
    for damage in (json.dumps(forged).encode(), record.read_bytes()[:40], b"[]", b""):
        record.write_bytes(damage)
        verdict = verifier.run(asked(support.BASE, Purpose.GATE))
        assert not verdict.ok
        assert not verdict.cached
        assert verifier.run(asked(support.BASE, Purpose.GATE)).cached


def test_the_first_record_stays(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    first = Judgement(SuiteOutcome.PASS, 1, 1, (), "x", 1.0)
    cache.put({"a": 1}, first)
    cache.put({"a": 1}, replace(first, duration_seconds=9.0))
    assert cache.get({"a": 1}) == first
    assert cache.get({"a": 2}) is None


# --------------------------------------------------------------------------------- replay


def test_gold_is_resolved_and_base_is_not(
    verifier: LocalVerifier, sandbox: ScriptedSandbox
) -> None:
    gold = evaluate_state(verifier, support.TASK, *support.candidate(GOLD))
    base = evaluate_state(verifier, support.TASK, *support.candidate(support.BASE))
    assert (gold.fail_to_pass, gold.pass_to_pass, gold.full, gold.resolved) == (True,) * 4
    assert (base.fail_to_pass, base.pass_to_pass, base.full, base.resolved) == (
        False,
        True,
        False,
        False,
    )
    assert (gold.failed_count, base.failed_count) == (0, len(support.BUG))
    assert base.failed_ids == support.BUG
    ids = [json.loads(command.stdin)["ids"] for command in sandbox.commands]
    assert ids == [list(support.BUG), list(support.KEPT), sorted(support.PASSING)] * 2


def test_a_fix_that_breaks_something_else_is_not_resolved(verifier: LocalVerifier) -> None:
    broken = support.with_core(support.FIXED.replace("2 * x", "x"))
    evaluation = evaluate_state(verifier, support.TASK, *support.candidate(broken))
    assert evaluation.fail_to_pass
    assert not evaluation.pass_to_pass
    assert not evaluation.resolved
    assert evaluation.failed_ids == support.KEPT


def test_replay_is_cached_with_its_original_duration(verifier: LocalVerifier) -> None:
    first = evaluate_state(verifier, support.TASK, *support.candidate(GOLD))
    again = evaluate_state(verifier, support.TASK, *support.candidate(GOLD))
    assert (first.cached, again.cached) == (False, True)
    assert replace(again, cached=False) == first


def test_a_sound_base_passes_its_audit(verifier: LocalVerifier, sandbox: ScriptedSandbox) -> None:
    evaluate_state(verifier, support.TASK, *support.candidate(support.BASE))
    before = len(sandbox.commands)
    audit = audit_base(verifier, support.TASK)
    assert audit.ok
    assert audit.outcomes[SuiteName.PASS_TO_PASS] is SuiteOutcome.PASS
    assert all(
        audit.outcomes[name] is SuiteOutcome.FAIL for name in SuiteName if name != "pass_to_pass"
    )
    assert not audit.evaluation.resolved
    assert len(sandbox.commands) == before + len(SuiteName)


def test_an_audit_names_what_is_not_as_recorded(tmp_path: Path) -> None:
    swapped = {**support.bundle_fields()["suites"]}  # type: ignore[dict-item]
    swapped["fail_to_pass"], swapped["pass_to_pass"] = list(support.KEPT), list(support.BUG)
    verifier = make(tmp_path, ScriptedSandbox(), suites=swapped)
    audit = audit_base(verifier, support.TASK)
    assert not audit.ok
    assert len(audit.problems) == len(support.PASSING)


def test_an_audit_records_residue(tmp_path: Path) -> None:
    def write(test_id: str, tree: Path) -> str:
        (tree / "left.txt").write_text("x")
        return support.honest(test_id, tree)

    audit = audit_base(make(tmp_path, ScriptedSandbox(write)), support.TASK)
    assert audit.residue == ("left.txt",)
    assert not audit.ok


# --------------------------------------------------------------------------------- judge

RUN = TestRun({}, {}, {}, True, ExitClass.OK, False, 1.0, None, "")


def test_a_payload_is_bounded_and_says_what_it_left_out() -> None:
    ids = tuple(f"tests/test_a.py::test_{n:04}" for n in range(500))
    run = replace(
        RUN, outcomes=dict.fromkeys(ids, "failed"), messages=dict.fromkeys(ids, "E" * 400)
    )
    payload = judge(Suite(SuiteName.DIAGNOSTIC, ids, "s"), run).payload
    assert len(payload) <= PAYLOAD_CHARS
    shown = payload.count("FAILED ")
    assert payload.endswith(f"... and {500 - shown} more\n")


def test_a_payload_shows_collection_errors_and_tests_that_did_not_run() -> None:
    run = replace(RUN, collection_errors={"t.py": "SyntaxError: x"})
    judgement = judge(Suite(SuiteName.DIAGNOSTIC, ("t.py::a",), "s"), run)
    assert judgement.payload == (
        "0 of 1 tests passed.\nERROR while collecting t.py\n    SyntaxError: x\nNOT RUN t.py::a\n"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timed_out": True}, "time limit"),
        ({"exit_class": ExitClass.OUT_OF_MEMORY}, "out of memory"),
        ({"finished": False}, "ended before pytest was done"),
        ({"malformed": "x"}, "not valid"),
    ],
)
def test_a_payload_says_how_the_run_ended(change: dict[str, object], said: str) -> None:
    run = replace(RUN, outcomes={"t.py::a": "passed"}, **change)  # type: ignore[arg-type]
    judgement = judge(Suite(SuiteName.DIAGNOSTIC, ("t.py::a",), "s"), run)
    assert said in judgement.payload
    assert judgement.outcome is not SuiteOutcome.PASS


def test_a_run_has_the_time_that_was_asked_for(
    verifier: LocalVerifier, sandbox: ScriptedSandbox
) -> None:
    verifier.run(asked(GOLD, Purpose.GATE, wall_seconds=400.5))
    limits = sandbox.commands[0].limits
    assert (limits.wall_seconds, limits.cpu_seconds) == (400.5, 802)


def test_a_state_that_passes_again_runs_again_and_is_doubted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not so where there was no time to settle the doubt."""
    ends = [SuiteOutcome.TIMEOUT, SuiteOutcome.PASS]
    settled: list[str] = []

    def settle(*_: object) -> Doubt:
        settled.append("doubt")
        return Doubt(ends[len(settled) - 1], VoidReason.NONE, 1.0)

    monkeypatch.setattr(module, "settle", settle)
    sandbox = ScriptedSandbox()
    verifier = make(tmp_path, sandbox)
    outcomes = [verifier.run(asked(GOLD, Purpose.CERTIFICATION)).outcome for _ in range(4)]
    assert outcomes == [SuiteOutcome.TIMEOUT, *[SuiteOutcome.PASS] * 3]
    assert len(settled) == 2
    assert len(sandbox.commands) == 4
