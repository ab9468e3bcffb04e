"""Published numbers, reproduced by the public command from reconstructed event tables.

One test per expected row. Points are percentage points; exact values are fractions and must be
equal, not close.
"""

from fractions import Fraction
from pathlib import Path

import pytest

from analysis.inference import holm
from analysis.lattice import TaskEffects, exact_mean
from tests.golden import expected as golden
from tests.golden.command import (
    COMPONENTS,
    FEW,
    GOLDEN,
    STUDIES,
    SWITCH,
    Row,
    analyze,
    contrast,
    counted,
    decision,
    design_of,
    effect,
    exact,
    holm_row,
    outcome_rows,
    study_file,
)

CLOSED = {case["name"]: case for case in GOLDEN["closed_form"]}
STACKS = [name for name, study in STUDIES.items() if study["kind"] == "stack"]
EXACT_STACKS = [name for name in STACKS if "exact" in STUDIES[name]]
DOC = Path(__file__).parents[2] / "docs" / "validation" / "golden.md"


@pytest.mark.parametrize(("name", "at"), golden.ROWS)
def test_expected_row(name: str, at: int) -> None:
    row = golden.expected(name, at)
    assert golden.within(name, at), (row, golden.found(name, row["key"]))
    if isinstance(row["value"], bool):
        assert golden.found(name, row["key"]) is row["value"]


def test_the_documented_table_is_the_one_that_the_command_gives() -> None:
    documented = DOC.read_text().splitlines()
    missing = [line for line in golden.table() if line not in documented]
    assert not missing


def cases() -> list[tuple[str, str, str, Row]]:
    """Study, effect, endpoint and exact values of every golden block of fractions."""
    found = []
    for name, study in STUDIES.items():
        blocks = study.get("exact", {})
        if study["kind"] == "common_state":
            found.append((name, "stale", "unsafe", blocks))
            continue
        for key, block in blocks.items():
            *short, endpoint = key.split(".")
            which = COMPONENTS[short[0]] if short else "contract"
            found.append((name, which, endpoint, block))
    return found


CASES = cases()
IDS = ["-".join(case[:3]) for case in CASES]


@pytest.mark.parametrize(("name", "which", "endpoint", "block"), CASES, ids=IDS)
def test_exact_fractions(name: str, which: str, endpoint: str, block: Row) -> None:
    least = effect(decision(name), which, endpoint)["least"]
    assert exact(least["effect"]) == Fraction(block["effect"]["exact"])
    for key, bound in golden.BOUNDS.items():
        unit = Fraction(block[key]["units"], block["unit_denominator"])
        assert exact(least["exact"][bound]) == Fraction(block[key]["exact"]) == unit, key
    flips = Fraction(block["signflip"]["count"], block["signflip"]["two_pow_n"])
    assert exact(least["exact_p"]) == flips
    assert least["nonzero_tasks"] == block["n_nonzero_tasks"]


