"""From the records of a run to the outcome table; a torn matrix gives an error, never a number."""

import json
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import analysis
from analysis.data import read_root
from analysis.decision import analyze
from analysis.errors import AnalysisError
from analysis.plan import parse_plan
from analysis.transitions import transitions
from tests.unit.analysis_support import (
    Root,
    Row,
    proposal_row,
    rollout_row,
    small_plan,
    verdict_row,
)

PLAN = parse_plan(small_plan())


def outcome_of(root: Path) -> dict[str, Row]:
    return {row["rollout_id"]: row for row in read_root(root, PLAN).rows()}


def test_outcomes_follow_the_definitions(tmp_path: Path) -> None:
    found = outcome_of(Root().write(tmp_path))
    names = (
        *("accepted", "resolved", "unsafe", "sound", "discovered", "admitted", "retained"),
        *("final_correct", "empty_submission"),
    )
    yes, no = True, False
    expected = {
        "t1-OFF": (yes, no, yes, no, yes, yes, yes, no, no),
        "t1-ON": (yes, yes, no, yes, yes, yes, yes, yes, no),
        "t2-OFF": (yes, no, yes, no, no, no, no, no, yes),
        "t2-ON": (no, None, no, no, no, no, no, no, no),
    }
    assert {key: tuple(row[n] for n in names) for key, row in found.items()} == expected
    assert list(found) == list(expected)
    assert found["t1-OFF"]["invalid_actions"] == 2
    assert found["t1-ON"]["interceptions"] == 3
    assert found["t2-ON"]["tokens_exhausted"]
    assert [row["gate_overlap"] for row in found.values()] == [no, no, yes, yes]


def test_retained_needs_the_state_to_be_there_at_the_end(tmp_path: Path) -> None:
    run = Root()
    run.rollouts[0]["checkpoint_state_id"] = None
    row = outcome_of(run.write(tmp_path))["t1-OFF"]
    assert (row["discovered"], row["admitted"], row["retained"]) == (True, True, False)


def test_admitted_needs_the_gate(tmp_path: Path) -> None:
    run = Root()
    run.proposals[0]["gate_passed"] = False
    row = outcome_of(run.write(tmp_path))["t1-OFF"]
    assert (row["discovered"], row["admitted"]) == (True, False)


def test_rows_without_an_outcome_are_null_not_zero(tmp_path: Path) -> None:
    run = Root()
    gone = {"settled_as": "infrastructure", "accepted": None, "accepted_state_id": None}
    run.rollouts[1] |= gone | {"final_state_id": None, "checkpoint_state_id": None}
    run.proposals[3]["state_id"] = "t1-unseen"  # nothing of such a row needs a replay
    root = run.write(tmp_path)
    row = outcome_of(root)["t1-ON"]
    nulls = ("accepted", "resolved", "unsafe", "sound", "discovered", "retained", "final_correct")
    assert [row[name] for name in nulls] == [None] * len(nulls)
    result = analyze(PLAN, read_root(root, PLAN))
    assert result.coverage.owed == {"infrastructure": 1, "unknown": 0}
    assert result.decision.worst_case


def test_transitions_count_repairs_and_harms(tmp_path: Path) -> None:
    everything, off, on = transitions(PLAN, read_root(Root().write(tmp_path), PLAN))
    assert (everything.alpha.events, everything.alpha.trials) == (2, 2)
    assert (everything.beta.events, everything.beta.trials) == (2, 2)
    assert everything.threshold == Fraction(1, 2)
    assert [(step.current, step.ever, step.reached) for step in everything.steps] == [
        (2, 2, 2),
        (1, 2, 2),  # the rejected harm of t1-ON was rolled back
    ]
    assert [step.current for step in off.steps] == [1, 0]
    assert [step.current for step in on.steps] == [1, 1]
    assert {step.rollouts for step in off.steps} == {2}


def test_task_equal_rates_weigh_tasks_alike(tmp_path: Path) -> None:
    run = Root()
    wrong = [f"t2-try{number}" for number in (1, 2, 3)]
    for number, (before, after) in enumerate(zip(["t2-base", *wrong], wrong, strict=False), 1):
        run.proposals.append(proposal_row("t2-ON", number, before, after))
        run.evaluations.append(verdict_row("t2-ON", after, False))
    run.rollouts[3]["final_state_id"] = wrong[-1]
    everything, *_ = transitions(PLAN, read_root(run.write(tmp_path), PLAN))
    assert everything.alpha.pooled == Fraction(2, 5)
    assert everything.alpha.task_equal == Fraction(1, 2)
    assert (everything.alpha.tasks, everything.beta.tasks) == (2, 1)


