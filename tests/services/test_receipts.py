"""Nothing of a real run's ledgers and receipts can be changed unseen, and receipts travel."""

import base64
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.cluster.checking import contract_checks
from orchestrator.contract import codec, ledger, receipt
from orchestrator.contract import events as ev
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json, sha256_hex
from orchestrator.spec.records import Row
from orchestrator.store.integrity import record_findings
from orchestrator.store.parquet import encode_small, read_file, table_of
from orchestrator.store.root import Root
from orchestrator.store.schemas import TABLES
from tests.e2e.support import CHEAP, Workspace, make_workspace
from tests.unit.cli_support import write_keys

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]
EDITS = 1000
STACK = {"rates": [{"alpha": 0.6, "beta": 0.3, "overfit": 0.2}], "submit": 0.3, "test": 0.5}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Eight settled rollouts of one task."""
    made = make_workspace(
        tmp_path_factory.mktemp("receipts"),
        stack=STACK,
        seeds=[1, 2],
        tasks={"manifest": "../tasks/quickstart.yaml", "include": [CHEAP[1]]},
    )
    made.run("run", str(made.study), "--root", "runs/whole", "--through", "rollouts")
    return made


@pytest.fixture
def root(workspace: Workspace, tmp_path: Path) -> Root:
    """A copy that the test may damage."""
    shutil.copytree(workspace.path / "runs/whole", tmp_path / "copy")
    return Root.existing(tmp_path / "copy")


class Examiner:
    """Asks ``verify``'s own functions about one rollout at a time."""

    def __init__(self, root: Root) -> None:
        self.root, self.lock = root, root.lock()
        self.checks = contract_checks(self.lock)
        self.ids = [planned.rollout_id for planned in self.lock.rollouts]

    def findings(self, rollout_id: str) -> list[str]:
        return record_findings(self.lock, self.root, rollout_id, self.checks)

    def files(self) -> list[Path]:
        """Every ledger and every receipt."""
        names = ("ledger.jsonl", "receipt.json")
        return [self.root.record_path(one) / name for one in self.ids for name in names]

    def lines(self, rollout_id: str) -> list[bytes]:
        return (self.root.record_path(rollout_id) / "ledger.jsonl").read_bytes().splitlines()

    def longest(self) -> str:
        return max(self.ids, key=lambda one: len(self.lines(one)))


@pytest.fixture
def whole(root: Root) -> Examiner:
    examiner = Examiner(root)
    assert all(examiner.findings(one) == [] for one in examiner.ids)
    return examiner


def found(examiner: Examiner, path: Path, content: bytes) -> bool:
    """Whether the file with this content instead of its own is found out."""
    original = path.read_bytes()
    assert content != original
    path.write_bytes(content)
    try:
        return bool(examiner.findings(path.parent.name))
    finally:
        path.write_bytes(original)


# ------------------------------------------------------------------------- single bytes


def flip(data: bytes, at: int, draw: random.Random) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]


def replace(data: bytes, at: int, draw: random.Random) -> bytes:
    return data[:at] + bytes([(data[at] + draw.randrange(1, 256)) % 256]) + data[at + 1 :]


def delete(data: bytes, at: int, _: random.Random) -> bytes:
    return data[:at] + data[at + 1 :]


def insert(data: bytes, at: int, draw: random.Random) -> bytes:
    return data[:at] + bytes([draw.randrange(256)]) + data[at:]


def test_a_thousand_random_single_byte_edits_are_found(whole: Examiner) -> None:
    draw = random.Random(20260101)
    files = whole.files()
    sizes = [path.stat().st_size for path in files]
    unseen = []
    for number in range(EDITS):
        (path,) = draw.choices(files, sizes)
        change = draw.choice((flip, replace, delete, insert))
        data = path.read_bytes()
        at = draw.randrange(len(data))
        if not found(whole, path, change(data, at, draw)):
            unseen.append((number, path.parent.name, path.name, change.__name__, at))
    assert unseen == [], f"{EDITS - len(unseen)} of {EDITS} found"


def same_values(data: bytes) -> Iterator[bytes]:
    """Other bytes that a JSON reader takes for the same values."""
    for space in (b" ", b"\n", b"\t", b"\r\n"):
        yield data + space
        yield space + data
    yield data.replace(b'":"', b'": "', 1)
    yield data.replace(b'{"', b'{ "', 1)
    yield data.replace(b":0,", b":0.0,", 1) if b":0," in data else data + b" "
    yield data.replace(b"e", b"\\u0065", 1)
    yield data.replace(b"\n", b"\r\n") if b"\n" in data else data + b"\r"
    yield data.replace(b"{", b'{"hash":0,', 1)


