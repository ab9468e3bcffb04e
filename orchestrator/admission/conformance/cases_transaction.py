"""Cases about the transaction: the checkpoint, its recertification, completion and budgets.

SB008 to SB012, SB014, SB016, SB022, SB031 and SB035.
"""

from pathlib import Path

from orchestrator.admission.conformance.bench import Bench, Desk
from orchestrator.admission.conformance.fixtures import NODE, PYTHON, Fixture
from orchestrator.admission.conformance.observation import Observation
from orchestrator.admission.session import Decision
from orchestrator.contract.modes import Disposition, Mode
from orchestrator.contract.verdicts import Rule, Verdict
from orchestrator.repo.files import REGULAR, tree_of

HEALTH = "/opt/service/health"


def regression(bench: Bench) -> Observation:
    """SB008: a sound change, then a regression, then the agent declares completion."""
    desk = bench.desk(NODE)
    session = desk.open()
    desk.leave(desk.good)
    first = session.propose()
    desk.leave(desk.bad())
    second = session.propose()
    restored = desk.worktree_is(desk.good)
    end = session.complete()
    body = desk.receipt()
    return Observation(
        verdict={
            "sound, then not, then complete": [d.verdict for d in (first, second, end)]
            == [Verdict.ADMITTED, Verdict.REJECTED, Verdict.ADMITTED],
        },
        state={"the worktree is the checkpoint again": restored},
        evidence={"the checkpoint was certified afresh": body["freshness"]["fresh"] is True},
        receipt={
            "the sound tree is accepted": body["accepted_state_id"] == tree_of(desk.good).state_id,
            "one recovery is counted": body["delivery"]["recoveries"] == 1,
        },
    )


def overwritten(bench: Bench) -> Observation:
    """SB009: a failed proposal overwrites and deletes files; the budget then ends."""
    desk = bench.desk(NODE)
    session = desk.open()
    desk.leave(desk.good)
    session.propose()
    before = session.checkpoint
    desk.leave({path: file for path, file in desk.bad().items() if path != "README"})
    decision = session.propose()
    after = session.checkpoint
    end = session.close()
    body = desk.receipt()
    return Observation(
        verdict={
            "the proposal is REJECTED": decision.verdict is Verdict.REJECTED,
            "the checkpoint is ADMITTED": end.verdict is Verdict.ADMITTED,
        },
        state={
            "the checkpoint does not move": before == after == tree_of(desk.good).state_id,
            "the store holds it": session.store.get(tree_of(desk.good).state_id) == desk.good,
        },
        evidence={"one gate run passed": _gate_outcomes(body) == ["pass", "fail"]},
        receipt={"the checkpoint is accepted": body["accepted_state_id"] == before},
    )


def budget(bench: Bench) -> Observation:
    """SB010: the candidate budget runs out with a regression as the last candidate."""
    desk = bench.desk(PYTHON, candidates=2)
    session = desk.open()
    for files in (desk.good, desk.bad(0)):
        desk.leave(files)
        session.propose()
    desk.leave(desk.bad(1))
    end = session.propose()
    body = desk.receipt()
    return Observation(
        verdict={
            "the third candidate is not judged": end.rule == Rule.COMPLETION_CERTIFIED,
            "the checkpoint is ADMITTED": end.verdict is Verdict.ADMITTED,
        },
        state={
            "the checkpoint is the sound tree": session.checkpoint == tree_of(desk.good).state_id
        },
        evidence={"it was certified afresh": body["freshness"]["fresh"] is True},
        receipt={
            "it was accepted from the checkpoint": body["accepted_via"] == "checkpoint",
            "two candidates were judged": body["delivery"]["candidates"] == 2,
        },
    )


def timeout(bench: Bench) -> Observation:
    """SB011: a verifier does not end; once the policy rejects, once it abstains."""
    rejected, first = _slow(bench, "reject")
    abstained, second = _slow(bench, "abstain")
    bodies = (rejected.receipt(), abstained.receipt())
    return Observation(
        verdict={
            "REJECTED as the policy says": first.verdict is Verdict.REJECTED,
            "ABSTAINED as the policy says": second.verdict is Verdict.ABSTAINED,
        },
        state={
            "no checkpoint": rejected.session.checkpoint is None
            and abstained.session.checkpoint is None,
            "both worktrees are restored": rejected.worktree_is(rejected.fixture.files)
            and abstained.worktree_is(abstained.fixture.files),
        },
        evidence={
            "the outcome is a timeout": all(_gate_outcomes(b) == ["timeout"] for b in bodies)
        },
        receipt={"nothing was delivered": all(not b["delivery"]["delivered"] for b in bodies)},
    )


