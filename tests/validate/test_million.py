"""One million rollouts over 1,000 tasks through the command: right counts, in bounded memory.

Figures go to docs/validation/: seconds of processor and wall time, peak memory.
"""

import json
import os
import sys
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

TASKS, SEEDS = 1000, 250
CELLS = [("current", "OFF"), ("current", "ON"), ("stale", "OFF"), ("stale", "ON")]
GIB = 2**30


def write_study(path: Path) -> None:
    """Evidence x contract with 250 seeds, the preregistered numbers of draws."""
    contract = {"name": "contract", "kind": "contrast", "factor": "contract"}
    study = {
        "schema": "factorial/study@1",
        "name": "million",
        "title": "One million rollouts",
        "tasks": {"manifest": "tasks.yaml"},
        "stack": "stack.yaml",
        "prompts": "prompts",
        "factors": [
            {"name": "evidence", "levels": ["current", "stale"]},
            {"name": "contract", "levels": ["OFF", "ON"]},
        ],
        "seeds": list(range(SEEDS)),
        "effects": [contract | {"low": "OFF", "high": "ON"}],
        "decision": {"effect": "contract"},
        "families": [{"name": "two", "effects": ["contract"], "endpoints": ["unsafe", "sound"]}],
    }
    path.write_text(yaml.safe_dump(study))


def write_table(path: Path) -> dict[str, Fraction]:
    """A shuffled table of random outcomes; returns the contract effects that it holds."""
    rng = np.random.default_rng(0)
    shape = (TASKS, SEEDS, len(CELLS))
    accepted = rng.random(shape) < rng.beta(0.5, 3, size=(TASKS, 1, 1))
    resolved = accepted & (rng.random(shape) < 0.6)
    task, seed, cell = (axis.ravel() for axis in np.indices(shape))
    order = rng.permutation(accepted.size)
    names = np.array([f"task-{at:04}" for at in range(TASKS)])
    projects = np.array([f"project-{at // 3:03}" for at in range(TASKS)])
    levels = np.array(CELLS)
    columns = {
        "task_id": names[task],
        "project": projects[task],
        "stack": np.full(accepted.size, "coder"),
        "seed": seed,
        "evidence": levels[cell, 0],
        "contract": levels[cell, 1],
        "accepted": accepted.ravel(),
    }
    table = pa.table({name: values[order] for name, values in columns.items()})
    verdict = pa.array(resolved.ravel()[order], mask=~accepted.ravel()[order])
    pq.write_table(table.append_column("resolved", verdict), path)
    ends = {"accepted": accepted, "sound": resolved, "unsafe": accepted & ~resolved}
    on = np.array([level == "ON" for _, level in CELLS])
    return {
        name: Fraction(int(end[..., on].sum()) - int(end[..., ~on].sum()), TASKS * SEEDS * 2)
        for name, end in ends.items()
    }


def run(command: list[str], out: Path) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak memory (bytes) of a process that must succeed."""
    start = perf_counter()
    child = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT, 0o600)],
    )
    _, status, used = os.wait4(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


@pytest.mark.validate
def test_a_million_rollouts(tmp_path: Path) -> None:
    write_study(tmp_path / "study.yaml")
    wanted = write_table(tmp_path / "table.parquet")
    command = [sys.executable, "-m", "orchestrator.cli.main", "analyze", "--json"]
    command += ["--outcomes", str(tmp_path / "table.parquet")]
    command += ["--study", str(tmp_path / "study.yaml")]
    wall, processor, peak = run(command, tmp_path / "decision.json")
    print(f"\n{wall:.1f} s wall, {processor:.1f} s processor, {peak / GIB:.2f} GiB at the peak")
    found = json.loads((tmp_path / "decision.json").read_text())
    assert found["design"]["rollouts"] == TASKS * SEEDS * len(CELLS)
    effects = {
        one["endpoint"]: Fraction(one["least"]["effect"]["exact"]) for one in found["effects"]
    }
    assert {name: effects[name] for name in wanted} == wanted
    assert peak < 4 * GIB
