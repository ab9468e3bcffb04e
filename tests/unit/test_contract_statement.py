"""Receipts leave a root as in-toto statements in DSSE envelopes that anyone can check."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from orchestrator.contract import dsse
from orchestrator.contract import events as ev
from orchestrator.contract.statement import PREDICATE_TYPE, envelope_of, receipt_in
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json, digest_json
from tests.unit.cli_support import Command, write_keys
from tests.unit.test_contract_ledger import HISTORY, run

LEDGER, _, ISSUED = run(HISTORY)
KEY, STRANGER = (Ed25519PrivateKey.generate() for _ in range(2))


def fields(envelope: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(envelope)
    return value


def statement(envelope: bytes) -> dict[str, Any]:
    return fields(base64.b64decode(fields(envelope)["payload"]))  # type: ignore[arg-type]


def repacked(said: object, payload_type: str = "application/vnd.in-toto+json") -> dsse.Envelope:
    return dsse.unpack(dsse.pack(payload_type, canonical_json(said)))


# ------------------------------------------------------------------------- DSSE


def test_the_encoding_is_that_of_the_specifications_test_vector() -> None:
    """github.com/secure-systems-lab/dsse, protocol.md "Test Vectors"."""
    encoded = dsse.pae("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


@pytest.mark.parametrize(
    ("kind", "payload", "encoded"),
    [
        ("", b"", b"DSSEv1 0  0 "),
        ("é", b"\xff\n ", b"DSSEv1 2 \xc3\xa9 3 \xff\n "),
        ("a 1 b", b"", b"DSSEv1 5 a 1 b 0 "),
    ],
)
def test_lengths_are_in_bytes(kind: str, payload: bytes, encoded: bytes) -> None:
    assert dsse.pae(kind, payload) == encoded


def test_a_signature_is_of_payload_and_type_and_key() -> None:
    opened = dsse.unpack(dsse.pack("a/b", b"content", KEY))
    assert (opened.payload_type, opened.payload) == ("a/b", b"content")
    assert dsse.signed_by(opened, KEY.public_key())
    assert not dsse.signed_by(opened, STRANGER.public_key())
    for kind, payload in (("a/c", b"content"), ("a/b", b"Content")):
        assert not dsse.signed_by(dsse.Envelope(kind, payload, opened.signatures), KEY.public_key())
    assert not dsse.signed_by(dsse.unpack(dsse.pack("a/b", b"content")), KEY.public_key())


def test_the_key_id_is_a_hint() -> None:
    """A wrong hint neither makes nor breaks a signature; any of several signatures may be it."""
    value = fields(dsse.pack("a/b", b"content", KEY))
    assert value["signatures"][0]["keyid"] == dsse.keyid(KEY.public_key())
    value["signatures"][0]["keyid"] = dsse.keyid(STRANGER.public_key())
    value["signatures"].insert(0, {"sig": base64.b64encode(b"x" * 64).decode()})
    opened = dsse.unpack(json.dumps(value).encode())
    assert dsse.signed_by(opened, KEY.public_key())
    assert not dsse.signed_by(opened, STRANGER.public_key())


def test_url_safe_base64_is_read_as_well() -> None:
    value = fields(dsse.pack("a/b", b"\xfb\xff\xfe" * 5, KEY))
    assert "+" in value["payload"] or "/" in value["payload"]
    value["payload"] = value["payload"].replace("+", "-").replace("/", "_")
    assert dsse.signed_by(dsse.unpack(canonical_json(value)), KEY.public_key())


@pytest.mark.parametrize(
    "envelope",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"null",
        b'{"payload":"","payloadType":1,"signatures":[]}',
        b'{"payload":"*","payloadType":"a","signatures":[]}',
        b'{"payload":"YR==","payloadType":"a","signatures":[]}',
        b'{"payload":"YQ","payloadType":"a","signatures":[]}',
        b'{"payload":"","payloadType":"a","signatures":[{}]}',
        b'{"payload":"","payloadType":"a","signatures":[1]}',
        b'{"payload":"","payloadType":"a","signatures":1}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_envelope_is_refused(envelope: bytes) -> None:
    with pytest.raises(IntegrityError, match="no DSSE envelope"):
        dsse.unpack(envelope)


# ------------------------------------------------------------------------- the statement


def test_the_statement_is_of_the_accepted_state() -> None:
    said = statement(envelope_of(ISSUED))
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == PREDICATE_TYPE
    assert said["subject"] == [{"name": "accepted-state", "digest": {"sha256": "fixed"}}]
    assert canonical_json(said["predicate"]) == ISSUED


def test_a_receipt_without_acceptance_is_of_the_final_state_and_says_so() -> None:
    issued = run((*HISTORY[:12], ev.EscalateRequested()))[2]
    said = statement(envelope_of(issued))
    assert said["subject"] == [{"name": "final-state", "digest": {"sha256": "fixed"}}]
    assert said["predicate"]["accepted_state_id"] is None
    assert said["predicate"]["verdict"] == "ESCALATED"


@pytest.mark.parametrize("key", [None, KEY])
def test_the_receipt_comes_back_byte_for_byte(key: Ed25519PrivateKey | None) -> None:
    assert receipt_in(dsse.unpack(envelope_of(ISSUED, key))) == ISSUED


@pytest.mark.parametrize("issued", [b"", b"{}", b"[]", ISSUED.replace(b"fixed", b"worse")])
def test_only_a_genuine_receipt_is_packed(issued: bytes) -> None:
    with pytest.raises(IntegrityError):
        envelope_of(issued)


def test_a_receipt_of_another_version_is_named() -> None:
    body = {**fields(ISSUED), "schema": "factorial/receipt@9"}
    del body["receipt_sha256"]
    other = canonical_json({**body, "receipt_sha256": digest_json(body)})
    with pytest.raises(IntegrityError, match="is factorial/receipt@9, this version reads"):
        envelope_of(other)


@pytest.mark.parametrize(
    "change",
    [
        {"subject": [{"name": "accepted-state", "digest": {"sha256": "worse"}}]},
        {"subject": []},
        {"predicateType": "https://repo-factorials.dev/receipt/v1"},
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"more": 1},
        {"predicate": {}},
        {"predicate": None},
    ],
)
def test_a_statement_that_does_not_follow_from_its_receipt_is_refused(
    change: dict[str, object],
) -> None:
    said = {**statement(envelope_of(ISSUED)), **change}
    with pytest.raises(IntegrityError):
        receipt_in(repacked(said))


def test_another_payload_type_or_spelling_is_refused() -> None:
    said = statement(envelope_of(ISSUED))
    assert receipt_in(repacked(said)) == ISSUED
    with pytest.raises(IntegrityError, match="payloadType"):
        receipt_in(repacked(said, "application/json"))
    spaced = dsse.pack("application/vnd.in-toto+json", json.dumps(said).encode())
    with pytest.raises(IntegrityError, match="does not follow"):
        receipt_in(dsse.unpack(spaced))


# ------------------------------------------------------------------------- keys


def pem(key: Any, encryption: Any = None) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()))


def test_keys_come_back_from_pem() -> None:
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert dsse.keyid(dsse.private_key(pem(KEY)).public_key()) == dsse.keyid(KEY.public_key())
    assert dsse.keyid(dsse.public_key(public)) == dsse.keyid(KEY.public_key())


def test_other_keys_are_refused() -> None:
    rsa = generate_private_key(65537, 2048)
    rsa_public = rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for bad in (b"", b"-----BEGIN", pem(rsa), pem(KEY, BestAvailableEncryption(b"secret"))):
        with pytest.raises(ValueError):
            dsse.private_key(bad)
    for bad in (b"", pem(KEY), rsa_public):
        with pytest.raises(ValueError):
            dsse.public_key(bad)


# ------------------------------------------------------------------------- the command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A signed envelope, its ledger and the keys."""
    write_keys(tmp_path / "key.pem", tmp_path / "public.pem")
    key = dsse.private_key((tmp_path / "key.pem").read_bytes())
    (tmp_path / "signed.json").write_bytes(envelope_of(ISSUED, key))
    (tmp_path / "plain.json").write_bytes(envelope_of(ISSUED))
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(line + b"\n" for line in LEDGER))
    return tmp_path


