"""What of a task must not be found, as needles and digests. Pure.

A needle is a group of lines by SHA-256. On the agent's own side each telling line of gold is one;
in foreign files, where single lines are common property, a needle is a whole hunk, half of a gold
file, a sealed test function or half of a sealed file.
"""

import ast
import difflib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from orchestrator.evaluator.suites import Bundle
from orchestrator.repo.files import REGULAR, Files, apply_delta
from orchestrator.spec.identity import digest_json, sha256_hex
from orchestrator.spec.paths import is_test_path
from orchestrator.spec.ports import Delta, SuiteName
from orchestrator.tasks.probe.matching import Needle, check, digest, lines

COPY_SHARE: Final = 0.5
"""Share of the secret lines of a file that makes a foreign file a copy of it."""

HUNK_SHARE: Final = 0.75
"""Share of a hunk's lines, close together, that makes it this hunk."""

HUNK_CHARS: Final = 60
"""Characters of a hunk's lines that prove something by themselves. A shorter one (``if not
isinstance(name, str):``) counts only between the lines that surround it in the fixed file."""

SLACK: Final = 8
"""Other telling lines that may stand among those of a hunk: the removed ones of a patch, say."""

SMALL_BLOB: Final = 64
"""Blobs up to this many bytes (empty ``__init__.py``, one-line markers) are equal by chance."""


@dataclass(frozen=True)
class Secret:
    """A needle and what it is: ``what`` is shown with a finding of ``rule``."""

    rule: str
    what: str
    needle: Needle


@dataclass(frozen=True)
class Secrets:
    """Everything of one task that must be out of reach.

    ``own``: for the agent's own side; ``foreign``: for files that have no part in the task.
    ``checks``: first looks at every line of theirs. ``files``: (size, SHA-256) -> rule and name.
    ``codes``: fingerprint of compiled code -> name.
    """

    task_id: str
    own: tuple[Secret, ...]
    foreign: tuple[Secret, ...]
    checks: frozenset[int]
    files: Mapping[tuple[int, str], tuple[str, str]]
    codes: Mapping[str, str]
    names: frozenset[str]
    modules: tuple[str, ...]

    @property
    def digest(self) -> str:
        """What was looked for, as one SHA-256; the same for the same task everywhere (``codes``
        are not part of it: they are derived from the same files and the environment)."""
        needles = [[s.rule, s.needle] for some in (self.own, self.foreign) for s in some]
        return digest_json([needles, sorted(map(list, self.files)), sorted(self.names)])


Compiled = Mapping[str, tuple[Sequence[str], Sequence[bytes]]]
"""Gold file -> fingerprints and constant lines that only its fixed version compiles to."""


def secrets_of(
    bundle: Bundle, gold: Delta, compiled: Compiled, names: Iterable[str], modules: Iterable[str]
) -> Secrets:
    """The secrets of a task. ``names``: of its distribution, ``modules``: its top modules."""
    collector = _Collector()
    fixed = apply_delta(bundle.base, gold)
    known = known_lines(bundle.base)
    for path in _texts(gold, fixed):
        _add_gold(collector, path, bundle.base.get(path, (REGULAR, b""))[1], fixed[path][1], known)
    for path, (_, constants) in sorted(compiled.items()):
        _add_constants(collector, path, constants)
    for path, (_, data) in sorted(sealed_tests(bundle.base, bundle.sealed).items()):
        wanted = bundle.suites[SuiteName.FAIL_TO_PASS].ids
        _add_test(collector, path, data, known, wanted)
    codes = {name: path for path, (found, _) in sorted(compiled.items()) for name in found}
    return Secrets(
        bundle.task_id,
        tuple(collector.own),
        tuple(collector.foreign),
        frozenset(collector.checks),
        _files(bundle, gold),
        codes,
        frozenset(names),
        tuple(sorted(modules)),
    )


def gold_lines(base: Files, gold: Delta) -> frozenset[bytes]:
    """Telling lines that gold adds, in normal form, and that no file of the base tree has."""
    fixed, known = apply_delta(base, gold), known_lines(base)
    return (
        frozenset(line for path in gold if path in fixed for line in lines(fixed[path][1])) - known
    )


def known_lines(base: Files) -> frozenset[bytes]:
    """Every telling line that the agent may read."""
    return frozenset(line for _, data in base.values() for line in lines(data))


def sealed_tests(base: Files, sealed: Files) -> Files:
    """Tests and test data of the seal that the base tree does not have as production code.

    Test configuration that did not change between the releases is also in the agent's mirror and no
    secret, nor is a file too small to say anything.
    """
    known = {data for path, (_, data) in base.items() if not is_test_path(path)}
    return {
        path: (mode, data)
        for path, (mode, data) in sealed.items()
        if is_test_path(path) and len(data) > SMALL_BLOB and data not in known
    }


