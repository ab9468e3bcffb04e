"""The receipt as an in-toto statement in a DSSE envelope: the form in which it leaves a root.

The statement adds nothing to the receipt: subject and type follow from it, so that an opened
envelope can be checked by making its statement again. Everything is bytes in, bytes out.
"""

import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.contract import dsse, receipt
from orchestrator.spec.errors import IntegrityError
from orchestrator.spec.identity import canonical_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://repo-factorials.dev/receipt/v2"
"""Name of the predicate, which is a receipt of schema ``factorial/receipt@2``; not an address."""


def envelope_of(issued: bytes, key: Ed25519PrivateKey | None = None) -> bytes:
    """The envelope of a receipt. Raises IntegrityError where ``issued`` is no genuine receipt."""
    return dsse.pack(PAYLOAD_TYPE, _statement(issued), key)


def receipt_in(envelope: dsse.Envelope) -> bytes:
    """The receipt of an opened envelope, byte for byte as it was issued.

    Raises IntegrityError where the payload is no such statement, or where the receipt does not
    match its own digest or the statement does not follow from it.
    """
    if envelope.payload_type != PAYLOAD_TYPE:
        raise IntegrityError("envelope", f"payloadType is not {PAYLOAD_TYPE}")
    try:
        issued = canonical_json(json.loads(envelope.payload)["predicate"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IntegrityError("statement", "has no receipt as its predicate") from None
    if _statement(issued) != envelope.payload:
        raise IntegrityError("statement", "does not follow from its receipt")
    return issued


def subject_of(said: Mapping[str, Any]) -> dict[str, object]:
    """The accepted state, or the working state at the end where nothing was accepted.

    A state id is the SHA-256 of the sorted listing of the tree (docs/contract.md "Identities").
    """
    accepted = said["accepted_state_id"]
    name = "final-state" if accepted is None else "accepted-state"
    return {"name": name, "digest": {"sha256": accepted or said["final_state_id"]}}


def _statement(issued: bytes) -> bytes:
    said = receipt.opened(issued)
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [subject_of(said)],
            "predicateType": PREDICATE_TYPE,
            "predicate": said,
        }
    )
