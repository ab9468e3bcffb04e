"""Freezing builds the study's tasks side by side, then locks them one by one."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster import resolve
from orchestrator.cluster.resolve import ALONE, Crew, freeze_study, read_sources

STUDY = Path(__file__).parents[2] / "manifests" / "studies" / "quickstart.yaml"


class Locking(Exception):
    """The first task is being locked."""


@pytest.mark.parametrize("crew", [ALONE, Crew(3), Crew(2, "auto")])
def test_the_studys_tasks_are_built_by_the_crew_before_any_is_locked(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []

    def build(_manifest: object, path: Path, out: Path, **options: Any) -> None:
        asked.append({"path": path, "out": out, **options})

    def lock(*_: object) -> None:
        raise Locking

    monkeypatch.setattr(resolve, "build_tasks", build)
    monkeypatch.setattr(resolve, "_lock_task", lock)
    with pytest.raises(Locking):
        freeze_study(STUDY, tmp_path, lambda _: None, crew)
    if crew == ALONE:
        assert asked == []
        return
    (order,) = asked
    sources = read_sources(STUDY)
    assert order["only"] == [task.id for task in sources.tasks]
    assert (order["jobs"], order["address"]) == (crew.jobs, crew.address)
    assert (order["path"], order["out"]) == (sources.manifest_path, tmp_path)
