"""Environments are named by their input, complete or absent, and never hold the project itself."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.spec.errors import BadInput
from orchestrator.spec.identity import sha256_file
from orchestrator.spec.task import Environment
from orchestrator.tasks.environment import (
    build_environment,
    check_absent,
    check_requirements,
    distributions,
    environment_id,
    find_python,
    importable,
    requirement_names,
)
from tests.unit.tasks_support import PYTHON

HASH = f"--hash=sha256:{'0' * 64}"


def wheel(directory: Path, name: str, version: str) -> str:
    """A one-module wheel; returns its requirement with hash."""
    info = f"{name}-{version}.dist-info"
    texts = {
        f"{name}.py": "VALUE = 1\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:VALUE\n",
    }
    lines = []
    for path, text in texts.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(text)}\n")
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in texts.items():
            archive.writestr(inside, text)
        archive.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")
    return f"{name}=={version} --hash=sha256:{sha256_file(path)}\n"


class Folder:
    """A manifest's folder whose requirements pip can only satisfy from local wheels."""

    def __init__(self, directory: Path) -> None:
        self.wheels, self.home = directory / "wheels", directory / "environments"
        self.manifest = directory / "tasks.yaml"
        self.requirements = directory / "env.txt"
        self.environment = Environment(python=PYTHON, requirements="env.txt")
        pytest_pin = wheel(self.wheels, "pytest", "9.9")
        self.requirements.write_text(pytest_pin + wheel(self.wheels, "helper", "1.0"))

    def build(self) -> Path:
        return self.home / build_environment(self.environment, self.manifest, self.home)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """One folder for the whole module, with its environment built."""
    folder = Folder(tmp_path_factory.mktemp("folder"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder.wheels))
        folder.build()
        yield folder


def test_an_environment_holds_its_pins_and_nothing_else(folder: Folder) -> None:
    environment = folder.build()
    assert distributions(environment) == ("helper", "pytest")
    assert importable(environment, ("helper", "pip", "tally", "json")) == ("helper",)
    assert {path.name.rstrip("0123456789.") for path in (environment / "bin").iterdir()} == {
        "python"
    }
    modes = {path.stat().st_mode & 0o555 for path in environment.rglob("*") if path.is_dir()}
    assert modes == {0o555}


def test_an_environment_is_made_once(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")  # a second installation would fail
    environment = folder.build()
    assert [path.name for path in folder.home.iterdir()] == [environment.name]


def test_the_id_follows_requirements_and_not_the_place(folder: Folder, tmp_path: Path) -> None:
    before = environment_id(folder.environment, folder.manifest)
    assert len(before) == 64
    (tmp_path / "env.txt").write_bytes(folder.requirements.read_bytes())
    assert environment_id(folder.environment, tmp_path / "tasks.yaml") == before
    (tmp_path / "env.txt").write_bytes(folder.requirements.read_bytes() + b"# a comment\n")
    assert environment_id(folder.environment, tmp_path / "tasks.yaml") != before


def test_a_wrong_hash_leaves_nothing_behind(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "env.txt").write_text(f"pytest==9.9 {HASH}\n")
    with pytest.raises(BadInput, match="HASHES") as caught:
        build_environment(folder.environment, tmp_path / "tasks.yaml", tmp_path / "home")
    assert caught.value.file == str(tmp_path / "env.txt")
    assert list((tmp_path / "home").iterdir()) == []


def test_a_python_that_is_not_there_is_named(folder: Folder) -> None:
    assert find_python("3.99") is None
    new = Environment(python="3.99", requirements="env.txt")
    with pytest.raises(BadInput, match=r"no Python 3\.99 on this machine"):
        build_environment(new, folder.manifest, folder.home)


def test_a_python_that_the_launcher_does_not_run_on_is_refused(folder: Folder) -> None:
    old = Environment(python="3.7", requirements="env.txt")
    with pytest.raises(BadInput, match=r"Use Python 3\.8 or later"):
        build_environment(old, folder.manifest, folder.home)


BUILD = """
import sys
from pathlib import Path
from orchestrator.spec.task import Environment
from orchestrator.tasks import environment
create = environment._create
environment._create = lambda *a: (print("made"), create(*a))
wanted = Environment(python=sys.argv[1], requirements="env.txt")
print(environment.build_environment(wanted, Path(sys.argv[2]), Path(sys.argv[3])))
"""


def test_of_two_builders_one_makes_it_and_both_have_it(folder: Folder, tmp_path: Path) -> None:
    home = tmp_path / "out" / "environments"
    command = [sys.executable, "-c", BUILD, PYTHON, str(folder.manifest), str(home)]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [builder.communicate(timeout=120)[0].split() for builder in builders]
    assert sorted(len(lines) for lines in said) == [1, 2]
    assert {lines[-1] for lines in said} == {path.name for path in home.iterdir()}


def test_what_pip_said_comes_with_the_refusal(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "env.txt").write_text(f"pytest==9.9 {HASH}\n")
    with pytest.raises(BadInput) as caught:
        build_environment(folder.environment, tmp_path / "tasks.yaml", tmp_path / "home")
    assert "Expected sha256" in caught.value.__notes__[0]


def test_a_missing_requirements_file_is_named(folder: Folder) -> None:
    missing = Environment(python=PYTHON, requirements="nowhere.txt")
    with pytest.raises(BadInput, match=r"nowhere\.txt: no such file"):
        build_environment(missing, folder.manifest, folder.home)


@pytest.mark.parametrize(
    "line",
    [
        "pytest>=7 " + HASH,
        "pytest==7.4.4",
        "pytest==7.4.4 --hash=md5:00",
        "-r other.txt",
        "git+https://host.test/x",
    ],
)
def test_every_requirement_has_version_and_hash(tmp_path: Path, line: str) -> None:
    path = tmp_path / "env.txt"
    path.write_text(f"# pins\n\n{line}\n")
    with pytest.raises(BadInput):
        check_requirements(path)


def test_continued_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "env.txt"
    path.write_text(
        f"py_Test==1 \\\n    {HASH} \\\n    {HASH}\npytest==7 ; python_version > '3' {HASH}\n"
    )
    assert requirement_names(path) == ("py-test", "pytest")
    check_requirements(path)


def test_pytest_must_be_pinned(tmp_path: Path) -> None:
    path = tmp_path / "env.txt"
    path.write_text(f"helper==1.0 {HASH}\n")
    with pytest.raises(BadInput, match="is missing"):
        check_requirements(path)


def test_the_project_under_test_is_found_by_either_name(folder: Folder) -> None:
    environment = folder.build()
    check_absent(environment, "tally", ("tally", "json"), folder.requirements)
    with pytest.raises(BadInput, match="distribution helper"):
        check_absent(environment, "helper", (), folder.requirements)
    with pytest.raises(BadInput, match="module helper"):
        check_absent(environment, "another-name", ("helper",), folder.requirements)
