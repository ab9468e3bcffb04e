"""The tables of a run, column by column: type, unit, meaning.

``volatile`` columns depend on the machine or on the attempt (times, caches); every other column is
the same in any two runs of one lock with a deterministic coder in which no deadline fires (design
§3, invariant 7). ``docs/tables.md`` is generated from here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = "1"

STR, INT, FLOAT, BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
STRINGS = pa.list_(pa.string())


@dataclass(frozen=True)
class Column:
    """One column. Nullable columns say in ``meaning`` what null stands for."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False
    volatile: bool = False


LOCK = Column("lock_id", STR, "SHA-256 of the lock that planned this row")
ROLLOUT_ID = Column("rollout_id", STR, "rollout id, as in the lock")

VOID_REASON = (
    "why void: void.runner-tampered | void.report-forged | void.residue | void.twin-passed | "
    "void.second-runner-disagrees; empty where not void"
)
FLAGS = (
    "what the candidate's added lines look like (scan.*) and what of it took no part (left-out.*), "
    "sorted; a flag decides nothing"
)

ROLLOUT: tuple[Column, ...] = (
    LOCK,
    ROLLOUT_ID,
    Column("study", STR, "study name"),
    Column("task_id", STR, "task"),
    Column("project", STR, "project of the task"),
    Column("stack", STR, "coder stack name"),
    Column("simulated", BOOL, "a privileged, simulated coder produced this row"),
    Column("seed", INT, "preregistered seed"),
    Column("block", INT, "task-seed block of the dispatch order, from 0"),
    Column("order", INT, "place in the dispatch order, from 0"),
    Column("evidence", STR, "current | stale"),
    Column("binding", BOOL, "contract component B, state binding"),
    Column("admission", BOOL, "contract component A, proposal admission and rollback"),
    Column("certification", BOOL, "contract component C, completion certification"),
    Column("revision_cap", INT, "source revisions allowed"),
    Column(
        "gate_overlap", BOOL, "task has one fail-to-pass function, in diagnostic and gate alike"
    ),
    Column("settled_as", STR, "agent | infrastructure (null outcome) | unknown (null outcome)"),
    Column(
        "end_reason",
        STR,
        "submitted | escalated | actions | wall | tokens, or the faulty boundary where settled_as "
        "is infrastructure",
    ),
    Column("accepted", BOOL, "a completion was accepted; null where not settled as agent", True),
    Column("accepted_via", STR, "submission | checkpoint; null where nothing was accepted", True),
    Column("accepted_state_id", STR, "accepted state; null where nothing was accepted", True),
    Column("base_state_id", STR, "state of the agent's mirror"),
    Column("final_state_id", STR, "working state at the end; null without an outcome", True),
    Column(
        "checkpoint_state_id",
        STR,
        "last-known-good state (recorded in every arm); null = none",
        True,
    ),
    Column("empty_submission", BOOL, "the accepted state is the base tree"),
    Column("submissions", INT, "submit actions"),
    Column("rejected_submissions", INT, "submissions rejected by certification (C = 1)"),
    Column("certifications", INT, "fresh certification runs"),
    Column(
        "flaky_certifications", INT, "certifications that disagree with the gate's earlier verdict"
    ),
    Column("escalated", BOOL, "the agent abstained"),
    Column("actions", INT, "actions taken, invalid ones included"),
    Column("invalid_actions", INT, "replies that are no valid action"),
    Column("refused_actions", INT, "valid actions refused (no-op, protected path, spent budget)"),
    Column("revisions", INT, "source revisions = proposals"),
    Column("visible_tests", INT, "test actions that delivered evidence"),
    Column(
        "test_deadline_hits", INT, "delivered test results that had hit the visible-test deadline"
    ),
    Column("interceptions_delivery", INT, "STALE notices at evidence delivery (B = 1)"),
    Column("interceptions_edit", INT, "STALE notices at an edit (B = 1)"),
    Column("gate_passes", INT, "proposals that passed the gate"),
    Column("gate_rejections", INT, "proposals that failed the gate"),
    Column("rollbacks", INT, "rejected proposals whose state was restored (A = 1)"),
    Column("shell_commands", INT, "shell actions run"),
    Column(
        "shell_code_runs", INT, "shell actions that started a Python interpreter (declared limit)"
    ),
    Column(
        "shell_write_attempts",
        INT,
        "paths a shell command tried to change on its discarded overlay",
    ),
    Column("shell_deadline_hits", INT, "shell actions that their deadline ended"),
    Column("actions_exhausted", BOOL, "the action budget ended the rollout"),
    Column("wall_exhausted", BOOL, "the charged wall clock ended the rollout"),
    Column("tokens_prompt", INT, "prompt tokens over all actions, logical"),
    Column("tokens_completion", INT, "completion tokens over all actions, logical"),
    Column(
        "ledger_head", STR, "hash of the last ledger event; empty where settled_as is not agent"
    ),
    Column("receipt_sha256", STR, "digest of receipt.json"),
    Column(
        "tokens_served", INT, "tokens a server worked for (shared replies count 0)", volatile=True
    ),
    Column(
        "charged_seconds", FLOAT, "charged time: model, shell, visible tests (s)", volatile=True
    ),
    Column("wall_seconds", FLOAT, "elapsed time of the settling attempt (s)", volatile=True),
    Column(
        "own_seconds", FLOAT, "elapsed minus model, sandbox and evaluator time (s)", volatile=True
    ),
    Column("attempt_id", STR, "attempt that settled the row", volatile=True),
    Column("started_at", FLOAT, "start of the attempt (Unix s)", volatile=True),
)