def test_edits_that_leave_the_json_values_alone_are_found(whole: Examiner) -> None:
    for path in whole.files():
        for edited in same_values(path.read_bytes()):
            assert found(whole, path, edited), (path, edited[:80])


def test_the_ends_of_the_files_are_guarded(whole: Examiner) -> None:
    for path in whole.files():
        data = path.read_bytes()
        for edited in (b"", data[:-1], data[1:], data * 2, data + b"x", data + b"\n", data + b"{}"):
            assert found(whole, path, edited), (path, edited[-80:])


# ------------------------------------------------------------------------- whole events


def relinked(lines: list[bytes]) -> list[bytes]:
    """The same events with hashes that are right."""
    head, again = ledger.GENESIS, list[bytes]()
    for line in lines:
        value = json.loads(line)
        linked, head = ledger.append(head, value["kind"], value["data"])
        again.append(linked)
    return again


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def rearranged(mine: list[bytes], others: list[bytes]) -> Iterator[list[bytes]]:
    """One event removed, doubled, swapped with its neighbour, or taken from another ledger."""
    for at in range(len(mine)):
        yield [*mine[:at], *mine[at + 1 :]]
        yield [*mine[:at], mine[at], *mine[at:]]
        if at + 1 < len(mine) and mine[at] != mine[at + 1]:
            yield [*mine[:at], mine[at + 1], mine[at], *mine[at + 2 :]]
        foreign = others[min(at, len(others) - 1)]
        if foreign != mine[at]:
            yield [*mine[:at], foreign, *mine[at + 1 :]]
            yield [*mine[:at], foreign, *mine[at:]]


def test_removed_reordered_and_foreign_events_are_found(whole: Examiner) -> None:
    for one, other in zip(whole.ids, [*whole.ids[1:], whole.ids[0]], strict=True):
        path = whole.root.record_path(one) / "ledger.jsonl"
        mine, others = whole.lines(one), whole.lines(other)
        for lines in rearranged(mine, others):
            assert found(whole, path, joined(lines))
            again = relinked(lines)
            if again != mine:
                assert found(whole, path, joined(again))


def put(examiner: Examiner, rollout_id: str, lines: list[bytes], issued: bytes) -> None:
    """Replace ledger and receipt, and what the rollout's row says of their digests."""
    home = examiner.root.record_path(rollout_id)
    (home / "ledger.jsonl").write_bytes(joined(lines))
    (home / "receipt.json").write_bytes(issued)
    head = json.loads(lines[-1])["hash"]
    rewrite(home, "rollout", {"ledger_head": head, "receipt_sha256": sha256_hex(issued)})


def rewrite(home: Path, table: str, values: Row) -> None:
    path = home / f"{table}.parquet"
    rows = read_file(path, table)
    rows[0].update({name: value for name, value in values.items() if name in rows[0]})
    path.write_bytes(encode_small(table_of(TABLES[table], rows)))


def test_another_rollouts_ledger_and_receipt_are_foreign(whole: Examiner) -> None:
    """Other arm or other seed: rows, context and executions say otherwise."""
    for one in whole.ids:
        for other in whole.ids:
            if one == other:
                continue
            home = whole.root.record_path(one)
            kept = {path: path.read_bytes() for path in home.iterdir()}
            issued = (whole.root.record_path(other) / "receipt.json").read_bytes()
            put(whole, one, whole.lines(other), issued)
            findings = whole.findings(one)
            assert any("context_sha256" in finding for finding in findings), findings
            for path, data in kept.items():
                path.write_bytes(data)


def cut(lines: list[bytes], at: int) -> tuple[list[bytes], bytes] | None:
    """The first events, an escalation, and a receipt that follows; None where it cannot end."""
    values = [json.loads(line) for line in lines[:at]]
    values.append(dict(zip(("kind", "data"), codec.encode(ev.EscalateRequested()), strict=True)))
    forged = relinked([canonical_json(value) for value in values])
    try:
        return forged, receipt.build(*receipt.replay(forged))
    except (IntegrityError, ValueError):
        return None


