"""Errors as types with fields; the command line turns them into one sentence and an exit code."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar


class FactorialError(Exception):
    """Base of every error that the command line reports without a traceback (exit code 1)."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle by ``args``, which keyword construction leaves empty; errors have to
        # cross process boundaries whole.
        return type(self), tuple(getattr(self, f.name) for f in fields(self) if f.init)  # type: ignore[arg-type]


@dataclass
class BadInput(FactorialError):
    """Something a person wrote is wrong. Names the file, the field and the remedy (exit code 2)."""

    file: str
    field: str
    problem: str
    remedy: str
    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        where = f"{self.file}: {self.field}" if self.field else self.file
        return f"{where}: {self.problem}. {self.remedy}"


@dataclass
class LockMismatch(FactorialError):
    """The world differs from the lock; one line per difference (exit code 2)."""

    lock: str
    differences: tuple[str, ...]
    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        lines = "\n".join(f"  - {difference}" for difference in self.differences)
        return (
            f"{self.lock}: refused, {len(self.differences)} difference(s) from the lock:\n{lines}\n"
            "Restore what differs, or freeze a new lock and run it in a new root."
        )


@dataclass
class InfrastructureFault(FactorialError):
    """Out-of-band evidence proves that node, engine, server or evaluator failed, not the agent.

    ``boundary`` is one of ``node``, ``engine``, ``server``, ``evaluator``, ``disk``.
    """

    boundary: str
    detail: str

    def __str__(self) -> str:
        return f"{self.boundary}: {self.detail}"


@dataclass
class IntegrityError(FactorialError):
    """A stored fact does not match its digest, its chain or its schema."""

    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.detail}"
