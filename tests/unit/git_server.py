"""A git server for tests: git's smart HTTP protocol (version 0) for fetching, over a repository."""

import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pygit2

from tests.unit.git_support import Repo

CAPABILITIES = b"ofs-delta allow-reachable-sha1-in-want allow-tip-sha1-in-want"
PROBLEMS = {"gone": 404, "broken": 500, "private": 401}


@dataclass
class Server:
    """What is served, how (``ok`` or a key of :data:`PROBLEMS`), and what was asked for."""

    repo: Repo
    url: str = ""
    state: str = "ok"
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(repo: Repo) -> Iterator[Server]:
    """Serve ``repo`` on a free port of the loopback."""
    server = Server(repo)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    server.url = f"http://127.0.0.1:{http.server_address[1]}/adder.git"
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            self._answer("advertisement", _advertisement(server.repo.repository))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.asked.append(self.path)
            self._answer("result", _pack(server.repo.repository, body))

        def _answer(self, kind: str, data: bytes) -> None:
            status = PROBLEMS.get(server.state, 200)
            data = data if status == 200 else b"no"
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _line(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


def _advertisement(repository: pygit2.Repository) -> bytes:
    references = sorted(repository.references)
    lines = [f"{repository.references[name].target} {name}".encode() for name in references]
    lines[0] += b"\0" + CAPABILITIES
    listed = b"".join(_line(line + b"\n") for line in lines)
    return _line(b"# service=git-upload-pack\n") + b"0000" + listed + b"0000"


def _pack(repository: pygit2.Repository, request: bytes) -> bytes:
    """Everything that the wanted commits lead to, whatever the other side has."""
    builder = pygit2.PackBuilder(repository)
    for oid in re.findall(rb"want ([0-9a-f]{40})", request):
        for commit in repository.walk(oid.decode()):
            builder.add(commit.id)
            _add_tree(repository, builder, commit.tree)
    return _line(b"NAK\n") + _written(builder)


def _add_tree(
    repository: pygit2.Repository, builder: pygit2.PackBuilder, tree: pygit2.Tree
) -> None:
    builder.add(tree.id)
    for entry in tree:
        if isinstance(entry, pygit2.Tree):
            _add_tree(repository, builder, entry)
        else:
            builder.add(entry.id)


def _written(builder: pygit2.PackBuilder) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        builder.write(folder)
        (pack,) = Path(folder).glob("*.pack")
        return pack.read_bytes()
