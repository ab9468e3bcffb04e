"""Endpoints from two consecutive source releases, pinned by the digests of their archives."""

from email.parser import Parser
from pathlib import Path

from packaging.utils import canonicalize_version
from packaging.version import InvalidVersion

from orchestrator.repo.files import Files
from orchestrator.spec.errors import BadInput
from orchestrator.spec.identity import digest_json
from orchestrator.spec.task import Release, SdistSource
from orchestrator.tasks.download import Wanted, fetch_sdist
from orchestrator.tasks.sources.endpoints import Endpoints
from orchestrator.tasks.unpack import unpack

RELATION = "consecutive releases"


def read_sdists(source: SdistSource, task_id: str, manifest: Path) -> Endpoints:
    """Fetch and unpack both releases. BadInput for an archive that is not what it should be."""
    field = f"tasks.{task_id}.source"
    return Endpoints(
        buggy=_release(source, source.buggy, manifest, f"{field}.buggy"),
        fixed=_release(source, source.fixed, manifest, f"{field}.fixed"),
        name=source.name,
        version=source.buggy.version,
        source_id=digest_json(["sdist", source.buggy.sha256, source.fixed.sha256]),
        relation=RELATION,
    )


def _release(source: SdistSource, release: Release, manifest: Path, field: str) -> Files:
    """A release's files. The cache knows hashes only, so the archive has to say what it is."""
    files = unpack(fetch_sdist(Wanted(source.name, release, str(manifest), field)))
    said = Parser().parsestr(files.get("PKG-INFO", (0, b""))[1].decode(errors="replace"))
    version = said["Version"]
    if version and not _equal(version, release.version):
        raise BadInput(
            str(manifest),
            f"{field}.sha256",
            f"is the hash of version {version}, not {release.version}",
            "Correct the version or the hash.",
        )
    return files


def _equal(one: str, other: str) -> bool:
    try:
        return canonicalize_version(one) == canonicalize_version(other)
    except InvalidVersion:  # releases of old had versions of any form
        return one == other
