"""Makes a task's hash-locked requirements file out of a list of requirements.

pip resolves the list for the task's own interpreter, from wheels only, so that nothing is built or
run; the project under test is left out of the result. The same list and the same state of the index
give the same file, for the platform it was made on.
"""

import codecs
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from orchestrator.spec.errors import BadInput, InfrastructureFault
from orchestrator.tasks.environment import find_python
from orchestrator.tasks.installer import STEP_SECONDS, complaints, pip_of, run_step

EGG = re.compile(r"[#&]egg=([A-Za-z0-9_.-]+)")
SHA256 = re.compile(r"[0-9a-f]{64}")
ARTEFACTS = frozenset({"pkg-resources"})
"""What ``pip freeze`` lists on some systems though no index has it."""


def read_list(path: Path) -> str:
    """Text of a list of requirements: UTF-8, or UTF-16 with its mark, as some shells write it."""
    try:
        data = path.read_bytes()
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return data.decode("utf-16" if wide else "utf-8-sig")
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        problem = "is neither UTF-8 nor UTF-16 text"
    raise BadInput(str(path), "", problem, "Give a text file with one requirement per line.")


def listed_requirements(text: str, file: str, project: str) -> tuple[str, ...]:
    """The requirements in the text of a requirements file, the project under test left out.

    BadInput for anything but a name with versions, extras and markers: options and URLs would let
    the file choose what is fetched and run.
    """
    joined = re.sub(r"\\\r?\n", " ", text)
    lines = (re.split(r"(?:^|\s)#(?!egg=)", line)[0].strip() for line in joined.splitlines())
    kept = (_requirement(line, file, canonicalize_name(project)) for line in lines if line)
    return tuple(requirement for requirement in kept if requirement is not None)


def _requirement(line: str, file: str, project: str) -> str | None:
    egg = EGG.search(line)
    if egg is not None and canonicalize_name(egg[1]) == project:
        return None
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url is not None:
        raise BadInput(
            file,
            line[:80],
            "is no requirement by name and version",
            "Write `name==version`; options and URLs are not taken.",
        )
    name = canonicalize_name(requirement.name)
    return None if name == project or name in ARTEFACTS else str(requirement)


def lock_requirements(wanted: Sequence[str], python: str, project: str, file: str) -> str:
    """Text of a requirements file: every distribution that ``wanted`` needs, pinned, with SHA-256.

    ``python``: ``major.minor`` of the task; ``project``: the distribution under test, left out even
    where another one depends on it; ``file``: names the list in errors. Raises BadInput where the
    interpreter is missing, pip cannot resolve the list or pytest is not in the result, and
    InfrastructureFault where pip does not end or says nothing usable.
    """
    interpreter = find_python(python)
    if interpreter is None:
        problem = f"no Python {python} on this machine"
        raise BadInput(file, "python", problem, f"Install python{python}, or name another version.")
    pins = _pins(_report(wanted, interpreter, file), file)
    pins.pop(canonicalize_name(project), None)
    if "pytest" not in pins:
        raise BadInput(file, "pytest", "is missing", "Add the pytest that runs the suites.")
    lines = (f"{name}=={pins[name][0]} --hash=sha256:{pins[name][1]}" for name in sorted(pins))
    return "".join(f"{line}\n" for line in (f"# Python {python}, {_platform()}", *lines))


def _platform() -> str:
    return f"{sys.platform}-{os.uname().machine}"


def _report(wanted: Sequence[str], interpreter: Path, file: str) -> object:
    """pip's installation report for ``wanted`` in an empty environment of the interpreter."""
    with tempfile.TemporaryDirectory(prefix="factorial-lock-") as folder:
        listed, report = Path(folder) / "requirements.txt", Path(folder) / "report.json"
        listed.write_text("".join(f"{line}\n" for line in wanted), encoding="utf-8")
        install = ["install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
        where = ["--report", str(report), "-r", str(listed)]
        _run([*pip_of(interpreter), "--python", str(interpreter), *install, *quiet, *where], file)
        try:
            found: object = json.loads(report.read_bytes())
        except (OSError, ValueError) as error:
            raise InfrastructureFault("node", f"{file}: pip left no report ({error})") from None
    return found


def _run(argv: Sequence[str], file: str) -> None:
    """pip's last error becomes the problem: earlier ones list what it has tried."""
    try:
        done = run_step(argv, STEP_SECONDS)
    except subprocess.TimeoutExpired:
        raise InfrastructureFault(
            "server", f"{file}: pip did not resolve it within {STEP_SECONDS:.0f} s"
        ) from None
    if done.returncode != 0:
        raise BadInput(
            file,
            "",
            f"pip cannot resolve the list from wheels ({complaints(done)[-1]})",
            "Correct the versions, or check that the package index can be reached.",
        )


def _pins(report: object, file: str) -> dict[str, tuple[str, str]]:
    """Normalised name -> (version, SHA-256 of the wheel) out of pip's report."""
    pins: dict[str, tuple[str, str]] = {}
    try:
        for item in report["install"]:  # type: ignore[index]
            hashes = item["download_info"]["archive_info"]["hashes"]
            digest, version = str(hashes["sha256"]), str(item["metadata"]["version"])
            if not SHA256.fullmatch(digest):
                raise ValueError(digest)
            pins[canonicalize_name(item["metadata"]["name"])] = version, digest
    except (KeyError, TypeError, ValueError) as error:
        raise InfrastructureFault(
            "node", f"{file}: pip's report has another form than expected ({error!r})"
        ) from None
    return pins
