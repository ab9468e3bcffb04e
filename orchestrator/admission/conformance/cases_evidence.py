"""Cases about evidence: whose it is, of what, and what becomes of it when the world changes.

SB001 to SB007.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.admission import receipt
from orchestrator.admission.conformance.bench import Bench, Desk
from orchestrator.admission.conformance.fixtures import PYTHON
from orchestrator.admission.conformance.observation import Observation
from orchestrator.admission.verifier import Execution, Request, Verifier
from orchestrator.contract.verdicts import Rule, Verdict
from orchestrator.repo.files import tree_of
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json


def replayed(bench: Bench) -> Observation:
    """SB001: the pass of an earlier tree is presented for a new one, as it is and relabelled."""
    desk = bench.desk(PYTHON)
    earlier: list[Execution] = []
    bad = tree_of(desk.bad()).state_id

    def answer(request: Request, honest: Verifier) -> Execution:
        if request.purpose != "gate" or request.state_id != bad:
            earlier.append(honest.run(request))
            return earlier[-1]
        (passed,) = [ran for ran in earlier if ran.purpose == "gate"]
        told.append(replace(passed, state_id=bad) if told else passed)
        return told[-1]

    told: list[Execution] = []
    session = desk.open(answer)
    desk.leave(desk.good)
    session.propose()
    desk.leave(desk.bad())
    decision = session.propose()
    good, restored = session.checkpoint, desk.worktree_is(desk.good)
    end = session.complete()
    body = desk.receipt()
    return Observation(
        verdict={
            "the new tree is STALE": decision.verdict is Verdict.STALE,
            "by the replay rule": decision.rule == Rule.EVIDENCE_REPLAYED,
            "the earlier tree completes": end.verdict is Verdict.ADMITTED,
        },
        state={
            "the checkpoint stays": good == tree_of(desk.good).state_id,
            "the worktree is the checkpoint": restored,
        },
        evidence={
            "both replays are refused": len(body["refused_evidence"]) == len(told) == 2,
            "no pass of the new tree counts": not _passed(body, bad),
        },
        receipt={"the accepted state is the earlier tree": body["accepted_state_id"] == good},
    )


def wrong_tree(bench: Bench) -> Observation:
    """SB003: the pass of another branch's tree, fresh and genuine, is presented for a bad one."""
    desk = bench.desk(PYTHON)
    bad, branch = tree_of(desk.bad()).state_id, desk.good

    def answer(request: Request, honest: Verifier) -> Execution:
        if request.purpose != "gate" or request.state_id != bad:
            return honest.run(request)
        other = replace(request, state_id=tree_of(branch).state_id, files=branch)
        return honest.run(other)

    session = desk.open(answer)
    session.store.put(branch)
    desk.leave(desk.bad())
    decision = session.propose()
    body = desk.receipt()
    return Observation(
        verdict={
            "STALE": decision.verdict is Verdict.STALE,
            "by the address rule": decision.rule == Rule.EVIDENCE_MISADDRESSED,
        },
        state={"there is no checkpoint": session.checkpoint is None},
        evidence={
            "the other tree's pass is refused": len(body["refused_evidence"]) == 2,
            "nothing passed": not _passed(body, bad)
            and not _passed(body, tree_of(branch).state_id),
        },
        receipt={"nothing was delivered": body["delivery"]["delivered"] is False},
    )


def drifted(bench: Bench) -> Observation:
    """SB002: the tree is edited after it was verified, then declared complete."""
    desk = bench.desk(PYTHON)
    session = desk.open()
    desk.leave(desk.good)
    session.propose()
    desk.leave(desk.bad())
    decision = session.complete()
    edited, kept = tree_of(desk.bad()).state_id, session.checkpoint
    body = desk.receipt()
    return Observation(
        verdict={
            "STALE": decision.verdict is Verdict.STALE,
            "it names the edited tree": decision.state_id == edited,
        },
        state={"the checkpoint stays": kept == tree_of(desk.good).state_id},
        evidence={"no execution is of the edited tree": not _of(body, edited)},
        receipt={
            "the edited tree is not accepted": body["accepted_state_id"] != edited,
            "the rule is stated": "admission.state-drifted" in body["rules"],
        },
    )


def other_command(bench: Bench) -> Observation:
    """SB004: a suite of the same name runs another command, or in another directory."""
    desk = bench.desk(PYTHON)
    own = desk.manifest
    other = _variant(desk, own, "command.yaml", argv=["true"])
    elsewhere = _variant(desk, own, "directory.yaml", cwd="cart")
    suites = {desk.verifier(path).identities().gate_suite for path in (own, other, elsewhere)}
    bad = tree_of(desk.bad()).state_id

    def answer(request: Request, honest: Verifier) -> Execution:
        chosen = desk.verifier(other) if request.purpose == "gate" else honest
        return chosen.run(request)

    session = desk.open(answer)
    desk.leave(desk.bad())
    decision = session.propose()
    body = desk.receipt()
    return Observation(
        verdict={"the other command's pass is STALE": decision.verdict is Verdict.STALE},
        state={"there is no checkpoint": session.checkpoint is None},
        evidence={
            "three suites have three identities": len(suites) == 3,
            "no pass of the bad tree counts": not _passed(body, bad),
        },
        receipt={
            "it names its own suite": body["identities"]["gate_suite"]
            == desk.verifier(own).identities().gate_suite,
            "nothing was delivered": body["delivery"]["delivered"] is False,
        },
    )


