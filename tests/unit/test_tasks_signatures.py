"""A suite that was not frozen well does not have the signature that a task promises."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.spec.ports import SuiteName
from orchestrator.tasks.audit import audit_task
from orchestrator.tasks.build import sandbox_bench
from orchestrator.tasks.compartments import environments
from orchestrator.tasks.signatures import audit_signatures
from tests.unit import tasks_support as support
from tests.unit.tasks_support import BUG, FILE


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Built]:
    with support.own_cache(tmp_path_factory.mktemp("tasks")) as home:
        yield support.build(home / "out", support.manifest(home / "manifest"))


def test_a_task_as_it_was_built_is_sealed(built: support.Built) -> None:
    assert audit_task(built.out, support.TASK) == []


def test_signatures_of_a_suite_that_is_not_frozen_well_disagree(
    built: support.Built, tmp_path: Path
) -> None:
    copy = built.copy(tmp_path / "copy")
    path = copy.places.evaluator / "bundle.json"
    record = json.loads(path.read_bytes())
    record["suites"]["gate"] += [f"{FILE}::test_skipped"]
    path.write_text(json.dumps(record))
    with sandbox_bench(copy.out, environments(copy.out) / support.ENVIRONMENT_ID) as bench:
        signatures, findings = audit_signatures(copy.out, support.TASK, bench, [SuiteName.GATE])
    assert [(finding.rule, finding.where) for finding in findings] == [
        ("base-signature", "suite gate on base"),
        ("gold-passes", "suite gate on gold"),
    ]
    assert all(f"{FILE}::test_skipped is skipped" == finding.what for finding in findings)
    base, gold = (signature.outcomes for signature in signatures)
    assert {i for i in base if base[i] != gold[i]} == {*BUG} & {*base}
