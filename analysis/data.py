"""From the records of a run to the outcome table, in SQL.

Comes in: a root with ``records/*/{rollout,proposals,verdicts}.parquet`` and
``evaluations/*.parquet``. Goes out: :class:`~analysis.outcomes.Outcomes`, or an ``AnalysisError``.
The balance check comes first: a matrix that is not whole never yields a number.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from analysis.arms import check_arms
from analysis.errors import AnalysisError
from analysis.outcomes import OWED, SETTLED, Outcomes, outcome_schema
from analysis.plan import Plan

STR, INT, FLOAT, BOOL = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"
NEEDED: dict[str, dict[str, str]] = {
    "rollout": {
        **dict.fromkeys(("lock_id", "rollout_id", "task_id", "project", "stack"), STR),
        "simulated": BOOL,
        "seed": INT,
        "evidence": STR,
        "revision_cap": INT,
        **dict.fromkeys(("binding", "admission", "certification"), BOOL),
        "settled_as": STR,
        "end_reason": STR,
        "accepted": BOOL,
        "escalated": BOOL,
        **dict.fromkeys(("accepted_state_id", "base_state_id", "final_state_id"), STR),
        "checkpoint_state_id": STR,
        **dict.fromkeys(("invalid_actions", "test_deadline_hits", "shell_code_runs"), INT),
        **dict.fromkeys(("interceptions_delivery", "interceptions_edit"), INT),
        **dict.fromkeys(("actions_exhausted", "wall_exhausted"), BOOL),
        **dict.fromkeys(("actions", "visible_tests", "tokens_prompt", "tokens_completion"), INT),
        "charged_seconds": FLOAT,
    },
    "proposals": {
        **dict.fromkeys(("lock_id", "rollout_id", "state_before", "state_id"), STR),
        "proposal": INT,
        "gate_passed": BOOL,
        "retained": BOOL,
    },
    "verdicts": dict.fromkeys(("lock_id", "rollout_id", "purpose", "outcome"), STR),
    "evaluations": {
        **dict.fromkeys(("lock_id", "rollout_id", "task_id", "state_id"), STR),
        "resolved": BOOL,
    },
}
"""Columns read from each table of a run, with their DuckDB types."""

FILES = {
    "rollout": "records/*/rollout.parquet",
    "proposals": "records/*/proposals.parquet",
    "verdicts": "records/*/verdicts.parquet",
    "evaluations": "evaluations/*.parquet",
}
REMEDIES = {
    "rollout": "Run the lock into this root first.",
    "proposals": "Run the lock into this root first.",
    "verdicts": "Run the lock into this root first.",
    "evaluations": "Validate and replay the root first.",
}


@dataclass(frozen=True)
class Check:
    """``sql`` selects the ids that break a rule; the first ones are named in the error."""

    table: str
    field: str
    sql: str
    problem: str
    remedy: str


ROWS = (
    Check(
        "rollout",
        "rollout_id",
        "SELECT rollout_id FROM rollout EXCEPT SELECT rollout_id FROM plan",
        "rows that the plan does not know",
        "Analyse each root with its own plan.",
    ),
    Check(
        "rollout",
        "rollout_id",
        "SELECT rollout_id FROM rollout GROUP BY rollout_id HAVING count(*) > 1",
        "rollouts with more than one row",
        "Restore the records: each rollout settles in one row.",
    ),
    Check(
        "rollout",
        "rollout_id",
        "SELECT rollout_id FROM plan EXCEPT SELECT rollout_id FROM rollout",
        "planned rollouts have no row",
        "Resume the run; an unfinished matrix is not analysed.",
    ),
    Check(
        "rollout",
        "lock_id",
        "SELECT rollout_id FROM rollout WHERE lock_id <> (SELECT lock_id FROM planned_lock)",
        "rows of another lock",
        "Analyse each root with its own plan.",
    ),
    Check(
        "rollout",
        "task_id",
        "SELECT rollout_id FROM rollout r JOIN plan p USING (rollout_id) WHERE (r.task_id, "
        "r.project, r.stack, r.seed) IS DISTINCT FROM (p.task_id, p.project, p.stack, p.seed)",
        "rows whose task, project, stack or seed is not the planned one",
        "Analyse each root with its own plan.",
    ),
    Check(
        "rollout",
        "simulated",
        "SELECT rollout_id FROM rollout WHERE simulated IS DISTINCT FROM "
        "(SELECT simulated FROM planned_lock)",
        "rows whose simulated mark is not the plan's",
        "Export the plan again from the lock.",
    ),
    Check(
        "rollout",
        "settled_as",
        "SELECT rollout_id FROM rollout WHERE settled_as IS NULL OR settled_as NOT IN "
        f"('{SETTLED}', {', '.join(repr(word) for word in OWED)})",
        "rows with an unknown way of settling",
        f"Use one of {SETTLED}, {', '.join(OWED)}.",
    ),
    Check(
        "rollout",
        "accepted",
        f"SELECT rollout_id FROM rollout WHERE (settled_as = '{SETTLED}') <> "
        "(accepted IS NOT NULL AND final_state_id IS NOT NULL)",
        "rows whose outcome contradicts how they settled",
        "Only rollouts settled by the agent have an outcome, and all of those do.",
    ),
    Check(
        "rollout",
        "accepted_state_id",
        "SELECT rollout_id FROM rollout WHERE coalesce(accepted, false) <> "
        "(accepted_state_id IS NOT NULL)",
        "rows where accepted and accepted_state_id disagree",
        "Restore the records.",
    ),
    *(
        Check(
            table,
            "rollout_id",
            f"SELECT rollout_id FROM {table} WHERE rollout_id NOT IN (SELECT rollout_id FROM plan) "
            "OR lock_id <> (SELECT lock_id FROM planned_lock)",
            f"{table} of rollouts or of a lock that the plan does not know",
            "Analyse each root with its own plan.",
        )
        for table in ("proposals", "verdicts")
    ),
    Check(
        "proposals",
        "proposal",
        "SELECT rollout_id FROM proposals GROUP BY rollout_id "
        "HAVING count(*) <> max(proposal) OR min(proposal) <> 1 "
        "OR count(DISTINCT proposal) <> count(*)",
        "rollouts whose proposals are not numbered 1, 2, 3, ... once each",
        "Restore the records.",
    ),
)
"""Balance: planned = rows, no duplicates, nothing foreign, nothing self-contradictory."""

VERDICTS = (
    Check(
        "evaluations",
        "rollout_id",
        "SELECT rollout_id FROM evaluations WHERE rollout_id NOT IN (SELECT rollout_id FROM plan) "
        "OR lock_id <> (SELECT lock_id FROM planned_lock)",
        "evaluations of rollouts or of a lock that the plan does not know",
        "Analyse each root with its own plan.",
    ),
    Check(
        "evaluations",
        "resolved",
        "SELECT state_id FROM verdict WHERE resolved IS NULL OR contradictory",
        "states with a null verdict or with two different ones",
        "Replay again; a state that does not judge alike twice is flaky.",
    ),
    Check(
        "evaluations",
        "state_id",
        "SELECT rollout_id FROM rollout r WHERE accepted AND NOT EXISTS (SELECT 1 FROM verdict v "
        "WHERE (v.task_id, v.state_id) = (r.task_id, r.accepted_state_id))",
        "accepted states have no evaluation",
        "Replay the root; an accepted state is never assumed wrong.",
    ),
    Check(
        "evaluations",
        "state_id",
        "SELECT rollout_id FROM rollout r WHERE final_state_id IS NOT NULL AND NOT EXISTS (SELECT "
        "1 FROM verdict v WHERE (v.task_id, v.state_id) = (r.task_id, r.final_state_id))",
        "final states have no evaluation",
        "Replay the root.",
    ),
    Check(
        "evaluations",
        "state_id",
        "SELECT rollout_id FROM judged WHERE before IS NULL OR after IS NULL",
        "proposals whose state, or the state before, has no evaluation",
        "Replay the root; every proposal is replayed, rejected ones too.",
    ),
)
"""Completeness of the replay."""

VERDICT_TABLE = """
CREATE TEMP TABLE verdict AS
SELECT task_id, state_id, bool_or(resolved) AS resolved,
       count(resolved) < count(*) OR bool_or(resolved) <> bool_and(resolved) AS contradictory
