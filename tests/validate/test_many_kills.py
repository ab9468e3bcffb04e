"""A larger planted study is killed at random moments until it is through; nothing is lost.

All quickstart tasks x evidence x contract x two seeds; at least ten SIGKILLs of the process tree.
"""

import random
import time
from pathlib import Path

import pytest

from orchestrator.store.integrity import compare
from orchestrator.store.reading import attempts, owed, settled
from orchestrator.store.root import Root
from tests.e2e.support import kill_tree, make_workspace, start_marked
from tests.e2e.test_same_answer import STACK

pytestmark = [pytest.mark.validate, pytest.mark.timeout(5400)]
KILLS = 10


def test_ten_kills_leave_the_tables_of_an_undisturbed_run(tmp_path: Path) -> None:
    workspace = make_workspace(
        tmp_path, stack=STACK, seeds=[1, 2], tasks={"manifest": "../tasks/quickstart.yaml"}
    )
    workspace.run("freeze", str(workspace.study), "--out", "mini.lock.json", seconds=1200)
    workspace.run("run", "mini.lock.json", "--root", "runs/reference", seconds=2400)
    reference = Root.existing(tmp_path / "runs/reference")
    home = tmp_path / "runs/killed"
    rng = random.Random(20260101)
    for _ in range(KILLS):
        process, mark = start_marked(workspace, "run", "mini.lock.json", "--root", str(home))
        time.sleep(rng.uniform(6.0, 20.0))
        kill_tree(process, mark)
        if (home / "lock.json").exists():
            root = Root.existing(home)
            planned = len(root.lock().rollouts)
            assert len(settled(root)) + len(owed(root.lock(), root)) == planned
    workspace.run("run", "mini.lock.json", "--root", str(home), seconds=2400)
    resumed = Root.existing(home)
    assert compare(reference, resumed) == []
    ends = [attempt.end.outcome for attempt in attempts(resumed) if attempt.end]
    print(f"\n{KILLS} kills, {len(settled(resumed))} rollouts, attempts {sorted(set(ends))}: "
          f"{ends.count('abandoned')} abandoned, {ends.count('settled')} settled")  # fmt: skip
