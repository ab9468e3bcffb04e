"""An sdist source gives the trees of two releases that say what they are."""

from pathlib import Path

import pytest

from orchestrator.spec.errors import BadInput
from orchestrator.tasks.sources import read_endpoints
from tests.unit.git_support import texts
from tests.unit.tasks_support import BUGGY, FIXED, manifest, only_task


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTORIAL_CACHE", str(tmp_path / "cache"))


def test_two_releases_become_endpoints(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    found = read_endpoints(only_task(path), path)
    assert texts(found.buggy) == dict(sorted(BUGGY.items()))
    assert texts(found.fixed) == dict(sorted(FIXED.items()))
    assert (found.name, found.version) == ("tally", "1.0")
    assert found.relation == "consecutive releases" and found.expected is None
    other = manifest(tmp_path, fixed={**FIXED, "more.txt": ""})
    assert read_endpoints(only_task(other), other).source_id != found.source_id


def test_an_archive_of_another_version_is_refused(tmp_path: Path) -> None:
    path = manifest(tmp_path, fixed={**FIXED, "PKG-INFO": "Name: tally\nVersion: 1.3\n"})
    with pytest.raises(BadInput, match=r"is the hash of version 1\.3, not 1\.1") as caught:
        read_endpoints(only_task(path), path)
    assert caught.value.field == "tasks.tally-1.0-1.1.source.fixed.sha256"


@pytest.mark.parametrize("stated", ["1.1.0", "1.1.0.0"])
def test_spellings_of_one_version_are_equal(tmp_path: Path, stated: str) -> None:
    path = manifest(tmp_path, fixed={**FIXED, "PKG-INFO": f"Name: tally\nVersion: {stated}\n"})
    assert read_endpoints(only_task(path), path).relation == "consecutive releases"
