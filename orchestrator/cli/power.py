"""``factorial power``: what a study can decide, before it is frozen or anything is spent."""

import sys
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from analysis.assumptions import parse_assumptions
from analysis.plan import Plan, parse_plan
from analysis.power import Errors, Floor, Power, Share, study_power
from orchestrator.cli.locks import require_writable_file
from orchestrator.cluster.resolve import read_sources
from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import read_yaml
from orchestrator.spec.plan import design_of
from orchestrator.store.files import write_atomic

WIDTH = 100
WORDS = "command line"
RULE_WORDS = {
    "percentile": "preregistered",
    "student": "Student t",
    "bounded": "bounded",
}


def power(
    study: Annotated[Path, typer.Argument(help="Study manifest (YAML); nothing is built.")],
    assume: Annotated[
        list[str],
        typer.Option(
            help="Assumed rates: a YAML file, or key=value (repeatable; the later one wins). "
            "Needed: unsafe_baseline, unsafe_treated, sound_baseline, sound_treated; "
            "optional: icc, carriers, project_share, shared_luck."
        ),
    ],
    studies: Annotated[
        int, typer.Option(min=100, max=1_000_000, help="Simulated studies per scenario.")
    ] = 2000,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed; the study's own where absent.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the figures (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How likely each decision is under assumed rates, and what effect can be detected.

    Example: `factorial power manifests/studies/quickstart.yaml --assume unsafe_baseline=0.20
    --assume unsafe_treated=0.08 --assume sound_baseline=0.30 --assume sound_treated=0.30`
    """
    if out is not None:
        require_writable_file(out, "--out")
    plan = plan_before_building(study)
    assumed = parse_assumptions(*_given(assume))
    with _Shown() as shown:
        chosen = plan.inference.seed if seed is None else seed
        result = study_power(plan, assumed, studies, chosen, shown)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, result.to_json().encode())
    if as_json:
        typer.echo(result.to_json(), nl=False)
    else:
        _print(result)


def plan_before_building(path: Path) -> Plan:
    """The plan of a study file, with tasks and projects from its task manifest alone."""
    sources = read_sources(path)
    study, stack = sources.study, sources.stack.name
    projects = {task.id: task.project for task in sources.tasks}
    design = design_of(study.model_dump(mode="json", by_alias=True))
    tasks = [{"task_id": t, "project": p, "gate_overlap": False} for t, p in projects.items()]
    rollouts = [
        {
            "rollout_id": "/".join([task, *cell.values(), str(seed)]),
            "task_id": task,
            "project": projects[task],
            "stack": stack,
            "seed": seed,
            "levels": cell,
        }
        for task, cell, seed in product(projects, study.cells(), study.seeds)
    ]
    whole = {**design, "stack": stack, "tasks": tasks, "rollouts": rollouts}
    return parse_plan(whole, str(path))


def _given(words: list[str]) -> tuple[dict[str, object], str]:
    """Assumptions of all ``--assume`` options, later ones over earlier ones, and their source."""
    found: dict[str, object] = {}
    files = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            found[key.strip()] = _number(key.strip(), value)
        else:
            files.append(word)
            found |= _from_file(Path(word))
    return found, ", ".join([*files, "--assume"] if len(files) < len(words) else files)


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        problem = f"{value!r} is no number"
        raise BadInput(WORDS, f"--assume {key}", problem, "Give a share such as 0.2.") from None


def _from_file(path: Path) -> dict[str, object]:
    data: Any = read_yaml(path)
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        problem = "is no mapping of assumed numbers"
        raise BadInput(str(path), "", problem, "Write `unsafe_baseline: 0.2` and so on.")
    return data


class _Shown:
    """Progress: a bar on a terminal, one line per scenario elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._bar = Progress(console=Console(stderr=True), transient=True, disable=not self._live)
        self._task = self._bar.add_task("simulating", total=None)

    def __enter__(self) -> "_Shown":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int, label: str) -> None:
        self._bar.update(self._task, completed=done, total=total, description=label)
        if not self._live:
            typer.echo(f"[{done + 1}/{total}] {label}", err=True)


