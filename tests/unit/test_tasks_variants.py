"""What the planted coder may propose was really judged, and is found in a fixed order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.evaluator.suites import load_bundle
from orchestrator.repo.files import apply_delta
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.ports import SuiteName
from orchestrator.tasks.build import sandbox_bench
from orchestrator.tasks.mining import Job
from orchestrator.tasks.variants import (
    broken,
    candidates,
    ensure_variants,
    functions_of,
    load_variants,
)
from tests.unit import tasks_support as support
from tests.unit.tasks_support import Built, build, never


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with support.own_cache(tmp_path_factory.mktemp("tasks")) as home:
        yield home


@pytest.fixture(scope="module")
def built(home: Path) -> Built:
    return build(home / "out", support.manifest(home / "manifest"))


@pytest.fixture
def copy(built: Built, tmp_path: Path) -> Built:
    return built.copy(tmp_path / "copy")


@pytest.fixture(scope="module")
def with_variants(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Built:
    copy = built.copy(tmp_path_factory.mktemp("variants") / "copy")
    ensure_variants(copy.out, support.TASK)
    return copy


def test_each_class_has_two_states_that_were_really_judged(with_variants: Built) -> None:
    found = load_variants(with_variants.out, support.TASK)
    assert found.base_files == with_variants.base
    assert {name: len(states) for name, states in found.classes.items()} == {
        "correct": 2, "overfit": 2, "wrong": 2
    }  # fmt: skip
    states = [state_id for states in found.classes.values() for state_id, _ in states]
    assert len({*states, found.base_state_id}) == 7
    bundle = load_bundle(with_variants.out, support.TASK)
    overfit = apply_delta(found.base_files, found.classes["overfit"][1][1])
    with sandbox_bench(with_variants.out, bundle.ground.environment) as bench:
        run = bench.run(bundle, Job(overfit, bundle.suites[SuiteName.FULL].ids))
    passed = {test_id for test_id, outcome in run.outcomes.items() if outcome == "passed"}
    assert passed >= {*bundle.suites[SuiteName.GATE].ids}
    assert not passed >= {*bundle.suites[SuiteName.FULL].ids}


def test_variants_are_found_once(with_variants: Built) -> None:
    first = ensure_variants(with_variants.out, support.TASK, open_bench=never)
    assert first == ensure_variants(with_variants.out, support.TASK, open_bench=never)
    assert len(first) == 64


def test_a_touched_variant_is_refused(with_variants: Built, tmp_path: Path) -> None:
    copy = with_variants.copy(tmp_path / "touched")
    for path in (copy.places.gold / "variants").iterdir():
        path.write_bytes(b"")
    with pytest.raises(IntegrityError, match="not the variant that was verified"):
        load_variants(copy.out, support.TASK)


def test_variants_that_were_never_looked_for_are_refused(copy: Built) -> None:
    with pytest.raises(BadInput, match="were not looked for"):
        load_variants(copy.out, support.TASK)


def test_candidates_leave_out_a_file_then_a_hunk_then_break_a_function(built: Built) -> None:
    gold = apply_patch(built.base, built.places.gold_patch.read_bytes())
    tried = list(candidates(support.TASK, built.base, gold, "src"))
    fixed = apply_delta(built.base, gold)
    assert "src/tally/extra.py" in tried[0] and "src/tally/extra.py" not in tried[1]
    partial = [files["src/tally/core.py"][1].decode() for files in tried[2:5]]
    assert [support.CLAMP_FIXED in text for text in partial] == [False, True, True]
    assert [support.SCALE_FIXED in text for text in partial] == [True, False, True]
    assert [support.MEAN_FIXED in text for text in partial] == [True, True, False]
    assert all(sum(fixed[p] != files[p] for p in fixed) == 1 for files in tried[5:])
    assert len(tried) == 5 + sum(
        len(functions_of(data)) for path, (_, data) in fixed.items() if path.startswith("src/")
    )


def test_a_broken_function_raises_and_the_rest_is_whole() -> None:
    source = b"def f(a,\n      b):\n    'doc'\n    if a:\n        return b\n\n\ndef g(): return 1\n"
    (function,) = functions_of(source)
    namespace: dict[str, object] = {}
    exec(broken(source, function), namespace)
    assert namespace["g"]() == 1  # type: ignore[operator]
    with pytest.raises(RuntimeError):
        namespace["f"](1, 2)  # type: ignore[operator]
