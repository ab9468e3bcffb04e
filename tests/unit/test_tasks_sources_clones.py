"""A remote repository becomes a bare clone in the cache, once, whoever asks and how often."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pygit2
import pytest

from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.tasks.sources import clones, read_endpoints
from orchestrator.tasks.sources.clones import clone, clone_place, is_remote, remote_repository
from tests.unit.git_server import Server, serving
from tests.unit.git_support import FIX, PATHS_BUGGY, Repo, chain, git_task, plain, texts

WHERE = ("tasks.yaml", "source.url")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FACTORIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(clones, "BACK_OFF_SECONDS", 0.0)
    return tmp_path / "cache"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.create(tmp_path / "repo")


@pytest.fixture
def server(repo: Repo) -> Iterator[Server]:
    with serving(repo) as started:
        yield started


def test_a_url_is_fetched_once_into_a_bare_clone(
    server: Server, repo: Repo, tmp_path: Path
) -> None:
    buggy, fixed = repo.pair()
    repo.branch("main", fixed)
    task = git_task(server.url, buggy, fixed)
    found = read_endpoints(task, tmp_path / "tasks.yaml")
    assert texts(found.buggy) == plain(PATHS_BUGGY)
    assert texts(found.fixed) == plain({**PATHS_BUGGY, **FIX})
    place = clone_place(server.url)
    assert not (place / "index").exists() and not list(place.glob("*.py"))
    asked = len(server.asked)
    server.state = "broken"
    assert read_endpoints(task, tmp_path / "tasks.yaml") == found and len(server.asked) == asked


def test_a_clone_is_brought_up_to_date_for_new_commits(server: Server, repo: Repo) -> None:
    first, second = repo.pair()
    repo.branch("main", second)
    remote_repository(server.url, [first], *WHERE)
    third = repo.commit({"a.py": ""}, second)
    repo.branch("main", third)
    assert remote_repository(server.url, [third], *WHERE).commit(third).parents == (second,)


def test_a_commit_that_no_branch_has_is_asked_for_by_its_id(server: Server, repo: Repo) -> None:
    first, second, pruned = chain(repo, [{"a": ""}, {"b": ""}, {"c": ""}])
    repo.branch("main", first)
    assert remote_repository(server.url, [second, pruned], *WHERE).has(pruned)
    with pytest.raises(BadInput, match=f"the repository has no commit {'1' * 40}"):
        remote_repository(server.url, [first, "1" * 40], *WHERE)


@pytest.mark.parametrize("state", ["gone", "broken"])
def test_a_server_that_fails_is_asked_three_times(server: Server, repo: Repo, state: str) -> None:
    repo.branch("main", repo.commit({"a": ""}))
    server.state = state
    with pytest.raises(InfrastructureFault, match=r"from 127\.0\.0\.1 in 3 tries") as caught:
        remote_repository(server.url, ["1" * 40], *WHERE)
    assert caught.value.boundary == "server" and len(server.asked) == 3


def test_a_private_repository_is_not_begged_for(server: Server, repo: Repo) -> None:
    repo.branch("main", repo.commit({"a": ""}))
    server.state = "private"
    with pytest.raises(BadInput, match="no such public repository"):
        remote_repository(server.url, ["1" * 40], *WHERE)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ssh://git@host/a/b", "ssh is not fetched"),
        ("git@host:a/b.git", "only http and https are"),
        ("ext::sh -c x", ""),
        ("file:///srv/repo", "file is not fetched"),
        ("https://me:secret@host/a", "carries credentials"),
        ("https:///a", "only http and https are"),
    ],
)
def test_other_addresses_are_not_fetched(url: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read_endpoints(git_task(url, "0" * 40, "1" * 40), tmp_path / "tasks.yaml")
    assert words in caught.value.problem and "secret" not in str(caught.value)


def test_folders_are_no_addresses() -> None:
    assert not any(map(is_remote, ["repo", "../repo", "/srv/repo", "~/repo", "a:b", "C@b/c"]))


def test_a_repository_that_is_too_large_is_left(
    server: Server, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.branch("main", repo.commit({"a": "x" * 5000}))
    monkeypatch.setattr(clones, "PACK_BYTES", 10)
    with pytest.raises(BadInput, match="larger than"):
        remote_repository(server.url, ["1" * 40], *WHERE)


def test_an_interrupted_fetch_is_made_again(repo: Repo, tmp_path: Path) -> None:
    buggy, fixed = repo.pair()
    repo.branch("main", fixed)
    url = str(tmp_path / "repo")
    place = clone_place(url)
    pygit2.init_repository(str(place), bare=True)
    (place / "HEAD").unlink()  # killed while it was set up, and while a pack came in
    torn = place / "objects" / "pack" / "pack_git2_torn"
    torn.write_bytes(b"PACK")
    assert clone(url, [buggy, fixed], *WHERE).has(fixed)
    assert not torn.exists()


def _clone(url: str, commit: str) -> bool:
    return clone(url, [commit], *WHERE).has(commit)


def test_builders_at_the_same_time_share_one_clone(repo: Repo, tmp_path: Path) -> None:
    _, fixed = repo.pair()
    repo.branch("main", fixed)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.starmap(_clone, [(str(tmp_path / "repo"), fixed)] * 4)
    assert found == [True] * 4
    packs = list((clone_place(str(tmp_path / "repo")) / "objects" / "pack").glob("*"))
    assert len({path.stem for path in packs}) <= 1
