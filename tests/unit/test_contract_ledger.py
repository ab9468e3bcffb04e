"""The ledger is a chain of canonical lines; the receipt follows from it or has no authority."""

import json
from dataclasses import replace

import pytest

from orchestrator.contract import codec, receipt
from orchestrator.contract import events as ev
from orchestrator.contract.ledger import GENESIS, append, check, read
from orchestrator.contract.machine import start, step
from orchestrator.contract.policy import Context, Policy
from orchestrator.contract.state import State
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json, sha256_hex

CONTEXT = Context("lock", "rollout", "task")
POLICY = Policy("stale", True, True, True, "base", "diagnostic", "gate", "verifier", CONTEXT)


def diagnostic(state_id: str, number: int) -> ev.Event:
    return ev.DiagnosticReported(ev.Envelope(state_id, "diagnostic", f"x{number}", "1 of 2 passed"))


def report(state_id: str, number: int, outcome: ev.Outcome = "pass") -> ev.Report:
    return ev.Report(state_id, "gate", f"x{number}", outcome)


HISTORY: tuple[ev.Event, ...] = (
    diagnostic("base", 1),
    ev.Looked("search"),
    ev.Malformed("reply.not-json"),
    ev.Refused("edit", "edit.no-op"),
    ev.TestRequested(),
    ev.EditProposed("fixed"),
    ev.GateReported(report("fixed", 2)),
    diagnostic("fixed", 3),
    ev.TestRequested(),
    ev.EditProposed("worse"),
    ev.GateReported(report("worse", 4, "fail")),
    diagnostic("worse", 5),
    ev.SubmitRequested(),
    ev.CertificationReported(report("fixed", 6, "fail")),
    ev.BudgetEnded("actions"),
    ev.CertificationReported(report("fixed", 7)),
)


def run(events: tuple[ev.Event, ...], policy: Policy = POLICY) -> tuple[list[bytes], State, bytes]:
    """Ledger, final state and receipt of a history."""
    state, _ = start(policy)
    line, head = append(GENESIS, *codec.encode_policy(policy))
    lines = [line]
    for event in events:
        state, _ = step(state, event)
        line, head = append(head, *codec.encode(event))
        lines.append(line)
    return lines, state, receipt.build(state, head) if state.end else b""


def relinked(lines: list[bytes]) -> list[bytes]:
    """The same events as a chain whose hashes are right: what a careful forger would write."""
    head, forged = GENESIS, []
    for line in lines:
        value = json.loads(line)
        again, head = append(head, value["kind"], value["data"])
        forged.append(again)
    return forged


def test_a_history_is_replayed_to_the_same_state_and_receipt() -> None:
    lines, state, issued = run(HISTORY)
    check(lines)
    replayed, head = receipt.replay(lines)
    assert replayed == state and head.length == len(lines)
    assert head.hash == json.loads(lines[-1])["hash"]
    receipt.receipt_follows(lines, issued)


def test_lines_are_canonical_and_hold_no_times() -> None:
    lines, _, _ = run(HISTORY)
    for number, line in enumerate(lines):
        value = json.loads(line)
        assert canonical_json(value) == line
        assert list(value) == ["data", "hash", "kind", "prev", "seq"]
        assert value["seq"] == number
        body = {key: value[key] for key in ("seq", "prev", "kind", "data")}
        assert value["hash"] == digest_json(body)
        assert not {"time", "duration", "seconds"} & set(value["data"])


@pytest.mark.parametrize("kind", sorted(set(codec.KIND_OF.values())))
def test_every_kind_of_event_occurs_in_a_ledger_and_comes_back(kind: str) -> None:
    abstained, _, _ = run((diagnostic("base", 1), ev.EscalateRequested()))
    whole, _, _ = run(HISTORY)
    (first, *_) = [line for line in read([*whole])[0] + read(abstained)[0] if line.kind == kind]
    assert codec.encode(codec.decode(first)) == (kind, first.data)


@pytest.mark.parametrize("victim", range(len(HISTORY) + 1))
def test_a_changed_line_is_named(victim: int) -> None:
    lines, _, issued = run(HISTORY)
    value = json.loads(lines[victim])
    value["data"] = {**value["data"], "reason": "tokens"}
    lines[victim] = canonical_json(value)
    with pytest.raises(IntegrityError, match=f"ledger line {victim + 1}:"):
        check(lines)
    with pytest.raises(IntegrityError):
        receipt.receipt_follows(lines, issued)


@pytest.mark.parametrize(
    "tampered",
    [
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
        lambda lines: [lines[0] + b" ", *lines[1:]],
        lambda lines: [lines[0] + b"\n", *lines[1:]],
        lambda lines: [b"", *lines],
        lambda lines: [b"[]", *lines],
        lambda lines: [b"\xff", *lines],
        lambda lines: [b'{"kind":"x","data":{"a":NaN}}', *lines],
        lambda lines: [b'{"kind":"x","data":{"a":"\\ud800"}}', *lines],
        lambda _: [],
    ],
)
def test_a_broken_chain_is_refused(tampered: object) -> None:
    lines, _, _ = run(HISTORY)
    with pytest.raises(IntegrityError):
        check(tampered(lines))  # type: ignore[operator]


