"""What every source of tasks comes down to: two trees, what they are called, what pins them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.repo.files import Files


@dataclass(frozen=True)
class Expected:
    """Test ids that the source itself lists (a benchmark's row, a bug database).

    They are carried as they were written: an id may name a test, a test function without its
    parameters, a class or a file. Empty where the source lists none of that sort.
    """

    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()


@dataclass(frozen=True)
class Endpoints:
    """Both ends of a bug's fix as trees, before anything is classified or run.

    ``name``: of the distribution; ``version``: of the buggy tree, ``0`` where it says none.
    ``source_id``: SHA-256 over all that pins the two trees (64 hexadecimal digits), not over where
    they were fetched from. ``relation``: how the ends are related, in words. ``notes``: what was
    left out or looks odd, keyed by a short name; for reviewers, never for decisions.
    """

    buggy: Files
    fixed: Files
    name: str
    version: str
    source_id: str
    relation: str
    notes: Mapping[str, str] = field(default_factory=dict)
    expected: Expected | None = None
