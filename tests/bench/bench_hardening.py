"""Hardening against bare pytest in the same sandbox, as ratios (1: costs nothing).

Run as ``python tests/bench/bench_hardening.py``; replays one candidate that is not resolved and one
that is, on a project whose full suite takes about 10 s, and runs the same three suites bare. Prints
seconds and one ``ratio`` line for each.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.evaluator.ground import ENVIRONMENT, PYTEST_ARGUMENTS, REPO, SUITE_LIMITS, Ground
from orchestrator.evaluator.replay import evaluate_state
from orchestrator.evaluator.suites import Bundle, BundleFile, bundle_bytes, split_suites
from orchestrator.evaluator.verifier import ADJUDICATION, LocalVerifier
from orchestrator.repo.files import REGULAR, Files, delta_between, tree_of
from orchestrator.repo.mirror import Mirror
from orchestrator.repo.worktree import worktree
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.ports import Command, Mount

TASK = "work-1-2"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BUGS, KEPT, MILLISECONDS = 6, 294, 33
"""Tests that the candidate has to mend, tests that pass before and after, and what each takes."""
WALL_SECONDS = 600.0
WORK = """\
import time


def work(number):
    until = time.perf_counter() + {seconds}
    while time.perf_counter() < until:
        number * number
    return number{error}


def kept(number):
    work(number)
    return number
"""
FILE = "tests/test_work.py"
TESTS = "from work import kept, work\n" + "".join(
    f"\n\ndef test_{name}_{n}():\n    assert {name}({n}) == {n}\n"
    for name, count in (("work", BUGS), ("kept", KEPT))
    for n in range(count)
)


def files(error: str) -> Files:
    return {"work.py": (REGULAR, WORK.format(seconds=MILLISECONDS / 1000, error=error).encode())}


BASE, GOLD = files(" + 1"), files("")
SEALED: Files = {FILE: (REGULAR, TESTS.encode())}


def build(tasks: Path) -> None:
    """An environment with pytest, and the sealed bundle of the task."""
    environment = tasks / "environments" / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    site = next((environment / "lib").glob("python*/site-packages"))
    own = Path(sys.prefix, "lib", f"python{PYTHON}", "site-packages")
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py"):
        subprocess.run(["cp", "-r", own / name, site], check=True)
    bugs, kept = ([f"{FILE}::test_{n}_{i}" for i in range(c)] for n, c in
                  (("work", BUGS), ("kept", KEPT)))  # fmt: skip
    suites, _ = split_suites(TASK, bugs, kept, [*bugs, *kept])
    home = tasks / "evaluator" / TASK
    Mirror.create(home / "repo.git", {"base": BASE, "sealed": SEALED}, "work")
    record = BundleFile(
        schema="factorial/bundle@1",
        task_id=TASK,
        project="work",
        base_state_id=tree_of(BASE).state_id,
        environment_id="env",
        import_root=".",
        python=PYTHON,
        test_paths=("tests",),
        suites=suites,
        overlay_sha256=tree_of(SEALED).state_id,
        removed=(),
    )
    (home / "bundle.json").write_bytes(bundle_bytes(record))


def bare_seconds(bundle: Bundle, sandbox: BwrapSandbox, scratch: Path, tree: Files) -> float:
    """The three adjudication suites by ``python -m pytest``, each in a sandbox like the others'."""
    ground: Ground = bundle.ground
    total = 0.0
    for suite in ADJUDICATION:
        with worktree(bundle.laid_down(tree), scratch) as place:
            command = Command(
                argv=(f"{ENVIRONMENT}/bin/python", "-m", "pytest", *PYTEST_ARGUMENTS,
                      *bundle.suites[suite].ids),
                cwd=REPO,
                env={**ground.variables(), "PYTHONPATH": REPO},
                mounts=(Mount(place, REPO), Mount(ground.environment, ENVIRONMENT)),
                limits=SUITE_LIMITS,
            )  # fmt: skip
            started = time.perf_counter()
            sandbox.run(command)
            total += time.perf_counter() - started
    return total


def hardened_seconds(verifier: LocalVerifier, tree: Files, resolved: bool) -> float:
    started = time.perf_counter()
    state_id, delta = tree_of(tree).state_id, delta_between(BASE, tree)
    found = evaluate_state(verifier, TASK, state_id, delta, wall_seconds=WALL_SECONDS)
    assert found.resolved == resolved, found
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o711)
        build(home / "tasks")
        scratch, sandbox = home / "scratch", BwrapSandbox(home / "sandbox")
        verifier = LocalVerifier(home / "tasks", home / "cache", sandbox, scratch)
        bundle = verifier.bundle(TASK)
        for kind, tree in (("not resolved", BASE), ("resolved", GOLD)):
            bare = bare_seconds(bundle, sandbox, scratch, tree)
            hard = hardened_seconds(verifier, tree, kind == "resolved")
            print(f"{kind}: bare {bare:.1f} s, replayed with hardening {hard:.1f} s")
            print(f"ratio {kind} {hard / bare:.2f}", flush=True)


if __name__ == "__main__":
    main()