@pytest.mark.parametrize(("name", "which", "endpoint", "block"), CASES, ids=IDS)
def test_distribution_function_at_and_below_the_bounds(
    name: str, which: str, endpoint: str, block: Row
) -> None:
    printed, unit = decision(name), block["unit_denominator"]
    tasks = printed["design"]["tasks"]
    carried = effect(printed, which, endpoint)["nonzero_task_effects"].values()
    units = [exact(value) * unit / tasks for value in carried]
    assert sorted(units) == sorted(block["nonzero_effects_units"])
    padded = [int(value) for value in units] + [0] * (tasks - len(units))
    mean = exact_mean(TaskEffects(tuple(padded), unit // tasks))
    assert mean is not None
    for key in golden.BOUNDS:
        at = Fraction(block[key]["exact"])
        assert float(mean.cdf(at)) == pytest.approx(block[key]["F_at"], abs=1e-12)
        below = float(mean.cdf(at - Fraction(1, 10 * unit)))
        assert below == pytest.approx(block[key]["F_below"], abs=1e-12)


@pytest.mark.parametrize(("name", "which", "endpoint", "block"), CASES, ids=IDS)
def test_draws_return_the_exact_atom_where_they_must(
    name: str, which: str, endpoint: str, block: Row
) -> None:
    sampled = effect(decision(name), which, endpoint)["least"]["monte_carlo"]
    for key, bound in golden.BOUNDS.items():
        if block[key].get("p_mc200k_linear_returns_this_atom") == 1.0:
            assert exact(sampled[bound]) == Fraction(block[key]["exact"])


@pytest.mark.parametrize("name", EXACT_STACKS)
@pytest.mark.parametrize("endpoint", ["accepted", "unsafe", "sound"])
def test_projects_left_out_and_weighed_alike(name: str, endpoint: str) -> None:
    one, study = effect(decision(name), "contract", endpoint), STUDIES[name]
    without = {p: [exact(v) for v in both] for p, both in one["leave_one_project_out"].items()}
    assert without == {p: [Fraction(v)] * 2 for p, v in study["lopo_exact"][endpoint].items()}
    equal = Fraction(study["project_equal_exact"][endpoint])
    assert [exact(value) for value in one["project_equal"]] == [equal, equal]


@pytest.mark.parametrize("name", STACKS)
def test_cells_hold_the_published_counts(name: str) -> None:
    counts = {
        "/".join(cell["levels"][factor] for factor in ("evidence", "contract")): [
            cell["endpoints"][endpoint] for endpoint in ("accepted", "unsafe", "sound")
        ]
        for cell in decision(name)["cells"]
    }
    assert counts == STUDIES[name]["published_cell_counts_accepted_unsafe_sound"]


def test_depth_holds_the_published_counts() -> None:
    cells = decision("depth")["cells"]
    totals = {key: sum(cell["endpoints"][key] for cell in cells) for key in ("unsafe", "sound")}
    assert totals == STUDIES["depth"]["published_counts"]
    (family,) = decision("depth")["families"]
    assert len(family["rows"]) == 6
    assert not any(row["significant"] for row in family["rows"])


@pytest.mark.parametrize("name", STACKS)
def test_every_non_inferiority_of_the_stacks_is_floor_limited(name: str) -> None:
    assert decision(name)["decision"]["floor_limited"]


def test_upper_bound_of_exactly_zero_is_no_superiority() -> None:
    found = decision("stack_14b")["decision"]
    assert exact(found["verdict"]["unsafe_upper"]) == 0
    assert found["verdict"]["superiority"] is False
    assert found["verdict"]["non_inferiority"] is True
    assert [exact(rate) for rate in found["baseline_sound"]] == [Fraction(1, 144)] * 2


def test_ablation_holm_is_exact_where_the_paper_sampled() -> None:
    row = holm_row(decision("ablation"), "certification", "sound")
    assert row["p_holm"] == STUDIES["ablation"]["holm"]["exact_min"] == 0.75
    published = STUDIES["ablation"]["holm"]["published"]
    assert row["monte_carlo_p_holm"] == pytest.approx(published, abs=0.013)


def test_parquet_gives_the_same_answer() -> None:
    study, projects, events = design_of("depth")
    rows = outcome_rows(study, projects, events)
    assert analyze(study, rows, ".parquet") == decision("depth")


CONTRASTS = {
    "t3_7b_trace_minus_control_points": (27, 5, 8),
    "t3_14b_stale_minus_control_points": (27, 5, 17),
    "online_harm_points": (27, 5, -13),
    "online_sound_points": (27, 10, -8),
}
"""Closed form -> tasks, rollouts per task and arm, difference of counts."""


def spread(total: int, tasks: int) -> list[int]:
    """A total over tasks, as evenly as it goes."""
    share, rest = divmod(abs(total), tasks)
    return [(share + (at < rest)) * (1 if total > 0 else -1) for at in range(tasks)]


@pytest.mark.parametrize("name", CONTRASTS)
def test_closed_form_contrasts(name: str) -> None:
    tasks, seeds, difference = CONTRASTS[name]
    least = effect(counted(spread(difference, tasks), seeds), "contract", "sound")["least"]
    case = CLOSED[name]
    assert 100 * exact(least["effect"]) == Fraction(case["exact"])
    assert abs(100 * float(exact(least["effect"])) - case["published"]) <= case["tol"]


RATES = {
    **dict.fromkeys(("traj_current_trace_rev1", "traj_current_trace_rev3"), (30, 5)),
    **dict.fromkeys(("traj_ever_rev3", "traj_binary_rev1", "traj_binary_lost"), (30, 5)),
    **dict.fromkeys(("traj_stale_trace_rev2", "traj_unavail_rev3"), (30, 5)),
    **dict.fromkeys(("t3_7b_binary", "t3_14b_unavail", "t3_14b_current_harm"), (27, 5)),
    **dict.fromkeys(("t5_visible_cov", "t5_visible_sound", "t5_q14_cov"), (30, 30)),
    **dict.fromkeys(("t5_q14_sound", "t5_exec_cov"), (30, 30)),
}
"""Closed form -> tasks, rollouts per task in the cell."""


@pytest.mark.parametrize("name", RATES)
def test_closed_form_rates(name: str) -> None:
    tasks, seeds = RATES[name]
    events = Fraction(CLOSED[name]["exact"]) * tasks * seeds
    assert events.denominator == 1
    found = counted(spread(-int(events), tasks), seeds)["decision"]["baseline_sound"]
    assert [exact(rate) for rate in found] == [Fraction(CLOSED[name]["exact"])] * 2
    assert abs(float(exact(found[0])) - CLOSED[name]["published"]) <= CLOSED[name]["tol"]


def acceptances(accepted: dict[str, int], wrong: dict[str, int]) -> list[Row]:
    """What the command prints per evidence condition over 900 candidates, as 30 tasks x 30."""
    study = study_file(
        {"evidence": ["current", "stale"]},
        [contrast("stale", "evidence", ["current", "stale"])],
        range(30),
        inference=FEW,
    )
    places = [(f"t{at // 30:02}", at % 30) for at in range(900)]
    events = [
        {"task": task, "seed": seed, "evidence": level, "sound": at >= wrong[level]}
        for level, count in accepted.items()
        for at, (task, seed) in enumerate(places[:count])
    ]
    rows = outcome_rows(study, {task: task for task, _ in places}, events)
    printed = analyze(study, rows)
    cells: list[Row] = printed["cells"]
    rates = [rate for rate in printed["rates"] if rate["estimand"] == "risk" and rate["levels"]]
    return [cell["endpoints"] | rate for cell, rate in zip(cells, rates, strict=True)]


def test_closed_form_stopping_rules() -> None:
    """Self-declaration (first condition) against the visible gate (second)."""
    own, gate = acceptances({"current": 898, "stale": 717}, {"current": 265, "stale": 17})
    assert Fraction(own["events"], own["trials"]) == Fraction(CLOSED["t5_self_risk"]["exact"])
    assert own["rollout_pooled"] == pytest.approx(CLOSED["t5_self_risk"]["published"], abs=5e-4)
    assert own["unsafe"] - gate["unsafe"] == CLOSED["t5_false_prevented_visible"]["value"]
    assert gate["sound"] == CLOSED["t5_visible_identity"]["value"]


def test_closed_form_counts() -> None:
    cells = decision("stack_14b")["cells"]
    total = sum(cell["endpoints"]["accepted"] for cell in cells)
    assert total == CLOSED["accepted_totals_14b"]["value"]


def test_closed_form_zero_events() -> None:
    case = CLOSED["zero_event_bound_30_tasks"]
    bounds = [one["upper"] for one in counted([0] * 30, 1)["zero_events"]]
    assert bounds == pytest.approx([case["exact"]] * 2, abs=1e-12)
    assert bounds[0] == pytest.approx(case["published"], abs=case["tol"])


def test_closed_form_budget_ends() -> None:
    study, projects, events = design_of("stack_14b")
    rows = outcome_rows(study | {"inference": FEW}, projects, events)
    rows = [row | {"actions_exhausted": int(at >= 12)} for at, row in enumerate(rows)]
    printed = analyze(study | {"inference": FEW}, rows)
    ended = sum(cell["behaviour"]["actions_exhausted"] for cell in printed["cells"])
    rate = Fraction(ended, printed["design"]["rollouts"])
    assert rate == Fraction(CLOSED["budget_exhausted"]["exact"])


def test_closed_form_harms() -> None:
    """Correct starts of the 7B coder: 5 harms with current traces, 12 with stale ones, 2 under the
    control (the paper's table 3), before and after what the replay intercepts.
    """
    harms = {("current", "OFF"): 5, ("stale", "OFF"): 12, ("current", "ON"): 2}

    def total(counts: dict[tuple[str, str], int]) -> int:
        found = blank(
            {"evidence": ["current", "stale"], "contract": SWITCH},
            contrast("contract", "contract", SWITCH),
            27,
            5,
            [
                {"task": f"t{at:02}", "seed": 0, "evidence": e, "contract": c, "sound": False}
                for (e, c), count in counts.items()
                for at in range(count)
            ],
        )
        return sum(cell["endpoints"]["unsafe"] for cell in found["cells"])

    assert total(harms) == CLOSED["t3_7b_total_harm"]["value"]
    kept = {cell: count for cell, count in harms.items() if cell == ("current", "ON")}
    assert total(kept) == CLOSED["replay_7b_after_binding_and_typed"]["value"]


def blank(
    factors: dict[str, list[str]], one: Row, tasks: int, seeds: int, events: list[Row]
) -> Row:
    """What the command prints for a whole design in which nothing else is accepted."""
    study = study_file(factors, [one], range(seeds), (), FEW)
    projects = {f"t{at:02}": f"p{at % 3}" for at in range(tasks)}
    return analyze(study, outcome_rows(study, projects, events))


@pytest.mark.parametrize(
    ("name", "tasks", "caps", "seeds", "tables"),
    [("branches", 27, 9, 5, 2), ("verdicts", 30, 3, 30, 5)],
)
def test_closed_form_designs(name: str, tasks: int, caps: int, seeds: int, tables: int) -> None:
    """One table per coder (branches) or verifier (verdicts); each is balanced and whole."""
    levels = [str(cap + 1) for cap in range(caps)]
    ends = contrast("cap", "revision_cap", [levels[0], levels[-1]])
    found = blank({"revision_cap": levels}, ends, tasks, seeds, [])
    assert tables * found["design"]["rollouts"] == CLOSED[name]["value"]


@pytest.mark.parametrize(
    "case", GOLDEN["property_cases"]["signflip_exact"], ids=lambda case: str(case["effects_units"])
)
def test_sign_flip_cases(case: Row) -> None:
    """Through the command where the units are counts of seeds; -13 and 8 are those of ``depth``."""
    units, grid = case["effects_units"] or [0], case["grid"]
    flips = Fraction(case["count"], case["two_pow_n"])
    if max(map(abs, units)) > grid:
        carried = effect(decision("depth"), "depth", "sound")
        whole = [exact(value) * 642 / 7 for value in carried["nonzero_task_effects"].values()]
        assert sorted(whole) == sorted(units)
        assert exact(carried["least"]["exact_p"]) == flips
        return
    least = effect(counted(units, grid), "contract", "sound")["least"]
    assert exact(least["exact_p"]) == flips
    assert least["exact_p"]["value"] == pytest.approx(case["p"], rel=1e-11)
    assert 2 ** least["nonzero_tasks"] == case["two_pow_n"]


@pytest.mark.parametrize("case", GOLDEN["property_cases"]["holm"], ids=lambda case: str(case["p"]))
def test_holm_cases(case: Row) -> None:
    assert holm(case["p"]) == pytest.approx(case["holm"], abs=1e-12)


USED = {
    *("t5_self_risk", "t5_false_prevented_visible", "t5_visible_identity", "accepted_totals_14b"),
    *("zero_event_bound_30_tasks", "budget_exhausted", *CONTRASTS, *RATES),
    *("t3_7b_total_harm", "replay_7b_after_binding_and_typed", "verdicts", "branches"),
}


def test_every_closed_form_is_reproduced() -> None:
    assert CLOSED.keys() == USED
