"""Makes the virtual environment in which a task's tests run, named by what went into it.

In: a Python version and a pip requirements file with hashes. Out: ``DIR/<environment_id>``, shared
by all tasks with the same pins, complete or absent; of several builders one makes it and the others
wait. It holds no pip and never the project under test; start it as ``<environment>/bin/python -m
...``, since its other scripts are removed (they would name the place where it was built).
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.spec.identity import digest_json, sha256_file
from orchestrator.spec.manifest import read_text
from orchestrator.spec.task import Environment
from orchestrator.tasks.compartments import temporary_folder, workroom
from orchestrator.tasks.installer import STEP_SECONDS, complaints, pip_of, run_step
from orchestrator.tasks.turns import alone

OLDEST_MINOR = 8
"""The launcher that runs suites needs Python 3.8 or later."""
LOG_CHARS = 8_000
IMPORTABLE = (
    "import importlib.util, sys\n"
    "for name in sys.argv[1:]:\n"
    "    spec = None if name in sys.stdlib_module_names else importlib.util.find_spec(name)\n"
    "    if spec is not None: print(name)\n"
)


def find_python(version: str) -> Path | None:
    """An interpreter of ``major.minor``: this one, one on PATH, or one that pyenv has; or None."""
    return next((path for path in _interpreters(version) if _version(path, version)), None)


def _interpreters(version: str) -> Iterator[Path]:
    if "{}.{}".format(*sys.version_info[:2]) == version:
        yield Path(sys.executable)
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)


def _version(python: Path, wanted: str) -> str | None:
    """``major.minor.micro`` of an interpreter, or None where it does not start or is another."""
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = done.stdout.strip()
    return found if done.returncode == 0 and found.startswith(f"{wanted}.") else None


def environment_id(environment: Environment, manifest: Path) -> str:
    """SHA-256 over the interpreter's full version and the requirements file's digest."""
    python = _python(environment, manifest)
    requirements = _requirements_path(environment, manifest)
    read_text(requirements)  # BadInput where it is missing
    return digest_json([_version(python, environment.python), sha256_file(requirements)])


def build_environment(environment: Environment, manifest: Path, home: Path) -> str:
    """Make ``home/<environment_id>`` unless it is there; returns the id.

    ``manifest`` is the task manifest, to whose folder the requirements file is relative. Raises
    BadInput for an interpreter that is not to be had, a requirement without pin or hash, and
    whatever pip refuses.
    """
    name = environment_id(environment, manifest)
    if (home / name).is_dir():
        return name
    requirements = _requirements_path(environment, manifest)
    check_requirements(requirements)
    home.mkdir(parents=True, exist_ok=True)
    with alone(workroom(home.parent) / f"{name}.lock"):
        if (home / name).is_dir():
            return name
        building = temporary_folder(workroom(home.parent), "environment")
        try:
            _create(_python(environment, manifest), building, requirements)
            _move(building, home / name)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return name


def _python(environment: Environment, manifest: Path) -> Path:
    if int(environment.python.partition(".")[2]) < OLDEST_MINOR:
        raise BadInput(
            str(manifest),
            "environment.python",
            f"suites cannot be run under Python {environment.python}",
            f"Use Python 3.{OLDEST_MINOR} or later.",
        )
    found = find_python(environment.python)
    if found is None:
        raise BadInput(
            str(manifest),
            "environment.python",
            f"no Python {environment.python} on this machine",
            f"Install python{environment.python} so that it is on PATH or known to pyenv.",
        )
    return found


def _requirements_path(environment: Environment, manifest: Path) -> Path:
    return manifest.parent / environment.requirements


def requirement_names(requirements: Path) -> tuple[str, ...]:
    """Normalised names in a requirements file; BadInput for a line without pin or hash."""
    text = re.sub(r"\\\r?\n", " ", read_text(requirements))
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return tuple(_named(requirements, line) for line in lines if line and line[0] != "#")


def _named(requirements: Path, line: str) -> str:
    specifier, *hashes = re.split(r"\s+--hash=", line)
    try:
        requirement = Requirement(specifier)
    except InvalidRequirement:
        raise BadInput(
            str(requirements), specifier, "is no requirement", "Write `name==version --hash=...`."
        ) from None
    pinned = [part for part in requirement.specifier if part.operator == "=="]
    if not pinned or not hashes or not all(h.startswith("sha256:") for h in hashes):
        raise BadInput(
            str(requirements),
            requirement.name,
            "has no exact version or no SHA-256",
            "Write `name==version --hash=sha256:...`.",
        )
    return canonicalize_name(requirement.name)


def check_requirements(requirements: Path) -> None:
    """BadInput unless every line is pinned with a hash and pytest is among them."""
    if "pytest" not in requirement_names(requirements):
        raise BadInput(
            str(requirements), "pytest", "is missing", "Pin the pytest that runs the suites."
        )


def _create(python: Path, building: Path, requirements: Path) -> None:
    where = str(requirements)
    _step([str(python), "-m", "venv", "--without-pip", str(building)], where)
    install = ["install", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    options = ["--quiet", "--no-input", "--no-warn-script-location", "-r", where]
    pip = [*pip_of(python), "--python", str(building / "bin" / "python")]
    _step([*pip, *install, *options], where)
    for script in (building / "bin").iterdir():
        if script.is_dir():  # a wheel may bring one, such as `__pycache__`
            shutil.rmtree(script)
        elif not script.name.startswith("python"):
            script.unlink()
    _make_readable(building)


def _step(argv: Sequence[str], requirements: str) -> None:
    """Run one step; its own first error becomes the problem."""
    try:
        done = run_step(argv, STEP_SECONDS)
    except subprocess.TimeoutExpired:
        raise InfrastructureFault(
            "node", f"{requirements}: installing took longer than {STEP_SECONDS:.0f} s"
        ) from None
    if done.returncode != 0:
        refusal = BadInput(
            requirements,
            "requirements",
            f"the environment cannot be installed ({complaints(done)[0]})",
            "Correct the pins and hashes, or check that the package index can be reached.",
        )
        refusal.add_note((done.stdout + done.stderr)[-LOG_CHARS:])
        raise refusal


def _make_readable(directory: Path) -> None:
    """Open it to the sandbox's users, whatever the umask was."""
    directory.chmod(0o755)
    for path in directory.rglob("*"):
        if not path.is_symlink():
            bits = path.stat().st_mode & 0o777
            path.chmod(bits | 0o555 if path.is_dir() or bits & 0o100 else bits | 0o444)


