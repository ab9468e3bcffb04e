"""Fetches a source release by name, version and SHA-256 into a content-addressed cache.

What comes out has the digest that was asked for, or an error names file, field and remedy. Nothing
of the release is executed. The cache is shared between runs; a file appears in it by one rename.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from packaging.version import InvalidVersion

from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.identity import sha256_file
from orchestrator.spec.task import Release
from orchestrator.tasks import index

SDIST_BYTES = 64 << 20
TRIES = 3
BACK_OFF_SECONDS = 1.0
Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Wanted:
    """A pinned release and where the manifest asks for it (``file`` and dotted ``field``)."""

    name: str
    release: Release
    file: str
    field: str


def cache_home() -> Path:
    """Where what was fetched is kept: ``FACTORIAL_CACHE``, or a folder of the user's cache."""
    configured = os.environ.get("FACTORIAL_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "repo-factorials"


def cache_directory() -> Path:
    """Where sdists are kept, below :func:`cache_home`."""
    return cache_home() / "sdists"


def cached_path(sha256: str) -> Path:
    """Where the sdist of that digest lies once it was fetched, whatever archive format it has."""
    return cache_directory() / f"{sha256}.tar.gz"


def fetch_sdist(wanted: Wanted, sleep: Sleep = time.sleep) -> Path:
    """Path of the release's archive in the cache, fetched where it is not there yet.

    Raises BadInput for an unknown version and for a digest that differs; InfrastructureFault
    (boundary ``server``) where the index cannot be reached after three tries.
    """
    path = cached_path(wanted.release.sha256)
    if path.is_file():
        if sha256_file(path) == wanted.release.sha256:
            return path
        path.unlink()  # a damaged cache entry: fetch it again
    for attempt in range(1, TRIES + 1):
        try:
            return _fetch(wanted, path)
        except httpx.HTTPError as error:
            if attempt == TRIES or not _transient(error):
                raise _unreachable(wanted, error, attempt) from None
            sleep(BACK_OFF_SECONDS * 2 ** (attempt - 1))
    raise AssertionError("unreachable")


def _transient(error: httpx.HTTPError) -> bool:
    """Whether a second try may help: not for a refusal (4xx) other than 408 and 429."""
    if not isinstance(error, httpx.HTTPStatusError):
        return True
    status = error.response.status_code
    return status >= 500 or status in (408, 429)


def _fetch(wanted: Wanted, path: Path) -> Path:
    with index.client() as http:
        address = index.index_url()
        if address is None or not address.startswith(("http://", "https://")):
            raise BadInput(
                wanted.file,
                wanted.field,
                f"no http(s) package index is configured (found: {address})",
                f"Set PIP_INDEX_URL, or put the archive at {path}.",
            )
        chosen = _choose(wanted, index.project_files(http, address, wanted.name))
        return _download(http, chosen, wanted, path)


def _choose(wanted: Wanted, files: list[index.IndexFile]) -> index.IndexFile:
    """The sdist with the pinned digest; of several formats the digest decides."""
    release = wanted.release
    try:
        candidates = index.source_files(files, wanted.name, release.version)
    except InvalidVersion:
        raise BadInput(
            wanted.file, f"{wanted.field}.version", f"{release.version!r} is no version", "Mend it."
        ) from None
    if not candidates:
        raise BadInput(
            wanted.file,
            f"{wanted.field}.version",
            f"the index has no source release {wanted.name} {release.version}",
            "Use a version that it lists.",
        )
    for candidate in candidates:
        if candidate.sha256 in (None, release.sha256):
            return candidate
    raise _mismatch(wanted, str(candidates[0].sha256))


def _download(http: httpx.Client, file: index.IndexFile, wanted: Wanted, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".fetching-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out, http.stream("GET", file.url) as response:
            response.raise_for_status()
            received = 0
            for chunk in response.iter_bytes():
                received += len(chunk)
                if received > SDIST_BYTES:
                    raise _too_large(wanted)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        found = sha256_file(temporary)
        if found != wanted.release.sha256:
            raise _mismatch(wanted, found)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _too_large(wanted: Wanted) -> BadInput:
    return BadInput(
        wanted.file,
        wanted.field,
        f"the archive is larger than {SDIST_BYTES >> 20} MiB",
        "Choose a smaller project.",
    )


def _mismatch(wanted: Wanted, found: str) -> BadInput:
    return BadInput(
        wanted.file,
        f"{wanted.field}.sha256",
        f"hash mismatch for {wanted.name} {wanted.release.version}: "
        f"wanted {wanted.release.sha256}, the index has {found}",
        "Correct the digest or the version.",
    )


def _unreachable(wanted: Wanted, error: httpx.HTTPError, tries: int) -> InfrastructureFault:
    host = index.shown(str(error.request.url)) if _has_request(error) else "the package index"
    reason = str(error).splitlines()[0] if str(error) else "no answer"
    return InfrastructureFault(
        "server",
        f"{wanted.file}: {wanted.field}: {wanted.name} {wanted.release.version} could not be "
        f"downloaded from {host} in {tries} tries ({type(error).__name__}: {reason}). Check the "
        f"network, or put the archive at {cached_path(wanted.release.sha256)}, and run again.",
    )


def _has_request(error: httpx.HTTPError) -> bool:
    try:
        return bool(error.request)
    except RuntimeError:
        return False
