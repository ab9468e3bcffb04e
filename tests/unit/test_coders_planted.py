"""The planted coder does what its rates say, and only by the request seed."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from scipy.stats import binomtest

from orchestrator.coders.planted import (
    Draws,
    PlantedCoder,
    TaskVariants,
    Variant,
    check_variants,
    matching_rates,
)
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.identity import Entry, request_seed, sha256_hex
from orchestrator.spec.ports import CoderRequest, FileChange, PrivilegedView
from orchestrator.spec.stack import PlantedStack

BASE = b"def f():\n    return 0\n"


def variant(name: str, path: str = "pkg/f.py", mode: int = 0o100644) -> Variant:
    content = f"def f():\n    return {name!r}\n".encode()
    return Variant(name, {path: FileChange(Entry(mode, sha256_hex(content)), content)})


def pair(name: str) -> tuple[Variant, ...]:
    return (variant(f"{name}-1"), variant(f"{name}-2"))


TASK = TaskVariants(
    "base", {"pkg/f.py": (0o100644, BASE)}, pair("correct"), pair("overfit"), pair("wrong")
)


def with_class(name: str, members: tuple[Variant, ...]) -> TaskVariants:
    """The task with one class exchanged."""
    classes = {kind: TASK.members(kind) for kind in ("correct", "overfit", "wrong")}
    return TaskVariants(TASK.base_state_id, TASK.base_files, **{**classes, name: members})


def stack(**changes: object) -> PlantedStack:
    data: dict[str, object] = {
        "schema": "factorial/stack@1",
        "kind": "planted",
        "name": "p",
        "privileged": True,
        "rates": [{"alpha": 0.4, "beta": 0.25, "overfit": 0.2, "overfit_harm": 0.5}],
        "submit": 0.0,
        "test": 0.0,
    }
    return PlantedStack.model_validate({**data, **changes})


def request(
    state: str = "base",
    seed: int = 1,
    left: int = 3,
    told: str | None = None,
    levels: dict[str, str] | None = None,
) -> CoderRequest:
    view = PrivilegedView(state, levels or {}, left, told, None)
    return CoderRequest("r", "t", 1, 1, seed, (), 0.3, 0.9, 64, 900.0, view)


def seeds(count: int) -> Iterator[int]:
    return (request_seed("study", "task", 1, turn) for turn in range(count))


def act(coder: PlantedCoder, asked: CoderRequest) -> dict[str, object]:
    action: dict[str, object] = json.loads(coder.reply(asked).text)
    return action


def destination(action: dict[str, object]) -> str:
    changes = action["changes"]
    assert isinstance(changes, list)
    return next(v.state_id for v in TASK.everything() if v.state_id in changes[0]["replace"])


def assert_rate(hits: int, trials: int, rate: float) -> None:
    interval = binomtest(hits, trials).proportion_ci(0.9999, "exact")
    assert interval.low <= rate <= interval.high


@pytest.mark.parametrize(
    ("state", "rates"),
    [
        ("base", {"correct": 0.4, "overfit": 0.2, "wrong": 0.4}),
        ("wrong-1", {"correct": 0.4, "overfit": 0.2, "wrong": 0.4}),
        ("overfit-2", {"correct": 0.4, "overfit": 0.2, "wrong": 0.4}),
        ("unknown", {"correct": 0.4, "overfit": 0.2, "wrong": 0.4}),
        ("correct-1", {"correct": 0.75, "overfit": 0.125, "wrong": 0.125}),
    ],
)
def test_edits_follow_the_planted_rates_and_always_change_the_state(
    state: str, rates: dict[str, float]
) -> None:
    coder, counts, trials = PlantedCoder(stack(), {"t": TASK}), dict.fromkeys(rates, 0), 1500
    for seed in seeds(trials):
        reached = destination(act(coder, request(state, seed)))
        assert reached != state
        counts[reached.split("-")[0]] += 1
    for name, rate in rates.items():
        assert_rate(counts[name], trials, rate)


@pytest.mark.parametrize(("name", "kind"), [("submit", "submit"), ("test", "test")])
def test_submission_and_test_rates(name: str, kind: str) -> None:
    coder, trials = PlantedCoder(stack(**{name: 0.3}), {"t": TASK}), 1500
    kinds = [act(coder, request("wrong-1", seed))["action"] for seed in seeds(trials)]
    assert set(kinds) == {kind, "edit"}
    assert_rate(kinds.count(kind), trials, 0.3)


def test_invalid_and_escalate_share_one_uniform() -> None:
    coder, trials = PlantedCoder(stack(invalid=0.2, escalate=0.1), {"t": TASK}), 1500
    texts = [coder.reply(request(seed=seed)).text for seed in seeds(trials)]
    invalid = sum(not text.startswith("{") for text in texts)
    assert_rate(invalid, trials, 0.2)
    assert_rate(sum('"escalate"' in text for text in texts), trials, 0.1)


def test_never_submits_before_a_retained_revision_while_revisions_are_left() -> None:
    coder = PlantedCoder(stack(submit=1.0), {"t": TASK})
    assert act(coder, request("base"))["action"] == "edit"
    assert act(coder, request("wrong-1"))["action"] == "submit"
    assert act(coder, request("base", left=0))["action"] == "submit"


def test_asks_for_evidence_only_where_the_current_state_has_none() -> None:
    coder = PlantedCoder(stack(test=1.0), {"t": TASK})
    assert act(coder, request("wrong-1", told=None))["action"] == "test"
    assert act(coder, request("wrong-1", told="base"))["action"] == "test"
    assert act(coder, request("wrong-1", told="wrong-1"))["action"] == "edit"


def test_arms_share_their_random_numbers() -> None:
    rates = [{"when": {"contract": "ON"}, "alpha": 0.6, "beta": 0.1}, {"alpha": 0.3, "beta": 0.4}]
    coder = PlantedCoder(stack(rates=rates), {"t": TASK})
    for seed in seeds(300):
        on = destination(act(coder, request(seed=seed, levels={"contract": "ON"})))
        off = destination(act(coder, request(seed=seed, levels={"contract": "OFF"})))
        assert not (off.startswith("correct") and on.startswith("wrong"))
        assert coder.reply(request(seed=seed)) == coder.reply(
            replace(request(seed=seed), rollout_id="other", turn=9, seed=4)
        )


def test_draws_depend_on_the_seed_alone() -> None:
    assert Draws.of(5) == Draws.of(5)
    assert Draws.of(5) != Draws.of(6)


def test_the_first_matching_row_counts() -> None:
    rows = [
        {"when": {"evidence": "stale", "contract": "ON"}, "alpha": 0.1, "beta": 0.0},
        {"when": {"evidence": "stale"}, "alpha": 0.2, "beta": 0.0},
        {"alpha": 0.3, "beta": 0.0},
    ]
    planted = stack(rates=rows)
    assert matching_rates(planted, {"evidence": "stale", "contract": "ON"}).alpha == 0.1
    assert matching_rates(planted, {"evidence": "stale", "contract": "OFF"}).alpha == 0.2
    assert matching_rates(planted, {}).alpha == 0.3


def test_replies_are_simulated_and_cost_nothing() -> None:
    reply = PlantedCoder(stack(), {"t": TASK}).reply(request())
    assert (reply.source, reply.tokens_served, reply.latency_seconds) == ("simulated", 0, 0.0)


def test_needs_the_privileged_view_and_a_known_task() -> None:
    coder = PlantedCoder(stack(), {"t": TASK})
    with pytest.raises(IntegrityError, match="without privileged view"):
        coder.reply(replace(request(), privileged=None))
    with pytest.raises(IntegrityError, match="no variants of task other"):
        coder.reply(replace(request(), task_id="other"))


# ------------------------------------------------------------------------------- freeze-time check


@pytest.mark.parametrize("name", ["correct", "overfit", "wrong"])
def test_a_class_with_one_variant_is_refused_naming_the_task(name: str) -> None:
    thin = with_class(name, TASK.members(name)[:1])
    with pytest.raises(BadInput, match=f"stack p: task thin-task: the rates need 2 {name}"):
        check_variants(stack(), {"ok": TASK, "thin-task": thin})


@pytest.mark.parametrize(
    ("rates", "spared"),
    [
        ({"alpha": 0.0, "beta": 1.0}, "correct"),
        ({"alpha": 0.5, "beta": 0.5}, "overfit"),
        ({"alpha": 0.5, "overfit": 0.5, "beta": 0.5, "overfit_harm": 1.0}, "wrong"),
    ],
)
def test_a_class_that_no_rate_leads_to_may_be_empty(rates: dict[str, float], spared: str) -> None:
    check_variants(stack(rates=[rates]), {"t": with_class(spared, ())})


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (variant("x", path="tests/test_f.py"), "is protected"),
        (variant("x", path="conftest.py"), "is protected"),
        (variant("x", mode=0o100755), "changes its mode"),
        (Variant("x", {"pkg/none.py": None}), "is deleted and cannot be made again"),
        (Variant("x", {"pkg/f.py": FileChange(Entry(0o100644, "0" * 64), b"x")}), "digest names"),
        (
            Variant("x", {"pkg/f.py": FileChange(Entry(0o100644, sha256_hex(b"\xff")), b"\xff")}),
            "is no text",
        ),
        (
            Variant("x", {"pkg/f.py": FileChange(Entry(0o100644, sha256_hex(b"\0")), b"\0")}),
            "is no text",
        ),
        (
            Variant("x", {"pkg/l": FileChange(Entry(0o120000, sha256_hex(b"f")), b"f")}),
            "changes its mode",
        ),
        (variant("base"), "same state"),
        (variant("correct-1"), "same state"),
    ],
)
def test_a_variant_that_no_edit_can_make_is_refused(bad: Variant, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        check_variants(stack(), {"t": replace(TASK, wrong=(*TASK.wrong, bad))})
