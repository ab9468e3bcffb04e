"""What the scanner recognises: lines, hunks, containers, bytecode; and what it survives."""

import bz2
import gzip
import io
import json
import lzma
import os
import py_compile
import signal
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pygit2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygit2.enums import ObjectType

from orchestrator.tasks.probe import containers
from orchestrator.tasks.probe.bytecode import Unmarshaller, compiled, news
from orchestrator.tasks.probe.containers import parts
from orchestrator.tasks.probe.matching import Matcher, Needle, check, digest, lines, most_within
from orchestrator.tasks.probe.walk import FOREIGN, OWN, SYSTEM, Request, Scan
from orchestrator.tasks.scan import message

LINE = b"return min(high, max(low, value))"
OTHER = b"return [value * factor for value in values]"

# ------------------------------------------------------------------------------- lines


@given(
    st.text("abc=(), ", min_size=20, max_size=60).map(lambda text: f"x{text[1:-1]}y".encode()),
    st.sampled_from([b"", b"    ", b"+", b"- ", b"> ", b"# ", b"> > +    ", b" * ", b"| "]),
    st.sampled_from([b"", b"  ", b"\r", b"\t\r"]),
)
def test_a_line_is_the_same_with_marks_and_space_around(
    line: bytes, before: bytes, after: bytes
) -> None:
    text = b"\n".join([b"short", before + line + after, b"end"])
    assert lines(text) == [line]


@pytest.mark.parametrize("text", ["a\tquote \"and\" 'more' of it", "plain text of some length"])
def test_lines_inside_a_json_string_are_found(text: str) -> None:
    padding = "".join(f"line {number} of no interest\n" for number in range(40))
    matcher = matcher_of([[text.encode()]])
    assert matcher.find(json.dumps({"patch": f"{padding}+  {text}\n{padding}"}).encode()) == [0]
    assert matcher.find(json.dumps({"patch": f"{padding}+  {text[:-1]}\n"}).encode()) == []


def matcher_of(groups: list[list[bytes]], least: int = 1, window: int = 0) -> Matcher:
    needles = [Needle(tuple(map(digest, group)), least, window) for group in groups]
    return Matcher(needles, [check(line) for group in groups for line in group])


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc"))), st.integers(0, 12))
def test_the_window_is_the_best_one(found: list[tuple[int, str]], window: int) -> None:
    found = sorted(set(found))
    starts = [at for at, _ in found] if window else [0]
    counts = [
        len({name for at, name in found if not window or start <= at < start + window})
        for start in starts
    ]
    assert most_within(found, window) == max(counts, default=0)


def test_a_hunk_is_its_lines_close_together() -> None:
    matcher = matcher_of([[LINE, OTHER]], least=2, window=4)
    far = b"\n".join([LINE, *(b"# something else, number %d" % n for n in range(9)), OTHER])
    near = b"\n".join([LINE, b"", b"# something else altogether", OTHER])
    assert (matcher.find(near), matcher.find(far)) == ([0], [])
    assert matcher.find(LINE) == matcher.find(LINE + b"\n" + LINE) == []


# ------------------------------------------------------------------------------- containers


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.py", data)
    return stream.getvalue()


