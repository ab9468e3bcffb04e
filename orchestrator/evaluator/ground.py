"""How the suites of a task run: places inside the sandbox, variables, pytest arguments.

A :class:`Ground` is a value: it runs nothing, :mod:`orchestrator.evaluator.runner` carries it out.
Its :meth:`Ground.description` is part of every suite's identity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.spec.ports import Limits, Mount

REPO = "/workspace/repo"
ENVIRONMENT = "/opt/env"
PLUGIN = "/opt/evaluator"
KEY = "/opt/evaluator/key"
REPORT = "/out/report.jsonl"
HOME = "/tmp/home"

SUITE_LIMITS = Limits(
    memory_bytes=2 << 30,
    processes=256,
    file_bytes=64 << 20,
    scratch_bytes=512 << 20,
    output_bytes=256 << 10,
)
"""Default limits of one suite run; ``wall_seconds`` and ``cpu_seconds`` come with each run."""

PYTEST_ARGUMENTS = (
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=",
    "-o",
    "filterwarnings=default",
    "--continue-on-collection-errors",
    f"--rootdir={REPO}",
    "--tb=short",
    "--color=no",
    "-q",
    "-rN",
)
"""The project's own options are neutralised: coverage, parallel runs, warnings turned to errors."""


@dataclass(frozen=True)
class Ground:
    """Where and with what a task's tests run.

    ``environment`` is a virtual environment directory with pytest and the test dependencies, never
    the project itself. ``import_root`` (``"."``, ``"src"``) and ``test_paths`` are relative to the
    tree. ``python`` is ``major.minor``.
    """

    environment: Path
    import_root: str
    test_paths: tuple[str, ...]
    python: str

    @property
    def import_path(self) -> str:
        """Directory inside the sandbox from which the project is imported."""
        return str(PurePosixPath(REPO) / self.import_root)

    def variables(self, hash_seed: int = 0) -> dict[str, str]:
        """The whole environment of a run. ``PYTHONPATH`` is not in it: the launcher sets it for
        children only after pytest itself was imported, so that no file of the candidate can take
        the place of a module of the runner or of the interpreter's start-up.
        """
        return {
            "HOME": HOME,
            "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "PATH": f"{ENVIRONMENT}/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": str(hash_seed),
            "TZ": "UTC",
        }

    def argv(self) -> tuple[str, ...]:
        """Command that starts the launcher; what to run arrives on its standard input."""
        return (f"{ENVIRONMENT}/bin/python", "-s", f"{PLUGIN}/factorial_report.py")

    def mounts(self, tree: Path, plugin: Path, report: Path) -> tuple[Mount, ...]:
        """Candidate tree, environment and launcher read-only; one file, the report, writable."""
        return (
            Mount(tree, REPO),
            Mount(self.environment, ENVIRONMENT),
            Mount(plugin, PLUGIN),
            Mount(report, REPORT, writable=True),
        )

    def targets(self, tree: Path, ids: Sequence[str] | None) -> tuple[str, ...]:
        """What pytest collects: the files of the wanted ids that exist, or the test paths."""
        files = sorted({test_id.partition("::")[0] for test_id in ids or ()})
        wanted = [path for path in files if _inside(path) and (tree / path).is_file()]
        return tuple(str(PurePosixPath(REPO) / path) for path in wanted or self.test_paths or ".")

    def modules(self) -> frozenset[str]:
        """Names that can be imported at the top: the environment's and its Python's own."""
        library = f"lib/python{self.python}"
        base = (self.environment / "bin" / "python").resolve().parents[1] / library
        places = (self.environment / library / "site-packages", base, base / "lib-dynload")
        entries = [entry for place in places if place.is_dir() for entry in place.iterdir()]
        names = (top_module(f"{e.name}/" if e.is_dir() else e.name) for e in entries)
        return frozenset(name for name in names if name)

    def description(self) -> dict[str, object]:
        """What of the ground belongs to a suite's identity (paths of this machine do not)."""
        return {
            "argv": list(self.argv()),
            "arguments": list(PYTEST_ARGUMENTS),
            "import_root": self.import_root,
            "python": self.python,
            "test_paths": list(self.test_paths),
            "variables": self.variables(),
        }


def top_module(path: str) -> str | None:
    """The module that the first part of a relative path can be: a folder, or a file of code."""
    name, folder, _ = path.partition("/")
    if folder:
        return name
    return name.partition(".")[0] if name.endswith((".py", ".pyc", ".so")) else None


def _inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts
