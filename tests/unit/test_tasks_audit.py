"""The audit is silent about a sound task and finds every leak that is planted, wherever it lies."""

import json
import marshal
import os
import py_compile
import shutil
import zipfile
from collections.abc import Callable
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ObjectType

from orchestrator.repo.mirror import Mirror
from orchestrator.tasks.audit import CHECKS, Subject, audit_task, certify
from orchestrator.tasks.certificate import read_certificate
from orchestrator.tasks.compartments import write_record
from orchestrator.tasks.leaks import Secrets
from orchestrator.tasks.objects import sealed_objects
from tests.unit import sealing_support as sealing
from tests.unit import tasks_support as support
from tests.unit.sealing_support import CLAMP_FIXED, CORE, CORE_FIXED, HUNK, TASK, TESTS, Sealed

Plant = Callable[[Sealed], None]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    return sealing.build(tmp_path_factory.mktemp("sealing") / "out")


@pytest.fixture
def copy(sealed: Sealed, tmp_path: Path) -> Sealed:
    return sealed.copy(tmp_path / "copy")


def rules(sealed: Sealed) -> set[tuple[str, str]]:
    """Rule and place of every finding but those that only say that the certificate is another's."""
    found = audit_task(sealed.out, TASK)
    return {(f.rule, f.where) for f in found if f.rule != "certificate"}