def _move(building: Path, target: Path) -> None:
    try:
        building.rename(target)
    except OSError:
        if not target.is_dir():  # another process was quicker: its environment is as good
            raise


# ------------------------------------------------------------------------------- what is in it


def distributions(environment: Path) -> tuple[str, ...]:
    """Normalised names of the distributions installed in an environment, sorted."""
    return tuple(
        sorted(
            canonicalize_name(info.name.removesuffix(".dist-info").rpartition("-")[0])
            for info in environment.glob("lib/python3*/site-packages/*.dist-info")
        )
    )


def importable(environment: Path, modules: Sequence[str]) -> tuple[str, ...]:
    """Which top-level modules the environment itself can import (none of them is imported)."""
    argv = [str(environment / "bin" / "python"), "-I", "-c", IMPORTABLE, *modules]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureFault("node", f"environment {environment.name}: {error}") from None
    if done.returncode != 0:
        raise InfrastructureFault(
            "node", f"environment {environment.name} does not start: {complaints(done)[0]}"
        )
    return tuple(done.stdout.split())


def check_absent(
    environment: Path, distribution: str, modules: Sequence[str], requirements: Path
) -> None:
    """BadInput where any release of the project under test is installed or importable there."""
    found = [f"distribution {distribution}"] * (
        canonicalize_name(distribution) in distributions(environment)
    )
    found += [f"module {module}" for module in importable(environment, modules)]
    if found:
        raise BadInput(
            str(requirements),
            canonicalize_name(distribution),
            f"the project under test is within reach of its own tests' environment "
            f"({', '.join(found)})",
            "Remove it from the requirements; dependencies are installed with --no-deps.",
        )
