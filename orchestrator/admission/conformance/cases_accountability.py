"""Cases about what a receipt says: coverage, cost and risk, and attempts that lead nowhere.

SB015, SB025, SB028 to SB030, SB033 and SB034.
"""

from collections.abc import Iterable

from orchestrator.admission.agent import Agent, run_agent
from orchestrator.admission.conformance.bench import Bench, Desk
from orchestrator.admission.conformance.cases_transaction import lenient
from orchestrator.admission.conformance.fixtures import NODE, PYTHON
from orchestrator.admission.conformance.observation import Observation
from orchestrator.admission.session import Decision
from orchestrator.contract.verdicts import Rule, Verdict
from orchestrator.repo.files import Files, tree_of


def terminal_only(bench: Bench) -> Observation:
    """SB015: an agent of which nothing was seen but the tree that it left."""
    desk = bench.desk(PYTHON)
    session = desk.open()
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
    argv = ["python3", "-c", script, desk.fixture.code, desk.fixture.good]
    _, decision = run_agent(session, desk.sandbox, Agent(argv, {}, {}, desk.interpreter))
    end = session.complete()
    body = desk.receipt()
    good = tree_of(desk.good).state_id
    return Observation(
        verdict={"the tree is ADMITTED": {decision.verdict, end.verdict} == {Verdict.ADMITTED}},
        state={"the tree is the agent's": session.checkpoint == good},
        evidence={"it was certified afresh": body["freshness"]["fresh"] is True},
        receipt={
            "coverage says terminal-only": body["coverage"]["observation"] == "terminal-only",
            "that is a risk": "risk.terminal-only" in body["residual_risks"],
        },
    )


def repeated(bench: Bench) -> Observation:
    """SB025: the agent proposes one rejected state again and again."""
    desk = bench.desk(NODE, candidates=10, repeat_limit=3)
    desk.open()
    decisions = _propose_all(desk, [desk.bad()] * 10)
    body = desk.receipt()
    return Observation(
        verdict={
            "twice REJECTED, then ESCALATED": [d.verdict for d in decisions]
            == [Verdict.REJECTED, Verdict.REJECTED, Verdict.ESCALATED],
            "by the rule of repetition": decisions[-1].rule == "admission.repeated-rejection",
        },
        state={"there is no checkpoint": desk.session.checkpoint is None},
        evidence={"no run of it passed": _outcomes(body) == ["fail"] * 3},
        receipt={
            "three of ten candidates were spent": body["delivery"]["candidates"] == 3,
            "the end is an escalation": body["verdict"] == Verdict.ESCALATED,
        },
    )


def oscillating(bench: Bench) -> Observation:
    """SB033: the agent goes to and fro between two rejected states."""
    desk = bench.desk(PYTHON, candidates=10, repeat_limit=5, oscillation_limit=2)
    desk.open()
    decisions = _propose_all(desk, [desk.bad(number % 2) for number in range(10)])
    body = desk.receipt()
    return Observation(
        verdict={
            "the fourth attempt ESCALATES": [d.verdict for d in decisions]
            == [*[Verdict.REJECTED] * 3, Verdict.ESCALATED],
            "by the rule of oscillation": decisions[-1].rule == "admission.oscillation",
        },
        state={"the worktree is the base": desk.worktree_is(desk.fixture.files)},
        evidence={"no run passed": set(_outcomes(body)) == {"fail"}},
        receipt={
            "the attempts were bounded": body["delivery"]["candidates"] == 4,
            "the rule is stated": "admission.oscillation" in body["rules"],
        },
    )


def nothing_delivered(bench: Bench) -> Observation:
    """SB028: the gate rejects every candidate."""
    desk = bench.desk(NODE)
    session = desk.open()
    decisions = _propose_all(desk, [desk.bad(0), desk.bad(1)])
    end = session.close()
    body = desk.receipt()
    return Observation(
        verdict={
            "each is REJECTED": {d.verdict for d in decisions} == {Verdict.REJECTED},
            "the session ABSTAINED": end.verdict is Verdict.ABSTAINED,
            "for want of a checkpoint": end.rule == Rule.ABSTENTION_BUDGET,
        },
        state={"there is no checkpoint": session.checkpoint is None and not body["checkpoint"]},
        evidence={"every gate run failed": _outcomes(body) == ["fail", "fail"]},
        receipt={
            "safety is not delivery": body["delivery"]["delivered"] is False,
            "its cost is stated": body["delivery"]["rejected"] == 2,
            "no certification is claimed": body["freshness"]["fresh"] is False,
        },
    )


