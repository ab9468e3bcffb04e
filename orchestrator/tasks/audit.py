"""Proves of a built task that nothing sealed can be read on the agent's side.

Reads what lies on disk and returns a certificate or findings; changes nothing. What the sandbox
itself shows is the business of :mod:`orchestrator.tasks.scan`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from orchestrator.evaluator.suites import Bundle, load_bundle
from orchestrator.repo.files import Files, apply_delta
from orchestrator.repo.mirror import CONFIG, Mirror
from orchestrator.repo.patch import apply_patch
from orchestrator.spec.identity import digest_json, sha256_file
from orchestrator.spec.paths import is_test_path
from orchestrator.spec.ports import Delta
from orchestrator.tasks import objects
from orchestrator.tasks.certificate import Certificate, Check, differences, read_certificate
from orchestrator.tasks.classify import top_level_modules
from orchestrator.tasks.compartments import AGENT_BRANCH, Places, environments, require_built
from orchestrator.tasks.environment import distributions, importable
from orchestrator.tasks.findings import Finding, Leak
from orchestrator.tasks.leaks import Secrets, gold_lines, secrets_of
from orchestrator.tasks.probe.walk import FOREIGN, OWN
from orchestrator.tasks.scan import Folders, compile_news

METADATA: Final = re.compile(r"(?:.*/)?([^/]+)-[^-/]+\.dist-info/METADATA")


@dataclass(frozen=True)
class Subject:
    """A built task with everything that the checks need, each part read once."""

    out: Path
    task_id: str

    @cached_property
    def places(self) -> Places:
        return Places(self.out, self.task_id)

    @cached_property
    def bundle(self) -> Bundle:
        return load_bundle(self.out, self.task_id)

    @cached_property
    def gold(self) -> Delta:
        return apply_patch(self.bundle.base, self.places.gold_patch.read_bytes())

    @cached_property
    def environment(self) -> Path:
        return environments(self.out) / self.bundle.environment_id

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @cached_property
    def repository(self) -> objects.Repository:
        """The agent's mirror, and the base tree that the evaluator demands of it."""
        return objects.Repository(self.places.agent / "repo.git", self.bundle.base)

    @cached_property
    def agent_tree(self) -> Files:
        return Mirror(self.repository.path).files(AGENT_BRANCH)

    @cached_property
    def secrets(self) -> Secrets:
        return task_secrets(self.bundle, self.gold, self.python)

    @cached_property
    def scanned(self) -> list[Leak]:
        folders = {
            self.places.agent: (OWN, "agent compartment"),
            self.environment: (FOREIGN, "environment"),
        }
        return Folders(folders).leaks(self.python, self.secrets)


def task_secrets(bundle: Bundle, gold: Delta, python: Path) -> Secrets:
    """What of a task must be out of reach; ``python`` compiles gold as it would be compiled there.

    The compiled form depends on the version of ``python`` alone.
    """
    fixed = apply_delta(bundle.base, gold)
    pairs = {
        path: (bundle.base[path][1] if path in bundle.base else b"", fixed[path][1])
        for path in gold
        if path in fixed and path.endswith(".py")
    }
    stated = (METADATA.fullmatch(path) for path in bundle.sealed)
    names = {canonicalize_name(match[1]) for match in stated if match}
    return secrets_of(
        bundle,
        gold,
        compile_news(python, pairs),
        {canonicalize_name(bundle.project), *names},
        top_level_modules(bundle.base, bundle.ground.import_root),
    )


# ------------------------------------------------------------------------------- checks

Scanned = dict[str, int | str]