def test_a_shortened_ledger_gives_no_receipt() -> None:
    """A prefix of a chain is a chain, but the receipt names its head and needs its end."""
    lines, _, issued = run(HISTORY)
    check(lines[:-1])
    with pytest.raises(IntegrityError, match="does not reach the end"):
        receipt.receipt_follows(lines[:-1], issued)


def test_a_forged_history_with_right_hashes_gives_another_receipt() -> None:
    lines, _, issued = run(HISTORY)
    forged = [line.replace(b'"outcome":"fail"', b'"outcome":"pass"', 1) for line in lines]
    with pytest.raises(IntegrityError):
        receipt.receipt_follows(relinked(forged), issued)


def test_an_impossible_history_is_refused() -> None:
    lines, _, _ = run(HISTORY)
    with pytest.raises(IntegrityError, match="not an event of phase"):
        receipt.replay(relinked([lines[0], *lines[2:]]))


@pytest.mark.parametrize(
    "data",
    [
        {"state_id": 1},
        {},
        {"state_id": "x", "more": "y"},
        {"state_id": None},
    ],
)
def test_malformed_event_data_is_refused(data: dict[str, object]) -> None:
    first, head = append(GENESIS, *codec.encode_policy(POLICY))
    line, _ = append(head, "edit", data)
    with pytest.raises(IntegrityError):
        receipt.replay([first, line])


def test_the_policy_comes_first_and_once() -> None:
    line, head = append(GENESIS, *codec.encode_policy(POLICY))
    again, _ = append(head, *codec.encode_policy(POLICY))
    with pytest.raises(IntegrityError, match="policy twice"):
        receipt.replay([line, again])
    event, _ = append(GENESIS, *codec.encode(ev.SubmitRequested()))
    with pytest.raises(IntegrityError, match="not the policy"):
        receipt.replay([event])
    unknown, _ = append(head, "adjudicate", {})
    with pytest.raises(IntegrityError, match="unknown kind"):
        receipt.replay([line, unknown])


# ------------------------------------------------------------------------- the receipt


def body(issued: bytes) -> dict[str, object]:
    value: dict[str, object] = json.loads(issued)
    return value


def test_a_receipt_says_what_was_decided_on_what_evidence() -> None:
    lines, state, issued = run(HISTORY)
    said = body(issued)
    assert issued == canonical_json(said)
    assert (said["verdict"], said["accepted_via"]) == ("ADMITTED", "checkpoint")
    assert said["accepted_state_id"] == "fixed" == state.current
    assert said["checkpoint"] == {"state_id": "fixed", "execution_id": "x2"}
    assert said["identities"]["policy_sha256"] == POLICY.digest
    assert said["ledger"] == {"length": len(lines), "hash": json.loads(lines[-1])["hash"]}
    assert "completion.certified" in said["rules"] and "completion.flaky" in said["rules"]
    evidence = said["evidence"]
    assert [e["execution_id"] for e in evidence["diagnostics"]] == ["x1", "x3", "x5"]
    assert {e["payload_sha256"] for e in evidence["diagnostics"]} == {sha256_hex(b"1 of 2 passed")}
    assert [e["outcome"] for e in evidence["gate"]] == ["pass", "fail"]
    assert [e["outcome"] for e in evidence["certifications"]] == ["fail", "pass"]
    assert said["delivery"]["interceptions_delivery"] == 1
    assert said["delivery"]["rollbacks"] == 1
    assert "1 of 2 passed" not in issued.decode()


def test_a_receipt_states_the_layers_that_are_not_covered() -> None:
    _, _, issued = run(HISTORY)
    layers = body(issued)["coverage"]["layers"]
    covered = {name: layer["covered"] for name, layer in layers.items()}
    assert covered == {"L0": True, "L1": True, "L2": False, "L3": False}
    assert layers["L1"]["by"] == ["gate", "certification"]
    assert {"risk.domain-uncovered", "risk.environment-uncovered", "risk.flaky"} <= set(
        body(issued)["residual_risks"]
    )


def test_a_receipt_names_everything_it_is_bound_to() -> None:
    said = body(run(HISTORY)[2])["identities"]
    assert said == {
        "policy_sha256": POLICY.digest,
        "diagnostic_suite_id": "diagnostic",
        "gate_suite_id": "gate",
        "completion_suite_id": "gate",
        "verifier_id": "verifier",
        "context": {"lock_id": "lock", "rollout_id": "rollout", "task_id": "task"},
        "context_sha256": CONTEXT.digest,
    }
    loose = body(run(HISTORY, replace(POLICY, verifier_id=None))[2])
    assert "risk.unbound-context" in loose["residual_risks"]
    assert "risk.unbound-context" not in body(run(HISTORY)[2])["residual_risks"]