FROM evaluations GROUP BY task_id, state_id
"""
JUDGED_TABLE = f"""
CREATE TEMP TABLE judged AS
SELECT p.rollout_id, p.proposal, b.resolved AS before, a.resolved AS after,
       p.gate_passed, p.retained,
       p.state_id IN (r.final_state_id, coalesce(r.checkpoint_state_id, '')) AS kept
FROM proposals p JOIN rollout r USING (rollout_id)
LEFT JOIN verdict b ON (b.task_id, b.state_id) = (r.task_id, p.state_before)
LEFT JOIN verdict a ON (a.task_id, a.state_id) = (r.task_id, p.state_id)
WHERE r.settled_as = '{SETTLED}'
"""
OUTCOME_QUERY = """
WITH found AS (
    SELECT rollout_id, bool_or(after) AS discovered, bool_or(after AND gate_passed) AS admitted,
           bool_or(after AND kept) AS retained
    FROM judged GROUP BY rollout_id
), late AS (
    SELECT rollout_id, count(*) AS runs, count(*) FILTER (outcome = 'timeout') AS suites,
           count(*) FILTER (purpose = 'certification') AS certified,
           count(*) FILTER (purpose = 'certification' AND outcome = 'pass') AS passed
    FROM verdicts GROUP BY rollout_id
)
SELECT plan.* EXCLUDE (place), r.settled_as,
       r.accepted,
       CASE WHEN r.accepted THEN v.resolved END AS resolved,
       r.accepted AND NOT v.resolved AS unsafe,
       r.accepted AND v.resolved AS sound,
       CASE WHEN r.accepted IS NOT NULL THEN coalesce(f.discovered, false) END AS discovered,
       CASE WHEN r.accepted IS NOT NULL THEN coalesce(f.admitted, false) END AS admitted,
       CASE WHEN r.accepted IS NOT NULL THEN coalesce(f.retained, false) END AS retained,
       CASE WHEN r.accepted IS NOT NULL THEN w.resolved END AS final_correct,
       CASE WHEN r.accepted IS NOT NULL
            THEN r.accepted AND r.accepted_state_id = r.base_state_id END AS empty_submission,
       r.invalid_actions, r.test_deadline_hits AS deadline_hits,
       coalesce(late.suites, 0) AS suite_deadline_hits,
       r.interceptions_delivery + r.interceptions_edit AS interceptions,
       r.shell_code_runs, r.actions_exhausted, r.wall_exhausted,
       r.end_reason = 'tokens' AS tokens_exhausted, r.escalated,
       r.actions, r.visible_tests, coalesce(late.runs, 0) AS suite_runs,
       coalesce(late.certified, 0) AS certifications,
       coalesce(late.passed, 0) AS certifications_passed,
       r.tokens_prompt + r.tokens_completion AS tokens, r.charged_seconds