def test_gate_errors_and_friction_are_counted_per_cell(tmp_path: Path) -> None:
    off, on = analyze(PLAN, read_root(Root().write(tmp_path), PLAN)).cells
    assert off.gate == {
        "wrong_proposals": 1,
        "gate_false_passes": 1,
        "right_proposals": 1,
        "gate_false_rejections": 0,
    }
    assert on.gate is not None
    assert on.gate["gate_false_passes"] == 0
    assert off.behaviour["rollouts_with_invalid_actions"] == 1
    assert off.behaviour["deadline_hits"] == 1
    hits = [cell.behaviour["suite_deadline_hits"] for cell in (off, on)]
    assert hits == [2, 0], "every deadline that fired is counted, the gate's too"
    assert (on.behaviour["actions_exhausted"], on.behaviour["tokens_exhausted"]) == (1, 1)
    assert off.endpoints["empty_submission"] == 1


def test_strata_and_empty_submissions_are_reported_apart(tmp_path: Path) -> None:
    result = analyze(PLAN, read_root(Root().write(tmp_path), PLAN))
    named = {one.name: one for one in result.sensitivities}
    assert list(named) == [
        *("without empty submissions", "tasks without gate overlap", "tasks with gate overlap")
    ]
    assert named["without empty submissions"].unsafe.least.effect == Fraction(-1, 2)
    assert result.effect("contract", "unsafe").least.effect == -1
    assert named["tasks with gate overlap"].tasks == 1
    assert named["tasks with gate overlap"].sound.least.effect == 0


Change = Callable[[Root], object]
BROKEN: list[tuple[Change, str, str]] = [
    (lambda r: r.rollouts.pop(), "rollout_id", "planned rollouts have no row"),
    (lambda r: r.rollouts.append(r.rollouts[0]), "rollout_id", "more than one row"),
    (
        lambda r: r.rollouts.append(rollout_row("t1-ON") | {"rollout_id": "x"}),
        "rollout_id",
        "does not know",
    ),
    (lambda r: r.rollouts[0].update(lock_id="other"), "lock_id", "another lock"),
    (lambda r: r.proposals[0].update(lock_id="other"), "rollout_id", "proposals of rollouts or"),
    (lambda r: r.runs[0].update(lock_id="other"), "rollout_id", "verdicts of rollouts or of a"),
    (lambda r: r.rollouts[0].update(seed=6), "task_id", "not the planned one"),
    (lambda r: r.rollouts[0].update(stack="other"), "task_id", "not the planned one"),
    (lambda r: r.rollouts[0].update(simulated=True), "simulated", "simulated mark"),
    (lambda r: r.rollouts[0].update(settled_as="lost"), "settled_as", "unknown way"),
    (lambda r: r.rollouts[0].update(accepted=None), "accepted", "contradicts"),
    (lambda r: r.rollouts[0].update(final_state_id=None), "accepted", "contradicts"),
    (lambda r: r.rollouts[0].update(settled_as="unknown"), "accepted", "contradicts"),
    (lambda r: r.rollouts[0].update(accepted=False), "accepted_state_id", "disagree"),
    (lambda r: r.rollouts[0].update(evidence="current"), "evidence", "was not run at"),
    (lambda r: r.rollouts[0].update(binding=True), "contract", "was not run at"),
    (lambda r: r.rollouts[1].update(binding=False), "contract", "was not run at"),
    (lambda r: r.proposals.pop(0), "proposal", "not numbered"),
    (lambda r: r.proposals[0].update(proposal=2), "proposal", "not numbered"),
    (lambda r: r.evaluations.clear(), "evaluations", "no evaluations"),
    (lambda r: r.evaluations[0].update(lock_id="other"), "rollout_id", "does not know"),
    (
        lambda r: r.evaluations.append(verdict_row("t1-ON", "t1-bad", True)),
        "resolved",
        "two different ones",
    ),
    (
        lambda r: r.rollouts[0].update(accepted_state_id="t1-unseen"),
        "state_id",
        "accepted states have no evaluation",
    ),
    (
        lambda r: r.rollouts[3].update(final_state_id="t2-unseen"),
        "state_id",
        "final states have no evaluation",
    ),
    (lambda r: r.proposals[3].update(state_id="t1-unseen"), "state_id", "proposals whose state"),
    (lambda r: r.proposals[3].update(state_before="t1-unseen"), "state_id", "proposals whose"),
]