def _one_commit(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    found = objects.one_commit(subject.repository)
    return {"objects": len(subject.repository.objects)}, found


def _layout(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    return {"entries": len(subject.repository.entries)}, objects.layout(subject.repository)


def _settings(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    return {"lines": len(CONFIG.splitlines())}, objects.settings(subject.repository)


def _index(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    return {"files": len(subject.bundle.base)}, objects.index(subject.repository)


def _base_tree(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    return {"files": len(subject.agent_tree)}, _test_paths(subject)


def _test_paths(subject: Subject) -> Iterator[Leak]:
    for path in sorted(filter(is_test_path, subject.agent_tree)):
        yield "no-test-path", objects.MIRROR, f"{path} is a test path"
    if subject.agent_tree != subject.bundle.base:
        yield "no-test-path", objects.MIRROR, "its tree is not the evaluator's base tree"


def _contents(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    """Everything that is looked for by content, in the mirror's objects and in two folders."""
    secrets = subject.secrets
    scanned: Scanned = {
        "agent_files": _file_count(subject.places.agent),
        "code_objects": len(secrets.codes),
        "environment_sources": _sources_digest(subject.environment),
        "foreign_needles": len(secrets.foreign),
        "own_needles": len(secrets.own),
        "whole_files": len(secrets.files),
    }
    return scanned, _content_leaks(subject)


def _content_leaks(subject: Subject) -> Iterator[Leak]:
    yield from objects.sealed_objects(subject.repository, subject.secrets)
    yield from subject.scanned
    for path in sorted(subject.places.agent.rglob("*")):
        if path.is_symlink():
            name = path.relative_to(subject.places.agent)
            yield "readable", "agent compartment", f"{name} is a link"


def _evaluator(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    repository = subject.places.evaluator / "repo.git"
    found = objects.gold_objects(repository, subject.secrets)
    return {"objects": len(objects.objects_of(repository))}, found


def _installed(subject: Subject) -> tuple[Scanned, Iterator[Leak]]:
    scanned: Scanned = {"distributions": len(distributions(subject.environment))}
    return scanned, project_in_environment(subject.environment, subject.secrets)


def project_in_environment(environment: Path, secrets: Secrets) -> Iterator[Leak]:
    """Any release of the project in the interpreter that runs its tests."""
    rule = "project-not-installed"
    for name in sorted(secrets.names.intersection(distributions(environment))):
        yield rule, "environment", f"distribution {name}"
    for module in importable(environment, secrets.modules):
        yield rule, "environment", f"module {module}"


def _file_count(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file())


def _sources_digest(environment: Path) -> str:
    """SHA-256 over names and contents of the packages' modules.

    Compiled files, records and settings name the place and the time of an installation and are no
    part of it; they are scanned all the same.
    """
    site = sorted(environment.glob("lib/python3*/site-packages"))
    sources = [path for folder in site for path in folder.rglob("*.py")]
    return digest_json(sorted([p.relative_to(environment).as_posix(), sha256_file(p)]
                              for p in sources))  # fmt: skip


CHECKS: Final = {
    "one-commit": _one_commit,
    "repository-layout": _layout,
    "repository-settings": _settings,
    "repository-index": _index,
    "no-test-path": _base_tree,
    "contents": _contents,
    "no-gold-object": _evaluator,
    "project-not-installed": _installed,
}
"""Check -> what it looks at and what it finds; ``contents`` finds for the rules no-gold-line,
no-fixed-file, no-sealed-test, no-gold-bytecode and readable."""


# ------------------------------------------------------------------------------- results


def certify(out: Path, task_id: str) -> Certificate:
    """Run every check on the compartments and the environment of a task as they lie below ``out``.

    BadInput, IntegrityError where a compartment cannot be read at all; InfrastructureFault where
    the environment's interpreter does not run.
    """
    certificate, _ = _examined(out, task_id)
    return certificate


def audit_task(out: Path, task_id: str) -> list[Finding]:
    """Every finding, in the order of :data:`CHECKS`, and where the stored certificate differs.

    An empty list is a clean task. Raises as :func:`certify`, and BadInput where it is not built.
    """
    built = require_built(out, task_id)
    certificate, findings = _examined(out, task_id)
    stored = read_certificate(Places(out, task_id).certificate)
    found = [*findings, *differences(stored, certificate)]
    if stored is not None and stored.sha256 != built.certificate_sha256:
        problem = "is not the one that the facts of the task name"
        found.append(Finding(task_id, "certificate", "gold compartment", problem))
    return found


def _examined(out: Path, task_id: str) -> tuple[Certificate, list[Finding]]:
    subject = Subject(out.absolute(), task_id)
    checks: list[Check] = []
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        scanned, leaks = check(subject)
        found = [Finding(task_id, *leak) for leak in leaks]
        texts = tuple(f"{each.rule}: {each.where}: {each.what}" for each in found)
        checks.append(Check(rule=name, scanned=scanned, findings=texts))
        findings += found
    certificate = Certificate(
        schema="factorial/certificate@1",
        task_id=task_id,
        agent_commit=subject.repository.commit,
        environment_id=subject.bundle.environment_id,
        secrets=subject.secrets.digest,
        checks=tuple(checks),
    )
    return certificate, findings


__all__ = ["CHECKS", "audit_task", "certify", "gold_lines", "task_secrets"]