FROM plan JOIN rollout r USING (rollout_id)
LEFT JOIN found f USING (rollout_id)
LEFT JOIN late USING (rollout_id)
LEFT JOIN verdict v ON (v.task_id, v.state_id) = (r.task_id, r.accepted_state_id)
LEFT JOIN verdict w ON (w.task_id, w.state_id) = (r.task_id, r.final_state_id)
ORDER BY plan.place
"""
PROPOSAL_QUERY = """
SELECT j.* EXCLUDE (kept) FROM judged j JOIN plan USING (rollout_id) ORDER BY place, proposal
"""


def read_root(root: Path, plan: Plan) -> Outcomes:
    """Outcome table of a finished and replayed run.

    Raises ``AnalysisError`` where files, columns, rollouts or evaluations are missing, doubled,
    foreign or contradictory.
    """
    if plan.open:
        raise AnalysisError(plan.file, "rollouts", "enumerates nothing", "Export it from the lock.")
    with _connection(root, plan) as con:
        for table in ("rollout", "proposals", "verdicts"):
            _open(con, root, table)
        _run(con, root, ROWS)
        check_arms(con.sql("SELECT * FROM rollout").to_arrow_table().to_pylist(), plan, str(root))
        _open(con, root, "evaluations")
        con.execute(VERDICT_TABLE)
        con.execute(JUDGED_TABLE)
        _run(con, root, VERDICTS)
        schema = outcome_schema(tuple(factor.name for factor in plan.factors))
        table = con.sql(OUTCOME_QUERY).to_arrow_table()
        proposals = con.sql(PROPOSAL_QUERY).to_arrow_table()
        return Outcomes(table.select(schema.names).cast(schema), proposals)


@contextmanager
def _connection(root: Path, plan: Plan) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that knows the plan; what DuckDB complains about names the root."""
    con = duckdb.connect()
    try:
        con.register("plan", _plan_table(plan))
        locked = {"lock_id": [plan.lock_id], "simulated": [plan.simulated]}
        con.register("planned_lock", pa.table(locked))
        yield con
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise AnalysisError(str(root), "", problem, "Restore the files.") from error
    finally:
        con.close()


