"""The loop of one rollout, arm by arm, with a scripted coder and an evaluator in memory."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from orchestrator.agent.shell import ShellResult
from orchestrator.repo.files import tree_of
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.ports import (
    Purpose,
    SuiteOutcome,
    SuiteRequest,
    SuiteVerdict,
)
from orchestrator.spec.study import Budgets, Sampling
from tests.unit.agent_support import (
    BASE,
    BREAK,
    CORE,
    ESCALATE,
    FIX,
    SHELL,
    SUBMIT,
    TEST,
    VIEW,
    FakeShell,
    FakeVerifier,
    edit,
    roll,
)

BASE_ID = tree_of(BASE).state_id
FIXED = {**BASE, CORE: (0o100644, BASE[CORE][1].replace(b"a - b", b"a + b"))}
FIXED_ID = tree_of(FIXED).state_id
UNDO = edit("a + b", "a - b")
ARMS = ["".join(arm) for arm in product(["", "B"], ["", "A"], ["", "C"])]

ARMS_BY_EVIDENCE = list(product(ARMS, ["current", "stale"]))

# ------------------------------------------------------------------------- arms


@pytest.mark.parametrize("arm, evidence", ARMS_BY_EVIDENCE)
def test_a_fix_is_accepted_in_every_arm(arm: str, evidence: str) -> None:
    done = roll([VIEW, TEST, FIX, SUBMIT], arm, evidence)
    assert done.row["accepted"] and done.row["accepted_via"] == "submission"
    assert done.row["accepted_state_id"] == done.row["final_state_id"] == FIXED_ID
    assert done.row["checkpoint_state_id"] == FIXED_ID
    assert (done.row["end_reason"], done.row["actions"]) == ("submitted", 4)
    certifications = done.verifier.runs(Purpose.CERTIFICATION)
    assert len(certifications) == done.row["certifications"] == int("C" in arm)


@pytest.mark.parametrize("arm", ARMS)
def test_a_regression_is_rolled_back_only_with_admission(arm: str) -> None:
    done = roll([FIX, TEST, UNDO, ESCALATE], arm)
    first, second = done.record.proposals
    assert (first["gate_passed"], second["gate_passed"]) == (True, False)
    assert first["retained"] and second["retained"] == ("A" not in arm)
    assert done.row["final_state_id"] == (FIXED_ID if "A" in arm else BASE_ID)
    assert done.row["checkpoint_state_id"] == FIXED_ID
    assert done.row["rollbacks"] == int("A" in arm)
    assert not done.row["accepted"] and done.row["escalated"]


@pytest.mark.parametrize("arm", ARMS)
def test_the_gates_bit_is_told_only_with_admission(arm: str) -> None:
    """Nothing else of the gate reaches the agent: equal texts whatever the gate saw."""
    passed, failed = roll([FIX, SUBMIT], arm), roll([BREAK, SUBMIT], arm)
    same = passed.observations[0] == failed.observations[0]
    assert same == ("A" not in arm)
    assert passed.results[0] == ("accepted" if "A" in arm else "done")
    assert failed.results[0] == ("rejected" if "A" in arm else "done")


def test_arms_with_equal_histories_send_equal_prompts() -> None:
    script = [VIEW, TEST, SHELL, FIX]
    prompts = [
        [request.messages for request in roll(script, arm, evidence).coder.requests][:4]
        for arm, evidence in ARMS_BY_EVIDENCE
    ]
    assert all(p == prompts[0] for p in prompts)


def test_stale_evidence_is_that_of_the_state_before_and_looks_current() -> None:
    done = roll([FIX, TEST, SUBMIT], "", "stale")
    assert "fail on" in done.observations[1] and "a - b" in done.observations[1]
    assert "STALE" not in done.observations[1] and done.results[1] == "done"


def test_binding_intercepts_it_and_the_fresh_evidence_counts_as_a_test() -> None:
    done = roll([FIX, TEST, SUBMIT], "B", "stale")
    assert done.observations[1].startswith("STALE") and "pass on" in done.observations[1]
    assert done.record.actions[1]["reason"] == "evidence.stale-at-delivery"
    assert (done.row["interceptions_delivery"], done.row["visible_tests"]) == (1, 1)


def test_binding_intercepts_an_edit_on_earlier_evidence() -> None:
    done = roll([TEST, BREAK, edit("a * b", "a + b"), SUBMIT], "B")
    assert done.results == ["done", "done", "stale", "accepted"]
    assert (done.row["interceptions_edit"], done.row["revisions"]) == (1, 1)
    assert len(done.verifier.runs(Purpose.GATE)) == 1
    assert done.record.proposals[0]["evidence_state_id"] == BASE_ID
    assert done.row["visible_tests"] == 1, "an intercepted edit is no visible test"


def test_a_failed_certification_rejects_the_submission_and_says_only_that() -> None:
    texts = set()
    for lines in ([SUBMIT], [BREAK, SUBMIT]):
        done = roll([*lines, ESCALATE], "C")
        assert done.results[len(lines) - 1] == "rejected"
        assert done.row["rejected_submissions"] == 1
        texts.add(done.observations[len(lines) - 1].splitlines()[0])
    assert len(texts) == 1


def test_at_the_end_the_checkpoint_completes_with_certification_only() -> None:
    for arm in ("C", ""):
        done = roll([FIX, UNDO, VIEW], arm, budgets=Budgets(actions=3, revisions=2))
        assert done.row["end_reason"] == "actions" and done.row["actions_exhausted"]
        assert done.row["accepted"] == (arm == "C")
        assert done.row["final_state_id"] == BASE_ID
        if arm == "C":
            assert done.row["accepted_via"] == "checkpoint"
            assert done.row["accepted_state_id"] == FIXED_ID


def flaky(request: SuiteRequest, core: str) -> SuiteOutcome:
    """The gate passes what the certification then fails."""
    return SuiteOutcome.FAIL if request.purpose is Purpose.CERTIFICATION else SuiteOutcome.PASS


def test_a_flaky_certification_is_counted_and_never_accepted() -> None:
    done = roll([FIX, SUBMIT, ESCALATE], "C", judge=flaky)
    assert done.row["flaky_certifications"] == 1 and not done.row["accepted"]
    assert done.row["checkpoint_state_id"] == FIXED_ID


@pytest.mark.parametrize("outcome", [SuiteOutcome.TIMEOUT, SuiteOutcome.VOID])
def test_a_gate_that_times_out_or_is_void_has_not_passed(outcome: SuiteOutcome) -> None:
    done = roll([FIX, SUBMIT], "A", judge=lambda request, core: outcome)
    assert done.row["gate_passes"] == 0 and done.row["rollbacks"] == 1
    assert done.record.verdicts[1]["outcome"] == outcome.value


def test_an_empty_submission_is_flagged_without_certification() -> None:
    done = roll([SUBMIT])
    assert done.row["accepted"] and done.row["empty_submission"]
    assert not roll([SUBMIT], "C").row["accepted"]


# ------------------------------------------------------------------------- suite runs


@pytest.mark.parametrize("arm", ARMS)
def test_the_diagnostic_runs_once_on_every_new_state_in_every_arm(arm: str) -> None:
    done = roll([FIX, TEST, UNDO, TEST, TEST, ESCALATE], arm)
    states = [request.state_id for request in done.verifier.runs(Purpose.DIAGNOSTIC)]
    assert states == [BASE_ID, FIXED_ID]
    assert len(done.verifier.runs(Purpose.GATE)) == len(done.record.proposals) == 2


def test_requests_carry_the_state_as_a_difference_and_deterministic_ids() -> None:
    first, second = (roll([FIX, SUBMIT], "BAC") for _ in range(2))
    assert [r.execution_id for r in first.verifier.requests] == [
        r.execution_id for r in second.verifier.requests
    ]
    gate = first.verifier.runs(Purpose.GATE)[0]
    assert gate.state_id == FIXED_ID and list(gate.delta) == [CORE]
    assert [v["sequence"] for v in first.record.verdicts] == [1, 2, 3, 4]
    assert [v["purpose"] for v in first.record.verdicts] == [
        "diagnostic",
        "gate",
        "diagnostic",
        "certification",
    ]
    assert [v["payload_sha256"] is None for v in first.record.verdicts] == [
        False,
        True,
        False,
        True,
    ]
    deadlines = {r.purpose: r.wall_seconds for r in first.verifier.requests}
    assert deadlines == {
        Purpose.DIAGNOSTIC: 120.0,
        Purpose.GATE: 300.0,
        Purpose.CERTIFICATION: 300.0,
    }


class Misaddressed(FakeVerifier):
    """An evaluator that answers the second request with something else."""

    def __init__(self, spoil: Callable[[SuiteVerdict], SuiteVerdict]) -> None:
        super().__init__()
        self.spoil = spoil

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        verdict = super().run(request)
        return self.spoil(verdict) if len(self.requests) == 2 else verdict


@pytest.mark.parametrize("field", ["task_id", "suite_id", "state_id", "execution_id"])
def test_a_verdict_that_answers_another_request_is_the_evaluators_fault(field: str) -> None:
    verifier = Misaddressed(lambda verdict: replace(verdict, **{field: "another"}))
    with pytest.raises(InfrastructureFault, match=field):
        roll([FIX, SUBMIT], verifier=verifier)


class Cached(FakeVerifier):
    """An evaluator that answers everything from its cache."""

    def run(self, request: SuiteRequest) -> SuiteVerdict:
        return replace(super().run(request), cached=True)


def test_a_certification_from_the_cache_is_the_evaluators_fault() -> None:
    assert roll([FIX, SUBMIT], "BA", verifier=Cached()).row["accepted"]
    with pytest.raises(InfrastructureFault, match="cache"):
        roll([FIX, SUBMIT], "BAC", verifier=Cached())


# ------------------------------------------------------------------------- actions


@pytest.mark.parametrize(
    "reply", ["", "I am done.", "STATUS: DONE", '{"action":"edit"}', "```json\n{}\n```", "\ud800"]
)
@pytest.mark.parametrize("arm", ["", "BAC"])
def test_an_invalid_reply_costs_an_action_and_changes_nothing(reply: str, arm: str) -> None:
    done = roll([FIX, reply, SUBMIT], arm)
    row = done.record.actions[1]
    assert (row["kind"], row["result"]) == ("invalid", "invalid") and row["reason"]
    assert row["state_before"] == row["state_after"] == FIXED_ID
    assert done.row["invalid_actions"] == 1 and done.row["accepted_state_id"] == FIXED_ID


@pytest.mark.parametrize(
    "reply",
    [
        edit("a - b", "a - b"),
        edit("nowhere", "x"),
        edit("a", "b"),
        edit("...", "pass", "tests/test_core.py"),
        edit("x", "y", "../outside.py"),
        '{"action":"view","path":"missing.py"}',
        '{"action":"search","pattern":"("}',
    ],
)
def test_a_refused_action_costs_an_action_and_no_revision(reply: str) -> None:
    done = roll([reply, FIX, SUBMIT], "BAC")
    assert done.results[0] == "refused" and done.record.actions[0]["reason"]
    assert (done.row["refused_actions"], done.row["revisions"]) == (1, 1)


def test_edits_and_tests_beyond_their_caps_are_refused() -> None:
    done = roll([FIX, UNDO, TEST, TEST, SUBMIT], cap=1, budgets=Budgets(visible_tests=1, actions=6))
    assert done.results == ["done", "refused", "done", "refused", "accepted"]
    assert (done.row["revisions"], done.row["visible_tests"]) == (1, 1)
    assert "[left: 5 actions, 0 edits, 1 tests]" in done.observations[0]


def test_a_rejected_proposal_is_a_revision_too() -> None:
    done = roll([BREAK, edit("a - b", "a / b"), SUBMIT], "A", cap=1)
    assert done.results == ["rejected", "refused", "accepted"]


def test_the_shell_sees_the_working_tree_and_its_writes_are_counted_and_told() -> None:
    shell = FakeShell(ShellResult(b"\xffx\n", 3, False, ("a.py", "b.py"), True, 4.0))
    done = roll([FIX, SHELL, SUBMIT], shell=shell)
    assert shell.seen == [(FIXED, "ls")]
    assert "exit code 3" in done.observations[1] and "a.py, b.py" in done.observations[1]
    columns = ("shell_commands", "shell_code_runs", "shell_write_attempts")
    assert [done.row[name] for name in columns] == [1, 1, 2]
    assert done.row["final_state_id"] == FIXED_ID


def test_a_shell_command_that_hits_a_limit_says_so() -> None:
    shell = FakeShell(ShellResult(b"", None, True, (), False, 30.0))
    assert "stopped at a limit" in roll([SHELL], shell=shell).observations[0]


def test_long_observations_are_cut_and_kept_whole_by_digest() -> None:
    shell = FakeShell(
        ShellResult(b"".join(b"%d\n" % i for i in range(9000)), 0, False, (), False, 1)
    )
    done = roll([SHELL])
    assert not done.record.actions[0]["observation_truncated"] and not done.record.blobs
    done = roll([SHELL, SUBMIT], shell=shell)
    row = done.record.actions[0]
    assert row["observation_truncated"] and len(row["observation"]) <= 6000
    whole = done.record.blobs[row["observation_sha256"]]
    assert sha256_hex(whole) == row["observation_sha256"] and b"\n4500\n" in whole
    assert "characters omitted" in row["observation"]
    assert row["observation"].endswith("[left: 14 actions, 3 edits, 6 tests]")


# ------------------------------------------------------------------------- budgets


def test_charged_time_is_model_shell_and_the_diagnostic_that_was_shown() -> None:
    done = roll([FIX, TEST, SHELL, VIEW, SUBMIT], "BAC", "stale")
    assert done.row["charged_seconds"] == 5 * 1.0 + 7.0 + 2.0
    assert [row["tool_seconds"] for row in done.record.actions] == [0, 7.0, 2, 0, 0]


def test_a_visible_test_charges_at_most_its_deadline() -> None:
    late = FakeVerifier(lambda request, core: SuiteOutcome.TIMEOUT, seconds=500.0)
    done = roll([TEST, SUBMIT], verifier=late)
    assert done.record.actions[0]["tool_seconds"] == 120.0
    assert done.row["test_deadline_hits"] == 1


def test_an_edit_interception_charges_no_test() -> None:
    done = roll([TEST, BREAK, edit("a * b", "a + b"), SUBMIT], "B")
    assert [row["tool_seconds"] for row in done.record.actions] == [7.0, 0, 0, 0]


def test_an_action_that_comes_after_the_time_is_not_carried_out() -> None:
    done = roll(
        [VIEW, FIX, SUBMIT],
        latency_seconds=30.0,
        budgets=Budgets(wall_seconds=50.0, visible_test_seconds=10.0),
    )
    assert done.results == ["done", "refused"]
    assert (done.row["end_reason"], done.row["wall_exhausted"]) == ("wall", True)
    assert done.row["revisions"] == 0
    assert [round(r.deadline_seconds) for r in done.coder.requests] == [50, 20]


def test_a_deadline_that_refused_the_last_action_is_counted_as_what_ended_it() -> None:
    """Else a slow machine would have changed the rollout and no column would say so."""
    limits = Budgets(actions=2, wall_seconds=50.0, visible_test_seconds=10.0)
    late = roll([FIX, SUBMIT], latency_seconds=30.0, budgets=limits)
    assert late.results[-1] == "refused"
    assert (late.row["end_reason"], late.row["wall_exhausted"]) == ("wall", True)
    used = roll([FIX, TEST], latency_seconds=24.0, budgets=limits)
    assert used.results[-1] == "done" and used.row["end_reason"] == "actions"


def test_a_checkpoint_survives_the_end_of_the_time() -> None:
    limits = Budgets(wall_seconds=70.0, visible_test_seconds=10.0)
    done = roll([FIX, "nonsense", VIEW], "C", latency_seconds=30.0, budgets=limits)
    assert done.row["accepted_via"] == "checkpoint" and done.row["end_reason"] == "wall"


def test_the_token_budget_bounds_the_last_reply_and_ends_the_rollout() -> None:
    done = roll(
        [VIEW] * 5, budgets=Budgets(completion_tokens=25), sampling=Sampling(max_new_tokens=20)
    )
    assert [r.max_new_tokens for r in done.coder.requests] == [20, 15, 5]
    assert done.row["end_reason"] == "tokens" and done.row["tokens_completion"] == 30


def test_tokens_are_summed_over_actions() -> None:
    done = roll([VIEW, SUBMIT])
    names = ("tokens_prompt", "tokens_completion", "tokens_served")
    assert [done.row[name] for name in names] == [200, 20, 220]