def write(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def test_a_sound_task_has_no_finding(sealed: Sealed, copy: Sealed) -> None:
    assert audit_task(sealed.out, TASK) == [] == audit_task(copy.out, TASK)


# ------------------------------------------------------------------------------- the mirror

AGENT = "agent mirror"


def blob(sealed: Sealed, data: str) -> str:
    """A loose object that nothing refers to."""
    database = pygit2.Odb(str(sealed.repository / "objects"))
    return str(database.write(ObjectType.BLOB, data.encode()))


def packed(sealed: Sealed) -> None:
    other = pygit2.init_repository(str(sealed.out / "other"), bare=True)
    oid = other.create_blob(CORE_FIXED.encode())
    writer = pygit2.PackBuilder(other)
    writer.add(oid)
    folder = sealed.repository / "objects" / "pack"
    folder.mkdir()
    writer.write(str(folder))


def reference(name: str, parents: bool = False) -> Plant:
    def plant(sealed: Sealed) -> None:
        repository = pygit2.Repository(str(sealed.repository))
        who = pygit2.Signature("a", "a@b", 1, 0)
        head = repository.references["refs/heads/main"].target
        tree = repository.TreeBuilder()
        tree.insert("core.py", repository.create_blob(CORE_FIXED.encode()), 0o100644)
        above = [head] if parents else []
        repository.create_commit(f"refs/{name}", who, who, "later", tree.write(), above)

    return plant


def reflog(sealed: Sealed) -> None:
    oid = blob(sealed, CORE_FIXED)
    line = f"{'0' * 40} {oid} a <a@b> 1 +0000\tcommit: fix\n"
    write(sealed.repository / "logs" / "HEAD", line)


def alternates(sealed: Sealed) -> None:
    other = pygit2.init_repository(str(sealed.out / "other"), bare=True)
    other.create_blob(CORE_FIXED.encode())
    write(sealed.repository / "objects/info/alternates", f"{sealed.out}/other/objects\n")


def replacement(sealed: Sealed) -> None:
    old = pygit2.hash(CORE.encode())
    write(sealed.repository / "refs" / "replace" / str(old), blob(sealed, CORE_FIXED) + "\n")


def foreign_entry(sealed: Sealed) -> None:
    index = pygit2.Index(str(sealed.repository / "index"))
    index.add(pygit2.IndexEntry("tally/core.py", pygit2.Oid(hex=blob(sealed, "x")), 0o100644))
    index.write()


def index_extension(sealed: Sealed) -> None:
    path = sealed.repository / "index"
    data = path.read_bytes()[:-20]
    path.write_bytes(data + b"HINT\0\0\0\4hint" + bytes(20))


def setting(line: str) -> Plant:
    def plant(sealed: Sealed) -> None:
        with (sealed.repository / "config").open("a") as stream:
            stream.write(f"{line}\n")

    return plant


def entry(name: str, data: str = "") -> Plant:
    return lambda sealed: write(sealed.repository / name, data)


def linked(sealed: Sealed) -> None:
    (sealed.repository / "objects" / "elsewhere").symlink_to(sealed.places.evaluator)


IN_THE_MIRROR: dict[str, tuple[Plant, set[str]]] = {
    "gold in a packed object": (packed, {"one-commit", "repository-layout", "no-fixed-file"}),
    "gold in a reflog": (reflog, {"one-commit", "no-fixed-file", "no-gold-line"}),
    "gold in an object": (lambda s: [blob(s, CORE_FIXED), None][1], {"no-fixed-file"}),
    "a line in an object": (lambda s: [blob(s, f"# {CLAMP_FIXED}\n"), None][1], {"no-gold-line"}),
    "a sealed test": (lambda s: [blob(s, TESTS), None][1], {"no-sealed-test"}),
    "any other object": (lambda s: [blob(s, "nothing special"), None][1], {"one-commit"}),
    "alternates": (alternates, {"one-commit", "no-fixed-file"}),
    "a stash": (reference("stash"), {"one-commit", "no-fixed-file"}),
    "notes": (reference("notes/commits"), {"one-commit", "no-fixed-file"}),
    "a replaced object": (replacement, {"one-commit", "no-fixed-file"}),
    "a second branch": (reference("heads/later", True), {"one-commit", "no-fixed-file"}),
    "packed references": (entry("packed-refs", "# pack-refs\n"), {"one-commit"}),
    "a shallow file": (entry("shallow", "0" * 40), {"one-commit"}),
    "grafts": (entry("info/grafts", "0" * 40), {"one-commit"}),
    "a fetched head": (entry("FETCH_HEAD", "0" * 40), {"one-commit"}),
    "an original head": (entry("ORIG_HEAD", "0" * 40), {"one-commit"}),
    "another working tree": (entry("worktrees/x/HEAD"), {"repository-layout"}),
    "a submodule": (entry("modules/x/HEAD"), {"repository-layout"}),
    "a bundle": (entry("fix.bundle", "# v2 git bundle\n"), {"repository-layout"}),
    "a hook": (entry("hooks/post-checkout", "#!/bin/sh\n"), {"repository-settings"}),
    "attributes": (entry("info/attributes", "* filter=x\n"), {"repository-settings"}),
    "core.fsmonitor": (setting("\tfsmonitor = ./run"), {"repository-settings"}),
    "core.hooksPath": (setting("\thooksPath = /tmp"), {"repository-settings"}),
    "include.path": (setting("[include]\n\tpath = ../config"), {"repository-settings"}),
    "a filter": (setting('[filter "x"]\n\tsmudge = cat'), {"repository-settings"}),
    "core.worktree": (setting("\tworktree = /"), {"repository-settings"}),
    "an index entry of another blob": (foreign_entry, {"repository-index", "one-commit"}),
    "an index extension": (index_extension, {"repository-index"}),
    "a link": (linked, {"repository-layout"}),
}


ON_OBJECTS = ("one-commit", "repository-layout", "repository-settings", "repository-index")


@pytest.fixture(scope="module")
def secrets(sealed: Sealed) -> Secrets:
    return Subject(sealed.out, TASK).secrets


def mirror_rules(copy: Sealed, secrets: Secrets) -> set[str]:
    """What the checks of the mirror alone say: they start no interpreter."""
    subject = Subject(copy.out, TASK)
    found = [leak for name in ON_OBJECTS for leak in CHECKS[name](subject)[1]]
    found += sealed_objects(subject.repository, secrets)
    assert {where for _, where, _ in found} <= {AGENT}
    return {rule for rule, _, _ in found}


@pytest.mark.parametrize("which", IN_THE_MIRROR)
def test_a_leak_in_the_mirror_is_found(copy: Sealed, secrets: Secrets, which: str) -> None:
    plant, expected = IN_THE_MIRROR[which]
    assert mirror_rules(copy, secrets) == set()
    plant(copy)
    assert mirror_rules(copy, secrets) >= expected


def test_another_commit_of_the_same_tree_is_found(copy: Sealed) -> None:
    shutil.rmtree(copy.repository)
    Mirror.create(copy.repository, {"main": sealing.BASE}, f"Fix\n\n{CLAMP_FIXED}")
    found = [str(finding) for finding in audit_task(copy.out, TASK)]
    assert any("its branch is at" in text for text in found)
    assert any("no-gold-line" in text and "object" in text for text in found)


def test_a_test_file_in_the_base_tree_is_found(copy: Sealed) -> None:
    shutil.rmtree(copy.repository)
    files = {**sealing.BASE, "tests/test_core.py": (0o100644, TESTS.encode())}
    Mirror.create(copy.repository, {"main": files}, "Import")
    assert {("no-test-path", AGENT), ("no-sealed-test", AGENT)} <= rules(copy)


# ------------------------------------------------------------------------------- folders

PATCH_HUNK = "".join(f"+{line}\n" for line in HUNK.splitlines())
SMALL_PATCH = (
    ' def clamp(value, low, high):\n     """Value brought into low..high."""\n'
    f"-    return max(low, value)\n+    {CLAMP_FIXED}\n \n \n def mean(values, weights=None):\n"
)
ONE_TEST = TESTS[TESTS.index("def test_mean_of_nothing") : TESTS.index("def test_mean_with")]
CONSTANT = "warn('the mean of nothing is taken as zero')\n"


def compiled(text: str) -> Callable[[Path], None]:
    """The bytecode of a module whose source is gone."""

    def make(path: Path) -> None:
        source = path.with_suffix(".txt")
        source.write_text(text)
        py_compile.compile(str(source), str(path), doraise=True)
        source.unlink()

    return make


def zipped(name: str, data: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)

    return make


def tarred(path: Path) -> None:
    path.write_bytes(support.archive({"src/tally/core.py": CORE_FIXED}, "tally-1.1"))


def escaped(path: Path) -> None:
    """A row of a data set, with the whole patch in one string."""
    padding = "".join(f" line {number} of the context\n" for number in range(30))
    path.write_text(json.dumps({"patch": padding + PATCH_HUNK}))


def text(data: str) -> Callable[[Path], None]:
    return lambda path: write(path, data)


IN_A_FOLDER: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "one line of gold": ("agent", text(f"Hint:\n    {CLAMP_FIXED}\n"), "no-gold-line"),
    "a commented line": ("agent", text(f"# > + {CLAMP_FIXED}\n"), "no-gold-line"),
    "a sealed test function": ("agent", text(ONE_TEST), "no-sealed-test"),
    "a packed line": ("agent", zipped("x", CLAMP_FIXED), "no-gold-line"),
    "compiled gold": ("agent .pyc", compiled(CORE_FIXED), "no-gold-bytecode"),
    "a constant in bytecode": ("agent .pyc", compiled(CONSTANT), "no-gold-bytecode"),
    "a gold hunk": ("site", text(f"import warnings\n\n{HUNK}\n"), "no-gold-line"),
    "a gold hunk as a patch": ("site", text(PATCH_HUNK), "no-gold-line"),
    "a short hunk with context": ("site", text(SMALL_PATCH), "no-gold-line"),
    "a patch inside JSON": ("site", escaped, "no-gold-line"),
    "the fixed file": ("site", text(CORE_FIXED), "no-fixed-file"),
    "the sealed tests": ("site", text(TESTS), "no-sealed-test"),
    "one sealed test": ("site", text(ONE_TEST), "no-sealed-test"),
    "bytecode of the fixed module": ("site .pyc", compiled(CORE_FIXED), "no-gold-bytecode"),
    "bytecode of one function": (
        "site .pyc",
        compiled(f"import warnings\nX = 1\n\n{CORE_FIXED[CORE_FIXED.index('def mean') :]}"),
        "no-gold-bytecode",
    ),
    "a zip": ("site", zipped("tally/core.py", CORE_FIXED), "no-fixed-file"),
    "a hunk in a wheel": ("site", zipped("other.py", f"def f():\n{HUNK}"), "no-gold-line"),
    "a source archive": ("site", tarred, "no-fixed-file"),
}


