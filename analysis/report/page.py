"""From studies to one self-contained HTML page: no network, no script, the same bytes every time.

Comes in: one study per stack, all deciding the same question. Goes out: the text of a page. Every
text that comes from manifests or tables is escaped by the template; nothing is computed here.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.report import cells, robustness
from analysis.report.blocks import Block, Part, Section
from analysis.report.forest import all_effects, decision_forest
from analysis.report.heat import heat
from analysis.report.leaveout import left_out
from analysis.report.paths import paths
from analysis.report.provenance import provenance
from analysis.report.source import Study, names, require_same_question
from analysis.report.verdict import answer, baseline_name
from analysis.report.words import level, limit, plural

if TYPE_CHECKING:
    from jinja2 import Environment

Blocks = Callable[[Study, str], tuple[Block, ...]]
"""Blocks of one study; the text is a prefix for the keys of its figures."""


def report_html(studies: Sequence[Study]) -> str:
    """The page. Raises ``AnalysisError`` where the studies do not decide the same question."""
    if not studies:
        raise AnalysisError("report", "", "there is nothing to report", "Give at least one root.")
    require_same_question(studies)
    called = names(studies)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=_title(studies),
            lines=_lines(studies),
            answers=[answer(study, name) for study, name in zip(studies, called, strict=True)],
            sections=_sections(studies, called),
            simulated=any(study.analysis.simulated for study in studies),
        )
    )


def write_report(studies: Sequence[Study], path: Path) -> None:
    """Write the page by one rename, so that a reader never meets half of it."""
    page = report_html(studies)
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as stream:
        stream.write(page)
    temporary = Path(stream.name)
    temporary.chmod(0o644)
    temporary.replace(path)


@cache
def environment() -> "Environment":
    """Where the template lives; every text is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _title(studies: Sequence[Study]) -> str:
    titles = dict.fromkeys(study.analysis.title for study in studies)
    return " · ".join(titles)


def _lines(studies: Sequence[Study]) -> list[str]:
    """One line per study under the title: what was run."""
    made = []
    for study, name in zip(studies, names(studies), strict=True):
        design = study.analysis.design
        constants = "".join(f", {key} held at {word}" for key, word in design.constants.items())
        made.append(
            f"{study.analysis.study} · {name} · {plural(design.tasks, 'task')} of "
            f"{plural(design.projects, 'project')} × {plural(design.cells, 'cell')} "
            f"({' × '.join(design.factors)}{constants}) × {plural(design.seeds, 'seed')} "
            f"= {plural(design.rollouts, 'rollout')} · "
            + (f"lock {study.analysis.lock_id[:12]}" if study.analysis.lock_id else "no lock")
        )
    return made


def _parts(studies: Sequence[Study], called: Sequence[str], blocks: Blocks) -> tuple[Part, ...]:
    return tuple(
        Part(name if len(studies) > 1 else "", blocks(study, f"s{at}"))
        for at, (study, name) in enumerate(zip(studies, called, strict=True), 1)
    )


def _sections(studies: Sequence[Study], called: Sequence[str]) -> list[Section]:
    first = studies[0]
    forest = Part("", (decision_forest(studies, called),))
    made = [
        Section(
            anchor,
            title,
            lead.format(
                level=level(first.analysis.decision.level),
                margin=limit(first.plan.rule.sound_above),
                most=limit(first.plan.rule.unsafe_below),
                baseline=baseline_name(first.plan),
            ),
            _parts(studies, called, blocks),
        )
        for anchor, title, lead, blocks in SECTIONS
    ]
    effects = made[0]
    made[0] = Section(effects.anchor, effects.title, effects.lead, (forest, *effects.parts))
    return made


def _effects(study: Study, prefix: str) -> tuple[Block, ...]:
    every = all_effects(study, f"{prefix}-effects")
    return (*cells.completions(study), *((every,) if every else ()))


def _of_table(blocks: Callable[[Study], tuple[Block, ...]]) -> Blocks:
    return lambda study, _: blocks(study)


SECTIONS: tuple[tuple[str, str, str, Blocks], ...] = (
    (
        "effects",
        "Effects",
        "Line: two-sided {level} interval. Bracket: the one-sided {level} bound that decides; it "
        "has to lie in the shaded part, beyond the dashed limit ({most} for unsafe, {margin} for "
        "sound). A hollow mark with a thick bar is a range, where outcomes are missing.",
        _effects,
    ),
    (
        "leave-one-out",
        "Without one project",
        "Dashed: the estimate from all projects. A mark far from it is a project that carries the "
        "estimate.",
        lambda study, prefix: left_out(study, f"{prefix}-without"),
    ),
    (
        "tasks",
        "Task by task",
        "Which tasks carry the effect. Tasks, not rollouts, are the independent units.",
        lambda study, _: (heat(study),),
    ),
    (
        "transitions",
        "Transitions",
        "What edits do: α, the share of edits of an unresolved state that resolve it; β, the share "
        "of edits of a resolved state that break it. The hatched gap between ever and current is "
        "what was found and lost again. Descriptive: conditional on an edit having been made.",
        lambda study, prefix: paths(study, f"{prefix}-paths"),
    ),
    (
        "gate",
        "Gate errors",
        "A gate that passes a wrong proposal can let it be completed; one that rejects a right "
        "proposal costs a completion.",
        _of_table(cells.gate_errors),
    ),
    (
        "cost",
        "Cost, rates, attempts",
        "What the rollouts took, cell by cell, and what got in their way.",
        lambda study, _: (
            *cells.cost(study),
            *cells.rates(study),
            *cells.friction(study),
            *cells.attempts(study),
        ),
    ),
    (
        "sensitivities",
        "Sensitivities and families",
        "Baseline cells: {baseline}. Everything here is beside the decision, not part of it.",
        lambda study, _: (
            *robustness.sensitivities(study),
            *robustness.families(study),
            *robustness.paired(study),
        ),
    ),
    ("provenance", "Provenance", "", _of_table(provenance)),
)
"""Anchor, title, how to read it, and what each stack has to say."""