def _plan_table(plan: Plan) -> pa.Table:
    overlap = {task.task_id: task.gate_overlap for task in plan.tasks}
    rows = [
        {
            "place": place,
            "rollout_id": rollout.rollout_id,
            "task_id": rollout.task_id,
            "project": rollout.project,
            "stack": rollout.stack,
            "seed": rollout.seed,
            "gate_overlap": overlap[rollout.task_id],
            **rollout.levels,
        }
        for place, rollout in enumerate(plan.rollouts)
    ]
    return pa.Table.from_pylist(rows)


def _open(con: duckdb.DuckDBPyConnection, root: Path, table: str) -> None:
    """Load one table of the run, refusing missing files, missing columns and wrong types."""
    files = sorted(str(path) for path in root.glob(FILES[table]))
    if not files:
        problem = f"no {FILES[table]}"
        raise AnalysisError(str(root), table, problem, REMEDIES[table])
    _check_columns(con, files[0], table)
    columns = ", ".join(f'"{column}"' for column in NEEDED[table])
    try:
        con.read_parquet(files).project(columns).create(table)
    except duckdb.Error:
        for file in files[1:]:
            _check_columns(con, file, table)  # names the file that is not like the first one
        raise


def _check_columns(con: duckdb.DuckDBPyConnection, file: str, table: str) -> None:
    try:
        relation = con.read_parquet([file])
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise AnalysisError(file, "", problem, "Restore the file.") from None
    found = dict(zip(relation.columns, map(str, relation.types), strict=True))
    for column, kind in NEEDED[table].items():
        if column not in found:
            problem = "the column is missing: another version wrote this table"
            remedy = "Analyse it with that version, or run the lock again in a new root."
            raise AnalysisError(file, column, problem, remedy)
        if found[column] != kind:
            problem = f"holds {found[column]} where {kind} is expected"
            raise AnalysisError(file, column, problem, "Restore the file as the run wrote it.")


def _run(con: duckdb.DuckDBPyConnection, root: Path, checks: tuple[Check, ...]) -> None:
    for check in checks:
        ids = sorted({str(row[0]) for row in con.execute(check.sql).fetchall()})
        if ids:
            shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
            problem = f"{len(ids)} {check.problem} ({shown})"
            raise AnalysisError(str(root / FILES[check.table]), check.field, problem, check.remedy)
