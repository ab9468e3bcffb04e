"""Tiny wheels in a folder, so that pip resolves without a network."""

import zipfile
from pathlib import Path

import pytest


def wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    """A wheel without content; the same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/{file}"), text)
    return path


def only_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pip know nothing but the folder, whatever this machine's configuration says."""
    for name in ("PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
