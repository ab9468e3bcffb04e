"""Talks to a package index through its Simple API (PEP 503, 691): which files a project has.

Reads only; a project's build backend is never run. Where the index lies, which certificates it is
trusted by and which proxy leads to it is taken from pip's own settings, so that what pip reaches
is reached here.
"""

import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

PIP_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
"""What pip falls back on is pip's knowledge, not ours."""
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
TIMEOUT = httpx.Timeout(60.0, connect=20.0)
CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
Setting = Callable[[str], str | None]


@dataclass(frozen=True)
class IndexFile:
    """One file of a project. ``sha256`` is the index's own claim, or None where it makes none."""

    filename: str
    url: str
    sha256: str | None


def pip_setting(name: str) -> str | None:
    """A value of pip's configuration files (``global.<name>``), or None."""
    return _python_says("-m", "pip", "config", "get", f"global.{name}")


def pip_default_index() -> str | None:
    """The index of an unconfigured pip, or None where there is no pip."""
    return _python_says("-c", PIP_DEFAULT)


def _python_says(*arguments: str) -> str | None:
    argv = [sys.executable, *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def index_url(setting: Setting = pip_setting) -> str | None:
    """The index that pip would use: PIP_INDEX_URL, its configuration, or its default."""
    return os.environ.get("PIP_INDEX_URL") or setting("index-url") or pip_default_index()


def certificate_file(setting: Setting = pip_setting) -> str | None:
    """The first CA bundle named by the environment or pip's configuration that exists."""
    named = [os.environ.get(name) for name in CERTIFICATE_VARIABLES]
    usable = (path for path in named if path and Path(path).is_file())
    return next(usable, None) or _existing(setting("cert"))


def _existing(path: str | None) -> str | None:
    return path if path and Path(path).is_file() else None


@contextmanager
def client(setting: Setting = pip_setting) -> Iterator[httpx.Client]:
    """An HTTP client that trusts and is routed as pip is (proxies come from the environment)."""
    bundle = certificate_file(setting)
    context = ssl.create_default_context(cafile=bundle)
    with httpx.Client(verify=context, timeout=TIMEOUT, follow_redirects=True) as opened:
        yield opened


def project_url(index: str, name: str) -> str:
    """Address of a project's page (PEP 503: normalised name, trailing slash)."""
    return f"{index.rstrip('/')}/{canonicalize_name(name)}/"


def shown(url: str) -> str:
    """A URL's host for messages: no path, no credentials."""
    return urlsplit(url).hostname or url


def project_files(http: httpx.Client, index: str, name: str) -> list[IndexFile]:
    """Every file of a project, or none where the index does not know it.

    Raises httpx.HTTPError for anything but success and 404.
    """
    response = http.get(project_url(index, name), headers={"Accept": ACCEPT})
    if response.status_code == httpx.codes.NOT_FOUND:
        return []
    response.raise_for_status()
    if "json" in response.headers.get("content-type", ""):
        return json_files(_json(response), str(response.url))
    return html_files(response.text, str(response.url))


def _json(response: httpx.Response) -> object:
    try:
        page: object = response.json()
    except ValueError:
        raise httpx.DecodingError(
            "the index's answer is not JSON", request=response.request
        ) from None
    return page


def json_files(page: object, base: str) -> list[IndexFile]:
    """Files of a PEP 691 page; entries without a name or address are left out."""
    entries = page.get("files") if isinstance(page, dict) else None
    files = []
    for entry in entries if isinstance(entries, list) else ():
        name, url = entry.get("filename"), entry.get("url")
        if isinstance(name, str) and isinstance(url, str):
            claimed = (entry.get("hashes") or {}).get("sha256")
            files.append(IndexFile(name, urljoin(base, url), claimed))
    return files


def html_files(page: str, base: str) -> list[IndexFile]:
    """Files of a PEP 503 page: the anchors, with the hash that stands in the fragment."""
    parser = _Anchors()
    parser.feed(page)
    files = []
    for href in parser.hrefs:
        url, fragment = urldefrag(urljoin(base, href))
        sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        files.append(IndexFile(urlsplit(url).path.rpartition("/")[2], url, sha256))
    return files


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs += [value for key, value in attrs if key == "href" and value]


def source_files(files: list[IndexFile], name: str, version: str) -> list[IndexFile]:
    """The sdists of one version (more than one where it was uploaded in two formats)."""
    wanted = (canonicalize_name(name), Version(version))
    return [file for file in files if _sdist_version(file.filename) == wanted]


def _sdist_version(filename: str) -> tuple[str, Version] | None:
    try:
        return parse_sdist_filename(filename)
    except InvalidSdistFilename:
        return None
