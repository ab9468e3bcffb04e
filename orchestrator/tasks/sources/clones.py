"""Bare clones of remote repositories in a cache, made and brought up to date through libgit2.

One clone per URL, shared by all tasks and by builders at the same time. Objects become visible in
whole packs, so an interrupted fetch is simply made again. Nothing is checked out, no hook, filter
or submodule of the repository is run, and its references are used for nothing but fetching.
"""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pygit2
from pygit2.enums import FetchPrune, RepositoryInitFlag

from orchestrator.repo.files import disk_faults
from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.identity import sha256_hex
from orchestrator.tasks import index
from orchestrator.tasks.download import BACK_OFF_SECONDS, TRIES, cache_home
from orchestrator.tasks.sources.objects import Repository
from orchestrator.tasks.turns import alone

SCHEMES = frozenset({"http", "https"})
REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.-]+@[\w.-]+:")
BRANCHES_AND_TAGS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
PACK_BYTES = 4 << 30
CONNECT_MILLISECONDS, ANSWER_MILLISECONDS = 20_000, 120_000
FINISHED = frozenset({".pack", ".idx", ".rev", ".keep"})
Sleep = Callable[[float], None]


class _NeedsCredentials(Exception):
    """The server asks who we are: the repository is private, or there is none."""


class _TooLarge(Exception):
    """More than :data:`PACK_BYTES` came."""


class _Callbacks(pygit2.RemoteCallbacks):
    def credentials(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise _NeedsCredentials

    def transfer_progress(self, stats: pygit2.remotes.TransferProgress) -> None:
        if stats.received_bytes > PACK_BYTES:
            raise _TooLarge


def is_remote(url: str) -> bool:
    """Whether ``url`` names a server (``scheme://`` or ``user@host:``) rather than a folder."""
    return REMOTE.match(url) is not None


def clone_place(url: str) -> Path:
    """Where the clone of a URL lies once there is one."""
    return cache_home() / "git" / f"{sha256_hex(url.encode())[:32]}.git"


def remote_repository(url: str, commits: Sequence[str], shown: str, field: str) -> Repository:
    """A clone of ``url`` that has ``commits``; the server is asked only where one is missing.

    BadInput for a URL that is not plain http(s), a repository that wants credentials, and commits
    that it does not have; InfrastructureFault (``server``) where it does not answer in three tries.
    """
    _check_url(url, shown, field)
    return clone(url, commits, shown, field)


def _check_url(url: str, shown: str, field: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        problem = f"{parts.scheme or 'this'} is not fetched: only http and https are"
    elif parts.username or parts.password:
        problem = "the URL carries credentials"
    else:
        return
    raise BadInput(shown, field, problem, "Clone it yourself and give the folder's path.")


def clone(
    url: str, commits: Sequence[str], shown: str, field: str, sleep: Sleep = time.sleep
) -> Repository:
    """As :func:`remote_repository`, for whatever libgit2 can fetch from."""
    place = clone_place(url)
    if _has(place, commits):
        return Repository(place, shown, field)
    with disk_faults():
        place.parent.mkdir(parents=True, exist_ok=True)
        with alone(place.with_suffix(".lock")):
            for refspecs in (BRANCHES_AND_TAGS, *((commit,) for commit in commits)):
                if not _has(place, commits):  # another builder may have been quicker
                    _fetch_or_explain(place, url, refspecs, shown, field, sleep)
    if not _has(place, commits):
        missing = [commit for commit in commits if not _has(place, [commit])]
        raise BadInput(
            shown,
            field,
            f"the repository has no commit {missing[0]}",
            "Correct the id or the URL; a commit of a fork has to be fetched from that fork.",
        )
    return Repository(place, shown, field)


def _has(place: Path, commits: Sequence[str]) -> bool:
    if not (place / "objects").is_dir():
        return False
    database = pygit2.Odb(str(place / "objects"))
    return all(database.exists(commit) for commit in commits)


def _fetch_or_explain(
    place: Path, url: str, refspecs: Sequence[str], shown: str, field: str, sleep: Sleep
) -> None:
    single = refspecs is not BRANCHES_AND_TAGS
    for attempt in range(1, TRIES + 1):
        try:
            return _fetch(place, url, refspecs)
        except _NeedsCredentials:
            problem = "the server has no such public repository (it asks for credentials)"
            remedy = "Correct the URL, or clone it yourself and give the folder's path."
            raise BadInput(shown, field, problem, remedy) from None
        except _TooLarge:
            problem = f"the repository is larger than {PACK_BYTES >> 30} GiB"
            remedy = "Clone it yourself, as small as you need it, and give the folder's path."
            raise BadInput(shown, field, problem, remedy) from None
        except (pygit2.GitError, ValueError, OSError) as error:
            if single:  # not every server hands out commits that no reference leads to
                return None
            if attempt == TRIES:
                raise _unreachable(url, error, shown, field) from None
        sleep(BACK_OFF_SECONDS * 2 ** (attempt - 1))
    return None


def _fetch(place: Path, url: str, refspecs: Sequence[str]) -> None:
    flags = RepositoryInitFlag.BARE | RepositoryInitFlag.MKPATH
    repository = pygit2.init_repository(str(place), bare=True, flags=flags)
    for path in (place / "objects" / "pack").glob("*"):
        if path.suffix not in FINISHED:  # what a killed builder has left
            path.unlink()
    if url.startswith("https://"):
        bundle = index.certificate_file()
        if bundle is not None:
            pygit2.settings.set_ssl_cert_locations(bundle, None)
    pygit2.settings.server_connect_timeout = CONNECT_MILLISECONDS
    pygit2.settings.server_timeout = ANSWER_MILLISECONDS
    remote = repository.remotes.create_anonymous(url)
    remote.fetch(list(refspecs), callbacks=_Callbacks(), prune=FetchPrune.NO_PRUNE, proxy=True)


def _unreachable(url: str, error: Exception, shown: str, field: str) -> InfrastructureFault:
    host = index.shown(url)
    reason = (str(error).splitlines() or ["no answer"])[0]
    return InfrastructureFault(
        "server",
        f"{shown}: {field}: the repository could not be fetched from {host} in {TRIES} tries "
        f"({reason}). Check the URL and the network and run again, or clone it yourself and give "
        "the folder's path.",
    )
