"""A session decides: tree by tree, mode by mode, to its end; the checkpoint is never lost."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.admission import receipt
from orchestrator.admission.session import Decision, Session
from orchestrator.admission.verifier import Execution, Request
from orchestrator.contract.modes import Disposition
from orchestrator.contract.verdicts import Verdict
from orchestrator.repo.files import REGULAR, Files, read_directory, tree_of
from orchestrator.spec.errors import BadInput, InfrastructureFault, IntegrityError
from tests.unit.admission_support import BASE, Judged, Place, by_content, opened, with_code

GOOD, BETTER, BAD, SLOW = b"good", b"good too", b"bad", b"slow"


def said(decision: Decision) -> tuple[str, str]:
    return str(decision.verdict), str(decision.rule)


def test_sound_then_complete(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.write(GOOD)
    assert said(place.session.propose()) == ("ADMITTED", "proposal.admitted")
    assert said(place.session.complete()) == ("ADMITTED", "completion.certified")
    assert place.session.ended
    delivered = receipt.deliver(place.session.root, tmp_path / "out")
    assert read_directory(tmp_path / "out") == with_code(GOOD)
    assert delivered == tree_of(with_code(GOOD)).state_id
    assert [r.purpose for r in place.verifier.asked] == [
        "diagnostic",
        "gate",
        "diagnostic",
        "certification",
    ]


def test_a_rejected_candidate_leaves_no_trace(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.write(GOOD)
    place.session.propose()
    place.write(BAD)
    place.write(b"left behind", "residue.txt")
    assert said(place.session.propose()) == ("REJECTED", "proposal.rejected")
    assert read_directory(place.session.worktree) == with_code(GOOD)
    assert place.session.checkpoint == tree_of(with_code(GOOD)).state_id


def test_the_base_is_no_candidate_and_no_change_is_no_proposal(tmp_path: Path) -> None:
    place = opened(tmp_path)
    assert said(place.session.propose()) == ("REJECTED", "action.refused")
    assert said(place.session.complete()) == ("REJECTED", "completion.empty-candidate")
    assert not place.session.ended


def test_an_edit_after_the_verdict_is_stale_and_stays_for_a_proposal(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.write(GOOD)
    place.session.propose()
    place.write(BETTER)
    assert said(place.session.complete()) == ("STALE", "admission.state-drifted")
    assert read_directory(place.session.worktree) == with_code(BETTER)
    assert place.session.propose().verdict is Verdict.ADMITTED
    assert place.session.complete().verdict is Verdict.ADMITTED


def test_evidence_of_an_earlier_state_intercepts_one_proposal_and_keeps_its_tree(
    tmp_path: Path,
) -> None:
    place = opened(tmp_path)
    assert place.session.test().payload == "payload"
    place.write(GOOD)
    place.session.propose()
    place.write(BETTER)
    assert said(place.session.propose()) == ("STALE", "evidence.stale-at-edit")
    assert read_directory(place.session.worktree) == with_code(BETTER)
    assert place.session.propose().verdict is Verdict.ADMITTED


@pytest.mark.parametrize("policy", ["reject", "abstain"])
def test_a_timeout_is_what_the_policy_says(tmp_path: Path, policy: str) -> None:
    place = opened(tmp_path, on_timeout=policy)
    place.write(SLOW)
    decision = place.session.propose()
    wanted = Verdict.REJECTED if policy == "reject" else Verdict.ABSTAINED
    assert decision.verdict is wanted
    assert place.session.checkpoint is None
    assert read_directory(place.session.worktree) == BASE


def test_messages_of_an_agent(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.write(GOOD)
    assert place.session.act(b'{"action": "propose"}').verdict is Verdict.ADMITTED
    assert said(place.session.act(b"I am done!")) == ("ABSTAINED", "admission.malformed-action")
    assert place.session.act(b'{"action": "test"}').payload == "payload"
    assert place.session.act(b'{"action": "complete"}').verdict is Verdict.ADMITTED
    last = place.session.last
    assert place.session.act(b"I am done!") == last == place.session.act(b'{"action": "propose"}')


def test_giving_up_delivers_nothing_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.write(GOOD)
    place.session.propose()
    assert said(place.session.escalate()) == ("ESCALATED", "abstention.escalated")
    assert place.session.checkpoint is not None
    assert place.session.store.get(place.session.checkpoint) == with_code(GOOD)
    with pytest.raises(IntegrityError, match="no authority"):
        receipt.deliver(place.session.root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tree_that_is_none_is_an_abstention(tmp_path: Path) -> None:
    place = opened(tmp_path)
    os.mkfifo(place.session.worktree / "pipe")
    assert said(place.session.propose()) == ("ABSTAINED", "admission.unreadable-tree")
    assert read_directory(place.session.worktree) == BASE


def test_protected_paths_never_reach_the_gate(tmp_path: Path) -> None:
    place = opened(tmp_path, protected=["ci"], suite=["tests/**"])
    for path in ("ci/release.sh", "tests/check.txt"):
        place.write(GOOD)
        place.write(b"other", path)
        assert said(place.session.propose()) == ("REJECTED", "admission.protected-path")
    assert not [r for r in place.verifier.asked if r.purpose == "gate"]


# --------------------------------------------------------------------------------- budgets


def test_the_candidate_budget_ends_with_the_checkpoint(tmp_path: Path) -> None:
    place = opened(tmp_path, candidates=2)
    for code in (GOOD, BAD):
        place.write(code)
        place.session.propose()
    place.write(BETTER)
    assert said(place.session.propose()) == ("ADMITTED", "completion.certified")
    assert place.receipt()["accepted_state_id"] == tree_of(with_code(GOOD)).state_id


def test_the_wall_budget_ends_whatever_the_agent_asks(tmp_path: Path) -> None:
    place = opened(tmp_path, wall_s=10.0)
    place.write(GOOD)
    place.session.propose()
    place.clock.seconds = 9.9
    assert not place.session.test().ended
    place.clock.seconds = 10.0
    assert said(place.session.test()) == ("ADMITTED", "completion.certified")


def test_verification_is_not_charged(tmp_path: Path) -> None:
    def judge(files: Files) -> str:
        place.clock.seconds += 100.0
        return by_content(files)

    place = opened(tmp_path, judge, wall_s=10.0)  # type: ignore[arg-type]
    place.write(GOOD)
    place.session.propose()
    assert place.session.wall_left == 10.0


def test_no_checkpoint_is_no_delivery(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.write(BAD)
    place.session.propose()
    assert said(place.session.close()) == ("ABSTAINED", "abstention.budget-ended")
    assert place.receipt()["delivery"]["delivered"] is False  # type: ignore[index]


@pytest.mark.parametrize("end", ["complete", "close"])
def test_a_certification_that_fails_admits_nothing(tmp_path: Path, end: str) -> None:
    verdicts = iter(["pass", "fail", "fail"])
    place = opened(tmp_path, lambda _: next(verdicts))  # type: ignore[arg-type, return-value]
    place.write(GOOD)
    place.session.propose()
    decision = place.session.complete() if end == "complete" else place.session.close()
    assert said(decision) == ("REJECTED", "completion.flaky")
    place.session.close()
    assert place.receipt()["accepted_state_id"] is None


# --------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"state_id": "0" * 64}, "evidence.misaddressed"),
        ({"suite_id": "0" * 64}, "evidence.misaddressed"),
        ({"execution_id": "0" * 64}, "evidence.replayed"),
    ],
)
def test_a_verifier_that_answers_something_else_gives_no_pass(
    tmp_path: Path, changes: dict[str, str], rule: str
) -> None:
    place = opened(tmp_path)
    honest = place.verifier.run

    def deceive(request: Request) -> Execution:
        ran = honest(request)
        return replace(ran, **changes) if request.purpose == "gate" else ran  # type: ignore[arg-type]

    place.verifier.run = deceive  # type: ignore[method-assign]
    place.session = _again(place, tmp_path / "again")
    place.write(GOOD)
    assert said(place.session.propose()) == ("STALE", rule)
    assert place.session.checkpoint is None
    assert len([r for r in place.verifier.asked if r.purpose == "gate"]) == 2
    place.session.close()
    assert len(place.receipt()["refused_evidence"]) == 2  # type: ignore[arg-type]


def test_a_verifier_that_comes_to_its_senses_is_heard(tmp_path: Path) -> None:
    place = opened(tmp_path)
    honest, lies = place.verifier.run, [{"state_id": "0" * 64}]

    def deceive(request: Request) -> Execution:
        ran = honest(request)
        return replace(ran, **lies.pop()) if request.purpose == "gate" and lies else ran  # type: ignore[arg-type]

    place.verifier.run = deceive  # type: ignore[method-assign]
    place.session = _again(place, tmp_path / "again")
    place.write(GOOD)
    assert place.session.propose().verdict is Verdict.ADMITTED


def _again(place: Place, root: Path) -> Session:
    return Session(place.verifier.manifest, place.folder / "source", root, place.verifier)


def test_a_completion_that_fails_again_and_again_escalates(tmp_path: Path) -> None:
    verdicts = iter(["pass", *["fail"] * 9])
    place = opened(tmp_path, lambda _: next(verdicts), repeat_limit=2)  # type: ignore[arg-type, return-value]
    place.write(GOOD)
    place.session.propose()
    assert said(place.session.complete()) == ("REJECTED", "completion.flaky")
    assert said(place.session.complete()) == ("ESCALATED", "admission.repeated-rejection")
    assert place.session.checkpoint is not None


def test_a_fault_of_the_verifier_is_no_verdict_and_leaves_no_authority(tmp_path: Path) -> None:
    def judge(_: Files) -> str:
        raise InfrastructureFault("engine", "gone")

    place = opened(tmp_path, judge)  # type: ignore[arg-type]
    place.write(GOOD)
    for action in (place.session.propose, place.session.complete, place.session.close):
        with pytest.raises(InfrastructureFault, match="gone"):
            action()
    assert not place.session.ended
    with pytest.raises(IntegrityError):
        receipt.deliver(place.session.root, tmp_path / "out")


# --------------------------------------------------------------------------------- modes


@pytest.mark.parametrize(
    ("mode", "done", "delivered"),
    [
        ("shadow", Disposition.OBSERVED, None),
        ("warn", Disposition.OVERRIDDEN, BAD),
        ("enforce", Disposition.BLOCKED, None),
    ],
)
def test_modes_change_what_is_done_not_what_is_said(
    tmp_path: Path, mode: str, done: Disposition, delivered: bytes | None
) -> None:
    place = opened(tmp_path, mode=mode)
    place.write(BAD)
    decision = place.session.propose()
    assert (decision.verdict, decision.disposition) == (Verdict.REJECTED, done)
    assert read_directory(place.session.worktree) == (BASE if mode == "enforce" else with_code(BAD))
    place.session.complete()
    place.session.close()
    body = place.receipt()
    wanted = None if delivered is None else tree_of(with_code(delivered)).state_id
    assert body["delivered_state_id"] == wanted
    assert body["accepted_state_id"] is None
    assert ("risk.overridden" in body["residual_risks"]) is (mode == "warn")  # type: ignore[operator]


# --------------------------------------------------------------------------------- any sequence

ACTIONS = st.sampled_from(
    [GOOD, BETTER, BAD, b"bad too", SLOW, "complete", "test", "noise", "drift"]
)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(ACTIONS, max_size=14), mode=st.sampled_from(["enforce", "warn", "shadow"]))
def test_whatever_an_agent_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[bytes | str], mode: str
) -> None:
    """The checkpoint moves by a pass alone and is kept exactly; what is accepted passed afresh."""
    place = opened(tmp_path_factory.mktemp("session"), mode=mode, candidates=6)
    session, checkpoint = place.session, None
    for step in steps:
        decision = _take(place, step)
        assert session.checkpoint in (checkpoint, decision.state_id)
        if session.checkpoint != checkpoint:
            assert step in (GOOD, BETTER)
            assert decision.verdict is Verdict.ADMITTED
        checkpoint = session.checkpoint
        if mode == "enforce" and isinstance(step, bytes) and decision.rule == "proposal.rejected":
            assert read_directory(session.worktree) == session.store.get(session.current)
    session.close()
    account = receipt.verify(session.root)
    assert len([a for a in account.decided if a.action == "propose"]) <= 6 + len(steps)
    if account.accepted is not None:
        assert session.store.get(account.accepted)["code.txt"][1].startswith(b"good")
        assert account.state.certifications[-1].passed


def _take(place: Place, step: bytes | str) -> Decision:
    if isinstance(step, bytes):
        place.write(step)
        return place.session.propose()
    if step == "drift":
        place.write(b"drifted")
        return place.session.complete()
    message = b"noise" if step == "noise" else f'{{"action": "{step}"}}'.encode()
    return place.session.act(message)


# --------------------------------------------------------------------------------- opening


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    place = opened(tmp_path)
    with pytest.raises(BadInput, match="holds files already"):
        _again(place, place.session.root)


def test_two_sessions_ask_for_different_executions(tmp_path: Path) -> None:
    place = opened(tmp_path)
    first = {request.execution_id for request in place.verifier.asked}
    _again(place, tmp_path / "again")
    second = {request.execution_id for request in place.verifier.asked} - first
    assert first
    assert second


def test_the_source_is_never_written(tmp_path: Path) -> None:
    place = opened(tmp_path)
    place.write(GOOD)
    place.session.propose()
    place.session.complete()
    assert read_directory(tmp_path / "source") == BASE
    assert isinstance(place.verifier, Judged)
    assert all(r.files["tests/check.txt"] == (REGULAR, b"the suite") for r in place.verifier.asked)
