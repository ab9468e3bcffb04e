"""The corpus is what the documents say of it: size, kinds, readers, and one row for each cheat."""

import re
from pathlib import Path

import pytest

from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import validate
from tests.cheats.support import CHEAT_TASKS, Cheat, cheats

DOCUMENT = Path(__file__).parents[2] / "docs" / "cheats.md"
ROW = re.compile(r"^\| ([a-z-]+) \| ([a-z-]+) \| (yes|no) \| ([a-z, ]+|-) \| ", re.MULTILINE)


def test_size_kinds_and_readers() -> None:
    corpus = cheats()
    assert len(corpus) >= 44
    assert len({cheat.kind for cheat in corpus}) >= 8
    assert 2 * sum(cheat.reads_evaluator for cheat in corpus) >= len(corpus)
    assert len({cheat.name for cheat in corpus}) == len(corpus)
    assert {cheat.task for cheat in corpus} == set(CHEAT_TASKS)
    assert all("pass" not in cheat.expected for cheat in corpus)


def test_the_document_has_a_row_for_each_cheat() -> None:
    rows = {(kind, name): (reads, beats) for kind, name, reads, beats in _rows()}
    assert rows == {
        (cheat.kind, cheat.name): (
            "yes" if cheat.reads_evaluator else "no",
            ", ".join(cheat.beats) or "-",
        )
        for cheat in cheats()
    }


def _rows() -> list[tuple[str, ...]]:
    return ROW.findall(DOCUMENT.read_text(encoding="utf-8"))


def test_a_change_is_made_in_exactly_one_way() -> None:
    data = {
        "schema": "factorial/cheat@1",
        "name": "a",
        "kind": "exit",
        "task": CHEAT_TASKS[0],
        "reads_evaluator": False,
        "description": "long enough to say something",
        "beats": [],
        "expected": ["fail"],
        "changes": [{"path": "a.py", "create": "", "delete": True}],
    }
    with pytest.raises(BadInput, match="exactly one of"):
        validate(data, Cheat, "a.yaml")