def test_a_cut_ledger_with_a_receipt_made_to_match_is_found(whole: Examiner) -> None:
    """The forger knows our code: chain, receipt and digests are right, the history is not."""
    one = whole.longest()
    forgeries = [
        made for at in range(1, len(whole.lines(one))) if (made := cut(whole.lines(one), at))
    ]
    assert len(forgeries) >= 3
    for lines, issued in forgeries:
        receipt.receipt_follows(lines, issued)
        put(whole, one, lines, issued)
        findings = whole.findings(one)
        assert any("rollout: " in finding for finding in findings), findings
        assert any("verdicts" in f or "escalated" in f for f in findings), findings


def test_rows_made_to_match_do_not_match_what_was_journalled(whole: Examiner) -> None:
    """A forger who rewrites every table still has the attempt's journal against him."""
    one = next(i for i in whole.ids if len(read_file(whole.root.record_path(i) / "verdicts.parquet",
                                                     "verdicts")) >= 3)  # fmt: skip
    lines = whole.lines(one)
    value = json.loads(next(line for line in lines if b'"kind":"diagnostic"' in line))
    payload = value["data"]["envelope"]["payload"]
    forged_payload = "0 of 0 tests passed"
    assert payload != forged_payload
    forged = relinked(
        [
            line.replace(canonical_json(payload), canonical_json(forged_payload))
            if b'"kind":"diagnostic"' in line
            else line
            for line in lines
        ]
    )
    issued = receipt.build(*receipt.replay(forged))
    put(whole, one, forged, issued)
    home = whole.root.record_path(one)
    rows = read_file(home / "verdicts.parquet", "verdicts")
    for row in rows:
        if row["payload_sha256"] == sha256_hex(payload.encode()):
            row["payload_sha256"] = sha256_hex(forged_payload.encode())
    (home / "verdicts.parquet").write_bytes(encode_small(table_of(TABLES["verdicts"], rows)))
    (finding,) = whole.findings(one)
    assert "is not what attempt" in finding


def test_an_edited_journal_is_found(whole: Examiner) -> None:
    for one in whole.ids[:2]:
        (journal,) = whole.root.attempts.glob(f"{one}.a*.ledger.jsonl")
        journal.write_bytes(journal.read_bytes().replace(b'"seq":1', b'"seq":2', 1))
        assert any("is not what attempt" in finding for finding in whole.findings(one))


# ------------------------------------------------------------------------- the command line

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "ledger.jsonl": lambda data: data + b" ",
    "receipt.json": lambda data: data.replace(b"true", b"false", 1),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_verify_finds_and_names_the_damage(workspace: Workspace, root: Root, name: str) -> None:
    one = sorted(path.name for path in root.records.iterdir())[0]
    path = root.record_path(one) / name
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    done = workspace.run("verify", str(root.path), code=1)
    assert done.stdout.startswith(f"finding: {one}: ")
    refused = workspace.run("receipt", str(root.path), one, code=1)
    assert "no receipt is given out" in refused.stderr and not refused.stdout


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A key pair, and the public key of somebody else."""
    home = tmp_path_factory.mktemp("keys")
    key, public, stranger = home / "key.pem", home / "public.pem", home / "stranger.pem"
    write_keys(key, public)
    write_keys(home / "other.pem", stranger)
    return key, public, stranger


def test_every_receipt_of_a_run_travels_signed(
    workspace: Workspace, keys: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    key, public, stranger = keys
    home = Root.existing(workspace.path / "runs/whole")
    one = home.lock().rollouts[0].rollout_id
    ledger_path = str(home.record_path(one) / "ledger.jsonl")
    out = tmp_path / "statements" / "one.dsse.json"
    workspace.run("receipt", "runs/whole", one, "--key", str(key), "--out", str(out))
    asked = ("receipt", "--verify", str(out), "--json", "--ledger", ledger_path)
    facts = json.loads(workspace.run(*asked, "--public-key", str(public)).stdout)
    assert facts["findings"] == [] and facts["signature_verified"] is True
    assert facts["context"]["rollout_id"] == one
    refused = json.loads(workspace.run(*asked, "--public-key", str(stranger), code=1).stdout)
    assert refused["findings"] == ["envelope: is not signed by that key"]
    statement = json.loads(base64.b64decode(json.loads(out.read_bytes())["payload"]))
    kept = (home.record_path(one) / "receipt.json").read_bytes()
    assert canonical_json(statement["predicate"]) == kept
    body = {k: v for k, v in statement["predicate"].items() if k != "receipt_sha256"}
    assert digest_json(body) == statement["predicate"]["receipt_sha256"]
