"""A tiny built task, laid down by hand: its suites never run, so that many copies are cheap."""

import compileall
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.evaluator.suites import BundleFile, bundle_bytes, load_bundle, split_suites
from orchestrator.repo.files import Files, delta_between, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.patch import make_patch
from orchestrator.tasks.audit import certify
from orchestrator.tasks.compartments import (
    AGENT_BRANCH,
    BuiltTask,
    Places,
    environments,
    prepare,
    write_record,
)
from tests.unit.evaluator_support import PYTHON, text_files

TASK = "tally-1.0-1.1"
ENVIRONMENT_ID = "e" * 64

CORE = '''\
"""Arithmetic on lists."""


def clamp(value, low, high):
    """Value brought into low..high."""
    return max(low, value)


def mean(values, weights=None):
    """Arithmetic mean; with weights the weighted one."""
    total = sum(value * weight for value, weight in zip(values, weights or [1] * len(values)))
    return total / sum(weights or [1] * len(values))
'''
HUNK = """\
    if not values:
        warnings.warn("the mean of nothing is taken as zero", stacklevel=2)
        return type(sum(weights or [0]))(0)
"""
"""The longer hunk of the fix: its lines prove something by themselves."""
CLAMP_FIXED = "return min(high, max(low, value))"
"""The shorter one: such a line may be in any package."""
CORE_FIXED = (
    CORE.replace("return max(low, value)", CLAMP_FIXED)
    .replace('lists."""\n', 'lists."""\n\nimport warnings\n')
    .replace("    total =", f"{HUNK}    total =")
)
TESTS = """\
import warnings

from tally.core import clamp, mean


def test_clamp():
    assert clamp(11, 0, 10) == 10
    assert clamp(-11, 0, 10) == 0


def test_mean_of_nothing():
    with warnings.catch_warnings(record=True) as caught:
        assert mean([]) == 0 and mean([], []) == 0
    assert "mean of nothing" in str(caught[0].message)


def test_mean_with_weights():
    assert mean([1, 4], [2, 1]) == 2
"""
BASE: Files = text_files({"tally/__init__.py": "", "tally/core.py": CORE, "README.md": "Tally\n"})
FIXED: Files = {**BASE, **text_files({"tally/core.py": CORE_FIXED})}
SEALED: Files = text_files(
    {
        "tests/test_core.py": TESTS,
        "tests/data.txt": "".join(f"{number} {number * number}\n" for number in range(40)),
        "tally-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tally\nVersion: 1.0\n",
    }
)
BUG = ("tests/test_core.py::test_clamp", "tests/test_core.py::test_mean_of_nothing")
KEPT = ("tests/test_core.py::test_mean_with_weights",)
STATEMENT = "clamp ignores the upper end, and the mean of nothing fails.\n"


@dataclass(frozen=True)
class Sealed:
    """A folder with the one built task."""

    out: Path

    @property
    def places(self) -> Places:
        return Places(self.out, TASK)

    @property
    def repository(self) -> Path:
        return self.places.agent / "repo.git"

    @property
    def environment(self) -> Path:
        return environments(self.out) / ENVIRONMENT_ID

    @property
    def site(self) -> Path:
        return next(self.environment.glob("lib/python3*/site-packages"))

    def copy(self, target: Path) -> "Sealed":
        shutil.copytree(self.out, target, symlinks=True)
        return Sealed(target)


def build(out: Path) -> Sealed:
    """Lay the task down below ``out``, with its environment and certificate."""
    prepare(out)
    sealed = Sealed(out)
    _environment(sealed)
    places = sealed.places
    for place in (places.agent, places.evaluator, places.gold):
        place.mkdir()
    mirror = Mirror.create(sealed.repository, {AGENT_BRANCH: BASE}, "Import")
    (places.agent / "statement.md").write_text(STATEMENT)
    Mirror.create(places.evaluator / "repo.git", {"base": BASE, "sealed": SEALED}, "Import")
    suites, _ = split_suites(TASK, BUG, KEPT, [*BUG, *KEPT])
    record = BundleFile(
        schema="factorial/bundle@1",
        task_id=TASK,
        project="tally",
        base_state_id=tree_of(BASE).state_id,
        environment_id=ENVIRONMENT_ID,
        import_root=".",
        python=PYTHON,
        test_paths=("tests",),
        suites=suites,
        overlay_sha256=tree_of(SEALED).state_id,
        removed=(),
    )
    (places.evaluator / "bundle.json").write_bytes(bundle_bytes(record))
    places.gold_patch.write_bytes(make_patch(BASE, delta_between(BASE, FIXED)))
    certificate = certify(out, TASK)
    write_record(places.certificate, certificate)
    _facts(sealed, mirror.commit_id(AGENT_BRANCH), certificate.sha256)
    return sealed


def _environment(sealed: Sealed) -> None:
    venv = [sys.executable, "-m", "venv", "--without-pip", str(sealed.environment)]
    subprocess.run(venv, check=True, capture_output=True)
    package = sealed.site / "foreign"
    package.mkdir()
    (package / "__init__.py").write_text("def twice(number):\n    return number + number\n")
    compileall.compile_dir(package, quiet=2)


def _facts(sealed: Sealed, commit: str, certificate: str) -> None:
    bundle = load_bundle(sealed.out, TASK)
    fields: dict[str, object] = dict.fromkeys(BuiltTask.model_fields, "0" * 64)
    fields |= {
        "schema_": "factorial/built@2",
        "task_id": TASK,
        "project": "tally",
        "base_state_id": bundle.base_state_id,
        "agent_commit": commit,
        "environment_id": ENVIRONMENT_ID,
        "suites": {name.value: suite.suite_id for name, suite in bundle.suites.items()},
        "gate_overlap": False,
        "fail_to_pass_functions": len(BUG),
        "relation": "consecutive releases",
        "certificate_sha256": certificate,
    }
    built = BuiltTask.model_validate(fields)
    sealed.places.built.write_text(built.model_dump_json(by_alias=True))
