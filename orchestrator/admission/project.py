"""The manifest of a project under admission: its checks, what they may touch, and the policy.

Written by the project's owner, read again before every run, so that evidence gathered under one
manifest says nothing under another.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from orchestrator.contract.modes import Mode
from orchestrator.spec.manifest import Frozen, Misfit, load

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Pattern = Annotated[str, Field(pattern=r"^[^/\x00][^\x00]*$")]
Target = Annotated[str, Field(pattern=r"^/opt/[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$")]
Layer = Literal["L1", "L2", "L3"]


class Check(Frozen):
    """One command of the project. ``cwd`` is relative to the tree; ``timeout_s`` in seconds.

    The tree is a fresh copy, read-only unless ``writable``. ``memory_mib`` bounds all its processes
    together.
    """

    name: Name
    argv: tuple[Text, ...] = Field(strict=False, min_length=1)
    cwd: Text = "."
    timeout_s: float = Field(default=120.0, gt=0, le=86_400)
    memory_mib: int = Field(default=1024, ge=16)
    writable: bool = False

    @field_validator("cwd")
    @classmethod
    def _inside(cls, cwd: str) -> str:
        if PurePosixPath(cwd).is_absolute() or ".." in PurePosixPath(cwd).parts:
            raise ValueError("has to be a folder inside the tree, such as `.` or `packages/core`")
        return cwd


class Gate(Check):
    """A check that judges. ``layer``: what it covers (L1 the project's own checks, L2 domain
    acceptance, L3 protected environment). A gate that is not ``binding`` is heard, never obeyed.
    """

    layer: Layer = "L1"
    binding: bool = True


class Project(Frozen):
    """A project and the policy of its admission.

    ``suite``: patterns of the files that judge, laid down from the owner's folder for every run.
    ``protected``: further patterns that no candidate may change. ``ignored``: patterns of build
    caches, outside every identity. A pattern without a slash matches any part of a path.
    ``environment`` and ``pass_environment``: all that a command's environment has beyond PATH,
    HOME, LANG and TZ. ``tools``: folder below ``/opt`` inside -> folder of this machine, read-only.
    ``candidates`` and ``wall_s``: the agent's budgets. ``repeat_limit``: rejections of one state,
    ``oscillation_limit``: returns to earlier states, after which the session escalates.
    """

    schema_: Literal["factorial/admission@1"] = Field(alias="schema")
    name: Name
    mode: Mode = Field(default=Mode.ENFORCE, strict=False)
    gates: tuple[Gate, ...] = Field(strict=False, min_length=1)
    diagnostics: tuple[Check, ...] = Field(default=(), strict=False)
    suite: tuple[Pattern, ...] = Field(default=(), strict=False)
    protected: tuple[Pattern, ...] = Field(default=(), strict=False)
    ignored: tuple[Pattern, ...] = Field(default=(), strict=False)
    environment: dict[Variable, Text] = Field(default_factory=dict)
    pass_environment: tuple[Variable, ...] = Field(default=(), strict=False)
    tools: dict[Target, Text] = Field(default_factory=dict)
    candidates: int = Field(default=10, ge=1)
    wall_s: float = Field(default=900.0, gt=0)
    on_timeout: Literal["reject", "abstain"] = "reject"
    repeat_limit: int = Field(default=3, ge=1)
    oscillation_limit: int = Field(default=4, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> "Project":
        names = [check.name for check in (*self.gates, *self.diagnostics)]
        if len(set(names)) < len(names):
            raise Misfit("gates", "two checks have one name")
        if not any(gate.binding for gate in self.gates):
            raise Misfit("gates", "no gate is binding, so nothing could ever be rejected")
        overlap = [p for p in self.ignored if p in (*self.suite, *self.protected)]
        if overlap:
            raise Misfit("ignored", f"{overlap[0]!r} judges or is protected, it has an identity")
        return self


def load_project(manifest: Path) -> Project:
    """Read and validate a manifest; BadInput names file, field and remedy."""
    return load(manifest, Project)


def matches(patterns: tuple[str, ...], path: str) -> bool:
    """Whether a pattern matches ``path`` or a folder above it.

    ``*`` and ``?`` stand for any characters and for one, slashes aside; ``**`` for anything.
    """
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    for pattern in patterns:
        compiled = _compiled(pattern.rstrip("/"))
        places = above if "/" in pattern.rstrip("/") else parts
        if any(compiled.fullmatch(place) for place in places):
            return True
    return False


def _compiled(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*|\*|\?)", pattern)
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(words.get(piece) or re.escape(piece) for piece in pieces), re.S)