def false_rejection(bench: Bench) -> Observation:
    """SB029: the binding gate is broken; the project's own tests, advisory here, call it sound."""
    faulty = PYTHON.gate(name="faulty", argv=["false"])
    advisory = PYTHON.gate(layer="L2", binding=False)
    desk = bench.desk(PYTHON, gates=[faulty, advisory])
    session = desk.open()
    decisions = _propose_all(desk, [desk.bad(), desk.good])
    body = desk.receipt()
    runs = [
        {result["name"]: result["outcome"] for result in ran["results"]}
        for ran in body["evidence"]
        if ran["purpose"] == "gate"
    ]
    return Observation(
        verdict={"the gate still decides": {d.verdict for d in decisions} == {Verdict.REJECTED}},
        state={"there is no checkpoint": session.checkpoint is None},
        evidence={
            "the advisory gate tells them apart": runs
            == [{"faulty": "fail", "tests": "fail"}, {"faulty": "fail", "tests": "pass"}]
        },
        receipt={
            "one false rejection is counted": body["delivery"]["false_rejections"] == 1,
            "beside two rejections": body["delivery"]["rejected"] == 2,
        },
    )


def weak_gate(bench: Bench) -> Observation:
    """SB030: a bad candidate meets a gate that only looks whether there is a file."""
    advisory = PYTHON.gate(layer="L2", binding=False)
    desk = bench.desk(PYTHON, gates=[lenient(PYTHON), advisory])
    session = desk.open()
    (decision,) = _propose_all(desk, [desk.bad()])
    end = session.complete()
    body = desk.receipt()
    wanted = {"risk.suite-incomplete", "risk.domain-uncovered", "risk.advisory-failed"}
    return Observation(
        verdict={"it is ADMITTED": {decision.verdict, end.verdict} == {Verdict.ADMITTED}},
        state={"it is the accepted state": body["accepted_state_id"] == decision.state_id},
        evidence={
            "the advisory gate failed on it": "fail"
            in [r["outcome"] for ran in body["evidence"] for r in ran["results"]]
        },
        receipt={
            "the gap is stated": body["coverage"]["uncovered"] == ["L2", "L3"],
            "the risk is explicit": wanted <= set(body["residual_risks"]),
        },
    )


def minimal_gate(bench: Bench) -> Observation:
    """SB034: a sound candidate, and a project that configures one gate of L1 and nothing else."""
    desk = bench.desk(PYTHON)
    session = desk.open()
    (decision,) = _propose_all(desk, [desk.good])
    end = session.complete()
    body = desk.receipt()
    layers = body["coverage"]["layers"]
    return Observation(
        verdict={"it is ADMITTED": {decision.verdict, end.verdict} == {Verdict.ADMITTED}},
        state={"it is the accepted state": body["accepted_state_id"] == decision.state_id},
        evidence={"one gate covers L1": layers["L1"]["by"] == ["tests"]},
        receipt={
            "what is missing is stated": body["coverage"]["uncovered"] == ["L2", "L3"],
            "each by name": not layers["L2"]["covered"] and not layers["L3"]["covered"],
        },
    )


# --------------------------------------------------------------------------------- parts


def _propose_all(desk: Desk, candidates: Iterable[Files]) -> list[Decision]:
    """Propose each in turn, as long as the session goes on."""
    decisions: list[Decision] = []
    for files in candidates:
        if desk.session.ended:
            break
        desk.leave(files)
        decisions.append(desk.session.propose())
    return decisions


def _outcomes(body: dict[str, object]) -> list[object]:
    evidence = body["evidence"]
    assert isinstance(evidence, list)
    return [ran["outcome"] for ran in evidence if ran["purpose"] == "gate"]
