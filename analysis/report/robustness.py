"""Tables beside the decision: other readings of the same rows, Holm families, changed tasks.

Nothing here decides. Comes in: a study. Goes out: blocks.
"""

from analysis.report.blocks import NOT_REPORTED, Block, Table, absent, table
from analysis.report.source import Study
from analysis.report.words import (
    effect_words,
    level,
    p_value,
    plural,
    point_range,
    points,
    yes,
)
from analysis.results import FamilyResult, Sensitivity, Verdict


def sensitivities(study: Study) -> tuple[Block, ...]:
    """The decision under other readings of the same rows."""
    preregistered = study.analysis.decision
    rows = [_main_reading(study), _other_bounds(study)]
    rows += [_reading(one) for one in study.analysis.sensitivities]
    head = ("reading", "tasks", "unsafe", "upper", "sound", "lower", "fewer unsafe", "sound kept",
            "joint")  # fmt: skip
    note = (
        f"Points; bounds are one-sided {level(preregistered.level)}. Only the first line decides."
    )
    title = f"The rule on {effect_words(study.plan, study.key)} under other readings"
    return (table(title, head, rows, note=note),)


def _main_reading(study: Study) -> list[str]:
    decision = study.analysis.decision
    ends = [study.analysis.effect(study.key, name) for name in ("unsafe", "sound")]
    shown = [point_range((one.least.effect, one.greatest.effect)) for one in ends]
    verdict = decision.verdict
    return [
        *("preregistered", str(study.analysis.design.tasks)),
        *(shown[0], points(verdict.unsafe_upper), shown[1], points(verdict.sound_lower)),
        *_words(verdict),
    ]


def _other_bounds(study: Study) -> list[str]:
    """The same rows with bounds that assume only the range of a task effect."""
    other = study.analysis.calibrated
    first = _main_reading(study)[2:5:2]
    return [
        *("bounds that assume only a range", str(study.analysis.design.tasks)),
        *(first[0], points(other.verdict.unsafe_upper), first[1]),
        *(points(other.verdict.sound_lower), *_words(other.verdict)),
    ]


def _words(verdict: Verdict) -> tuple[str, str, str]:
    return yes(verdict.superiority), yes(verdict.non_inferiority), yes(verdict.joint)


def _reading(one: Sensitivity) -> list[str]:
    changed = (
        f" ({plural(one.changed_rollouts, 'rollout')} changed)" if one.changed_rollouts else ""
    )
    verdict = one.verdict
    return [
        *(f"{one.name}{changed}", str(one.tasks)),
        *(point_range((one.unsafe.least.effect, one.unsafe.greatest.effect)),),
        *(points(verdict.unsafe_upper),),
        *(point_range((one.sound.least.effect, one.sound.greatest.effect)),),
        *(points(verdict.sound_lower), *_words(verdict)),
    ]


def families(study: Study) -> tuple[Block, ...]:
    """One table per declared Holm family."""
    made = study.analysis.families
    if not made:
        return absent("The study declares no family of tests.")
    return tuple(_family(one) for one in made)


def _family(family: FamilyResult) -> Table:
    alpha = f"{float(family.alpha):g}"
    head = ("effect", "endpoint", "p", "Holm p", "Monte Carlo p", "Monte Carlo Holm p",
            f"Holm p ≤ {alpha}")  # fmt: skip
    rows = [
        [
            *(row.effect, row.endpoint, p_value(row.p), p_value(row.p_holm)),
            *(p_value(row.monte_carlo_p), p_value(row.monte_carlo_p_holm)),
            yes(row.significant),
        ]
        for row in family.rows
    ]
    title = f"Family {family.name}: {plural(len(family.rows), 'sign-flip test')}, Holm-adjusted"
    return table(title, head, rows, left=2)


def paired(study: Study) -> tuple[Block, ...]:
    """Tasks that are solved at one level only, with McNemar's exact test over tasks."""
    rows = []
    for one in study.analysis.paired:
        for unit, change in (("tasks", one.tasks), ("pairs of rollouts", one.pairs)):
            counts = (change.newly_solved, change.regressed, change.solved, change.unsolved)
            p = p_value(one.p) if unit == "tasks" else NOT_REPORTED
            rows.append((one.effect, unit, *map(str, (*counts, change.undetermined)), p))
    if not rows:
        return ()
    head = ("contrast", "unit", "newly solved", "regressed", "both", "neither", "undetermined",
            "McNemar p")  # fmt: skip
    note = (
        f"Solved: {study.analysis.paired[0].rule}. Pairs of rollouts are not independent and have "
        "no p-value."
    )
    return (table("Newly solved and regressed", head, rows, left=2, note=note),)
