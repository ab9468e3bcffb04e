"""Rows and folders of others become a manifest that reads, or are refused by row and field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import load
from orchestrator.spec.task import GitSource, PatchSource, TaskManifest
from orchestrator.tasks.importers import pins, writing
from orchestrator.tasks.importers.bugsinpy import (
    BugsinpyOptions,
    bugsinpy_drafts,
    listed_tests,
    read_statements,
)
from orchestrator.tasks.importers.drafts import Draft, Refusal, Request
from orchestrator.tasks.importers.swebench import SwebenchOptions, swebench_drafts
from orchestrator.tasks.importers.writing import (
    Imported,
    files_folder,
    import_drafts,
    manifest_text,
)
from orchestrator.tasks.sources import read_endpoints
from tests.unit.git_support import FIX, PATHS_BUGGY, STATEMENT, Repo, plain, texts
from tests.unit.test_tasks_sources_patches import FIX_PATCH, TEST_PATCH

ID = "tests/test_adder.py::test_nothing"
Row = dict[str, Any]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.create(tmp_path / "mirrors" / "calc__adder")


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    (tmp_path / "env.txt").write_text("pytest==7.4.4 --hash=sha256:" + "0" * 64)
    return Request(
        tmp_path / "out" / "mine.yaml",
        python="3.11",
        requirements=tmp_path / "env.txt",
        mirrors=tmp_path / "mirrors",
    )


def change(request: Request, **fields: Any) -> Request:
    return Request(**{**vars(request), **fields})


@pytest.fixture
def row(repo: Repo) -> Row:
    return {
        "instance_id": "calc__adder-7",
        "repo": "calc/adder",
        "base_commit": repo.commit(PATHS_BUGGY),
        "patch": FIX_PATCH.decode(),
        "test_patch": TEST_PATCH.decode().rstrip("\n"),
        "FAIL_TO_PASS": json.dumps([ID]),
        "PASS_TO_PASS": [],
        "problem_statement": STATEMENT + "\r\n\r\n    >>> total([])\t\n",
        "version": "1.2",
        "environment_setup_commit": None,
        "hints_text": "the fix is to ...",
    }


def write_json(path: Path, rows: list[Any]) -> None:
    path.write_text(json.dumps(rows))


def write_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")


def write_parquet(path: Path, rows: list[Any]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


FORMATS: dict[str, Callable[[Path, list[Any]], None]] = {
    "rows.json": write_json,
    "rows.jsonl": write_lines,
    "rows.parquet": write_parquet,
}


def imported(path: Path, request: Request, **options: Any) -> Imported:
    drafts = swebench_drafts(path, request, SwebenchOptions(**options))
    return import_drafts(drafts, request)


def import_rows(tmp_path: Path, request: Request, *rows: Any) -> Imported:
    write_lines(tmp_path / "rows.jsonl", list(rows))
    return imported(tmp_path / "rows.jsonl", request)


def only_refusal(done: Imported) -> Refusal:
    assert not done.written and not done.manifest.exists()
    assert not files_folder(done.manifest).exists()
    (refused,) = done.refused
    return refused


# ------------------------------------------------------------------------------- SWE-bench


@pytest.mark.parametrize("name", FORMATS)
def test_rows_become_tasks_whose_endpoints_are_read(
    name: str, tmp_path: Path, request_: Request, row: Row
) -> None:
    FORMATS[name](tmp_path / name, [row])
    done = imported(tmp_path / name, request_)
    assert done == Imported(request_.out, ("calc__adder-7",), (), True)
    (task,) = load(request_.out, TaskManifest).tasks
    assert isinstance(task.source, PatchSource)
    assert task.problem_statement == row["problem_statement"]
    assert (task.project, task.source.version) == ("adder", "1.2")
    assert (task.environment.python, task.environment.requirements) == ("3.11", "../env.txt")
    found = read_endpoints(task, request_.out)
    assert texts(found.buggy) == plain(PATHS_BUGGY)
    assert texts(found.fixed) == plain({**PATHS_BUGGY, **FIX})
    assert found.expected is not None
    assert (found.expected.fail_to_pass, found.expected.pass_to_pass) == ((ID,), ())
    assert "the fix is" not in request_.out.read_text()


def test_formats_give_the_same_manifest_and_files(
    tmp_path: Path, request_: Request, row: Row
) -> None:
    seen = set()
    for name, write in FORMATS.items():
        write(tmp_path / name, [row])
        imported(tmp_path / name, request_)  # refused if the manifest said something else
        files = sorted(path for path in request_.out.parent.rglob("*") if path.is_file())
        seen.add(tuple((str(path), path.read_bytes()) for path in files))
    assert len(seen) == 1


BAD: dict[str, tuple[Row, str, str]] = {
    "climbing id": ({"instance_id": "../../etc"}, "instance_id", "pattern"),
    "no id": ({"instance_id": None}, "instance_id", "string"),
    "repo": ({"repo": "calc/adder/../../x"}, "repo", "pattern"),
    "option as repo": ({"repo": "-x/y"}, "repo", "pattern"),
    "short commit": ({"base_commit": "abc"}, "base_commit", "pattern"),
    "number": ({"base_commit": 7}, "base_commit", "string"),
    "empty patch": ({"patch": ""}, "patch", "at least 1"),
    "no patch": ({"patch": "--- a\n+++ b\n"}, "patch", "no line begins with"),
    "binary": (
        {"test_patch": "diff --git a/x b/x\nBinary files a/x and b/x differ\n"},
        "test_patch",
        "is binary",
    ),
    "statement": ({"problem_statement": "fix it"}, "problem_statement", "at least 20"),
    "ids": ({"FAIL_TO_PASS": "tests/a.py::b"}, "FAIL_TO_PASS", "neither a list nor"),
    "ids of numbers": ({"PASS_TO_PASS": "[1]"}, "PASS_TO_PASS.0", "string"),
    "no Unicode": ({"FAIL_TO_PASS": ["\ud800"]}, "FAIL_TO_PASS.0", "not Unicode"),
    "no Unicode statement": (
        {"problem_statement": "\udfff" * 30},
        "problem_statement",
        "unicode string",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_is_refused_by_row_and_field(
    kind: str, tmp_path: Path, request_: Request, row: Row
) -> None:
    changes, field, words = BAD[kind]
    good = {**row, "instance_id": "calc__adder-8"}
    refused = only_refusal(import_rows(tmp_path, request_, good, {**row, **changes}))
    assert refused.row.startswith("row 2") and refused.field == field
    assert words in refused.problem and refused.remedy
    str(refused).encode()  # printable
    kept = import_rows(tmp_path, change(request_, keep_going=True), good, {**row, **changes})
    assert kept.tasks == ("calc__adder-8",) and kept.refused == (refused,)


def test_missing_fields_broken_lines_and_repeated_ids_are_refused(
    tmp_path: Path, request_: Request, row: Row
) -> None:
    without = {name: value for name, value in row.items() if name != "patch"}
    assert only_refusal(import_rows(tmp_path, request_, without)).field == "patch"
    assert "mapping" in only_refusal(import_rows(tmp_path, request_, [1])).problem
    repeated = only_refusal(import_rows(tmp_path, request_, row, row))
    assert repeated.row == "row 2 (calc__adder-7)" and "second row" in repeated.problem
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n{{\n")
    broken = only_refusal(imported(tmp_path / "rows.jsonl", request_))
    assert broken.row == "row 2" and "not JSON" in broken.problem


def test_a_long_value_is_cut_short_in_errors(tmp_path: Path, request_: Request, row: Row) -> None:
    refused = only_refusal(import_rows(tmp_path, request_, {**row, "repo": "x" * 100_000}))
    assert len(str(refused)) < 1000


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.csv", b"a,b\n", "the ending .csv is unknown"),
        ("rows.json", b"{", "is not JSON"),
        ("rows.json", b"{}", "is no list of rows"),
        ("rows.json", b"[" * 200_000, "is not JSON"),
        ("rows.jsonl", b"\xff\n", "not UTF-8"),
        ("rows.parquet", b"PAR1 but no more", "is no Parquet file"),
        ("rows.json", b"[]", "nothing to import"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    name: str, content: bytes, words: str, tmp_path: Path, request_: Request
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=words):
        imported(tmp_path / name, request_)
    for absent in ("absent.json", "absent.jsonl", "absent.parquet"):
        with pytest.raises(BadInput, match="no such file"):
            imported(tmp_path / absent, request_)


def test_rows_are_chosen_by_pattern_before_they_are_judged(
    tmp_path: Path, request_: Request, row: Row
) -> None:
    rows = [{**row, "instance_id": name} for name in ("a-1", "a-2", "b-1")] + [{**row, "repo": 1}]
    chosen = change(request_, only=("a-*", "b-?"))
    assert import_rows(tmp_path, chosen, *rows).tasks == ("a-1", "a-2", "b-1")


def test_urls_mirrors_and_distributions(tmp_path: Path, request_: Request, row: Row) -> None:
    write_lines(tmp_path / "rows.jsonl", [row])
    template = change(request_, mirrors=None)
    imported(
        tmp_path / "rows.jsonl",
        template,
        url_template="https://git.test/{repo}.git",
        distributions={"calc/adder": "Adder2"},
    )
    (task,) = load(request_.out, TaskManifest).tasks
    assert isinstance(task.source, PatchSource)
    assert (task.source.url, task.source.name) == ("https://git.test/calc/adder.git", "Adder2")
    request_.out.unlink()
    (tmp_path / "none").mkdir()
    refused = import_rows(tmp_path, change(request_, mirrors=tmp_path / "none"), row).refused
    assert [one.field for one in refused] == ["repo"] and "has no clone" in refused[0].problem


def test_another_manifest_is_not_overwritten(tmp_path: Path, request_: Request, row: Row) -> None:
    import_rows(tmp_path, request_, row)
    before = request_.out.read_bytes()
    other = {**row, "problem_statement": "Something else is wrong here."}
    with pytest.raises(BadInput, match="says something else"):
        import_rows(tmp_path, request_, other)
    assert request_.out.read_bytes() == before
    import_rows(tmp_path, change(request_, replace=True), other)
    assert request_.out.read_bytes() != before


def test_an_interrupted_import_leaves_no_manifest_and_goes_on(
    tmp_path: Path, request_: Request, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{**row, "instance_id": f"a-{number}"} for number in (1, 2)]
    real = writing.write_whole

    def failing(path: Path, data: bytes) -> None:
        if "a-2" in str(path):
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(writing, "write_whole", failing)
    with pytest.raises(KeyboardInterrupt):
        import_rows(tmp_path, request_, *rows)
    assert not request_.out.exists()
    monkeypatch.setattr(writing, "write_whole", real)
    assert import_rows(tmp_path, request_, *rows).tasks == ("a-1", "a-2")


def test_python_has_to_be_named_for_rows(tmp_path: Path, request_: Request, row: Row) -> None:
    with pytest.raises(BadInput, match="--python"):
        import_rows(tmp_path, change(request_, python=None), row)
    refused = only_refusal(import_rows(tmp_path, change(request_, python="2"), row))
    assert refused.field == "environment.python"


@given(text=st.text(max_size=60), more=st.text("ab \n\t\r\x85\u2028#:'\"\\é-|", max_size=60))
def test_any_text_survives_the_manifest(text: str, more: str) -> None:
    content = {"a": text, "b": more, "c": [more, text, "3.10", "yes"]}
    assert yaml.safe_load(manifest_text(content)) == content


# ------------------------------------------------------------------------------- requirements


def test_a_folder_of_requirements_is_searched_from_the_task_to_its_project(
    tmp_path: Path, request_: Request, row: Row
) -> None:
    folder = tmp_path / "envs"
    folder.mkdir()
    request = change(request_, requirements=folder, replace=True)
    refused = only_refusal(import_rows(tmp_path, request, row))
    assert refused.field == "requirements" and "calc__adder-1.2.txt" in refused.problem
    for name in ("calc__adder", "calc__adder-1.2", "calc__adder-7"):
        (folder / f"{name}.txt").touch()
        import_rows(tmp_path, request, row)
        (task,) = load(request.out, TaskManifest).tasks
        assert task.environment.requirements == f"../envs/{name}.txt"
    refused_ = import_rows(tmp_path, change(request, requirements=None), row).refused
    assert "nothing says what its tests need" in refused_[0].problem


def test_lists_are_locked_once_and_pytest_is_added(
    tmp_path: Path, request_: Request, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def lock(wanted: list[str], python: str, project: str, file: str) -> str:
        asked.append((tuple(wanted), python, project))
        return f"# {file}\n"

    monkeypatch.setattr(pins, "lock_requirements", lock)
    (tmp_path / "list.txt").write_text("attrs\nadder\npytest-mock\n")
    request = change(request_, lock=True, requirements=tmp_path / "list.txt")
    rows = [{**row, "instance_id": f"a-{number}"} for number in (1, 2)]
    import_rows(tmp_path, request, *rows)
    import_rows(tmp_path, request, *rows)
    assert asked == [(("attrs", "pytest-mock", "pytest"), "3.11", "adder")]
    for task in load(request.out, TaskManifest).tasks:
        assert (request.out.parent / task.environment.requirements).is_file()


def test_a_list_that_cannot_be_locked_refuses_its_rows(
    tmp_path: Path, request_: Request, row: Row
) -> None:
    (tmp_path / "list.txt").write_text("--pre\n")
    request = change(request_, lock=True, requirements=tmp_path / "list.txt")
    refused = only_refusal(import_rows(tmp_path, request, row))
    assert refused.row == "row 1 (calc__adder-7)" and "list.txt --pre" in refused.field


# ------------------------------------------------------------------------------- BugsInPy

RUN_TEST = """\
python -m unittest -q tests.test_adder.AdderTest.test_nothing
pytest -q tests/test_adder.py::test_nothing tests/test_adder.py
python -m unittest -q other.module.Test.test  # 'open
"""


def bugsinpy(
    tmp_path: Path, bugs: dict[str, str], url: str = "https://git.test/calc/adder"
) -> Path:
    project = tmp_path / "BugsInPy" / "projects" / "adder"
    for number, info in bugs.items():
        folder = project / "bugs" / number
        folder.mkdir(parents=True)
        (folder / "bug.info").write_text(info)
        (folder / "run_test.sh").write_text(RUN_TEST)
        (folder / "setup.sh").write_text(f"touch {tmp_path}/ran\n")
        (folder / "requirements.txt").write_text("attrs==19.3.0\n-e git+x#egg=adder\n")
    (project / "project.info").write_text(f'github_url="{url}"\nstatus="OK"\n')
    return tmp_path / "BugsInPy"


def bug(buggy: str, fixed: str, python: str = "3.8.3") -> str:
    return (
        f'python_version="{python}"\nbuggy_commit_id="{buggy}"\nfixed_commit_id="{fixed}"\n'
        'test_file="tests/test_adder.py;tests/test_more.py"\npythonpath="$(touch ran)"\n'
    )


def test_bugs_become_tasks_whose_endpoints_are_read(
    tmp_path: Path, repo: Repo, request_: Request
) -> None:
    checkout = bugsinpy(tmp_path, {"2": bug(*repo.pair()), "10": bug(*repo.pair())})
    request = change(request_, python=None)
    options = BugsinpyOptions({"adder-2": STATEMENT}, name_test_files=True)
    done = import_drafts(bugsinpy_drafts(checkout, request, options), request)
    assert done.tasks == ("adder-2", "adder-10") and not (tmp_path / "ran").exists()
    first, second = load(request.out, TaskManifest).tasks
    assert isinstance(first.source, GitSource) and first.environment.python == "3.8"
    assert first.problem_statement == STATEMENT
    assert "`tests/test_adder.py`, `tests/test_more.py`" in second.problem_statement
    found = read_endpoints(first, request.out)
    assert texts(found.fixed) == plain({**PATHS_BUGGY, **FIX})
    assert found.expected is not None
    assert found.expected.fail_to_pass == (
        "tests/test_adder.py::AdderTest::test_nothing",
        "tests/test_adder.py::test_nothing",
    )


def test_bugs_with_mistakes_are_refused_by_name(
    tmp_path: Path, repo: Repo, request_: Request
) -> None:
    good = bug(*repo.pair())
    broken = {
        "1": good.replace("buggy_commit_id=", "x="),
        "2": good.replace("3.8.3", "2.7"),
        "3": bug("abc", "def"),
        "4": good,
    }
    checkout = bugsinpy(tmp_path, broken)
    options = BugsinpyOptions(dict.fromkeys(("adder-1", "adder-2", "adder-3"), STATEMENT))
    found = list(bugsinpy_drafts(checkout, request_, options))
    assert [(one.row, one.field) for one in found if isinstance(one, Refusal)] == [
        ("adder/bugs/1", "buggy_commit_id"),
        ("adder/bugs/2", "python_version"),
        ("adder/bugs/3", "buggy_commit_id"),
        ("adder/bugs/4", "problem_statement"),
    ]


def test_shortened_ids_are_looked_up_in_a_clone(
    tmp_path: Path, repo: Repo, request_: Request
) -> None:
    buggy, fixed = repo.pair()
    checkout = bugsinpy(tmp_path, {"1": bug(buggy[:8], fixed), "2": bug("1234567", fixed)})
    options = BugsinpyOptions(name_test_files=True)
    found, missing = bugsinpy_drafts(checkout, request_, options)
    assert isinstance(found, Draft) and found.source["buggy"] == buggy
    assert isinstance(missing, Refusal) and "no single commit begins with" in missing.problem
    first, _ = bugsinpy_drafts(checkout, change(request_, mirrors=None), options)
    assert isinstance(first, Refusal) and "--mirrors" in first.remedy
    blob = str(repo.repository.create_blob(b"x"))
    (repo.git_directory.parent.parent.parent / "BugsInPy").rename(tmp_path / "old")
    (kind,) = bugsinpy_drafts(bugsinpy(tmp_path, {"1": bug(blob[:9], fixed)}), request_, options)
    assert isinstance(kind, Refusal) and "no single commit" in kind.problem


@pytest.mark.parametrize(
    "url", ["ext::sh -c x", "file:///srv", "https://me:x@h.test/a/b", "", "https://h/a"]
)
def test_projects_at_odd_places_are_refused(
    url: str, tmp_path: Path, repo: Repo, request_: Request
) -> None:
    checkout = bugsinpy(tmp_path, {"1": bug(*repo.pair())}, url)
    (refused,) = bugsinpy_drafts(checkout, request_, BugsinpyOptions({"adder-1": STATEMENT}))
    assert isinstance(refused, Refusal) and refused.field == "github_url"


def test_a_bug_brings_its_own_list_for_locking(
    tmp_path: Path, repo: Repo, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "lock_requirements", lambda wanted, *_: "\n".join(wanted))
    checkout = bugsinpy(tmp_path, {"1": bug(*repo.pair())})
    request = change(request_, lock=True, requirements=None, mirrors=None)
    options = BugsinpyOptions({"adder-1": STATEMENT})
    import_drafts(bugsinpy_drafts(checkout, request, options), request)
    (task,) = load(request.out, TaskManifest).tasks
    assert isinstance(task.source, GitSource)
    assert task.source.url == "https://git.test/calc/adder"
    locked = request.out.parent / task.environment.requirements
    assert locked.read_text() == "attrs==19.3.0\npytest"


def test_statements_are_a_mapping_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("adder-1: Something is wrong here.\n")
    assert read_statements(path) == {"adder-1": "Something is wrong here."}
    for text, words in (("- a\n", "no mapping"), ("adder-1: 3\n", "no text")):
        path.write_text(text)
        with pytest.raises(BadInput, match=words):
            read_statements(path)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path, request_: Request) -> None:
    with pytest.raises(BadInput, match="has no folder `projects`"):
        list(bugsinpy_drafts(tmp_path, request_))
    assert listed_tests(tmp_path / "absent.sh", ()) == ()


def test_drafts_carry_the_python_that_was_asked_for(
    tmp_path: Path, repo: Repo, request_: Request
) -> None:
    checkout = bugsinpy(tmp_path, {"1": bug(*repo.pair())})
    (draft,) = bugsinpy_drafts(checkout, request_, BugsinpyOptions(name_test_files=True))
    assert isinstance(draft, Draft) and draft.python == "3.11"
