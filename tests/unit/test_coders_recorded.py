"""The recorded coder gives back what the tables of an earlier run hold, and nothing else."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.coders.recorded import RecordedCoder
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import digest_json, prompt_digest
from orchestrator.spec.ports import CoderReply, CoderRequest, Message
from orchestrator.spec.stack import RecordedStack

PROMPT = (Message("system", "You repair."), Message("user", "Go on, é."))


def row(turn: int, **changes: object) -> dict[str, object]:
    return {
        "turn": turn,
        "reply": f"reply {turn}",
        "prompt_sha256": prompt_digest((m.role, m.content) for m in PROMPT),
        "finish_reason": "length",
        "prompt_tokens": 70,
        "completion_tokens": 9,
        "latency_seconds": 1.5,
        "observation": "a column that does not matter here",
        **changes,
    }


def write(root: Path, rollout_id: str, rows: list[dict[str, object]]) -> Path:
    path = root / "records" / rollout_id / "actions.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def coder(root: Path, on_divergence: str = "refuse") -> RecordedCoder:
    data = {
        "schema": "factorial/stack@1",
        "kind": "recorded",
        "name": "r",
        "root": str(root),
        "on_divergence": on_divergence,
    }
    return RecordedCoder(RecordedStack.model_validate(data))


def request(
    turn: int = 1, rollout_id: str = "a", messages: tuple[Message, ...] = PROMPT
) -> CoderRequest:
    return CoderRequest(rollout_id, "t", 1, turn, 5, messages, 0.3, 0.9, 64, 900.0)


def test_the_prompt_digest_is_over_pairs_of_role_and_content() -> None:
    pairs = [(m.role, m.content) for m in PROMPT]
    assert prompt_digest(pairs) == digest_json([["system", "You repair."], ["user", "Go on, é."]])


def test_replies_by_rollout_and_turn_with_the_recorded_charges(tmp_path: Path) -> None:
    write(tmp_path, "a", [row(2), row(1)])
    write(tmp_path, "b", [row(1, reply="another")])
    replayed = coder(tmp_path)
    assert replayed.reply(request(2)) == CoderReply("reply 2", 70, 9, 0, 1.5, "length", "recorded")
    assert replayed.reply(request(1)).text == "reply 1"
    assert replayed.reply(request(1, "b")).text == "another"


@pytest.mark.parametrize(("turn", "rollout_id"), [(3, "a"), (1, "never-run")])
def test_a_turn_or_rollout_without_a_record_escalates(
    tmp_path: Path, turn: int, rollout_id: str
) -> None:
    write(tmp_path, "a", [row(1), row(2)])
    reply = coder(tmp_path).reply(request(turn, rollout_id))
    assert reply.finish_reason == "no_record"
    assert reply.text.startswith('{"action": "escalate"')
    assert (reply.prompt_tokens, reply.tokens_served, reply.latency_seconds) == (0, 0, 0.0)


def test_a_different_prompt_is_refused_or_not_as_the_manifest_says(tmp_path: Path) -> None:
    write(tmp_path, "a", [row(1)])
    other = request(messages=(*PROMPT, Message("user", "One more.")))
    with pytest.raises(IntegrityError, match="rollout a, turn 1"):
        coder(tmp_path).reply(other)
    assert coder(tmp_path, "continue").reply(other).text == "reply 1"


def test_a_root_without_records_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"stack r: root: .* has no records"):
        coder(tmp_path)


def test_torn_or_foreign_tables_are_integrity_errors(tmp_path: Path) -> None:
    write(tmp_path, "a", [row(1)]).write_bytes(b"PAR1 torn")
    write(tmp_path, "b", [{"turn": 1}])
    write(tmp_path, "c", [row(1), row(1)])
    replayed = coder(tmp_path)
    for rollout_id, problem in [("a", "cannot be read"), ("b", "cannot be read"), ("c", "twice")]:
        with pytest.raises(IntegrityError, match=problem):
            replayed.reply(request(rollout_id=rollout_id))
    with pytest.raises(IntegrityError, match="no plain directory name"):
        replayed.reply(request(rollout_id="../a"))
