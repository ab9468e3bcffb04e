"""The public command on the golden tables: study file and outcome table in, ``decision.json`` out.

``golden.json`` and ``reconstructed.json`` list accepted rollouts only; every other rollout of a
design counts as not accepted. Nothing here knows an expected value.
"""

import csv
import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from typer.testing import CliRunner

Row = dict[str, Any]


def _read(name: str) -> Row:
    data: Row = json.loads(Path(__file__).with_name(name).read_text())
    return data


GOLDEN = _read("golden.json")
STUDIES: dict[str, Row] = GOLDEN["studies"] | _read("reconstructed.json")["studies"]
PUBLISHED = {"bootstrap_draws": 200_000, "sign_flip_draws": 100_000, "seed": 11}
FEW = {"bootstrap_draws": 1000, "sign_flip_draws": 1000, "seed": 11}
SWITCH = ["OFF", "ON"]
COMPONENTS = {"B": "binding", "A": "admission", "C": "certification"}
TRACES = {"current_trace": "current", "stale_trace": "stale"}
"""A study file knows two evidence conditions; the common-state contrast is between these two."""


def contrast(name: str, factor: str, levels: list[str]) -> Row:
    """Effect of a factor's second level against its first."""
    return {"name": name, "kind": "contrast", "factor": factor, "low": levels[0], "high": levels[1]}


def study_file(
    factors: dict[str, list[str]],
    effects: list[Row],
    seeds: Iterable[int],
    family: Iterable[str] = (),
    inference: Row = PUBLISHED,
) -> Row:
    """A study manifest whose decision is on the first effect."""
    families = [{"name": "family", "effects": [*family], "endpoints": ["unsafe", "sound"]}]
    return {
        "schema": "factorial/study@1",
        "name": "golden",
        "title": "A golden table",
        "tasks": {"manifest": "tasks.yaml"},
        "stack": "stack.yaml",
        "prompts": "prompts",
        "factors": [{"name": name, "levels": levels} for name, levels in factors.items()],
        "seeds": [*seeds],
        "effects": effects,
        "decision": {"effect": effects[0]["name"]},
        "families": families if families[0]["effects"] else [],
        "inference": inference,
    }


def outcome_rows(study: Row, projects: dict[str, str], events: Iterable[Row]) -> list[Row]:
    """Every rollout of the design, as the columns of an outcome table."""
    factors = {factor["name"]: factor["levels"] for factor in study["factors"]}
    found = {
        (event["task"], event["seed"], *(str(event[name]) for name in factors)): event
        for event in events
    }
    rows = []
    for task, seed, *levels in product(projects, study["seeds"], *factors.values()):
        event = found.pop((task, seed, *levels), None)
        row = {"task_id": task, "project": projects[task], "stack": "coder", "seed": seed}
        row |= dict(zip(factors, levels, strict=True))
        row |= {"accepted": int(event is not None), "resolved": event and int(event["sound"])}
        rows.append(row)
    assert not found, f"events outside the design: {found}"
    return rows


def analyze(study: Row, rows: list[Row], suffix: str = ".csv") -> Row:
    """``factorial analyze --outcomes TABLE --study STUDY --json``, in this process."""
    from orchestrator.cli.main import app

    with TemporaryDirectory() as folder:
        table, manifest = Path(folder) / f"table{suffix}", Path(folder) / "study.yaml"
        write = {".csv": write_csv, ".parquet": write_parquet}[suffix]
        write(table, rows)
        manifest.write_text(yaml.safe_dump(study))
        command = ["analyze", "--outcomes", str(table), "--study", str(manifest), "--json"]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        decision: Row = json.loads(result.stdout)
        return decision


def write_csv(path: Path, rows: list[Row]) -> None:
    """Rows as CSV; None is an empty value."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Rows as Parquet."""
    pq.write_table(pa.Table.from_pylist(rows), path)


def design_of(name: str) -> tuple[Row, dict[str, str], list[Row]]:
    """Study file, project of every task, and events of a golden study."""
    design, events = STUDIES[name]["design"], STUDIES[name]["events"]
    seeds, kind = design["seeds"], STUDIES[name]["kind"]
    contract = contrast("contract", "contract", SWITCH)
    if kind == "stack":
        factors = {"evidence": design["evidence"], "contract": design["contract"]}
        return study_file(factors, [contract], seeds), design["project_of_task"], events
    if kind == "ablation":
        names = list(COMPONENTS.values())
        effects = [contrast(name, name, SWITCH) for name in names]
        study = study_file(dict.fromkeys(names, SWITCH), effects, seeds, names)
        events = [
            e | {full: SWITCH[e[short]] for short, full in COMPONENTS.items()} for e in events
        ]
        return study, design["project_of_task"], events
    if kind == "depth":
        depth = {"name": "depth", "kind": "linear", "factor": "revision_cap"}
        depth |= {"low": "1", "high": "8"}
        both = {"name": "both", "kind": "interaction", "of": ["depth", "contract"]}
        caps = [str(cap) for cap in design["revision_cap"]]
        names = ["depth", "contract", "both"]
        factors = {"revision_cap": caps, "contract": SWITCH}
        study = study_file(factors, [depth, contract, both], seeds, names)
        return study, design["project_of_task"], events
    return _common_state(design, events)


def _common_state(design: Row, events: list[Row]) -> tuple[Row, dict[str, str], list[Row]]:
    """Harm from correct starts: an accepted end state that does not resolve."""
    levels = list(TRACES.values())
    study = study_file(
        {"evidence": levels}, [contrast("stale", "evidence", levels)], design["seeds"]
    )
    harms = [event for event in events if event["harm"]]
    events = [event | {"evidence": TRACES[event["evidence"]], "sound": 0} for event in harms]
    return study, {task: task for task in design["tasks"]}, events


@cache
def decision(name: str) -> Row:
    """What the command prints for a golden study."""
    study, projects, events = design_of(name)
    return analyze(study, outcome_rows(study, projects, events))


def counted(units: Sequence[int], seeds: int) -> Row:
    """What it prints for a study of the contract whose effects on *sound* are ``units / seeds``."""
    study = study_file(
        {"contract": SWITCH}, [contrast("contract", "contract", SWITCH)], range(seeds), (), FEW
    )
    projects = {f"t{at:02}": f"p{at % 3}" for at in range(len(units))}
    events = [
        {"task": task, "seed": seed, "contract": "ON" if unit > 0 else "OFF", "sound": True}
        for task, unit in zip(projects, units, strict=True)
        for seed in range(abs(unit))
    ]
    return analyze(study, outcome_rows(study, projects, events))


def effect(found: Row, name: str, endpoint: str) -> Row:
    """One effect on one endpoint."""
    wanted = (name, endpoint)
    one: Row = next(e for e in found["effects"] if (e["effect"], e["endpoint"]) == wanted)
    return one


def exact(value: Row) -> Fraction:
    """A figure as the fraction that it is."""
    return Fraction(value["exact"])


def holm_row(found: Row, name: str, endpoint: str) -> Row:
    """One member of the study's family."""
    rows = (row for family in found["families"] for row in family["rows"])
    row: Row = next(row for row in rows if (row["effect"], row["endpoint"]) == (name, endpoint))
    return row