def suite_changed(bench: Bench) -> Observation:
    """SB005: after a pass, the owner changes the files that judge."""
    return _changed_after_pass(bench, _weaken_suite)


def policy_changed(bench: Bench) -> Observation:
    """SB006: after a pass, the owner changes what candidates may do."""
    return _changed_after_pass(bench, lambda desk: desk.restate(protected=["cart/**"]))


def _changed_after_pass(bench: Bench, change: Callable[[Desk], None]) -> Observation:
    desk = bench.desk(PYTHON)
    session = desk.open()
    desk.leave(desk.good)
    first = session.propose()
    before = desk.verifier(desk.manifest).identities().gate_suite
    change(desk)
    after = desk.verifier(desk.manifest).identities().gate_suite
    decision = session.complete()
    end = session.close()
    body = desk.receipt()
    return Observation(
        verdict={
            "the pass was one": first.verdict is Verdict.ADMITTED,
            "the completion is STALE": decision.verdict is Verdict.STALE,
            "so is the end": end.verdict is Verdict.STALE,
        },
        state={"the checkpoint is kept": session.checkpoint == tree_of(desk.good).state_id},
        evidence={
            "the identity of evidence changed": before != after,
            "evidence under the new one is refused": bool(body["refused_evidence"])
            and all(ran["suite_id"] == after for ran in body["refused_evidence"]),
        },
        receipt={
            "nothing is accepted": body["accepted_state_id"] is None,
            "it names the old suite": body["identities"]["gate_suite"] == before,
        },
    )


def forged(bench: Bench) -> Observation:
    """SB007: a receipt is edited to accept another tree, a ledger is edited, a receipt made up."""
    desk = bench.desk(PYTHON)
    session = desk.open()
    desk.leave(desk.bad())
    session.propose()
    desk.leave(desk.good)
    session.propose()
    session.complete()
    bad, root = tree_of(desk.bad()).state_id, session.root
    true_receipt = (root / receipt.RECEIPT).read_bytes()
    ledger = (root / receipt.LEDGER).read_bytes()
    edited = _refused(root, receipt.RECEIPT, _accepting(true_receipt, bad), bench)
    flipped = _refused(root, receipt.LEDGER, ledger.replace(b"REJECTED", b"ADMITTED"), bench)
    made_up = _accepting(b"{}", bad)
    fabricated = _refused(root, receipt.RECEIPT, made_up, bench)
    delivered = receipt.deliver(root, bench.folder("delivered"))
    body = desk.receipt()
    return Observation(
        verdict={"the genuine receipt admits": body["verdict"] == Verdict.ADMITTED},
        state={"the genuine tree is delivered": delivered == tree_of(desk.good).state_id},
        evidence={"an edited ledger has no authority": flipped},
        receipt={
            "an edited receipt has no authority": edited,
            "nor has a fabricated one": fabricated,
        },
    )


# --------------------------------------------------------------------------------- parts


def _weaken_suite(desk: Desk) -> None:
    (desk.source / "tests" / "test_pricing.py").write_text(
        "import unittest\n\n\nclass Nothing(unittest.TestCase):\n"
        "    def test_nothing(self) -> None:\n        pass\n"
    )


def _variant(desk: Desk, own: Path, name: str, **gate: object) -> Path:
    stated = json.loads(own.read_text())
    place = own.with_name(name)
    place.write_text(json.dumps({**stated, "gates": [desk.fixture.gate(**gate)]}))
    return place


def _accepting(receipt_bytes: bytes, state_id: str) -> bytes:
    """A receipt that accepts ``state_id``, with a digest of its own that is right."""
    body = json.loads(receipt_bytes)
    body.pop("receipt_sha256", None)
    body.update(accepted_state_id=state_id, delivered_state_id=state_id, verdict="ADMITTED")
    return canonical_json({**body, "receipt_sha256": digest_json(body)})


def _refused(root: Path, name: str, forged_bytes: bytes, bench: Bench) -> bool:
    """Whether nothing is delivered on a forged file; the genuine one is put back."""
    genuine = (root / name).read_bytes()
    (root / name).write_bytes(forged_bytes)
    try:
        receipt.deliver(root, bench.folder("forged"))
        return False
    except IntegrityError:
        return True
    finally:
        (root / name).write_bytes(genuine)


def _of(body: dict[str, object], state_id: str) -> list[dict[str, object]]:
    evidence = body["evidence"]
    assert isinstance(evidence, list)
    return [ran for ran in evidence if ran["state_id"] == state_id]


def _passed(body: dict[str, object], state_id: str) -> bool:
    """Whether a gate's or a certification's pass of a state was taken for evidence."""
    runs = _of(body, state_id)
    return any(ran["outcome"] == "pass" and ran["purpose"] != "diagnostic" for ran in runs)