ACTION: tuple[Column, ...] = (
    LOCK,
    ROLLOUT_ID,
    Column("turn", INT, "from 1"),
    Column("kind", STR, "search | view | edit | shell | test | submit | escalate | invalid"),
    Column(
        "result",
        STR,
        "done | invalid | refused | stale | accepted | rejected: what became of the action",
    ),
    Column("reason", STR, "why invalid, refused or stale; null otherwise", True),
    Column("reply", STR, "the coder's reply, whole"),
    Column("finish_reason", STR, "stop | length | ... as the server said"),
    Column("request_seed", INT, "H(study, task, seed, turn)"),
    Column("prompt_sha256", STR, "digest of the messages sent"),
    Column("prompt_tokens", INT, "prompt tokens, logical"),
    Column("completion_tokens", INT, "completion tokens, logical"),
    Column("observation", STR, "what the agent was shown, bounded"),
    Column("observation_sha256", STR, "digest of the unbounded observation"),
    Column("observation_truncated", BOOL, "the observation was cut"),
    Column("state_before", STR, "state id before the action"),
    Column("state_after", STR, "state id after the action"),
    Column("reply_source", STR, "model | shared | recorded | simulated", volatile=True),
    Column("tokens_served", INT, "tokens a server worked for", volatile=True),
    Column("latency_seconds", FLOAT, "charged model latency (s)", volatile=True),
    Column("tool_seconds", FLOAT, "charged tool time (s)", volatile=True),
)

PROPOSAL: tuple[Column, ...] = (
    LOCK,
    ROLLOUT_ID,
    Column("proposal", INT, "from 1, in order"),
    Column("turn", INT, "turn of the edit"),
    Column("state_before", STR, "state the edit was applied to"),
    Column("state_id", STR, "proposed state"),
    Column("patch_sha256", STR, "patches/<sha256>.patch turns the base tree into state_id"),
    Column("gate_passed", BOOL, "the gate's one bit"),
    Column("retained", BOOL, "the proposal stayed the working state"),
    Column("files_changed", INT, "files that differ from state_before"),
    Column("evidence_state_id", STR, "state of the last delivered evidence; null = none yet", True),
)

VERDICT: tuple[Column, ...] = (
    LOCK,
    ROLLOUT_ID,
    Column("sequence", INT, "from 1, in order of request"),
    Column("purpose", STR, "diagnostic | gate | certification"),
    Column("suite", STR, "suite name"),
    Column("suite_id", STR, "suite identity"),
    Column("state_id", STR, "judged state"),
    Column("execution_id", STR, "identity of this execution within the rollout"),
    Column("outcome", STR, "pass | fail | timeout | void"),
    Column("void_reason", STR, VOID_REASON),
    Column("flags", STRINGS, FLAGS),
    Column("payload_sha256", STR, "digest of the diagnostic payload; null for gate runs", True),
    Column("cached", BOOL, "answered from the verdict cache", volatile=True),
    Column(
        "duration_seconds",
        FLOAT,
        "duration of the run that produced the verdict (s)",
        volatile=True,
    ),
)

EVALUATION: tuple[Column, ...] = (
    LOCK,
    ROLLOUT_ID,
    Column("task_id", STR, "task"),
    Column("subject", STR, "base | proposal"),
    Column("proposal", INT, "0 for base, else the proposal's number"),
    Column("state_id", STR, "judged state"),
    Column("patch_sha256", STR, "replayed patch; null for base", True),
    Column("fail_to_pass", BOOL, "all fail-to-pass ids passed"),
    Column("pass_to_pass", BOOL, "all pass-to-pass ids passed"),
    Column("full", BOOL, "all ids of the full suite passed"),
    Column("resolved", BOOL, "all three passed (protocol §1 'Evaluator replay')"),
    Column("failed_ids", STRINGS, "expected ids that did not pass, sorted, at most 50"),
    Column("failed_count", INT, "expected ids that did not pass"),
    Column("outcome", STR, "pass | fail | timeout | void: the gravest of the three runs"),
    Column("void_reason", STR, VOID_REASON),
    Column("flags", STRINGS, FLAGS),
    Column("duration_seconds", FLOAT, "time of the three runs (s)", volatile=True),
    Column("cached", BOOL, "answered from the verdict cache", volatile=True),
)

ATTEMPT: tuple[Column, ...] = (
    LOCK,
    ROLLOUT_ID,
    Column("attempt_id", STR, "attempt id", volatile=True),
    Column("number", INT, "from 1 within the rollout", volatile=True),
    Column("began_at", FLOAT, "start (Unix s)", volatile=True),
    Column("ended_at", FLOAT, "end (Unix s); null = running, or killed", True, True),
    Column(
        "outcome",
        STR,
        "settled | infrastructure | unknown | abandoned; null = running, or killed",
        True,
        True,
    ),
    Column("reason", STR, "why it ended so; null = running, or killed", True, True),
)
"""Attempts are not outcomes: the table stands beside :data:`TABLES` and only under ``tables/``."""

TABLES: dict[str, tuple[Column, ...]] = {
    "rollout": ROLLOUT,
    "actions": ACTION,
    "proposals": PROPOSAL,
    "verdicts": VERDICT,
    "evaluations": EVALUATION,
}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Arrow schema with each column's meaning in its field metadata."""
    fields = [
        pa.field(c.name, c.type, c.nullable, {"meaning": c.meaning, "volatile": str(c.volatile)})
        for c in columns
    ]
    return pa.schema(fields, {"schema_version": SCHEMA_VERSION})


def outcome_columns(table: str) -> list[str]:
    """Names of the non-volatile columns: what two runs of one lock must agree on."""
    return [column.name for column in TABLES[table] if not column.volatile]
