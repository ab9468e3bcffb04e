"""A project's own commands, really run: what they see, how they end, what may answer again."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.admission.agent import Agent, run_agent
from orchestrator.admission.session import Session
from orchestrator.admission.verifier import CommandVerifier, Execution, Request
from orchestrator.contract.verdicts import Verdict
from orchestrator.repo.files import REGULAR, Files, tree_of, write_directory
from orchestrator.sandbox.bwrap import BwrapSandbox
from orchestrator.spec.errors import BadInput
from tests.unit.admission_support import BASE, stated, with_code

Make = Callable[..., CommandVerifier]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> BwrapSandbox:
    return BwrapSandbox(tmp_path_factory.mktemp("sandbox"), Path(sys.executable))


@pytest.fixture
def make(tmp_path: Path, sandbox: BwrapSandbox) -> Make:
    write_directory(BASE, tmp_path / "source")

    def made(script: str, host: dict[str, str] | None = None, **changes: object) -> CommandVerifier:
        gate = {"name": "tests", "argv": ["sh", "-c", script], **changes.pop("gate", {})}  # type: ignore[dict-item]
        manifest = tmp_path / "project.yaml"
        manifest.write_text(json.dumps(stated(gates=[gate], **changes)))
        scratch = tmp_path / "scratch"
        return CommandVerifier(
            manifest, tmp_path / "source", sandbox, scratch, host=host, owner=sandbox.uid
        )

    return made


def run(verifier: CommandVerifier, files: Files, purpose: str = "gate", id: str = "x") -> Execution:
    return verifier.run(Request(purpose, tree_of(files).state_id, files, id))  # type: ignore[arg-type]


def test_the_candidate_is_what_is_judged(make: Make) -> None:
    verifier = make("grep -q good code.txt")
    good, bad = run(verifier, with_code(b"good")), run(verifier, with_code(b"bad"))
    assert (good.outcome, bad.outcome) == ("pass", "fail")
    assert good.state_id == tree_of(with_code(b"good")).state_id
    assert (good.results[0].exit_code, bad.results[0].exit_code) == (0, 1)


def test_the_suite_is_the_owners(make: Make) -> None:
    verifier = make("grep -q 'the suite' tests/check.txt && ! test -e tests/more", suite=["tests"])
    candidate = {**BASE, "tests/check.txt": (REGULAR, b"mine"), "tests/more": (REGULAR, b"")}
    assert run(verifier, candidate).outcome == "pass"


@pytest.mark.parametrize(("writable", "outcome"), [(False, "fail"), (True, "pass")])
def test_the_tree_is_read_only_unless_said(make: Make, writable: bool, outcome: str) -> None:
    verifier = make("echo x >built", gate={"writable": writable})
    assert run(verifier, BASE).outcome == outcome
    assert run(verifier, BASE, "certification").outcome == outcome  # and nothing was left behind


def test_the_environment_is_listed(make: Make) -> None:
    verifier = make(
        "env | sort | tr '\\n' ' ' >&2; exit 1",
        host={"TOKEN": "secret", "REGION": "north"},
        environment={"LEVEL": "own"},
        pass_environment=["REGION"],
        diagnostics=[{"name": "look", "argv": ["env"]}],
    )
    said = run(verifier, BASE, "diagnostic").payload
    names = {line.partition("=")[0] for line in said.splitlines()[1:]} - {"PWD", "SHLVL", "_"}
    assert names == {"HOME", "LANG", "LEVEL", "PATH", "REGION", "TZ"}


def test_a_tool_is_shown_read_only(make: Make, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "word").write_text("here")
    script = "grep -q here /opt/kit/word && ! touch /opt/kit/new"
    assert run(make(script, tools={"/opt/kit": str(tmp_path / "kit")}), BASE).outcome == "pass"
    with pytest.raises(BadInput, match="not a folder"):
        make(script, tools={"/opt/kit": str(tmp_path / "absent")}).identities()


def test_a_gate_may_be_answered_again_a_certification_never(make: Make, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "word").write_text("up")
    verifier = make("grep -q up /opt/kit/word", tools={"/opt/kit": str(tmp_path / "kit")})
    assert run(verifier, BASE, id="1").outcome == "pass"
    (tmp_path / "kit" / "word").write_text("down")
    again = run(verifier, BASE, id="2")
    assert (again.outcome, again.execution_id) == ("pass", "2")
    assert run(verifier, BASE, "certification", "3").outcome == "fail"
    assert run(verifier, BASE, id="4").outcome == "fail"  # the last word counts


def test_without_diagnostics_the_state_is_the_evidence(make: Make) -> None:
    said = run(make("true"), BASE, "diagnostic").payload
    assert tree_of(BASE).state_id in said


def test_an_agent_in_the_sandbox(make: Make, tmp_path: Path, sandbox: BwrapSandbox) -> None:
    verifier = make("grep -q good code.txt", ignored=[".build"])
    root, cache = tmp_path / "session", tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    source, owner = tmp_path / "source", sandbox.uid
    session = Session(tmp_path / "project.yaml", source, root, verifier, owner=owner)
    script = "mkdir .build && echo good >code.txt && echo o | tee .build/o >$CACHE/o && ls -a /"
    agent = Agent(["sh", "-c", script], {}, {"CACHE": cache})
    ended, decision = run_agent(session, sandbox, agent)
    assert ended.exit_code == 0, ended
    assert decision.verdict is Verdict.ADMITTED
    assert decision.state_id == tree_of(with_code(b"good\n")).state_id
    assert (cache / "o").read_text() == "o\n"
