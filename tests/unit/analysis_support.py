"""Plans and outcome tables for the analysis tests, built in a few lines each."""

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.decision import analyze
from analysis.external import from_rows
from analysis.plan import parse_plan
from analysis.results import Analysis
from orchestrator.store.schemas import EVALUATION, PROPOSAL, ROLLOUT, VERDICT, Column, arrow_schema

Row = dict[str, Any]
CONTRACT = {
    "name": "contract",
    "kind": "contrast",
    "factor": "contract",
    "low": "OFF",
    "high": "ON",
}


def plan_dict(
    factors: Mapping[str, Iterable[str]],
    effects: list[dict[str, Any]],
    seeds: Iterable[int] = (1,),
    families: Iterable[dict[str, Any]] = (),
    **changes: Any,
) -> dict[str, Any]:
    """An open plan whose decision is on the first effect; ``changes`` replace whole keys."""
    plan = {
        "schema": "factorial/plan@1",
        "study": "trial",
        "title": "A trial",
        "lock_id": "",
        "simulated": False,
        "stack": "",
        "factors": [{"name": name, "levels": list(levels)} for name, levels in factors.items()],
        "constants": {},
        "seeds": list(seeds),
        "tasks": [],
        "rollouts": [],
        "effects": effects,
        "decision": {
            "effect": effects[0]["name"],
            "level": 0.95,
            "unsafe_below": 0.0,
            "sound_above": -0.05,
            "floor": 0.05,
        },
        "families": list(families),
        "inference": {"bootstrap_draws": 2000, "sign_flip_draws": 2000, "seed": 7},
    }
    return plan | changes


def rows(plan: dict[str, Any], projects: Mapping[str, str], events: Iterable[Row]) -> list[Row]:
    """One row per task x cell x seed; ``events`` are the accepted ones, sound or not."""
    names = [factor["name"] for factor in plan["factors"]]
    found = {
        (e["task"], e["seed"], *(str(e[name]) for name in names)): bool(e["sound"]) for e in events
    }
    made = []
    for task, seed, *levels in product(
        projects, plan["seeds"], *(factor["levels"] for factor in plan["factors"])
    ):
        sound = found.pop((task, seed, *levels), None)
        row = {"task_id": task, "project": projects[task], "stack": "coder", "seed": seed}
        row |= dict(zip(names, levels, strict=True))
        made.append(row | {"accepted": sound is not None, "resolved": sound})
    assert not found, f"events outside the design: {found}"
    return made


def analysed(plan: dict[str, Any], table: list[Row]) -> Analysis:
    """The public way from a plan and a table to a result."""
    return analyze(*from_rows(table, parse_plan(plan)))


def counted(units: Iterable[int], seeds: int, **changes: Any) -> tuple[dict[str, Any], list[Row]]:
    """Plan and table of a contract study whose task effects on *sound* are ``units / seeds``."""
    plan = plan_dict({"contract": ["OFF", "ON"]}, [CONTRACT], range(seeds), **changes)
    projects, events = {}, []
    for at, unit in enumerate(units):
        task = f"t{at:02}"
        projects[task] = f"p{at % 3}"
        level = "ON" if unit > 0 else "OFF"
        events += [
            {"task": task, "seed": seed, "contract": level, "sound": True}
            for seed in range(abs(unit))
        ]
    return plan, rows(plan, projects, events)


DEFAULTS: dict[pa.DataType, Any] = {pa.string(): "", pa.int64(): 0, pa.float64(): 0.0}
DEFAULTS[pa.bool_()] = False


def record_table(columns: tuple[Column, ...], given: list[Row]) -> pa.Table:
    """A table with the store's own schema; what a row does not give is null, zero or empty."""
    full = [
        {c.name: row.get(c.name, None if c.nullable else DEFAULTS.get(c.type)) for c in columns}
        for row in given
    ]
    return pa.Table.from_pylist(full, schema=arrow_schema(columns))


def small_plan() -> dict[str, Any]:
    """Two tasks x contract OFF/ON x one seed, enumerated; evidence held at stale."""
    tasks = {"t1": "p1", "t2": "p2"}
    rollouts = [
        {
            "rollout_id": f"{task}-{level}",
            "task_id": task,
            "project": project,
            "stack": "coder",
            "seed": 5,
            "levels": {"contract": level},
        }
        for task, project in tasks.items()
        for level in ("OFF", "ON")
    ]
    return plan_dict(
        {"contract": ["OFF", "ON"]},
        [CONTRACT],
        seeds=[5],
        stack="coder",
        lock_id="lock",
        constants={"evidence": "stale"},
        rollouts=rollouts,
        tasks=[
            {"task_id": task, "project": project, "gate_overlap": task == "t2"}
            for task, project in tasks.items()
        ],
    )