def _texts(gold: Delta, fixed: Files) -> list[str]:
    return sorted(path for path in gold if path in fixed and b"\0" not in fixed[path][1])


def _files(bundle: Bundle, gold: Delta) -> dict[tuple[int, str], tuple[str, str]]:
    """Whole files: fixed ones of gold, and sealed tests."""
    known = {data for _, data in bundle.base.values()}
    found: dict[tuple[int, str], tuple[str, str]] = {}
    for path, change in sorted(gold.items()):
        if change is not None and len(change.content) > SMALL_BLOB and change.content not in known:
            key = len(change.content), sha256_hex(change.content)
            found[key] = "no-fixed-file", f"gold's {path}"
    for path, (_, data) in sorted(sealed_tests(bundle.base, bundle.sealed).items()):
        found[len(data), sha256_hex(data)] = "no-sealed-test", path
    return found


# ------------------------------------------------------------------------------- needles


class _Collector:
    """Needles as they are made, and the first looks at their lines."""

    def __init__(self) -> None:
        self.own: list[Secret] = []
        self.foreign: list[Secret] = []
        self.checks: set[int] = set()

    def needle(self, wanted: Iterable[bytes], least: int, window: int) -> Needle:
        unique = list(dict.fromkeys(wanted))
        self.checks.update(map(check, unique))
        return Needle(tuple(map(digest, unique)), least, window)

    def add_copy(self, rule: str, path: str, secret: Sequence[bytes]) -> Secret | None:
        """Half of a file's secret lines, three at least (both, where there are two)."""
        unique = set(secret)
        if len(unique) < 2:
            return None
        least = max(min(len(unique), 3), ceil(COPY_SHARE * len(unique)))
        made = Secret(rule, f"a copy of {path}", self.needle(sorted(unique), least, 0))
        self.foreign.append(made)
        return made

    def add_block(
        self, rule: str, what: str, block: Sequence[bytes], around: Sequence[bytes]
    ) -> Secret | None:
        """Lines that belong together; with the lines around where they say little themselves."""
        unique = list(dict.fromkeys(block))
        wanted, least = unique, ceil(HUNK_SHARE * len(unique))
        if sum(map(len, unique)) < HUNK_CHARS:
            wanted = [*unique, *around]
            least = len(set(wanted))
            if sum(map(len, set(wanted))) < HUNK_CHARS or not around:
                return None
        made = Secret(rule, what, self.needle(wanted, least, len(wanted) + SLACK))
        self.foreign.append(made)
        return made


def _add_gold(
    collector: _Collector, path: str, old: bytes, new: bytes, known: frozenset[bytes]
) -> None:
    secret = [line for line in lines(new) if line not in known]
    for line in dict.fromkeys(secret):
        what = f"`{line.decode('utf-8', 'replace')[:60]}` of {path}"
        collector.own.append(Secret("no-gold-line", what, collector.needle([line], 1, 0)))
    collector.add_copy("no-gold-line", path, secret)
    for number, (block, around) in enumerate(_hunks(old, new), 1):
        telling = [line for line in block if line not in known]
        if telling:
            what = f"hunk {number} of {path}"
            collector.add_block("no-gold-line", what, telling, around)


def _hunks(old: bytes, new: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Added telling lines of each block of consecutive added lines, and their neighbours."""
    before, after = lines(old), lines(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag in ("insert", "replace"):
            yield after[start:end], [*after[max(0, start - 1) : start], *after[end : end + 1]]


def _add_constants(collector: _Collector, path: str, constants: Sequence[bytes]) -> None:
    """Lines of string constants as bytecode has them; they cannot be told from lines of source."""
    for line in dict.fromkeys(constants):
        what = f"a string constant of {path}"
        collector.own.append(Secret("no-gold-bytecode", what, collector.needle([line], 1, 0)))
    collector.add_copy("no-gold-bytecode", path, constants)


def _add_test(
    collector: _Collector, path: str, data: bytes, known: frozenset[bytes], wanted: Iterable[str]
) -> None:
    if not path.endswith(".py"):
        return
    secret = [line for line in lines(data) if line not in known]
    copy = collector.add_copy("no-sealed-test", path, secret)
    made = [copy] if copy else []
    names = {i.partition("::")[2].rpartition("::")[2].partition("[")[0] for i in wanted
             if i.startswith(f"{path}::")}  # fmt: skip
    for name, text in _functions(data):
        block = [line for line in lines(text) if line not in known]
        if name in names and len(block) > 1:
            block_secret = collector.add_block("no-sealed-test", f"{name} of {path}", block, [])
            made += [block_secret] if block_secret else []
    collector.own += made


def _functions(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and text of every function of a module; nothing where it is not this Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return
    rows = data.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, b"\n".join(rows[node.lineno - 1 : node.end_lineno])
