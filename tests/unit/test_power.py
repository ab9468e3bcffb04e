"""``factorial power``: figures that repeat, warnings in their place, a sentence per mistake."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from analysis.assumptions import Assumptions, parse_assumptions, population_of
from analysis.errors import AnalysisError
from analysis.external import from_rows
from analysis.plan import Plan, parse_plan
from analysis.power import Power, study_power
from orchestrator.cli.power import plan_before_building
from tests.unit.analysis_support import CONTRACT, plan_dict, rows
from tests.unit.cli_support import REPOSITORY, Command

STUDY = REPOSITORY / "manifests" / "studies" / "quickstart.yaml"
RATES = {
    "unsafe_baseline": 0.4,
    "unsafe_treated": 0.1,
    "sound_baseline": 0.4,
    "sound_treated": 0.4,
    "icc": 0.1,
}
CELLS = {"evidence": ["current", "stale"], "contract": ["OFF", "ON"]}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def plan_of_tasks(tasks: int) -> Plan:
    open_plan = plan_dict(CELLS, [CONTRACT], [1, 2, 3])
    projects = {f"t{at:02}": f"p{at % 5}" for at in range(tasks)}
    return from_rows(rows(open_plan, projects, []), parse_plan(open_plan))[0]


def power_of(tasks: int, **changes: float) -> Power:
    assumed = parse_assumptions({**RATES, **changes}, "assumed")
    return study_power(plan_of_tasks(tasks), assumed, 200, seed=3)


# -------------------------------------------------------------------------------------- the figures


def test_the_same_seed_gives_the_same_figures_and_another_one_gives_others() -> None:
    plan, assumed = plan_of_tasks(6), parse_assumptions(RATES, "assumed")
    first, again, other = (study_power(plan, assumed, 150, seed) for seed in (3, 3, 4))
    assert first.to_json() == again.to_json()
    assert first.claims != other.claims


def test_the_detectable_reduction_has_the_target_power_and_less_has_less() -> None:
    found = power_of(10).detectable
    assert found.reduction is not None
    assert found.power.value >= found.target
    plan, assumed = plan_of_tasks(10), parse_assumptions(RATES, "assumed")
    for reduction, reached in (
        (found.reduction, True),
        (found.reduction - 2 * found.tolerance, False),
    ):
        there = assumed.with_effects(unsafe=-Fraction(reduction))
        claims = study_power(plan, there, 200, seed=3).claims["percentile"]
        assert (claims.superiority.value >= found.target) == reached


def test_where_nothing_can_be_detected_it_says_so() -> None:
    found = power_of(6, unsafe_baseline=0.02, unsafe_treated=0.01).detectable
    assert found.reduction is None
    assert found.power.value < found.target
    assert found.greatest == 0.02
    none = power_of(4, unsafe_baseline=0.0, unsafe_treated=0.0)
    assert none.detectable.greatest == 0.0
    assert none.claims["percentile"].superiority.value == 0.0


def test_a_reduction_stays_within_what_the_carriers_can_lose() -> None:
    found = power_of(8, unsafe_treated=0.35, carriers=0.25).detectable
    assert 0.09 < found.greatest <= 0.1


def test_the_floor_is_named_and_a_loss_that_cannot_be_gives_no_error() -> None:
    low = power_of(8, sound_baseline=0.03, sound_treated=0.03)
    assert low.floor.limited
    assert low.floor.below.value > 0.3
    assert low.errors["percentile"].non_inferiority is None
    assert low.errors["percentile"].joint is not None
    high = power_of(8)
    assert not high.floor.limited
    assert high.floor.below.value < 0.05
    assert high.errors["percentile"].non_inferiority is not None


def test_more_tasks_mean_narrower_intervals_and_more_power() -> None:
    few, many = power_of(6, unsafe_treated=0.25), power_of(20, unsafe_treated=0.25)
    for rule in few.widths:
        assert many.widths[rule].unsafe.value < few.widths[rule].unsafe.value
    assert many.claims["student"].superiority.value > few.claims["student"].superiority.value
    share = few.claims["percentile"].superiority
    assert share.standard_error == pytest.approx((share.value * (1 - share.value) / 200) ** 0.5)


def test_every_scenario_is_announced() -> None:
    seen: list[tuple[int, int, str]] = []
    assumed = parse_assumptions(RATES, "assumed")
    study_power(plan_of_tasks(6), assumed, 20, 1, lambda *step: seen.append(step))
    assert [step[0] for step in seen] == list(range(len(seen)))
    assert {step[1] for step in seen} == {seen[0][1]}
    assert len(seen) <= seen[0][1]
    assert seen[0][2] == "as assumed"


# ------------------------------------------------------------------------------------- the mistakes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unsafe_baseline": 1.2}, "unsafe_baseline: expected a number from 0 to 1.0"),
        ({"unsafe_baseline": "0.2"}, "expected a number"),
        ({"unsafe_baseline": float("nan")}, "expected a number"),
        ({"icc": 1.0}, "icc: expected a number from 0 to 0.99"),
        ({"carriers": 0}, "carriers: has to be above 0"),
        ({"unsafe_baseline": 0.7}, "add up to 1.1"),
        ({"sound_treated": 0.95}, "unsafe_treated, sound_treated: unsafe and sound add up to 1.05"),
        ({"unsafe_rate": 0.1}, "unsafe_rate: unknown key"),
        ({"schema": "factorial/study@1"}, "is not 'factorial/assumptions@1'"),
    ],
)
def test_assumptions_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(AnalysisError, match="assumed") as caught:
        parse_assumptions({**RATES, **changes}, "assumed")
    assert words in str(caught.value)


def test_a_rate_that_is_not_assumed_is_asked_for() -> None:
    with pytest.raises(AnalysisError, match="sound_treated: is not assumed"):
        parse_assumptions({key: RATES[key] for key in list(RATES)[:3]}, "assumed")


def test_carriers_that_would_lose_more_than_they_have() -> None:
    assumed = parse_assumptions({**RATES, "carriers": 0.1}, "assumed")
    with pytest.raises(AnalysisError, match="impossible: where 10% of the tasks"):
        population_of(plan_of_tasks(4), assumed)


def test_defaults_are_what_the_class_says() -> None:
    assumed = parse_assumptions({key: RATES[key] for key in list(RATES)[:4]}, "assumed")
    plain = Assumptions(*(Fraction(str(RATES[key])) for key in list(RATES)[:4]))
    assert assumed == plain


# --------------------------------------------------------------------------------- the command line


def assume(**rates: object) -> list[str]:
    return [word for key, value in rates.items() for word in ("--assume", f"{key}={value}")]


def test_the_plan_needs_no_built_task() -> None:
    plan = plan_before_building(STUDY)
    assert len(plan.tasks) * len(plan.cells()) * len(plan.seeds) == len(plan.rollouts)
    assert {task.task_id.split("-")[0] for task in plan.tasks} == {t.project for t in plan.tasks}


def test_the_command_prints_writes_and_repeats(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "assumed.yaml"
    file.write_text(
        "schema: factorial/assumptions@1\n"
        + "".join(f"{key}: {value}\n" for key, value in RATES.items())
    )
    out = tmp_path / "new" / "power.json"
    words = [str(STUDY), "--assume", str(file), "--studies", "100"]
    done = command("power", *words, "--json", "--out", str(out))
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert out.read_text() == done.out
    assert data["schema"] == "factorial/power@1"
    assert data["assumed"]["unsafe_baseline"] == 0.4
    assert data["seed"] == 20260101
    assert "[1/" in done.err
    overridden = command("power", *words, *assume(unsafe_baseline=0.5), "--seed", "9", "--json")
    other = json.loads(overridden.out)
    assert (other["assumed"]["unsafe_baseline"], other["seed"]) == (0.5, 9)
    text = command("power", *words).out
    for part in ("superiority", "non-inferiority", "joint", "Minimum detectable effect", "±"):
        assert part in text
    assert "floor-limited" not in text


def test_the_floor_warning_is_printed(command: Command) -> None:
    words = assume(**{**RATES, "sound_baseline": 0.02, "sound_treated": 0.02})
    text = command("power", str(STUDY), *words, "--studies", "100").out
    assert "floor-limited" in text
    assert "cannot be false" in text


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (assume(**{**RATES, "icc": "many"}), "--assume icc: 'many' is no number"),
        (assume(unsafe_baseline=0.1), "unsafe_treated: is not assumed"),
        (assume(**{**RATES, "carriers": 0.1}), "impossible"),
        (["--assume", "nope.yaml"], "nope.yaml: no such file"),
        ([*assume(**RATES), "--studies", "1"], "--studies"),
        ([], "--assume"),
    ],
)
def test_mistakes_of_the_command_line(command: Command, words: list[str], found: str) -> None:
    assert found in command.refused("power", str(STUDY), *words)


def test_a_file_that_is_no_mapping(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text("- 1\n")
    assert "is no mapping" in command.refused("power", str(STUDY), "--assume", str(file))
