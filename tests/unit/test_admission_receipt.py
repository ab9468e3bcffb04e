"""A receipt follows from its two ledgers or has no authority: every edit is found."""

import json
import random
import shutil
from pathlib import Path

import pytest

from orchestrator.admission import receipt
from orchestrator.admission.journal import Journal, lines_of
from orchestrator.contract import ledger
from orchestrator.spec.errors import FactorialError, IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json
from tests.unit.admission_support import opened

FILES = (receipt.LEDGER, receipt.RECEIPT, receipt.CONTRACT_LEDGER, receipt.CONTRACT_RECEIPT)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed session with an admitted, a rejected and a stale action."""
    place = opened(tmp_path_factory.mktemp("session"), protected=["ci"])
    for code in (b"bad", b"good"):
        place.write(code)
        place.session.propose()
    place.session.act(b"noise")
    place.session.complete()
    return place.session.root


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    shutil.copytree(root, tmp_path / "copy")
    return tmp_path / "copy"


def refused(place: Path) -> bool:
    try:
        receipt.deliver(place, place / "out")
    except IntegrityError:
        return not (place / "out").exists()
    return False


def test_the_genuine_one_holds(copy: Path) -> None:
    body = json.loads((copy / receipt.RECEIPT).read_bytes())
    assert receipt.deliver(copy, copy / "out") == body["accepted_state_id"]
    assert body["delivery"]["candidates"] == 2
    assert body["delivery"]["rejected"] == body["delivery"]["recoveries"] == 1
    assert body["freshness"]["fresh"] is True
    assert {"admission.malformed-action", "proposal.rejected"} <= set(body["rules"])


@pytest.mark.parametrize("name", FILES)
def test_single_bytes(copy: Path, name: str) -> None:
    genuine = (copy / name).read_bytes()
    draw = random.Random(name)
    for _ in range(60):
        place = draw.randrange(len(genuine))
        other = draw.choice([b for b in range(256) if b != genuine[place]])
        (copy / name).write_bytes(genuine[:place] + bytes([other]) + genuine[place + 1 :])
        assert refused(copy), (name, place, other)


@pytest.mark.parametrize("name", [receipt.LEDGER, receipt.CONTRACT_LEDGER])
@pytest.mark.parametrize(
    "edit", ["drop first", "drop middle", "drop last", "swap", "double", "cut"]
)
def test_lines_removed_moved_or_doubled(copy: Path, name: str, edit: str) -> None:
    lines = lines_of(copy / name)
    edits = {
        "drop first": lines[1:],
        "drop middle": lines[:2] + lines[3:],
        "drop last": lines[:-1],
        "swap": [lines[0], lines[2], lines[1], *lines[3:]],
        "double": [*lines, lines[-1]],
        "cut": [],
    }
    (copy / name).write_bytes(b"".join(line + b"\n" for line in edits[edit]))
    assert refused(copy)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(copy: Path, name: str) -> None:
    (copy / name).unlink()
    assert refused(copy)


def test_a_receipt_that_is_right_in_itself(copy: Path) -> None:
    body = json.loads((copy / receipt.RECEIPT).read_bytes())
    del body["receipt_sha256"]
    body["residual_risks"] = []
    made = canonical_json({**body, "receipt_sha256": digest_json(body)})
    (copy / receipt.RECEIPT).write_bytes(made)
    assert refused(copy)


def _rechained(lines: list[bytes], edit: "dict[str, str]") -> bytes:
    """A chain that is right in itself, over lines in which words were exchanged."""
    head, out = ledger.GENESIS, b""
    for line in lines:
        text = line.decode()
        for old, new in edit.items():
            text = text.replace(old, new)
        value = json.loads(text)
        new_line, head = ledger.append(head, value["kind"], value["data"])
        out += new_line + b"\n"
    return out


@pytest.mark.parametrize(
    "edit",
    [{"REJECTED": "ADMITTED"}, {'"fail"': '"pass"'}, {"enforce": "warn"}, {"malformed": "made-up"}],
)
def test_a_ledger_made_anew_does_not_lead_to_the_receipt(copy: Path, edit: dict[str, str]) -> None:
    place = copy / receipt.LEDGER
    place.write_bytes(_rechained(lines_of(place), edit))
    assert refused(copy)


def test_evidence_without_an_execution(copy: Path) -> None:
    """Both receipts made anew over an admission ledger that knows no gate run: still at odds."""
    lines = [line for line in lines_of(copy / receipt.LEDGER) if b'"purpose":"gate"' not in line]
    rebuilt = _rechained(lines, {}).splitlines()
    with pytest.raises(IntegrityError, match="no execution is recorded"):
        receipt.build(rebuilt, lines_of(copy / receipt.CONTRACT_LEDGER))


def test_ledgers_of_two_sessions(root: Path, tmp_path: Path) -> None:
    place = opened(tmp_path, candidates=3)
    place.write(b"good")
    place.session.propose()
    place.session.complete()
    other = place.session.root
    for name in FILES:
        copy = tmp_path / f"mixed-{name}"
        shutil.copytree(root, copy)
        shutil.copyfile(other / name, copy / name)
        assert refused(copy)


@pytest.mark.parametrize("kind", ["nonsense", "decision"])
def test_a_line_that_is_none_of_ours(copy: Path, kind: str) -> None:
    lines = lines_of(copy / receipt.LEDGER)
    values = [json.loads(line) for line in lines]
    values[1] = {"kind": kind, "data": {"x": 1}}
    head, out = ledger.GENESIS, []
    for value in values:
        line, head = ledger.append(head, value["kind"], value["data"])
        out.append(line)
    with pytest.raises(IntegrityError, match="line 2"):
        receipt.build(out, lines_of(copy / receipt.CONTRACT_LEDGER))


def test_a_journal_is_created_once_and_read_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.jsonl")
    journal.append("kind", {"a": 1})
    assert lines_of(tmp_path / "x.jsonl") == journal.lines
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "x.jsonl")
    with (tmp_path / "x.jsonl").open("ab") as stream:
        stream.write(b'{"torn')
    with pytest.raises(IntegrityError, match="whole line"):
        lines_of(tmp_path / "x.jsonl")
    assert issubclass(IntegrityError, FactorialError)