@pytest.mark.parametrize("which", IN_A_FOLDER)
def test_a_leak_in_a_folder_is_found(copy: Sealed, which: str) -> None:
    place, make, rule = IN_A_FOLDER[which]
    folder, _, suffix = place.partition(" ")
    home = copy.places.agent if folder == "agent" else copy.site / "foreign"
    make(home / f"stray{suffix or '.dat'}")
    where = "agent compartment" if folder == "agent" else "environment"
    assert rules(copy) >= {(rule, where)}


HARMLESS: dict[str, Callable[[Path], None]] = {
    "a line that anybody writes": text(f"def f(low, high, value):\n    {CLAMP_FIXED}\n"),
    "the buggy file": text(CORE),
    "bytecode of the buggy file": compiled(CORE),
    "a test of something else": text(TESTS[TESTS.index("def test_mean_with") :]),
    "an archive that is cut": lambda path: path.write_bytes(b"PK\3\4 not really an archive"),
    "bytecode that is garbage": lambda path: path.write_bytes(MAGIC_NUMBER + os.urandom(4000)),
    "bytecode of no code": lambda path: path.write_bytes(
        MAGIC_NUMBER + bytes(12) + marshal.dumps({"a": [1, 2.5, None]})
    ),
    "bytecode that asks for memory": lambda path: path.write_bytes(
        MAGIC_NUMBER + bytes(12) + b"(\xff\xff\xff\x7f"
    ),
}


