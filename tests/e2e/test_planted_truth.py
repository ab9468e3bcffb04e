"""What was planted comes out: transition rates, a contract effect, and no effect where none is.

Real bugs, real suites, real sandboxes; only the coder is simulated, with fixed seeds.
"""

from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binomtest

import analysis
from analysis.results import Analysis
from tests.e2e.support import make_workspace

ALPHA = {"OFF": 0.35, "ON": 0.6}
BETA = {"OFF": 0.3, "ON": 0.15}


def decided(path: Path, stack: dict[str, object], **study: object) -> Analysis:
    workspace = make_workspace(path, stack=stack, **study)
    workspace.run("run", str(workspace.study), "--root", "runs/r")
    return analysis.load(path / "runs/r").decision()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_rollouts_recover_alpha_beta_and_the_effect(tmp_path: Path) -> None:
    rates = [
        {"when": {"contract": level}, "alpha": ALPHA[level], "beta": BETA[level], "overfit": 0.1}
        for level in ("OFF", "ON")
    ]
    result = decided(
        tmp_path,
        {"rates": [*rates, {**rates[0], "when": {}}], "submit": 0.25, "test": 0.2},
        factors=[{"name": "contract", "levels": ["OFF", "ON"]}],
        constants={"evidence": "current"},
        seeds=list(range(1, 51)),
        effects=[
            {
                "name": "contract",
                "kind": "contrast",
                "factor": "contract",
                "low": "OFF",
                "high": "ON",
            }
        ],
    )
    assert result.simulated
    assert result.design.rollouts == 200
    cells = {t.levels["contract"]: t for t in result.transitions if t.levels}
    pairs = [(cells[level].alpha, ALPHA[level]) for level in ("OFF", "ON")]
    pairs += [(cells[level].beta, BETA[level]) for level in ("OFF", "ON")]
    for rate, planted in pairs:
        assert rate.trials >= 30, "enough transitions to say anything"
        interval = binomtest(rate.events, rate.trials).proportion_ci(
            confidence_level=1 - 0.05 / len(pairs), method="exact"
        )
        assert interval.low <= planted <= interval.high, (rate, planted)
    # The interval is narrow enough to tell the two planted repair rates apart.
    other = binomtest(cells["ON"].alpha.events, cells["ON"].alpha.trials, ALPHA["OFF"])
    assert other.pvalue < 0.01
    assert result.decision.verdict.superiority
    assert result.decision.verdict.joint


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_overfits_that_pass_the_gate_alike_in_both_arms_are_no_superiority(tmp_path: Path) -> None:
    """Every proposal passes the gate and resolves nothing: the contract cannot help."""
    result = decided(
        tmp_path,
        {"rates": [{"alpha": 0.0, "beta": 0.0, "overfit": 1.0}], "submit": 0.6, "test": 0.3},
        seeds=[1, 2, 3],
    )
    unsafe = {
        level: sum(
            cell.endpoints["unsafe"] or 0
            for cell in result.cells
            if cell.levels["contract"] == level
        )
        for level in ("OFF", "ON")
    }
    assert unsafe["OFF"] > 0, "not decided by 0 against 0"
    assert unsafe["ON"] > 0
    assert not result.decision.verdict.superiority
    assert not result.decision.verdict.joint
    assert all(cell.endpoints["sound"] == 0 for cell in result.cells)
    assert result.effect("contract", "unsafe").least.effect >= Fraction(0)