def test_the_policys_identity_is_the_rule_and_not_the_place() -> None:
    elsewhere = replace(POLICY, context=replace(CONTEXT, rollout_id="another"))
    assert elsewhere.digest == POLICY.digest
    assert body(run(HISTORY, elsewhere)[2]) != body(run(HISTORY)[2])
    for change in ({"verifier_id": "another"}, {"gate_suite_id": "x"}, {"binding": False}):
        assert replace(POLICY, **change).digest != POLICY.digest


def test_a_completion_is_fresh_by_an_execution_of_its_own() -> None:
    said = body(run(HISTORY)[2])["freshness"]
    assert said == {"gate_execution_id": "x2", "certification_execution_id": "x7", "fresh": True}
    off = replace(POLICY, certification=False)
    said = body(run((*HISTORY[:8], ev.SubmitRequested()), off)[2])["freshness"]
    assert said == {"gate_execution_id": "x2", "certification_execution_id": None, "fresh": False}


def test_delivery_impact_sums_up_what_the_contract_counted() -> None:
    said = body(run(HISTORY)[2])["delivery"]
    impact = {n: said[n] for n in ("candidates_evaluated", "candidates_rejected", "checkpoints")}
    assert impact == {"candidates_evaluated": 2, "candidates_rejected": 1, "checkpoints": 1}
    assert said["recoveries"] == 1
    off = replace(POLICY, certification=False)
    assert body(run((*HISTORY[:8], ev.SubmitRequested()), off)[2])["delivery"]["recoveries"] == 0


@pytest.mark.parametrize(
    ("events", "observed"),
    [
        ((HISTORY[0], ev.EscalateRequested()), "nothing"),
        ((*HISTORY[:8], ev.EscalateRequested()), "terminal-only"),
        ((*HISTORY[:12], ev.EscalateRequested()), "candidates"),
    ],
)
def test_coverage_says_which_candidates_were_judged(
    events: tuple[ev.Event, ...], observed: str
) -> None:
    said = body(run(events)[2])
    assert said["coverage"]["observed"] == observed
    assert ("risk.terminal-only" in said["residual_risks"]) == (observed == "terminal-only")


def test_an_unchecked_base_submission_has_no_cover_but_its_integrity() -> None:
    off = replace(POLICY, binding=False, admission=False, certification=False)
    _, state, issued = run((diagnostic("base", 1), ev.SubmitRequested()), off)
    said = body(issued)
    assert state.end is not None and state.end.accepted
    assert said["coverage"]["layers"]["L1"]["covered"] is False
    assert {
        "risk.empty-candidate",
        "risk.unchecked-completion",
        "risk.unbound-evidence",
    } <= set(said["residual_risks"])


def test_an_accepted_state_that_failed_the_gate_carries_that_risk() -> None:
    off = replace(POLICY, binding=False, admission=False, certification=False)
    history = (
        diagnostic("base", 1),
        ev.EditProposed("worse"),
        ev.GateReported(report("worse", 2, "fail")),
        diagnostic("worse", 3),
        ev.SubmitRequested(),
    )
    said = body(run(history, off)[2])
    assert said["verdict"] == "ADMITTED" and "risk.gate-failed" in said["residual_risks"]


@pytest.mark.parametrize(
    "field, value",
    [
        ("verdict", "REJECTED"),
        ("accepted_state_id", "worse"),
        ("identities", {}),
        ("freshness", {"fresh": True}),
        ("residual_risks", []),
    ],
)
def test_an_edited_receipt_has_no_authority(field: str, value: object) -> None:
    lines, _, issued = run(HISTORY)
    edited = {**body(issued), field: value}
    with pytest.raises(IntegrityError, match="its own digest"):
        receipt.receipt_follows(lines, canonical_json(edited))
    del edited["receipt_sha256"]
    signed = canonical_json({**edited, "receipt_sha256": digest_json(edited)})
    with pytest.raises(IntegrityError, match="does not follow"):
        receipt.receipt_follows(lines, signed)


@pytest.mark.parametrize("fabricated", [b"", b"{}", b"[]", b"null", b'{"receipt_sha256":"x"}'])
def test_a_fabricated_receipt_has_no_authority(fabricated: bytes) -> None:
    lines, _, _ = run(HISTORY)
    with pytest.raises(IntegrityError):
        receipt.receipt_follows(lines, fabricated)


def test_a_receipt_under_another_policy_is_another_receipt() -> None:
    lines, _, issued = run(HISTORY)
    first = json.loads(lines[0])
    other, _ = append(GENESIS, "policy", {**first["data"], "evidence": "current"})
    with pytest.raises(IntegrityError):
        receipt.receipt_follows(relinked([other, *lines[1:]]), issued)


def test_no_receipt_before_the_end() -> None:
    state, _ = start(POLICY)
    with pytest.raises(ValueError, match="ended"):
        receipt.build(state, GENESIS)
