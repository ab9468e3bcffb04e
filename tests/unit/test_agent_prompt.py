"""Prompts are files that are checked when they are read; conversations are bounded the same way."""

import shutil
from pathlib import Path

import pytest

from orchestrator.agent.budgets import Allowance, Left, Meter
from orchestrator.agent.prompt import (
    PLACEHOLDERS,
    Bounds,
    Exchange,
    bounds_for,
    conversation,
    load_prompts,
    opening,
)
from orchestrator.contract.state import Counts
from orchestrator.spec.errors import BadInput
from orchestrator.spec.study import Budgets
from tests.unit.agent_support import PROMPTS

SHIPPED = load_prompts(PROMPTS)
OPENED = opening(SHIPPED, "It is broken.", "a.py", Left(15, 3, 6))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copied = tmp_path / "prompts"
    shutil.copytree(PROMPTS, copied)
    return copied


def test_the_folder_holds_exactly_the_files_that_are_used() -> None:
    assert {path.stem for path in PROMPTS.iterdir()} == set(PLACEHOLDERS)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "stale.md").unlink()
    with pytest.raises(BadInput, match=r"stale\.md.*no such file"):
        load_prompts(folder)


@pytest.mark.parametrize("name", [name for name, wanted in PLACEHOLDERS.items() if wanted])
def test_a_missing_placeholder_is_named(folder: Path, name: str) -> None:
    (folder / f"{name}.md").write_text("nothing to fill")
    with pytest.raises(BadInput) as caught:
        load_prompts(folder)
    assert caught.value.file.endswith(f"{name}.md")
    assert caught.value.field.removeprefix("$") in PLACEHOLDERS[name]


def test_an_unknown_placeholder_and_a_lone_dollar_are_refused(folder: Path) -> None:
    (folder / "applied.md").write_text("Applied to $state.")
    with pytest.raises(BadInput, match=r"\$state: unknown placeholder"):
        load_prompts(folder)
    (folder / "applied.md").write_text("It costs $ 5.")
    with pytest.raises(BadInput, match="lone"):
        load_prompts(folder)


def test_values_are_not_expanded_again() -> None:
    assert SHIPPED.fill("refused", reason="$reason $other $$") == (
        "Refused: $reason $other $$. Nothing was changed."
    )


def test_the_system_prompt_is_short_and_states_the_budgets() -> None:
    system = OPENED[0].content
    assert len(system) < 1500, "about 500 tokens"
    assert "15 actions, 3 edits and 6 tests" in system
    for word in ("current", "gate", "rollback", "checkpoint", "certif"):
        assert word not in system.lower(), "the system prompt does not give the arm away"


# ------------------------------------------------------------------------- bounds

TURNS = [Exchange(f"reply {n}", f"observation {n} " + "x" * 200) for n in range(1, 6)]
MARKER = SHIPPED.fill("elided")


def contents(limit: int) -> list[str]:
    return [m.content for m in conversation(SHIPPED, OPENED, TURNS, limit)]


def test_all_of_it_where_it_fits() -> None:
    whole = contents(100_000)
    assert whole[2:] == [text for t in TURNS for text in (t.reply, t.observation)]
    assert contents(sum(map(len, whole))) == whole


def test_the_oldest_observations_give_way_first() -> None:
    whole = sum(map(len, contents(100_000)))
    kept = contents(whole - 1)
    assert kept[3] == MARKER and kept[5] == TURNS[1].observation
    assert sum(map(len, kept)) <= whole - 1
    assert [len(contents(limit)) for limit in (whole, whole - 300, whole - 600)] == [12] * 3


def test_then_the_oldest_turns_and_the_last_one_always_stays() -> None:
    tiny = conversation(SHIPPED, OPENED, TURNS, 10)
    assert [m.role for m in tiny] == ["system", "user", "assistant", "user"]
    assert tiny[1].content.endswith("(4 earlier turns are left out)")
    assert [m.content for m in tiny[2:]] == [TURNS[-1].reply, TURNS[-1].observation]


@pytest.mark.parametrize("limit", range(1500, 2600, 50))
def test_the_limit_is_kept_where_the_policy_can_keep_it(limit: int) -> None:
    assert sum(map(len, contents(limit))) <= limit


def test_bounds_follow_the_context_window() -> None:
    assert bounds_for(None, 1024) == Bounds()
    small, large = bounds_for(4096, 1024), bounds_for(128_000, 1024)
    assert small.prompt == 7680 and small.observation == 1280
    assert large.observation == Bounds().observation
    assert bounds_for(512, 1024).prompt > 0


# ------------------------------------------------------------------------- budgets

ALLOWANCE = Allowance(
    Budgets(actions=4, visible_tests=2, wall_seconds=10, visible_test_seconds=5), 1
)


def test_what_is_left_never_falls_below_zero() -> None:
    assert ALLOWANCE.left(Counts()) == Left(4, 1, 2)
    assert ALLOWANCE.left(Counts(actions=9, revisions=9, visible_tests=9)) == Left(0, 0, 0)


@pytest.mark.parametrize(
    "counts, meter, reason",
    [
        (Counts(actions=3), Meter(9.9), None),
        (Counts(actions=4), Meter(), "actions"),
        (Counts(), Meter(10.0), "wall"),
        (Counts(actions=4), Meter(10.0), "actions"),
        (Counts(actions=4), Meter(10.0, answered=9.9), "actions"),
        (Counts(actions=4), Meter(10.0, answered=10.0), "wall"),
    ],
)
def test_which_budget_ended_it(counts: Counts, meter: Meter, reason: str | None) -> None:
    assert ALLOWANCE.exhausted(counts, meter) == reason


@pytest.mark.parametrize("tokens, reason", [(99, None), (100, "tokens"), (101, "tokens")])
def test_tokens_end_it_only_where_they_are_limited(tokens: int, reason: str | None) -> None:
    limited = Allowance(Budgets(completion_tokens=100), 3)
    assert limited.exhausted(Counts(), Meter(completion_tokens=tokens)) == reason
    assert ALLOWANCE.exhausted(Counts(), Meter(completion_tokens=10**9)) is None
