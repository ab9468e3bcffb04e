"""A suite that was not frozen well does not have the signature that a task promises."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.evaluator.runner import TestRun
from orchestrator.evaluator.suites import Bundle
from orchestrator.spec.ports import SuiteName
from orchestrator.tasks import signatures
from orchestrator.tasks.audit import audit_task
from orchestrator.tasks.bench import Bench, Job
from orchestrator.tasks.build import sandbox_bench
from orchestrator.tasks.compartments import environments, read_eligibility
from orchestrator.tasks.eligibility import Verdict
from orchestrator.tasks.signatures import audit_signatures
from tests.unit import tasks_support as support
from tests.unit.tasks_support import BUG, FILE


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Built]:
    with support.own_cache(tmp_path_factory.mktemp("tasks")) as home:
        yield support.build(home / "out", support.manifest(home / "manifest"))


def test_a_task_as_it_was_built_is_sealed(built: support.Built) -> None:
    assert audit_task(built.out, support.TASK) == []


@pytest.mark.parametrize("flagged", [False, True])
def test_another_order_that_does_not_end_is_a_finding_unless_eligibility_said_so(
    built: support.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flagged: bool
) -> None:
    copy = built.copy(tmp_path / "copy")
    if flagged:
        whole = read_eligibility(copy.out, support.TASK)
        told = [
            ruling.model_copy(update={"verdict": Verdict.FLAG})
            if ruling.rule == "shuffled"
            else ruling
            for ruling in whole.rulings
        ]
        record = whole.model_copy(update={"rulings": tuple(told)})
        monkeypatch.setattr(signatures, "read_eligibility", lambda *_: record)
    pair = Bench.pair

    def cut(bench: Bench, bundle: Bundle, first: Job, second: Job) -> tuple[TestRun, TestRun]:
        runs = pair(bench, bundle, first, second)
        if first.order_seed is None:
            return runs
        return replace(runs[0], finished=False), replace(runs[1], finished=False)

    monkeypatch.setattr(Bench, "pair", cut)
    with sandbox_bench(copy.out, environments(copy.out) / support.ENVIRONMENT_ID) as bench:
        _, findings = audit_signatures(copy.out, support.TASK, bench, [SuiteName.GATE])
    told_of = [f"all tests on {tree}, shuffled" for tree in ("base", "gold")]
    assert [finding.where for finding in findings] == ([] if flagged else told_of)
    assert {finding.what for finding in findings} <= {"did not come to its own end"}


def test_signatures_of_a_suite_that_is_not_frozen_well_disagree(
    built: support.Built, tmp_path: Path
) -> None:
    copy = built.copy(tmp_path / "copy")
    path = copy.places.evaluator / "bundle.json"
    record = json.loads(path.read_bytes())
    record["suites"]["gate"] += [f"{FILE}::test_skipped"]
    path.write_text(json.dumps(record))
    with sandbox_bench(copy.out, environments(copy.out) / support.ENVIRONMENT_ID) as bench:
        found, findings = audit_signatures(copy.out, support.TASK, bench, [SuiteName.GATE])
    assert [(finding.rule, finding.where) for finding in findings] == [
        ("base-signature", "suite gate on base"),
        ("gold-passes", "suite gate on gold"),
    ]
    assert all(f"{FILE}::test_skipped is skipped" == finding.what for finding in findings)
    base, gold = (signature.outcomes for signature in found)
    assert {i for i in base if base[i] != gold[i]} == {*BUG} & {*base}
