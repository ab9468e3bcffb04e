"""Source releases come with the digest that was asked for, or as one line that says what to do."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.task import Release
from orchestrator.tasks import index
from orchestrator.tasks.download import Wanted, cached_path, fetch_sdist

INDEX = "https://index.test/simple"
DATA = b"a source release"
DIGEST = sha256_hex(DATA)
Handler = Callable[[httpx.Request], httpx.Response]


def wanted(sha256: str = DIGEST, version: str = "1.0", name: str = "Some.Tool") -> Wanted:
    return Wanted(
        name, Release(version=version, sha256=sha256), "tasks.yaml", "tasks.t.source.buggy"
    )


def page(*files: tuple[str, str | None]) -> httpx.Response:
    entries = [
        {"filename": n, "url": f"/files/{n}", "hashes": {"sha256": h} if h else {}}
        for n, h in files
    ]
    text = json.dumps({"meta": {"api-version": "1.1"}, "files": entries})
    kind = "application/vnd.pypi.simple.v1+json"
    return httpx.Response(200, text=text, headers={"content-type": kind})


class Web:
    """Answers in place of the index and remembers what it was asked."""

    def __init__(self, handler: Handler) -> None:
        self.handler, self.paths = handler, list[str]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        return self.handler(request)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Handler], Web]:
    monkeypatch.setenv("FACTORIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", INDEX)

    def start(handler: Handler) -> Web:
        web = Web(handler)

        @contextmanager
        def client() -> Iterator[httpx.Client]:
            with httpx.Client(transport=httpx.MockTransport(web)) as opened:
                yield opened

        monkeypatch.setattr(index, "client", client)
        return web

    return start


def release(*files: tuple[str, str | None]) -> Handler:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/simple/some-tool/":
            return page(*files)
        return httpx.Response(200, content=DATA)

    return answer


def test_a_release_is_fetched_once_and_then_met_in_the_cache(
    serve: Callable[[Handler], Web],
) -> None:
    web = serve(release(("some_tool-0.9.tar.gz", None), ("some_tool-1.0.tar.gz", DIGEST)))
    path = fetch_sdist(wanted())
    assert (path, path.read_bytes()) == (cached_path(DIGEST), DATA)
    assert web.paths == ["/simple/some-tool/", "/files/some_tool-1.0.tar.gz"]
    assert fetch_sdist(wanted()) == path
    assert len(web.paths) == 2
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_cache_entry_is_fetched_again(serve: Callable[[Handler], Web]) -> None:
    web = serve(release(("some_tool-1.0.tar.gz", DIGEST)))
    fetch_sdist(wanted()).write_bytes(b"damaged")
    assert fetch_sdist(wanted()).read_bytes() == DATA
    assert len(web.paths) == 4


def test_of_two_archive_formats_the_digest_decides(serve: Callable[[Handler], Web]) -> None:
    web = serve(release(("Some.Tool-1.0.zip", "0" * 64), ("some-tool-1.0.tar.gz", DIGEST)))
    fetch_sdist(wanted())
    assert web.paths[-1] == "/files/some-tool-1.0.tar.gz"


def test_an_html_page_is_understood(serve: Callable[[Handler], Web]) -> None:
    html = f'<a href="../../p/some_tool-1.0.tar.gz#sha256={DIGEST}">x</a><a name="none">y</a>'

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/simple/"):
            return httpx.Response(200, html=html)
        return httpx.Response(200, content=DATA)

    web = serve(answer)
    assert fetch_sdist(wanted()).read_bytes() == DATA
    assert web.paths[-1] == "/p/some_tool-1.0.tar.gz"


@pytest.mark.parametrize("claimed", [None, "0" * 64])
def test_another_digest_is_refused_and_not_kept(
    serve: Callable[[Handler], Web], claimed: str | None
) -> None:
    serve(release(("some_tool-1.0.tar.gz", claimed)))
    other = wanted("1" * 64)
    with pytest.raises(BadInput, match="hash mismatch") as caught:
        fetch_sdist(other)
    assert (caught.value.file, caught.value.field) == ("tasks.yaml", "tasks.t.source.buggy.sha256")
    assert not cached_path("1" * 64).exists()


@pytest.mark.parametrize("version", ["2.0", "not a version"])
def test_an_unknown_version_names_its_field(serve: Callable[[Handler], Web], version: str) -> None:
    serve(release(("some_tool-1.0.tar.gz", DIGEST)))
    with pytest.raises(BadInput) as caught:
        fetch_sdist(wanted(version=version))
    assert caught.value.field == "tasks.t.source.buggy.version"


def test_an_unknown_project_is_bad_input(serve: Callable[[Handler], Web]) -> None:
    web = serve(lambda _: httpx.Response(404))
    with pytest.raises(BadInput, match="no source release"):
        fetch_sdist(wanted())
    assert len(web.paths) == 1


def test_network_loss_is_tried_three_times_and_then_named(serve: Callable[[Handler], Web]) -> None:
    def lose(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    web, pauses = serve(lose), list[float]()
    with pytest.raises(InfrastructureFault) as caught:
        fetch_sdist(wanted(), pauses.append)
    assert (len(web.paths), pauses) == (3, [1.0, 2.0])
    text = str(caught.value)
    assert "tasks.yaml: tasks.t.source.buggy" in text and "put the archive at" in text
    assert "\n" not in text and "index.test" in text


def test_a_refusal_is_not_tried_again(serve: Callable[[Handler], Web]) -> None:
    web, pauses = serve(lambda _: httpx.Response(403)), list[float]()
    with pytest.raises(InfrastructureFault):
        fetch_sdist(wanted(), pauses.append)
    assert (len(web.paths), pauses) == (1, [])


def test_a_connection_that_breaks_off_leaves_nothing_and_is_tried_again(
    serve: Callable[[Handler], Web],
) -> None:
    left = [2]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/simple/"):
            return page(("some_tool-1.0.tar.gz", DIGEST))
        if left[0]:
            left[0] -= 1
            raise httpx.RemoteProtocolError("closed in the middle", request=request)
        return httpx.Response(200, content=DATA)

    serve(answer)
    path = fetch_sdist(wanted(), lambda _: None)
    assert list(path.parent.iterdir()) == [path]


def test_pip_settings_decide_where_the_index_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    settings = {"index-url": "https://mirror.test/simple"}
    assert index.index_url(settings.get) == "https://mirror.test/simple"
    default = index.index_url(lambda _: None)
    assert default is not None and default.startswith("https://")
    monkeypatch.setenv("PIP_INDEX_URL", INDEX)
    assert index.index_url(settings.get) == INDEX


def test_an_index_that_is_no_web_address_is_refused(
    serve: Callable[[Handler], Web], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(release())
    monkeypatch.setenv("PIP_INDEX_URL", "file:///srv/index")
    with pytest.raises(BadInput, match="Set PIP_INDEX_URL"):
        fetch_sdist(wanted())


def test_the_first_certificate_file_that_exists_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle, other = tmp_path / "a.pem", tmp_path / "b.pem"
    other.touch()
    for name in index.CERTIFICATE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", str(bundle))
    assert index.certificate_file({"cert": str(other)}.get) == str(other)
    bundle.touch()
    assert index.certificate_file({"cert": str(other)}.get) == str(bundle)


def test_messages_show_no_credentials() -> None:
    assert index.shown("https://user:secret@mirror.test/simple") == "mirror.test"