def test_a_file_is_checked_as_far_as_it_can_be(command: Command, home: Path) -> None:
    done = command("receipt", "--verify", str(home / "plain.json"))
    assert done.code == 0, done
    assert "ADMITTED (completion.certified), accepted-state fixed" in done.out
    assert "signature: none" in done.out and "ledger: not checked" in done.out
    signed = str(home / "signed.json")
    assert "signature: present, not checked" in command("receipt", "--verify", signed).out
    with_all = ("--public-key", str(home / "public.pem"), "--ledger", str(home / "ledger.jsonl"))
    done = command("receipt", "--verify", signed, *with_all)
    assert "signature: verified" in done.out and "ledger: the receipt follows" in done.out
    facts = json.loads(command("receipt", "--verify", signed, *with_all, "--json").out)
    assert facts["signature_verified"] is True and facts["ledger_checked"] is True
    assert facts["findings"] == []


def test_findings_end_in_one(command: Command, home: Path) -> None:
    plain, public = str(home / "plain.json"), str(home / "public.pem")
    done = command("receipt", "--verify", plain, "--public-key", public)
    assert (done.code, done.out) == (1, "finding: envelope: is not signed by that key\n")
    (home / "ledger.jsonl").write_bytes(b"".join(line + b"\n" for line in LEDGER[:-1]))
    done = command("receipt", "--verify", plain, "--ledger", str(home / "ledger.jsonl"))
    assert (done.code, done.out) == (1, "finding: ledger: does not reach the end of a rollout\n")
    (home / "plain.json").write_bytes(b"{}")
    facts = command("receipt", "--verify", plain, "--json")
    assert facts.code == 1 and len(json.loads(facts.out)["findings"]) == 1


