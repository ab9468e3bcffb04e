"""Studies for the report's tests, and a strict reading of the page that they make."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from analysis.external import from_rows
from analysis.notebook import Loaded, open_run
from analysis.plan import parse_plan
from analysis.report import Study, study_of
from tests.unit.analysis_support import CONTRACT, Root, Row, plan_dict, rows, small_plan

VOID = {"meta", "link", "br"}


def table_study(
    tasks: int = 6, seeds: int = 2, lost: int = 0, stack: str = "coder", **changes: Any
) -> Study:
    """A table from elsewhere: tasks of three projects, a few events; the first ``lost`` miss."""
    factors = {"evidence": ["current", "stale"], "contract": ["OFF", "ON"]}
    plan = plan_dict(factors, [CONTRACT], range(1, seeds + 1), **changes)
    projects = {f"t{at:04}": f"p{at % 3}" for at in range(tasks)}
    events = [
        {"task": "t0000", "seed": 1, "evidence": "current", "contract": "OFF", "sound": False},
        {"task": "t0001", "seed": 1, "evidence": "stale", "contract": "ON", "sound": True},
    ]
    made = rows(plan, projects, [event for event in events if event["task"] in projects])
    for row in made:
        row |= {"stack": stack, "settled_as": "agent"}
    for row in made[:lost]:
        row |= {"accepted": None, "resolved": None, "settled_as": "infrastructure"}
    return study_of(Loaded(*from_rows(made, parse_plan(plan))), f"{stack}.csv", "study.yaml")


def root_study(path: Path, change: Any = None, **changes: Any) -> Study:
    """The small run of :class:`Root` on disk, with attempts and a lock; ``change(run)`` first."""
    run = Root()
    for row, actions in zip(run.rollouts, (5, 4, 2, 0), strict=True):
        row["actions"] = actions
    if change is not None:
        change(run)
    run.write(path)
    plan = small_plan() | changes
    (path / "analysis").mkdir(exist_ok=True)
    (path / "analysis/plan.json").write_text(json.dumps(plan))
    (path / "lock.json").write_text(json.dumps(LOCK))
    (path / "attempts").mkdir(exist_ok=True)
    for name, facts in ATTEMPTS.items():
        (path / f"attempts/{name}.json").write_text(json.dumps(facts))
    return study_of(open_run(path), str(path))


LOCK: Row = {
    "schema": "factorial/lock@1",
    "lock_id": "lock",
    "code": "c0de" * 16,
    "sandbox": {"backend": "bwrap", "version": "bubblewrap 0.8.0"},
    "study": {"sampling": {"temperature": 0.3, "top_p": 0.9}},
}
ATTEMPTS: dict[str, Row] = {
    "t1-OFF.a1": {"attempt_id": "t1-OFF.a1", "rollout_id": "t1-OFF", "number": 1},
    "t1-OFF.a1.end": {"attempt_id": "t1-OFF.a1", "outcome": "infrastructure", "reason": "engine"},
    "t1-OFF.a2": {"attempt_id": "t1-OFF.a2", "rollout_id": "t1-OFF", "number": 2},
    "t1-OFF.a2.end": {"attempt_id": "t1-OFF.a2", "outcome": "settled", "reason": ""},
    "t2-ON.a1": {"attempt_id": "t2-ON.a1", "rollout_id": "t2-ON", "number": 1},
}


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses an end tag that does not fit."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    @property
    def text(self) -> str:
        """All text, white space made single."""
        return " ".join(" ".join(self.pieces).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of all elements of a tag."""
        return [attributes for name, attributes in self.tags if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> does not fit"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.pieces.append(data)
