"""A list of requirements becomes pins with hashes for the task's Python, without the project."""

import sys
from pathlib import Path

import pytest

from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.identity import sha256_file
from orchestrator.tasks import lockfile
from orchestrator.tasks.environment import check_requirements, requirement_names
from orchestrator.tasks.lockfile import listed_requirements, lock_requirements, read_list
from tests.unit.wheel_support import only_from, wheel

PYTHON = "{}.{}".format(*sys.version_info[:2])


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "pytest", "7.4.4", "Plug-gy>=1", "other; python_version < '3'")
    for version in ("1.0", "1.5", "2.0"):
        wheel(folder, "plug-gy", version)
    wheel(folder, "helper", "1.0", "adder>=1")
    wheel(folder, "adder", "3.0", "leaf")
    wheel(folder, "leaf", "0.1")
    return folder


@pytest.fixture(autouse=True)
def offline(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_from(wheels, monkeypatch)


def test_everything_is_pinned_with_its_hash_but_for_the_project(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"  # an interpreter without pip of its own
    other.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(lockfile, "find_python", {PYTHON: other}.get)
    text = lock_requirements(["helper", "pytest", "plug_gy<2"], PYTHON, "Adder", "list.txt")
    path = tmp_path / "env.txt"
    path.write_text(text)
    check_requirements(path)
    assert requirement_names(path) == ("helper", "leaf", "plug-gy", "pytest")
    digest = sha256_file(wheels / "plug_gy-1.5-py3-none-any.whl")
    assert f"\nplug-gy==1.5 --hash=sha256:{digest}\n" in text
    assert text.startswith(f"# Python {PYTHON}, ")


@pytest.mark.parametrize(
    ("wanted", "python", "field", "words"),
    [
        (["pytest==99"], PYTHON, "", "cannot resolve .*pytest==99"),
        (["pytest"], "3.99", "python", "no Python 3.99"),
    ],
)
def test_what_cannot_be_locked_is_said(
    wanted: list[str], python: str, field: str, words: str
) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        lock_requirements(wanted, python, "adder", "list.txt")
    assert (caught.value.file, caught.value.field) == ("list.txt", field)


def test_pytest_has_to_be_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    item = {
        "metadata": {"name": "leaf", "version": "0.1"},
        "download_info": {"archive_info": {"hashes": {"sha256": "0" * 64}}},
    }
    monkeypatch.setattr(lockfile, "_report", lambda *_: {"install": [item]})
    with pytest.raises(BadInput, match="Add the pytest that runs the suites"):
        lock_requirements(["leaf"], PYTHON, "adder", "list.txt")


def test_a_pip_that_does_not_end_is_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockfile, "STEP_SECONDS", 0.001)
    with pytest.raises(InfrastructureFault, match="did not resolve it within"):
        lock_requirements(["pytest"], PYTHON, "adder", "list.txt")


@pytest.mark.parametrize(
    "report", [[], {}, {"install": [{"download_info": {}}]}, {"install": 1}, None]
)
def test_a_report_of_another_form_is_infrastructure(
    report: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockfile, "_report", lambda *_: report)
    with pytest.raises(InfrastructureFault, match="another form"):
        lock_requirements(["pytest"], PYTHON, "adder", "list.txt")


def test_lists_are_read_without_comments_and_without_the_project(tmp_path: Path) -> None:
    text = """\
# made by pip freeze
attrs==19.3.0  # why
pkg-resources==0.0.0
-e git+https://host.test/a/adder@abc#egg=Adder
adder==1.0
Click[extra]>=7 ; \\
    python_version >= "3"

"""
    wanted = ("attrs==19.3.0", 'Click[extra]>=7; python_version >= "3"')
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "r.txt").write_bytes(text.replace("\n", "\r\n").encode(encoding))
        assert listed_requirements(read_list(tmp_path / "r.txt"), "r.txt", "adder") == wanted
    (tmp_path / "r.txt").write_bytes(b"attrs\xff")
    for name, words in (("r.txt", "neither UTF-8"), ("absent.txt", "cannot be read")):
        with pytest.raises(BadInput, match=words):
            read_list(tmp_path / name)


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://evil.test/simple",
        "-r other.txt",
        "-e git+https://host.test/a/b#egg=other",
        "other @ https://host.test/other.whl",
        "./other",
        "other==1.0 --hash=sha256:00",
        "a b",
    ],
)
def test_options_and_addresses_are_refused(line: str) -> None:
    with pytest.raises(BadInput, match="is no requirement by name") as caught:
        listed_requirements(f"attrs\n{line}\n", "r.txt", "adder")
    assert caught.value.file == "r.txt" and caught.value.field == line