def test_every_byte_of_a_signed_file_counts(home: Path) -> None:
    """An edit is refused, or nobody's signature, or it was of the hint and nothing else."""
    content = (home / "signed.json").read_bytes()
    key = dsse.public_key((home / "public.pem").read_bytes())
    original = dsse.unpack(content)
    believed = 0
    for at in range(len(content)):
        edited = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        try:
            envelope = dsse.unpack(edited)
            receipt_in(envelope)
        except IntegrityError:
            continue
        if dsse.signed_by(envelope, key):
            believed += 1
            assert envelope.payload == original.payload
            assert envelope.signatures[0].sig == original.signatures[0].sig
    assert believed <= len("keyid") + 64


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give ROOT and ROLLOUT"),
        (("root",), "give ROOT and ROLLOUT"),
        (("root", "x", "--public-key", "p"), "give ROOT and ROLLOUT"),
        (("root", "--verify", "x"), "give ROOT and ROLLOUT"),
        (("--verify", "x", "--key", "k"), "give ROOT and ROLLOUT"),
        (("nope", "x"), "not the root of a run"),
        (("nope", "x", "--key", "nope.pem"), "nope.pem: cannot be read"),
        (("nope", "x", "--out", "."), "is a folder"),
        (("--verify", "nope"), "nope: cannot be read"),
        (("--verify", "plain.json", "--ledger", "nope"), "nope: cannot be read"),
        (("--verify", "plain.json", "--public-key", "key.pem"), "no Ed25519 public key in PEM"),
        (("nope", "x", "--key", "public.pem"), "no Ed25519 private key in PEM"),
    ],
)
def test_mistakes_are_named(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, words: str
) -> None:
    monkeypatch.chdir(home)
    assert words in command.refused("receipt", *arguments)