def rollout_row(rollout_id: str, **changes: Any) -> Row:
    """The record of one rollout of :func:`small_plan` that accepted nothing and edited nothing."""
    task, level = rollout_id.split("-")
    row = {
        "lock_id": "lock",
        "rollout_id": rollout_id,
        "task_id": task,
        "project": {"t1": "p1", "t2": "p2"}[task],
        "stack": "coder",
        "seed": 5,
        "evidence": "stale",
        "binding": level == "ON",
        "admission": level == "ON",
        "certification": level == "ON",
        "settled_as": "agent",
        "end_reason": "actions",
        "accepted": False,
        "base_state_id": f"{task}-base",
        "final_state_id": f"{task}-base",
    }
    return row | changes


def proposal_row(rollout_id: str, number: int, before: str, after: str, **changes: Any) -> Row:
    """A proposal that the gate passed and that stayed."""
    row = {"lock_id": "lock", "rollout_id": rollout_id, "proposal": number, "state_before": before}
    return row | {"state_id": after, "gate_passed": True, "retained": True} | changes


def verdict_row(rollout_id: str, state: str, resolved: bool, **changes: Any) -> Row:
    """An evaluation of one state."""
    row = {
        "lock_id": "lock",
        "rollout_id": rollout_id,
        "task_id": rollout_id.split("-", maxsplit=1)[0],
    }
    return row | {"state_id": state, "resolved": resolved, "failed_ids": []} | changes


class Root:
    """A run of :func:`small_plan` on disk. Edit the row lists, then :meth:`write`.

    t1-OFF repairs, then harms, and submits the harmed state (unsafe); t1-ON does the same, but
    completes from its checkpoint (sound); t2-OFF submits the base tree; t2-ON does nothing.
    """

    def __init__(self) -> None:
        good, bad = "t1-good", "t1-bad"
        self.rollouts = [
            rollout_row(
                "t1-OFF",
                accepted=True,
                accepted_state_id=bad,
                final_state_id=bad,
                checkpoint_state_id=good,
                invalid_actions=2,
                test_deadline_hits=1,
            ),
            rollout_row(
                "t1-ON",
                accepted=True,
                accepted_state_id=good,
                final_state_id=good,
                checkpoint_state_id=good,
                interceptions_delivery=1,
                interceptions_edit=2,
                actions_exhausted=True,
            ),
            rollout_row("t2-OFF", accepted=True, accepted_state_id="t2-base"),
            rollout_row("t2-ON", end_reason="tokens"),
        ]
        self.proposals = [
            proposal_row("t1-OFF", 1, "t1-base", good),
            proposal_row("t1-OFF", 2, good, bad),
            proposal_row("t1-ON", 1, "t1-base", good),
            proposal_row("t1-ON", 2, good, bad, gate_passed=False, retained=False),
        ]
        self.runs = [
            {"lock_id": "lock", "rollout_id": "t1-OFF", "sequence": n, "outcome": outcome}
            for n, outcome in enumerate(("fail", "timeout", "pass", "timeout"), 1)
        ]
        self.evaluations = [
            verdict_row(row["rollout_id"], row["base_state_id"], False) for row in self.rollouts
        ]
        for rollout_id in ("t1-OFF", "t1-ON"):
            self.evaluations += [
                verdict_row(rollout_id, good, True),
                verdict_row(rollout_id, bad, False),
            ]

    def write(self, root: Path) -> Path:
        """Write ``records/`` and ``evaluations/`` as the store does, one directory per row."""
        for place, row in enumerate(self.rollouts):
            record = root / "records" / f"{place}-{row['rollout_id']}"
            record.mkdir(parents=True)
            pq.write_table(record_table(ROLLOUT, [row]), record / "rollout.parquet")
            mine = [p for p in self.proposals if p["rollout_id"] == row["rollout_id"]]
            pq.write_table(record_table(PROPOSAL, mine), record / "proposals.parquet")
            mine = [run for run in self.runs if run["rollout_id"] == row["rollout_id"]]
            pq.write_table(record_table(VERDICT, mine), record / "verdicts.parquet")
        (root / "evaluations").mkdir(exist_ok=True)
        for rollout_id in {row["rollout_id"] for row in self.evaluations}:
            mine = [e for e in self.evaluations if e["rollout_id"] == rollout_id]
            file = root / "evaluations" / f"{rollout_id}.parquet"
            pq.write_table(record_table(EVALUATION, mine), file)
        return root