@pytest.mark.parametrize(("change", "field", "problem"), BROKEN)
def test_a_broken_run_gives_an_error_and_no_number(
    tmp_path: Path, change: Change, field: str, problem: str
) -> None:
    run = Root()
    change(run)
    run.write(tmp_path)
    with pytest.raises(AnalysisError) as caught:
        read_root(tmp_path, PLAN)
    assert caught.value.field == field
    assert problem in caught.value.problem
    assert str(tmp_path) in caught.value.file


def test_a_verdict_of_another_task_is_not_used(tmp_path: Path) -> None:
    run = Root()
    run.rollouts[2] |= {"accepted_state_id": "t1-good"}
    with pytest.raises(AnalysisError, match="accepted states have no evaluation"):
        read_root(run.write(tmp_path), PLAN)


def test_an_empty_root_and_a_torn_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="no records"):
        read_root(tmp_path, PLAN)
    root = Root().write(tmp_path)
    file = root / "records" / "0-t1-OFF" / "rollout.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(AnalysisError, match="Restore the file"):
        read_root(root, PLAN)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    root = Root().write(tmp_path)
    for file in root.glob("records/*/rollout.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["settled_as"]), file)
    with pytest.raises(AnalysisError, match="settled_as: the column is missing"):
        read_root(root, PLAN)


def test_one_record_of_another_version_is_named(tmp_path: Path) -> None:
    """Written before a column existed: the file is named, and nothing is filled in."""
    root = Root().write(tmp_path)
    old = root / "records" / "2-t2-OFF" / "rollout.parquet"
    pq.write_table(pq.read_table(old).drop_columns(["charged_seconds"]), old)
    with pytest.raises(AnalysisError, match="another version wrote this table") as caught:
        read_root(root, PLAN)
    assert (caught.value.file, caught.value.field) == (str(old), "charged_seconds")
    assert caught.value.remedy.startswith("Analyse it with that version")


@pytest.mark.parametrize("place", [0, 3])
def test_a_column_of_the_wrong_type_is_named(tmp_path: Path, place: int) -> None:
    root = Root().write(tmp_path)
    file = sorted(root.glob("records/*/rollout.parquet"))[place]
    table = pq.read_table(file)
    at = table.column_names.index("accepted")
    pq.write_table(table.set_column(at, "accepted", pa.array(["perhaps"])), file)
    with pytest.raises(AnalysisError, match="holds VARCHAR where BOOLEAN is expected") as caught:
        read_root(root, PLAN)
    assert (caught.value.file, caught.value.field) == (str(file), "accepted")


def test_an_open_plan_cannot_read_a_root(tmp_path: Path) -> None:
    plan = parse_plan(small_plan() | {"tasks": [], "rollouts": []})
    with pytest.raises(AnalysisError, match="enumerates nothing"):
        read_root(Root().write(tmp_path), plan)


def test_load_gives_frame_plan_and_decision(tmp_path: Path) -> None:
    root = Root().write(tmp_path)
    (root / "analysis").mkdir()
    (root / "analysis" / "plan.json").write_text(json.dumps(small_plan()))
    run = analysis.load(root)
    assert len(run.outcomes) == run.decision().coverage.planned == 4
    assert run.outcomes.groupby("contract")["sound"].sum().to_dict() == {"OFF": 0, "ON": 1}
    assert run.plan.rollouts == PLAN.rollouts
    elsewhere = tmp_path / "p.json"
    elsewhere.write_text(json.dumps(small_plan()))
    assert analysis.load(root, elsewhere).decision().to_json() == run.decision().to_json()


def test_decision_json_is_canonical_and_whole(tmp_path: Path) -> None:
    result = analyze(PLAN, read_root(Root().write(tmp_path), PLAN))
    text = result.to_json()
    data = json.loads(text)
    assert text == json.dumps(data, sort_keys=True, indent=2) + "\n"
    unsafe = next(e for e in data["effects"] if e["endpoint"] == "unsafe")
    assert unsafe["least"]["effect"] == {"exact": "-1/1", "value": -1.0}
    assert data["schema"] == "factorial/decision@2"


def test_importing_analysis_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'pandas', 'statsmodels', 'scipy', 'duckdb', 'pyarrow', 'orchestrator'}"
    script = f"import sys, analysis; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    script = "import sys, analysis.decision, analysis.render, analysis.notebook; "
    script += "sys.exit(bool({'pandas', 'statsmodels', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