def _slow(bench: Bench, on_timeout: str) -> tuple[Desk, Decision]:
    slow = PYTHON.gate(argv=["sleep", "60"], timeout_s=0.3)
    desk = bench.desk(PYTHON, gates=[slow], on_timeout=on_timeout)
    session = desk.open()
    desk.leave(desk.good)
    decision = session.propose()
    session.close()
    return desk, decision


def uncertified(bench: Bench) -> Observation:
    """SB012: the budget ends, and the checkpoint no longer passes: its service is gone."""
    desk, service = _with_service(bench)
    session = desk.open()
    desk.leave(desk.good)
    first = session.propose()
    service.write_text("down")
    end = session.close()
    body = desk.receipt()
    return Observation(
        verdict={
            "the candidate was ADMITTED": first.verdict is Verdict.ADMITTED,
            "completion is REJECTED": end.verdict is Verdict.REJECTED,
            "as a disagreement": end.rule == Rule.COMPLETION_FLAKY,
        },
        state={"the checkpoint is kept": session.checkpoint == tree_of(desk.good).state_id},
        evidence={"the certification failed": _outcomes(body, "certification") == ["fail"]},
        receipt={
            "nothing is accepted": body["accepted_state_id"] is None,
            "the disagreement is a risk": "risk.flaky" in body["residual_risks"],
        },
    )


def completion_fails(bench: Bench) -> Observation:
    """SB031: a candidate is admitted, its explicit completion fails."""
    desk, service = _with_service(bench)
    session = desk.open()
    desk.leave(desk.good)
    first = session.propose()
    service.write_text("down")
    decision = session.complete()
    body = desk.receipt()
    return Observation(
        verdict={
            "the candidate was ADMITTED": first.verdict is Verdict.ADMITTED,
            "the completion is REJECTED": decision.verdict is Verdict.REJECTED,
        },
        state={"the checkpoint is kept": session.checkpoint == tree_of(desk.good).state_id},
        evidence={
            "each certification is a run of its own": _outcomes(body, "certification")
            == ["fail", "fail"]
        },
        receipt={
            "nothing is accepted": body["accepted_state_id"] is None,
            "nothing was delivered": body["delivery"]["delivered"] is False,
        },
    )


def _with_service(bench: Bench) -> tuple[Desk, Path]:
    """A project whose acceptance needs a service of this machine; the service's state."""
    folder = bench.folder("service")
    (folder / "health").write_text("up")
    healthy = f"import sys; sys.exit(open('{HEALTH}').read() != 'up')"
    protected = {"name": "service", "layer": "L3", "argv": ["python3", "-c", healthy]}
    tools = {str(Path(HEALTH).parent): str(folder)}
    desk = bench.desk(PYTHON, gates=[PYTHON.gate(), protected], tools=tools)
    return desk, folder / "health"


def malformed(bench: Bench) -> Observation:
    """SB014: what arrives is no action, although a reader in good will could take it for one."""
    desk = bench.desk(PYTHON)
    session = desk.open()
    desk.leave(desk.good)
    session.act(b'{"action": "propose"}')
    held = session.checkpoint
    decision = session.act(b'{"action": "complete"')
    kept, open_still = session.checkpoint, not session.ended
    end = session.act(b'{"action": "complete"}')
    body = desk.receipt()
    return Observation(
        verdict={
            "ABSTAINED": decision.verdict is Verdict.ABSTAINED,
            "a real completion is ADMITTED": end.verdict is Verdict.ADMITTED,
        },
        state={
            "the checkpoint is preserved": held == kept == tree_of(desk.good).state_id,
            "the session goes on": open_still,
        },
        evidence={"nothing ran for it": len(_outcomes(body, "certification")) == 1},
        receipt={"the rule is stated": "admission.malformed-action" in body["rules"]},
    )


