"""The version of our own code: what the lock records and what every actor has to run."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from orchestrator.spec.errors import IntegrityError, LockMismatch
from orchestrator.spec.identity import digest_json, sha256_file
from orchestrator.spec.lock import Lock


def code_digest() -> str:
    """Digest over every source file of both packages: the code version of the lock."""
    digests = {}
    for package in ("orchestrator", "analysis"):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise IntegrityError(package, "the package's source files cannot be found")
        digests[package] = tree_digests(Path(spec.origin).parent)
    return digest_json(digests)


def require_code(lock: Lock) -> None:
    """Raise LockMismatch unless this process runs the code that the lock was frozen with.

    Another node, or an actor started in the folder of another checkout, may import another version.
    """
    present = code_digest()
    if present != lock.code:
        here = Path(__file__).parent.parent
        line = f"code: frozen {lock.code[:12]}, an actor imports {present[:12]} from {here}"
        raise LockMismatch("lock.json", (line,))


def tree_digests(directory: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file below a folder, bytecode left out."""
    return {name: sha256_file(directory / name) for name in sorted(_source_files(directory))}


def _source_files(directory: Path) -> Iterator[str]:
    for path in directory.rglob("*"):
        relative = path.relative_to(directory)
        if path.is_file() and "__pycache__" not in relative.parts:
            yield relative.as_posix()
