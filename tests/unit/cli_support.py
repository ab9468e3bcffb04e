"""Calls the command line in this process, as the installed script does."""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from orchestrator.cli import main as entry

REPOSITORY = Path(__file__).parents[2]


def nested(command: Any) -> dict[str, Any] | None:
    """The commands of a group by name, or None where ``command`` is no group."""
    if not hasattr(command, "list_commands"):
        return None
    return {name: command.get_command(None, name) for name in command.list_commands(None)}


def write_keys(private: Path, public: Path) -> None:
    """A new Ed25519 key pair in PEM, as `openssl genpkey -algorithm ed25519` writes it."""
    key = Ed25519PrivateKey.generate()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )


@dataclass(frozen=True)
class Done:
    """What a command left: exit code and both streams."""

    code: int
    out: str
    err: str


class Command:
    """``call("status", "runs/x")`` runs ``factorial status runs/x``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["factorial", *arguments])
        handlers = {number: signal.getsignal(number) for number in entry.SIGNALS}
        self._capsys.readouterr()
        try:
            entry.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        streams = self._capsys.readouterr()
        return Done(code, streams.out, streams.err)

    def refused(self, *arguments: str) -> str:
        """The error of a command that has to end with code 2 and say nothing on stdout."""
        done = self(*arguments)
        assert done.code == 2, done
        assert done.out == ""
        assert "Traceback" not in done.err
        return " ".join(done.err.replace("│", " ").split())
