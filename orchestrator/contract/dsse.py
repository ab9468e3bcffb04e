"""DSSE envelopes (secure-systems-lab/dsse, protocol v1): pack, sign and open a payload of a type.

What is signed is the pre-authentication encoding, so that a payload can't be passed off as one of
another type. Keys and envelopes are bytes; nothing here reads a file.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json


@dataclass(frozen=True)
class Signature:
    """One signature over the pre-authentication encoding. ``keyid`` is a hint, not a claim."""

    keyid: str
    sig: bytes


@dataclass(frozen=True)
class Envelope:
    """An opened envelope: its payload's type and bytes, and the signatures as they stand."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: ``DSSEv1 LEN(type) type LEN(payload) payload``, LEN in bytes.

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def pack(payload_type: str, payload: bytes, key: Ed25519PrivateKey | None = None) -> bytes:
    """The envelope as canonical JSON, with a signature where there is a key, else with none."""
    signatures = []
    if key is not None:
        signature = base64.b64encode(key.sign(pae(payload_type, payload))).decode()
        signatures.append({"keyid": keyid(key.public_key()), "sig": signature})
    return canonical_json(
        {
            "payloadType": payload_type,
            "payload": base64.b64encode(payload).decode(),
            "signatures": signatures,
        }
    )


def unpack(envelope: bytes) -> Envelope:
    """Open an envelope without believing it. Raises IntegrityError where it is none."""
    try:
        fields = json.loads(envelope)
        signatures = [
            Signature(str(entry.get("keyid", "")), _decoded(entry["sig"]))
            for entry in fields["signatures"]
        ]
        kind, payload = fields["payloadType"], _decoded(fields["payload"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError("envelope", f"is no DSSE envelope ({error!r})") from None
    if not isinstance(kind, str):
        raise IntegrityError("envelope", "is no DSSE envelope (payloadType is no text)")
    return Envelope(kind, payload, tuple(signatures))


def signed_by(envelope: Envelope, key: Ed25519PublicKey) -> bool:
    """Whether one of the signatures is this key's over payload and type; hints aren't read."""
    message = pae(envelope.payload_type, envelope.payload)
    return any(_genuine(key, signature.sig, message) for signature in envelope.signatures)


def keyid(key: Ed25519PublicKey) -> str:
    """SHA-256 (hexadecimal) of the key's 32 raw bytes."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def private_key(pem: bytes) -> Ed25519PrivateKey:
    """An unencrypted Ed25519 private key (PKCS #8 PEM). Raises ValueError for anything else."""
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise ValueError("the key is encrypted") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the key is not an Ed25519 key")
    return key


def public_key(pem: bytes) -> Ed25519PublicKey:
    """An Ed25519 public key (SubjectPublicKeyInfo PEM). Raises ValueError for anything else."""
    key = load_pem_public_key(pem)
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("the key is not an Ed25519 key")
    return key


def _genuine(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _decoded(text: str) -> bytes:
    """Base64, standard or URL-safe as the specification allows, in its one canonical spelling."""
    standard = text.translate(str.maketrans("-_", "+/"))
    try:
        data = base64.b64decode(standard, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not Base64: {error}") from None
    if base64.b64encode(data).decode() != standard:
        raise ValueError("not Base64: bits after the end")
    return data