def test_what_is_common_property_or_damaged_is_no_leak(copy: Sealed) -> None:
    for number, make in enumerate(HARMLESS.values()):
        make(copy.site / "foreign" / f"harmless{number}.pyc")
        make(copy.site / "foreign" / f"harmless{number}.py")
    assert rules(copy) == set()


def test_the_fixed_release_in_the_environment_is_found(copy: Sealed) -> None:
    write(copy.site / "tally" / "__init__.py", "")
    (copy.site / "tally-1.1.dist-info").mkdir()
    found = {finding.what for finding in audit_task(copy.out, TASK)}
    assert {"distribution tally", "module tally"} <= found


def test_gold_in_the_evaluators_mirror_is_found(copy: Sealed) -> None:
    home = copy.places.evaluator / "repo.git" / "objects"
    pygit2.Odb(str(home)).write(ObjectType.BLOB, CORE_FIXED.encode())
    assert rules(copy) == {("no-gold-object", "evaluator mirror")}


# ------------------------------------------------------------------------------- certificate


def test_the_certificate_is_the_same_on_any_path(sealed: Sealed, copy: Sealed) -> None:
    first, second = certify(sealed.out, TASK), certify(copy.out, TASK)
    assert (first, first.sha256) == (second, second.sha256)
    assert read_certificate(sealed.places.certificate) == first
    assert str(copy.out) not in second.model_dump_json() and first.findings == ()


def test_a_leak_is_in_the_certificate(copy: Sealed) -> None:
    clean = certify(copy.out, TASK)
    write(copy.places.agent / "notes.txt", CLAMP_FIXED)
    certificate = certify(copy.out, TASK)
    assert len(certificate.findings) == 1 and "notes.txt" in certificate.findings[0]
    assert certificate.sha256 != clean.sha256
    assert str(copy.out) not in certificate.model_dump_json()


def test_a_missing_or_another_certificate_is_a_finding(copy: Sealed) -> None:
    stored = read_certificate(copy.places.certificate)
    assert stored is not None
    write_record(copy.places.certificate, stored.model_copy(update={"secrets": "0" * 64}))
    whats = [finding.what for finding in audit_task(copy.out, TASK)]
    assert len(whats) == 2 and whats[0].startswith("secrets is")
    copy.places.certificate.write_text("{}")
    (finding,) = audit_task(copy.out, TASK)
    assert (finding.rule, finding.where) == ("certificate", "gold compartment")


def test_an_environment_that_changed_is_a_finding(copy: Sealed) -> None:
    (copy.site / "foreign" / "__init__.py").write_text("def twice(number):\n    return 0\n")
    (finding,) = audit_task(copy.out, TASK)
    assert finding.rule == "certificate" and "environment_sources" in finding.what
