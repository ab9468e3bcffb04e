"""The contract explored to the end: 16 arms, the base and three other trees (figures printed)."""

import pytest

from orchestrator.agent.budgets import Allowance
from orchestrator.spec.study import Budgets
from tests.property.contract_explorer import Explored, explore
from tests.property.contract_moves import POLICIES, World

pytestmark = [pytest.mark.validate, pytest.mark.timeout(0)]

BUDGETED = Allowance(Budgets(actions=6, visible_tests=2), revision_cap=3)
"""Fewer actions and tests than the protocol's 15 and 6: more of them repeat what is seen here."""


@pytest.mark.parametrize(
    ("title", "allowance", "least"),
    [
        ("histories of any length", None, 50_000),
        ("6 actions, 3 revisions, 2 tests", BUDGETED, 50_000),
    ],
    ids=["any-length", "budgets"],
)
def test_the_contract_is_explored_to_its_end(
    title: str, allowance: Allowance | None, least: int
) -> None:
    """Ends only when no state is left that was not seen; raises at the first violation."""
    found = [explore(World(policy, 3, allowance)) for policy in POLICIES]
    print(f"\n{title}: {_figures(found)}, 0 violations")
    assert sum(one.states for one in found) > least


def _figures(found: list[Explored]) -> str:
    states, transitions, ends = (
        sum(getattr(one, name) for one in found) for name in ("states", "transitions", "ends")
    )
    deepest = max(one.depth for one in found)
    return (
        f"{len(found)} arms, {states:,} states ({ends:,} ended), {transitions:,} transitions, "
        f"depth {deepest}"
    )