def residue(bench: Bench) -> Observation:
    """SB016: at a restore, files, folders, links, modes and caches lie about."""
    desk = bench.desk(PYTHON, ignored=["__pycache__"])
    session = desk.open()
    desk.leave(desk.good)
    session.propose()
    place = session.worktree
    desk.leave(desk.bad())
    (place / "left" / "deep").mkdir(parents=True)
    (place / "left" / "deep" / "notes.txt").write_text("untracked")
    (place / "latest").symlink_to("left")
    (place / "cart" / "__pycache__").mkdir()
    (place / "cart" / "__pycache__" / "pricing.pyc").write_bytes(b"compiled")
    (place / "README").chmod(0o755)
    (place / "empty").mkdir()
    decision = session.propose()
    exact = desk.worktree_is(desk.good)
    empty = any(p.is_dir() and not any(p.iterdir()) for p in place.rglob("*"))
    end = session.complete()
    body = desk.receipt()
    return Observation(
        verdict={
            "the proposal is REJECTED": decision.verdict is Verdict.REJECTED,
            "the checkpoint completes": end.verdict is Verdict.ADMITTED,
        },
        state={
            "the exact tree comes back": exact,
            "no empty folder is left": not empty,
        },
        evidence={"two candidates were run": _gate_outcomes(body) == ["pass", "fail"]},
        receipt={"the recovery is counted": body["delivery"]["recoveries"] == 1},
    )


def adoption(bench: Bench) -> Observation:
    """SB022: the same bad candidate and its completion in each mode of adoption."""
    desks = {mode: bench.desk(PYTHON, mode=mode) for mode in Mode}
    told = {mode: _declared(desk) for mode, desk in desks.items()}
    bodies = {mode: desk.receipt() for mode, desk in desks.items()}
    bad = tree_of(desks[Mode.WARN].bad()).state_id
    wanted = {
        Mode.SHADOW: Disposition.OBSERVED,
        Mode.WARN: Disposition.OVERRIDDEN,
        Mode.ENFORCE: Disposition.BLOCKED,
    }
    override = [o["state_id"] for o in bodies[Mode.WARN]["overrides"] if o["action"] == "complete"]
    left_alone = all(
        desks[mode].worktree_is(desks[mode].bad()) for mode in (Mode.SHADOW, Mode.WARN)
    )
    restored = desks[Mode.ENFORCE].worktree_is(desks[Mode.ENFORCE].fixture.files)
    return Observation(
        verdict={
            "no mode changes the verdict": {d.verdict for d in told.values()} == {Verdict.REJECTED},
            "each has its disposition": {m: d.disposition for m, d in told.items()} == wanted,
        },
        state={"enforce alone takes the tree back": restored and left_alone},
        evidence={
            "the gate failed in each": all(_gate_outcomes(b) == ["fail"] for b in bodies.values())
        },
        receipt={
            "warn records the override": override == [bad],
            "only warn lets the tree out": [b["delivered_state_id"] for b in bodies.values()]
            == [None, bad, None],
            "no mode calls it accepted": all(
                b["accepted_state_id"] is None for b in bodies.values()
            ),
        },
    )


def _declared(desk: Desk) -> Decision:
    """A bad candidate, proposed and declared complete; what was said of the proposal."""
    session = desk.open()
    desk.leave(desk.bad())
    decision = session.propose()
    session.complete()
    session.close()
    return decision


def empty_candidate(bench: Bench) -> Observation:
    """SB035: the agent goes back to the base tree, which the gate lets pass, and completes."""
    desk = bench.desk(NODE, gates=[lenient(NODE)])
    session = desk.open()
    desk.leave({**desk.fixture.files, "notes.txt": (REGULAR, b"a note\n")})
    session.propose()
    desk.leave(desk.fixture.files)
    session.propose()
    decision = session.complete()
    end = session.close()
    body = desk.receipt()
    return Observation(
        verdict={
            "REJECTED": decision.verdict is Verdict.REJECTED,
            "as the empty candidate": decision.rule == Rule.COMPLETION_EMPTY,
            "also from the checkpoint": end.verdict is Verdict.REJECTED,
        },
        state={"the working tree is the base": session.current == body["base_state_id"]},
        evidence={"nothing was certified": not _outcomes(body, "certification")},
        receipt={"nothing is accepted": body["accepted_state_id"] is None},
    )


# --------------------------------------------------------------------------------- parts


def lenient(fixture: Fixture) -> dict[str, object]:
    """A gate that passes whatever the code does: it only looks whether there is any."""
    return fixture.gate(name="present", argv=["test", "-s", fixture.code])


def _outcomes(body: dict[str, object], purpose: str) -> list[object]:
    evidence = body["evidence"]
    assert isinstance(evidence, list)
    return [ran["outcome"] for ran in evidence if ran["purpose"] == purpose]


def _gate_outcomes(body: dict[str, object]) -> list[object]:
    return _outcomes(body, "gate")
