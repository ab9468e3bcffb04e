"""What evidence is bound to: command, suite, policy and context, each named by a SHA-256.

Evidence of one suite identity says nothing under another, so whatever could change the meaning of a
pass has its part here: arguments, working directory, deadline, suite files, policy, environment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.admission.project import Check, Project
from orchestrator.repo.files import Files, tree_of
from orchestrator.spec.identity import digest_json, sha256_hex

VERIFIER = "factorial/command-verifier@1"
"""How commands are run and read; another way of running them has another name."""

EVIDENCE_FIELDS = frozenset({"gates", "diagnostics", "environment", "pass_environment", "tools"})
"""Fields of a project that are in its commands' or its context's identity, not in its policy's."""


@dataclass(frozen=True)
class Identities:
    """Everything that an execution is bound to beside the state. Values are SHA-256 digests."""

    commands: Mapping[str, str]
    suite_files: str
    policy: str
    context: str
    diagnostic_suite: str
    gate_suite: str


def command_id(check: Check) -> str:
    """Identity of a command: name, arguments, working directory, deadline and the rest of it."""
    return digest_json(check.model_dump(mode="json"))


def suite_files_id(files: Files) -> str:
    """Identity of the files that judge."""
    return tree_of(files).state_id


def policy_id(project: Project) -> str:
    """Identity of what the owner allows: modes, patterns, budgets and limits."""
    return digest_json(project.model_dump(mode="json", exclude=set(EVIDENCE_FIELDS)))


def context_id(project: Project, environment: Mapping[str, str], sandbox: Mapping[str, str]) -> str:
    """Identity of where commands run: sandbox, tools, variables (values by digest)."""
    variables = {name: sha256_hex(value.encode()) for name, value in environment.items()}
    return digest_json({"sandbox": dict(sandbox), "tools": project.tools, "environment": variables})


def identify(
    project: Project,
    suite_files: Files,
    environment: Mapping[str, str],
    sandbox: Mapping[str, str],
) -> Identities:
    """All identities of a project as it is now."""
    files, policy = suite_files_id(suite_files), policy_id(project)
    context = context_id(project, environment, sandbox)
    checks = (*project.gates, *project.diagnostics)
    return Identities(
        commands={check.name: command_id(check) for check in checks},
        suite_files=files,
        policy=policy,
        context=context,
        diagnostic_suite=_suite("diagnostic", project.diagnostics, files, policy, context),
        gate_suite=_suite("gate", project.gates, files, policy, context),
    )


def _suite(kind: str, checks: Sequence[Check], files: str, policy: str, context: str) -> str:
    return digest_json(
        {
            "kind": kind,
            "verifier": VERIFIER,
            "commands": [command_id(check) for check in checks],
            "files": files,
            "policy": policy,
            "context": context,
        }
    )
