"""The whole of ``factorial analyze`` on 576 rollouts: imports, every sensitivity, 200,000 draws.

Run ``python tests/bench/bench_analyze.py``. A 2^3 ablation and a depth study, each with its Holm
family of six, from a CSV table, in a process of their own; seconds of wall and of processor time,
best of three, and the ratio to a process that imports statsmodels' Holm procedure and nothing else.
"""

import csv
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import yaml

REPEATS = 3
SWITCH = ["OFF", "ON"]
ABLATION = dict.fromkeys(("binding", "admission", "certification"), SWITCH)
DEPTH = {"revision_cap": ["1", "3", "5", "8"], "contract": SWITCH}


def contrast(name: str) -> dict[str, str]:
    """ON against OFF of a factor."""
    return {"name": name, "kind": "contrast", "factor": name, "low": "OFF", "high": "ON"}


STUDIES: dict[str, tuple[dict[str, list[str]], list[dict[str, object]]]] = {
    "ablation": (ABLATION, [{**contrast(name)} for name in ABLATION]),
    "depth": (
        DEPTH,
        [
            {"name": "depth", "kind": "linear", "factor": "revision_cap", "low": "1", "high": "8"},
            {**contrast("contract")},
            {"name": "both", "kind": "interaction", "of": ["depth", "contract"]},
        ],
    ),
}
"""Factors and effects; 24 tasks x 8 cells x 3 seeds each."""


def write(folder: Path, name: str) -> list[str]:
    """Study file and table; returns the command."""
    factors, effects = STUDIES[name]
    names = [effect["name"] for effect in effects]
    study = {
        "schema": "factorial/study@1",
        "name": name,
        "title": name,
        "tasks": {"manifest": "tasks.yaml"},
        "stack": "stack.yaml",
        "prompts": "prompts",
        "factors": [{"name": factor, "levels": levels} for factor, levels in factors.items()],
        "seeds": [1, 2, 3],
        "effects": effects,
        "decision": {"effect": names[0]},
        "families": [{"name": "six", "effects": names, "endpoints": ["unsafe", "sound"]}],
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(study))
    rng = np.random.default_rng(3)
    with (folder / f"{name}.csv").open("w", newline="") as stream:
        out = csv.writer(stream)
        columns = ("accepted", "resolved", "discovered", "empty_submission", "gate_overlap")
        out.writerow(["task_id", "project", "stack", "seed", *factors, *columns])
        for task, seed, *levels in product(range(24), (1, 2, 3), *factors.values()):
            accepted, resolved = rng.random() < 0.3, rng.random() < 0.6
            found = [int(accepted), int(resolved) if accepted else "", int(resolved), 0]
            row = [f"t{task:02}", f"p{task // 3}", "coder", seed, *levels, *found, int(task == 0)]
            out.writerow(row)
    table, study_file = str(folder / f"{name}.csv"), str(folder / f"{name}.yaml")
    command = [sys.executable, "-m", "orchestrator.cli.main", "analyze"]
    return [*command, "--outcomes", table, "--study", study_file, "--json"]


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a process, each at its best."""
    walls, processors = [], []
    for _ in range(REPEATS):
        start, before = perf_counter(), os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        walls.append(perf_counter() - start)
        used = after.children_user + after.children_system
        processors.append(used - before.children_user - before.children_system)
    return min(walls), min(processors)


def main() -> None:
    """Print seconds and ratios."""
    bare = [sys.executable, "-c", "import statsmodels.stats.multitest"]
    wall, processor = timed(bare)
    print(f"import of statsmodels' Holm: {wall:.2f} s wall, {processor:.2f} s processor")
    with TemporaryDirectory() as folder:
        for name in STUDIES:
            seconds, used = timed(write(Path(folder), name))
            print(
                f"factorial analyze, {name}, 576 rollouts: {seconds:.2f} s wall, "
                f"{used:.2f} s processor, {used / processor:.2f} x that import"
            )


if __name__ == "__main__":
    main()