def tarred(data: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("a/b.py")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "zip": zipped,
    "tar": tarred,
    "tar.gz": lambda data: gzip.compress(tarred(data)),
    "tar.bz2": lambda data: bz2.compress(tarred(data)),
    "tar.xz": lambda data: lzma.compress(tarred(data)),
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "loose object": lambda data: zlib.compress(b"blob %d\0" % len(data) + data),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_what_is_packed_is_found(kind: str) -> None:
    packed = CONTAINERS[kind](LINE)
    assert [data for _, data in parts(kind, io.BytesIO(packed))] == [LINE]
    whole = b"blob %d\0" % len(LINE) + LINE
    for end in range(0, len(packed), 7):  # damaged anywhere: no error, and nothing made up
        found = [data or b"" for _, data in parts(kind, io.BytesIO(packed[:end]))]
        assert all(data in whole for data in found)


@given(st.sampled_from([b"PK\3\4", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"PACK", b"x\x9c"]),
       st.binary(max_size=400))  # fmt: skip
@settings(max_examples=60)
def test_garbage_that_looks_like_a_container_is_survived(magic: bytes, rest: bytes) -> None:
    assert all(isinstance(name, str) for name, _ in parts("x.zip", io.BytesIO(magic + rest)))


def test_a_member_that_is_too_large_is_named_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MEMBER_BYTES", 1000)
    for kind in ("zip", "tar", "tar.gz", "gz"):
        ((_, data),) = parts(kind, io.BytesIO(CONTAINERS[kind](bytes(3000))))
        assert data is None
    monkeypatch.setattr(containers, "TOTAL_BYTES", 10)
    assert [data for _, data in parts("zip", io.BytesIO(zipped(bytes(500))))] == [None]


def test_every_entry_of_a_pack_is_read_without_its_index(tmp_path: Path) -> None:
    """The second of two similar blobs is stored as a delta: its new line is in it all the same."""
    repository = pygit2.init_repository(str(tmp_path / "r"), bare=True)
    common = b"".join(b"line %d of many that are equal\n" % number for number in range(400))
    builder = pygit2.PackBuilder(repository)
    for data in (common, common.replace(b"line 7 ", LINE + b"\n7 ")):
        builder.add(repository.create_blob(data))
    builder.write(str(tmp_path))
    (path,) = tmp_path.glob("*.pack")
    packed = path.read_bytes()
    kinds = {packed[12] >> 4 & 7, ObjectType.BLOB}
    found = [data or b"" for _, data in parts(path.name, io.BytesIO(packed))]
    assert len(found) == 2 and kinds == {3} and sum(map(len, found)) < 2 * len(common)
    assert any(LINE in data for data in found)


# ------------------------------------------------------------------------------- bytecode

OLD = "def clamp(value, low, high):\n    '''Value brought into low..high.'''\n    return low\n"
NEW = OLD.replace("return low", "return min(high, max(low, value)), 'a constant of some length'")


def pyc(path: Path, text: str, level: int = 0) -> bytes:
    source = path / "source.txt"
    source.write_text(text)
    py_compile.compile(str(source), str(path / "c.pyc"), doraise=True, optimize=level)
    return (path / "c.pyc").read_bytes()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_function_is_recognised_in_any_module_at_any_level(tmp_path: Path, level: int) -> None:
    names, constants = news({"m.py": (OLD.encode(), NEW.encode())})["m.py"]
    reader = Unmarshaller(frozenset(names), frozenset(map(check, constants)))
    found, texts = reader.read(
        pyc(tmp_path, f"import os\n\n\nclass A:\n    pass\n\n\n{NEW}", level)
    )
    assert found and texts == [b"constant a constant of some length"]
    assert reader.read(pyc(tmp_path, OLD, level)) == ([], [])
    reader.close()


def test_source_that_is_no_python_compiles_to_nothing() -> None:
    assert compiled(b"def (:\n") is None
    assert news({"m.py": (b"\0", "# -*- coding: latin-1 -*-\nX = 'é'\n".encode("latin-1"))})


def test_a_child_that_is_killed_by_bytecode_is_replaced(tmp_path: Path) -> None:
    names, _ = news({"m.py": (OLD.encode(), NEW.encode())})["m.py"]
    reader = Unmarshaller(frozenset(names), frozenset())
    data = pyc(tmp_path, NEW)
    assert reader.read(data) == reader.read(data) != ([], [])
    assert reader._child is not None
    os.kill(reader._child[0], signal.SIGKILL)
    assert reader.read(data) is None
    assert reader.read(data) not in (None, ([], []))
    reader.close()


# ------------------------------------------------------------------------------- walking


def request(root: Path, **changes: object) -> Request:
    fields: dict[str, object] = {
        "roots": [str(root)],
        "kinds": {str(root): FOREIGN},
        "closed": [],
        "own": [],
        "foreign": [Needle((digest(LINE),), 1, 0)],
        "checks": [check(LINE)],
        "files": [],
        "codes": [],
        "names": [],
        "modules": [],
        "places": [],
        "process": False,
        "read_system": True,
        "known": [],
        "seconds": 60.0,
    }
    return Request(**{**fields, **changes})  # type: ignore[arg-type]


def run(request: Request) -> Scan:
    scan = Scan(request)
    scan.run()
    return scan


def test_what_the_system_has_is_read_once_until_it_changes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"nothing\n")
    kinds = {str(tmp_path): SYSTEM}
    first = run(request(tmp_path, kinds=kinds))
    again = run(request(tmp_path, kinds=kinds, known=[first.system]))
    assert (first.read[SYSTEM], again.read[SYSTEM], again.system) == (1, 0, first.system)
    (tmp_path / "a").write_bytes(LINE)
    changed = run(request(tmp_path, kinds=kinds, known=[first.system]))
    assert list(changed.hits) == [("hunk", 0, str(tmp_path / "a"))]
    sizes = run(request(tmp_path, kinds=kinds, read_system=False))
    assert (sizes.read[SYSTEM], list(sizes.hits)) == (0, [])


def test_links_and_closed_folders_are_not_entered(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "closed", outside):
        folder.mkdir(parents=True)
        (folder / "a").write_bytes(LINE)
    (inside / "link").symlink_to(outside)
    (inside / "file").symlink_to(outside / "a")
    os.mkfifo(inside / "fifo")
    assert not run(request(inside, closed=[str(inside / "closed")])).hits
    assert len(run(request(inside)).hits) == 1


def test_a_large_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.tasks.probe.walk.CHUNK", 64)
    (tmp_path / "a").write_bytes(b"\n".join([b"x" * 40, LINE, b"y" * 40]))
    assert len(run(request(tmp_path)).hits) == 1


def test_time_that_is_over_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LINE)
    assert not run(request(tmp_path, seconds=-1.0)).finished
    assert run(request(tmp_path)).finished


def test_the_secrets_are_not_in_the_message() -> None:
    question = request(Path("/"), own=[Needle((digest(OTHER),), 1, 0)], kinds={"/": OWN})._asdict()
    sent = message("scan", question)
    assert digest(LINE).encode() in sent and LINE not in sent and OTHER not in sent
