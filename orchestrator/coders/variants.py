"""Verified variants of a task, by class, and the check that a planted stack can do with them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.spec.errors import BadInput
from orchestrator.spec.identity import sha256_hex
from orchestrator.spec.paths import protection
from orchestrator.spec.ports import Delta, FileChange
from orchestrator.spec.stack import PlantedStack

REGULAR, EXECUTABLE = 0o100644, 0o100755
NEEDED = 2
"""Variants per class: a revision must be able to change the state within its class."""


@dataclass(frozen=True)
class Variant:
    """One verified state and its difference from the task's base tree."""

    state_id: str
    delta: Delta


@dataclass(frozen=True)
class TaskVariants:
    """States of one task that a planted coder may propose, sorted by what the suites say of them.

    ``correct`` resolves; ``overfit`` passes the gate and does not resolve; ``wrong`` fails the
    gate. ``base_files``: path -> (git mode, content), at least for every path of a delta.
    """

    base_state_id: str
    base_files: dict[str, tuple[int, bytes]]
    correct: tuple[Variant, ...]
    overfit: tuple[Variant, ...]
    wrong: tuple[Variant, ...]

    def members(self, name: str) -> tuple[Variant, ...]:
        """The variants of a class: ``correct``, ``overfit`` or ``wrong``."""
        return {"correct": self.correct, "overfit": self.overfit, "wrong": self.wrong}[name]

    def everything(self) -> tuple[Variant, ...]:
        """All variants, class by class."""
        return (*self.correct, *self.overfit, *self.wrong)

    def find(self, state_id: str) -> Variant | None:
        """The variant with this state id; None for the base tree and for unknown states."""
        return next((v for v in self.everything() if v.state_id == state_id), None)

    def files(self, delta: Delta, other: Delta) -> dict[str, bytes]:
        """Content under ``delta`` of every path that either delta touches; absent = no file."""
        found: dict[str, bytes] = {}
        for path in {*delta, *other}:
            if path in delta:
                change = delta[path]
                if change is not None:
                    found[path] = change.content
            elif path in self.base_files:
                found[path] = self.base_files[path][1]
        return found


def check_variants(stack: PlantedStack, variants: Mapping[str, TaskVariants]) -> None:
    """Raise BadInput, naming the task, unless every transition of the rates can be proposed."""
    for task_id, task in sorted(variants.items()):
        for name in _needed_classes(stack):
            if len(task.members(name)) < NEEDED:
                raise BadInput(
                    f"stack {stack.name}",
                    f"task {task_id}",
                    f"the rates need {NEEDED} {name} variants, {len(task.members(name))} exist",
                    f"Leave the task out, or set the rates that lead to {name} states to 0.",
                )
        for problem in _problems(task):
            raise BadInput(
                f"stack {stack.name}", f"task {task_id}", problem, "Build the variants again."
            )


def _needed_classes(stack: PlantedStack) -> tuple[str, ...]:
    """Classes that some row can lead to; a correct state is reached by ``alpha`` alone."""
    repairs = any(r.alpha > 0 for r in stack.rates)
    wrong = any(
        r.alpha + r.overfit < 1 or (repairs and r.beta > 0 and r.overfit_harm < 1)
        for r in stack.rates
    )
    needed = {"correct": repairs, "overfit": stack.needs_overfit, "wrong": wrong}
    return tuple(name for name, is_needed in needed.items() if is_needed)


def _problems(task: TaskVariants) -> Iterator[str]:
    ids = [task.base_state_id, *(v.state_id for v in task.everything())]
    if len(set(ids)) != len(ids):
        yield "two variants, or a variant and the base tree, are the same state"
    for variant in task.everything():
        for path, change in variant.delta.items():
            problem = _change_problem(task.base_files.get(path), path, change)
            if problem:
                yield f"variant {variant.state_id[:12]}: {path} {problem}"


def _change_problem(
    base: tuple[int, bytes] | None, path: str, change: FileChange | None
) -> str | None:
    """Why an ``edit`` action cannot make this change, or None."""
    if reason := protection(path):
        return f"is protected ({reason})"
    if change is None:
        return None if base and base[0] == REGULAR else "is deleted and cannot be made again"
    if change.entry.sha256 != sha256_hex(change.content):
        return "does not have the content that its digest names"
    if change.entry.mode != (base[0] if base else REGULAR):
        return "changes its mode"
    if change.entry.mode not in (REGULAR, EXECUTABLE):
        return "is no plain file"
    return None if _is_text(change.content) and _is_text(base[1] if base else b"") else "is no text"


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False
