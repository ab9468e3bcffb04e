"""The guards of a session and the modes, row by row; what is refused and what is not."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.admission import rules
from orchestrator.admission.actions import Action, parse
from orchestrator.admission.project import matches
from orchestrator.admission.rules import AdmissionRule, Attempt, GateResult
from orchestrator.contract.modes import DISPOSITION, Disposition, Mode, disposition
from orchestrator.contract.verdicts import Rule, Verdict
from orchestrator.repo.files import EXECUTABLE, REGULAR, SYMLINK, Files
from orchestrator.spec.ports import ExitClass

# --------------------------------------------------------------------------------- modes


def wanted(verdict: Verdict, mode: Mode) -> Disposition:
    if mode is Mode.SHADOW:
        return Disposition.OBSERVED
    if verdict is Verdict.ADMITTED:
        return Disposition.ALLOWED
    return Disposition.OVERRIDDEN if mode is Mode.WARN else Disposition.BLOCKED


@pytest.mark.parametrize(("verdict", "mode"), list(product(Verdict, Mode)))
def test_every_cell_of_the_table(verdict: Verdict, mode: Mode) -> None:
    done = disposition(verdict, mode)
    assert done is wanted(verdict, mode)
    assert done.goes_on is (mode is not Mode.ENFORCE or verdict is Verdict.ADMITTED)


def test_the_table_has_every_cell_and_no_other() -> None:
    assert set(DISPOSITION) == set(product(Verdict, Mode))


# --------------------------------------------------------------------------------- ids


def test_rules_have_one_verdict_each_and_no_id_of_the_transaction() -> None:
    assert set(rules.VERDICT_OF) == set(AdmissionRule)
    assert not {rule.value for rule in AdmissionRule} & {rule.value for rule in Rule}
    assert all(rule.value.startswith("admission.") for rule in AdmissionRule)


# --------------------------------------------------------------------------------- trees

BASE: Files = {
    "src/code.py": (REGULAR, b"1"),
    "tests/test_code.py": (REGULAR, b"2"),
    "ci/release.sh": (EXECUTABLE, b"3"),
}


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("tests/test_code.py", (REGULAR, b"")),
        ("tests/test_code.py", None),
        ("tests/test_new.py", (REGULAR, b"")),
        ("TESTS/test_new.py", (REGULAR, b"")),
        ("conftest.py", (REGULAR, b"")),
        ("src/sitecustomize.py", (REGULAR, b"")),
        (".gitattributes", (REGULAR, b"")),
        ("ci/release.sh", (REGULAR, b"3")),
        ("ci/release.sh", None),
        ("CI/other.sh", (REGULAR, b"")),
    ],
)
def test_protected_paths_are_refused_however_they_change(
    path: str, file: tuple[int, bytes] | None
) -> None:
    candidate = {**BASE, "src/code.py": (REGULAR, b"sound")}
    if file is None:
        del candidate[path]
    else:
        candidate[path] = file
    assert rules.tree_violation(BASE, candidate, ("ci",)) is AdmissionRule.PROTECTED_PATH


def test_production_code_may_change() -> None:
    candidate = {**BASE, "src/code.py": (REGULAR, b"sound"), "src/link": (SYMLINK, b"code.py")}
    assert rules.tree_violation(BASE, candidate, ("ci",)) is None


@pytest.mark.parametrize(
    ("links", "inside"),
    [
        ({"a/link": "b"}, True),
        ({"a/link": "../b"}, True),
        ({"a/link": "../../b"}, False),
        ({"a/link": "/etc/passwd"}, False),
        ({"link": "."}, True),
        ({"link": ".."}, False),
        ({"a/b/up": "../..", "a/b/link": "up/../x"}, False),  # lexically it stays inside
        ({"a/b/up": "../..", "a/b/link": "up/x"}, True),
        ({"a/link": "a/../../.."}, False),
        ({"one": "two", "two": "one"}, False),
    ],
)
def test_a_link_is_followed_through_every_other_link(links: dict[str, str], inside: bool) -> None:
    files: Files = {path: (SYMLINK, target.encode()) for path, target in links.items()}
    last = list(links)[-1]
    assert rules.stays_inside(files, last) is inside
    violation = rules.tree_violation({}, files, ())
    assert (violation is None) is inside


NAMES = st.sampled_from(["a", "b", "..", ".", "c"])


@given(
    st.dictionaries(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join),
        st.lists(NAMES, min_size=1, max_size=4).map("/".join),
        max_size=4,
    )
)
def test_links_agree_with_a_real_file_system(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]
) -> None:
    """Whatever the guard lets pass, the operating system resolves to a place inside."""
    root = tmp_path_factory.mktemp("tree").resolve()
    files: Files = {}
    for path, target in links.items():
        if any(path.startswith(f"{p}/") or p.startswith(f"{path}/") for p in files):
            continue
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
        files[path] = (SYMLINK, target.encode())
    for path in files:
        if rules.stays_inside(files, path):
            assert (root / path).resolve().is_relative_to(root)


# --------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "path", "matched"),
    [
        ("ci", "ci/release.sh", True),
        ("ci", "deep/ci/release.sh", True),
        ("ci", "circle/x", False),
        ("ci/", "ci/x", True),
        ("*.lock", "a/b.lock", True),
        ("*.lock", "a/b.lock.txt", False),
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/deep/a.md", False),
        ("docs/**.md", "docs/deep/a.md", True),
        ("docs/?.md", "docs/ab.md", False),
        ("tests/**", "tests/a/b.py", True),
        ("tests/**", "tests", False),
        ("a.b", "axb", False),
        ("(x", "(x/y", True),
    ],
)
def test_patterns(pattern: str, path: str, matched: bool) -> None:
    assert matches((pattern,), path) is matched


# --------------------------------------------------------------------------------- actions


@pytest.mark.parametrize("action", Action)
def test_an_action_is_one_object(action: Action) -> None:
    assert parse(f' {{"action": "{action}"}}\n'.encode()) is action


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"complete",
        b'{"action": "complete"',
        b'{"action": "complete", "state": "x"}',
        b'{"action": ["complete"]}',
        b'{"action": "COMPLETE"}',
        b'{"Action": "complete"}',
        b'[{"action": "complete"}]',
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_anything_else_is_none(message: bytes) -> None:
    assert parse(message) is None


@given(st.binary(max_size=60))
def test_no_bytes_raise(message: bytes) -> None:
    assert parse(message) in (None, *Action)


# --------------------------------------------------------------------------------- evidence


def result(outcome: str, *, binding: bool = True, layer: str = "L1") -> GateResult:
    return GateResult(f"{layer}-{outcome}", layer, binding, "id", outcome, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("ended", ExitClass)
def test_only_a_clean_exit_is_a_pass(ended: ExitClass) -> None:
    assert (rules.outcome_of(ended) == "pass") is (ended is ExitClass.OK)


@pytest.mark.parametrize(
    ("outcomes", "suite"),
    [
        (["pass"], "pass"),
        (["pass", "fail"], "fail"),
        (["fail", "timeout"], "timeout"),
        (["timeout", "void"], "void"),
    ],
)
def test_the_worst_binding_gate_decides(outcomes: list[str], suite: str) -> None:
    advisory = result("fail", binding=False)
    assert rules.suite_outcome([*map(result, outcomes), advisory]) == suite


def test_a_false_rejection_needs_an_advisory_gate_that_disagrees() -> None:
    refused, passed = result("fail"), result("pass")
    sound, unsound = result("pass", binding=False), result("fail", binding=False)
    assert rules.is_false_rejection([refused, sound])
    assert not rules.is_false_rejection([refused, sound, unsound])
    assert not rules.is_false_rejection([refused])
    assert not rules.is_false_rejection([passed, sound])


def test_a_layer_is_covered_by_a_binding_gate_that_passed() -> None:
    runs = [result("pass"), result("fail", layer="L2"), result("pass", layer="L3", binding=False)]
    assert rules.covered_layers(runs) == {
        "L0": ("identity", "ledger"),
        "L1": ("L1-pass",),
        "L2": (),
        "L3": (),
    }


def test_the_environment_is_what_is_declared_and_allowed() -> None:
    host = {"TOKEN": "secret", "REGION": "north", "LEVEL": "host"}
    given_ = rules.environment({"LEVEL": "own"}, ["REGION", "LEVEL", "ABSENT"], host)
    assert given_ == {"REGION": "north", "LEVEL": "own"}


# --------------------------------------------------------------------------------- attempts


def attempts(text: str) -> list[Attempt]:
    """Capital letters were admitted."""
    return [Attempt(letter.lower(), letter.isupper()) for letter in text]


@pytest.mark.parametrize(
    ("history", "limit", "escalates"),
    [
        ("a", 1, True),
        ("aa", 3, False),
        ("aaa", 3, True),
        ("aba", 2, True),
        ("abc", 2, False),
        ("aaA", 2, False),  # the last one was admitted
    ],
)
def test_repetition(history: str, limit: int, escalates: bool) -> None:
    assert rules.repeats(attempts(history), limit) is escalates


@pytest.mark.parametrize(
    ("history", "limit", "escalates"),
    [
        ("abcd", 1, False),
        ("aaaa", 1, False),
        ("aba", 1, True),
        ("aba", 2, False),
        ("abab", 2, True),
        ("ABAB", 2, True),
        ("abcabc", 3, True),
    ],
)
def test_oscillation(history: str, limit: int, escalates: bool) -> None:
    assert rules.oscillates(attempts(history), limit) is escalates


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_wall_time_is_never_negative(budget: float, used: float) -> None:
    assert 0 <= rules.wall_left(budget, used) <= budget