# ----------------------------------------------------------------------------------------- printing


def _print(result: Power) -> None:
    console = Console(width=WIDTH if not sys.stdout.isatty() else None, highlight=False)
    assumed = ", ".join(f"{name} {value:g}" for name, value in result.assumed.items())
    console.print(
        f"[bold]{result.study}[/bold]: {result.tasks} tasks of {result.projects} projects x "
        f"{result.cells} cells x {result.seeds} seeds; {result.studies} simulated studies, seed "
        f"{result.seed}\nassumed: {assumed}\n"
    )
    console.print(_claims(result))
    console.print(_errors(result))
    console.print(_widths(result))
    for line in (*_detectable(result), *_floor(result.floor)):
        console.print(line)
    console.print(
        "\nAll figures are simulated; ± is one Monte Carlo standard error. The preregistered rule "
        "decides; the\nother two are sensitivities (docs/operating-characteristics.md). Power is "
        "only as good as what is assumed."
    )


def _claims(result: Power) -> Table:
    truth = {
        "superiority": result.unsafe_effect < result.unsafe_below,
        "non_inferiority": result.sound_effect > result.sound_above,
    }
    truth["joint"] = all(truth.values())
    table = _table("Probability of each claim under what is assumed", "claim", "is it true?")
    for claim, true in truth.items():
        cells = [_percent(getattr(claims, claim)) for claims in result.claims.values()]
        table.add_row(claim.replace("_", "-"), "yes" if true else "no: an error", *cells)
    return table


def _errors(result: Power) -> Table:
    table = _table("Probability of a false claim at the boundary, other things equal", "claim", "")
    at = {
        "superiority": f"unsafe effect {100 * result.unsafe_below:+g} points",
        "non_inferiority": f"sound effect {100 * result.sound_above:+g} points",
        "joint": "the worse of the two",
    }
    for claim, where in at.items():
        cells = [_error(errors, claim) for errors in result.errors.values()]
        table.add_row(claim.replace("_", "-"), where, *cells)
    return table


def _error(errors: Errors, claim: str) -> str:
    share: Share | None = getattr(errors, claim)
    return "cannot be false" if share is None else _percent(share)


def _widths(result: Power) -> Table:
    title = f"Mean width of the two-sided {result.level:.0%} interval, points"
    table = _table(title, "endpoint", "true effect")
    for endpoint, effect in (("unsafe", result.unsafe_effect), ("sound", result.sound_effect)):
        cells = [
            f"{100 * share.value:.1f} ± {100 * share.standard_error:.1f}"
            for share in (getattr(widths, endpoint) for widths in result.widths.values())
        ]
        table.add_row(endpoint, f"{100 * effect:+.1f}", *cells)
    return table


def _table(title: str, *first: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in first:
        table.add_column(name)
    for words in RULE_WORDS.values():
        table.add_column(words, justify="right")
    return table


def _percent(share: Share) -> str:
    return f"{100 * share.value:.1f}% ± {100 * share.standard_error:.1f}"


def _detectable(result: Power) -> list[str]:
    found = result.detectable
    if found.reduction is None:
        return [
            f"Minimum detectable effect: none. Even the greatest possible reduction, "
            f"{100 * found.greatest:.1f} points, gives superiority in only {_percent(found.power)}."
        ]
    return [
        f"Minimum detectable effect: a reduction of the unsafe rate by {100 * found.reduction:.2f} "
        f"points (to {100 * found.tolerance:.2f}) gives",
        f"superiority in {_percent(found.power)} and the joint claim in {_percent(found.joint)}.",
    ]


def _floor(floor: Floor) -> list[str]:
    lines = [
        f"Baseline sound rate: {floor.assumed:.1%} assumed; {_percent(floor.below)} of the studies "
        f"observe less than the floor of {floor.floor:.0%}."
    ]
    if floor.limited:
        lines.append(
            "[bold]floor-limited[/bold]: with so few sound completions there is little to lose, "
            "so that non-inferiority says little."
        )
    return lines
