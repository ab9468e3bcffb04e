"""Archives are hostile: what leaves its folder, points out of it or is no file is refused."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.spec.errors import BadInput
from orchestrator.tasks import unpack as module
from orchestrator.tasks.unpack import unpack


def tar(path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size, info.mode = len(member[1]), 0o644
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_a_tar_is_read_without_its_top_folder(tmp_path: Path) -> None:
    executable = tarfile.TarInfo("p-1/run.sh")
    executable.mode = 0o755
    archive = tar(
        tmp_path / "a.tar.gz",
        special("p-1", tarfile.DIRTYPE),
        ("p-1/b/c.py", b"x = 1\n"),
        executable,
        special("p-1/link", tarfile.SYMTYPE, "b/c.py"),
        special("p-1/hard", tarfile.LNKTYPE, "p-1/b/c.py"),
    )
    assert unpack(archive) == {
        "b/c.py": (0o100644, b"x = 1\n"),
        "hard": (0o100644, b"x = 1\n"),
        "link": (0o120000, b"b/c.py"),
        "run.sh": (0o100755, b""),
    }


def test_a_zip_is_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"  # the cache gives every archive the same ending
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p-1/", "")
        archive.writestr("p-1/a.py", "x = 1\n")
        link = zipfile.ZipInfo("p-1/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "a.py")
    assert unpack(path) == {"a.py": (0o100644, b"x = 1\n"), "link": (0o120000, b"a.py")}


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "climbs": lambda p: tar(p, ("p/../../etc/passwd", b"x")),
    "absolute": lambda p: tar(p, ("/etc/passwd", b"x")),
    "link out": lambda p: tar(p, ("p/a", b""), special("p/l", tarfile.SYMTYPE, "../../etc")),
    "absolute link": lambda p: tar(p, ("p/a", b""), special("p/l", tarfile.SYMTYPE, "/etc")),
    "hard link out": lambda p: tar(p, ("p/a", b""), special("p/l", tarfile.LNKTYPE, "/etc/passwd")),
    "device": lambda p: tar(p, ("p/a", b""), special("p/d", tarfile.CHRTYPE)),
    "FIFO": lambda p: tar(p, ("p/a", b""), special("p/d", tarfile.FIFOTYPE)),
    "through a link": lambda p: tar(p, special("p/l", tarfile.SYMTYPE, "b"), ("p/l/x", b"x")),
    "git directory": lambda p: tar(p, ("p/.git/config", b"x")),
    "two tops": lambda p: tar(p, ("p/a", b""), ("q/a", b"")),
    "file at the top": lambda p: tar(p, ("p/a", b""), ("b", b"")),
    "empty": tar,
    "no archive": lambda p: (p.write_bytes(b"nothing"), p)[1],
    "cut off": lambda p: (p.write_bytes(tar(p, ("p/a", b"x" * 9999)).read_bytes()[:60]), p)[1],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives_are_refused(tmp_path: Path, kind: str) -> None:
    archive = HOSTILE[kind](tmp_path / "a.tar.gz")
    with pytest.raises(BadInput) as caught:
        unpack(archive)
    assert caught.value.file == str(archive)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("p/a", b"x" * 60), ("p/b", b"x" * 60))
    assert len(unpack(archive)) == 2
    monkeypatch.setattr(module, "UNPACKED_BYTES", 100)
    with pytest.raises(BadInput, match="too large"):
        unpack(archive)
    monkeypatch.setattr(module, "UNPACKED_BYTES", 1000)
    monkeypatch.setattr(module, "ENTRIES", 1)
    with pytest.raises(BadInput, match="too many"):
        unpack(archive)
