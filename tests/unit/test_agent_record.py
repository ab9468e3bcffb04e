"""What a rollout sends to its coder, and what it leaves: rows, ledger, receipt, patches."""

import json
from itertools import product

import pytest

from orchestrator.agent.loop import RolloutPorts, run_rollout
from orchestrator.contract.ledger import check
from orchestrator.contract.receipt import receipt_follows
from orchestrator.repo.files import tree_of
from orchestrator.repo.patch import apply_delta, apply_patch, make_patch
from orchestrator.spec.errors import InfrastructureFault
from orchestrator.spec.identity import prompt_digest, request_seed, sha256_hex
from orchestrator.spec.ports import (
    CoderReply,
    CoderRequest,
    SuiteRequest,
    SuiteVerdict,
)
from orchestrator.store.schemas import TABLES, outcome_columns
from tests.unit.agent_support import (
    BASE,
    CORE,
    FIX,
    SHELL,
    SUBMIT,
    TEST,
    VIEW,
    FakeShell,
    FakeVerifier,
    ScriptedCoder,
    edit,
    roll,
    setup_of,
)

BASE_ID = tree_of(BASE).state_id
FIXED = {**BASE, CORE: (0o100644, BASE[CORE][1].replace(b"a - b", b"a + b"))}
FIXED_ID = tree_of(FIXED).state_id
UNDO = edit("a + b", "a - b")
ARMS = ["".join(arm) for arm in product(["", "B"], ["", "A"], ["", "C"])]

ARMS_BY_EVIDENCE = list(product(ARMS, ["current", "stale"]))

# ------------------------------------------------------------------------- requests


def test_request_seeds_depend_on_turn_and_seed_never_on_the_arm() -> None:
    seeds = [
        [request.request_seed for request in roll([VIEW, TEST, FIX], arm).coder.requests][:3]
        for arm in ("", "BAC")
    ]
    assert seeds[0] == seeds[1] == [request_seed("unit", "calc-1", 7, turn) for turn in (1, 2, 3)]


def test_rows_name_the_prompt_that_was_sent() -> None:
    done = roll([VIEW, SUBMIT])
    for row, request in zip(done.record.actions, done.coder.requests, strict=True):
        assert row["prompt_sha256"] == prompt_digest((m.role, m.content) for m in request.messages)
    roles = [m.role for m in done.coder.requests[1].messages]
    assert roles == ["system", "user", "assistant", "user"]


def test_only_a_privileged_coder_sees_the_contracts_state() -> None:
    assert all(r.privileged is None for r in roll([FIX, SUBMIT]).coder.requests)
    done = roll([TEST, FIX, SUBMIT], "BAC", "stale", privileged=True, simulated=True)
    before, middle, after = (request.privileged for request in done.coder.requests)
    assert before is not None and middle is not None and after is not None
    assert (before.state_id, before.delivered_for, before.revisions_left) == (BASE_ID, None, 3)
    assert middle.delivered_for == BASE_ID and middle.checkpoint_told is None
    assert (after.state_id, after.checkpoint_told, after.revisions_left) == (FIXED_ID, FIXED_ID, 2)
    stale = roll([FIX, TEST, SUBMIT], "", privileged=True, evidence="stale").coder.requests[-1]
    assert stale.privileged is not None, "stale evidence is presented as current"
    assert stale.privileged.delivered_for == FIXED_ID
    untold = roll([FIX, SUBMIT], "", privileged=True).coder.requests[1].privileged
    assert untold is not None and untold.checkpoint_told is None


# ------------------------------------------------------------------------- the record


@pytest.mark.parametrize("arm, evidence", ARMS_BY_EVIDENCE)
def test_ledger_and_receipt_stand_on_their_own(arm: str, evidence: str) -> None:
    done = roll([VIEW, "nonsense", TEST, FIX, TEST, UNDO, SHELL, SUBMIT], arm, evidence)
    check(done.record.ledger)
    receipt_follows(done.record.ledger, done.record.receipt)
    assert done.journal == done.record.ledger
    assert done.row["ledger_head"] == json.loads(done.record.ledger[-1])["hash"]
    assert done.row["receipt_sha256"] == sha256_hex(done.record.receipt)


def test_every_event_is_in_the_journal_before_what_it_announces() -> None:
    seen: list[tuple[str, int]] = []
    journal: list[bytes] = []

    class Watched(FakeVerifier):
        def run(self, request: SuiteRequest) -> SuiteVerdict:
            seen.append((request.purpose.value, len(journal)))
            return super().run(request)

    ports = RolloutPorts(
        ScriptedCoder([FIX, SUBMIT]), Watched(), FakeShell(), journal.append, make_patch
    )
    run_rollout(setup_of("C"), ports)
    kinds = [json.loads(line)["kind"] for line in journal]
    announced = {"diagnostic": ("policy", "gate"), "gate": ("edit",), "certification": ("submit",)}
    for purpose, length in seen:
        assert kinds[length - 1] in announced[purpose]


def test_patches_turn_the_base_tree_into_each_proposal() -> None:
    done = roll([FIX, UNDO, SUBMIT])
    for row in done.record.proposals:
        delta = apply_patch(BASE, done.record.patches[row["patch_sha256"]])
        assert tree_of(apply_delta(BASE, delta)).state_id == row["state_id"]


def test_two_runs_agree_on_every_column_but_the_volatile_ones() -> None:
    script = [VIEW, TEST, FIX, TEST, SHELL, SUBMIT]
    one, two = (roll(script, "BAC", "stale").record for _ in range(2))
    assert one.ledger == two.ledger and one.receipt == two.receipt and one.patches == two.patches
    tables = [
        {
            "rollout": [record.rollout],
            "actions": record.actions,
            "proposals": record.proposals,
            "verdicts": record.verdicts,
        }
        for record in (one, two)
    ]
    for name, (a, b) in {n: (tables[0][n], tables[1][n]) for n in tables[0]}.items():
        assert set(a[0]) == {column.name for column in TABLES[name]}
        for column in outcome_columns(name):
            assert [row[column] for row in a] == [row[column] for row in b]


def test_elapsed_time_is_told_apart_from_our_own() -> None:
    row = roll([VIEW, SUBMIT]).row
    assert 0 <= row["own_seconds"] <= row["wall_seconds"]


class DownCoder:
    """A coder whose server is down."""

    def reply(self, request: CoderRequest) -> CoderReply:
        raise InfrastructureFault("server", "gone")


def test_infrastructure_faults_pass_through() -> None:

    ports = RolloutPorts(DownCoder(), FakeVerifier(), FakeShell(), lambda _: None, make_patch)
    with pytest.raises(InfrastructureFault, match="gone"):
        run_rollout(setup_of(), ports)
