"""Where the numbers come from, and how anyone computes them again."""

import platform
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from analysis.report.blocks import Block, Commands, table
from analysis.report.source import Study
from analysis.report.words import percent_range


def provenance(study: Study) -> tuple[Block, ...]:
    """What a reviewer needs to compute the same page again."""
    rows = [row for row in _origin_rows(study) if row[1]]
    lead = "The page, its tables and its decision can be computed again from the files alone:"
    return table("Identities and settings", ("what", "value"), rows, left=2), Commands(
        lead, _again(study)
    )


def _again(study: Study) -> tuple[str, ...]:
    """The commands that check and recompute; a table has nothing to verify but its outcomes."""
    place = shlex.quote(study.place)
    if not study.manifest:
        return tuple(f"factorial {word} {place}" for word in ("verify", "analyze", "report"))
    source = f"--outcomes {place} --study {shlex.quote(study.manifest)}"
    return tuple(f"factorial {word} {source}" for word in ("analyze", "report"))


def _origin_rows(study: Study) -> Iterator[Sequence[str]]:
    one, facts, design = study.analysis, study.facts, study.analysis.design
    yield "study", f"{one.study}: {one.title}"
    yield "stack", one.stack
    yield "source", study.place
    yield "lock", one.lock_id or "none: an outcome table from elsewhere"
    if facts.origin is not None:
        yield "code digest", facts.origin.code
        yield "lock schema", facts.origin.schema
        yield "amendments", ", ".join(facts.origin.amendments) or "none"
        yield "sandbox", facts.origin.sandbox
        yield "sampling", facts.origin.sampling
    factors = "; ".join(f"{name}: {', '.join(levels)}" for name, levels in design.factors.items())
    constants = "".join(f"; {name} held at {word}" for name, word in design.constants.items())
    yield "factors", factors + constants
    yield "seeds of the rollouts", ", ".join(map(str, study.plan.seeds))
    yield "bootstrap", f"exact distribution where it exists, beside {one.bootstrap_draws:,} draws"
    yield "sign flips", f"exact where possible, beside {one.sign_flip_draws:,} flips"
    yield "seed of both", str(one.seed)
    yield "decided by", f"{one.decision.decided_by} bootstrap"
    yield "baseline sound rate", percent_range(one.decision.baseline_sound)
    yield "analysis", versions()


def versions() -> str:
    """This package and what it computed with."""
    names = ("repo-factorials", "numpy", "duckdb", "pyarrow", "matplotlib")
    shown = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{shown}, Python {platform.python_version()}"
