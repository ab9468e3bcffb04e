"""``factorial receipt``: a rollout's receipt as a statement to hand on, and the check of one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from orchestrator.cli.locks import require_writable_file
from orchestrator.cli.trace import require_settled
from orchestrator.cluster.checking import contract_checks
from orchestrator.contract import dsse
from orchestrator.contract.receipt import opened, receipt_follows
from orchestrator.contract.statement import envelope_of, receipt_in, subject_of
from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.store.files import write_atomic
from orchestrator.store.integrity import RECEIPT, record_findings, whole_lines
from orchestrator.store.reading import read_table
from orchestrator.store.root import Root

Key = TypeVar("Key")
MAKE_KEY = "Make one: `openssl genpkey -algorithm ed25519 -out KEY.pem`."
MAKE_PUBLIC = "Make one: `openssl pkey -in KEY.pem -pubout -out PUB.pem`."


def receipt(
    root: Annotated[Path | None, typer.Argument(help="Folder of a run.")] = None,
    rollout: Annotated[str | None, typer.Argument(help="Rollout id.")] = None,
    *,
    out: Annotated[Path | None, typer.Option(help="File to write; printed where absent.")] = None,
    key: Annotated[
        Path | None, typer.Option(help="Ed25519 private key (PEM) to sign with.")
    ] = None,
    verify: Annotated[Path | None, typer.Option(help="Check this file instead.")] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="With --verify: the key (PEM) that must have signed it.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="With --verify: the ledger.jsonl it must follow from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The receipt of a rollout as an in-toto statement in a DSSE envelope; or check such a file.

    Example: `factorial receipt runs/quickstart ROLLOUT --key KEY.pem --out receipt.dsse.json`, then
    `factorial receipt --verify receipt.dsse.json --public-key PUB.pem --ledger ledger.jsonl`
    """
    if verify is not None and root is None and out is None and key is None:
        _show_checked(verify, public_key, ledger, as_json)
    elif verify is None and root and rollout and public_key is None and ledger is None:
        _issue(root, rollout, out, key, as_json)
    else:
        problem = "give ROOT and ROLLOUT (with --out, --key), or --verify FILE alone"
        remedy = "See `factorial receipt --help`."
        raise BadInput("command line", "", problem + " (with --public-key, --ledger)", remedy)


# --------------------------------------------------------------------------------- issue


def _issue(root: Path, rollout: str, out: Path | None, key: Path | None, as_json: bool) -> None:
    if out is not None:
        require_writable_file(out, "--out")
    signing = _key(key, dsse.private_key, "private key", MAKE_KEY) if key else None
    issued = _checked_receipt(root, rollout)
    envelope = envelope_of(issued, signing)
    if out is None:
        typer.echo(envelope.decode())
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, envelope + b"\n")
    keyid = dsse.keyid(signing.public_key()) if signing else None
    facts = {"file": str(out), "keyid": keyid, **_facts(issued)}
    typer.echo(json.dumps(facts) if as_json else f"{out}: {_sentence(facts)}")


def _checked_receipt(root: Path, rollout: str) -> bytes:
    """The receipt of a rollout that agrees with its ledger, its rows and the lock."""
    home = Root.existing(root)
    require_settled(home, root, rollout)
    lock = home.lock()
    if findings := record_findings(lock, home, rollout, contract_checks(lock)):
        raise IntegrityError(
            rollout, f"{len(findings)} finding(s), no receipt is given out: {findings[0]}"
        )
    (row,) = read_table(home, "rollout", rollout).to_pylist()
    if row["settled_as"] != "agent":
        problem = f"{rollout} settled as {row['settled_as']}: it has no outcome and no receipt"
        raise BadInput(str(root), "rollout", problem, f"See `factorial status {root}`.")
    return (home.record_path(rollout) / RECEIPT).read_bytes()


# --------------------------------------------------------------------------------- check


def _show_checked(path: Path, public_key: Path | None, ledger: Path | None, as_json: bool) -> None:
    """Print what a file says and every reason not to believe it; exit code 1 where there is one."""
    key = _key(public_key, dsse.public_key, "public key", MAKE_PUBLIC) if public_key else None
    facts, findings = _checked(_read(path, "Give a file that `factorial receipt` wrote."), key)
    if ledger is not None and facts:
        findings += _ledger_findings(ledger, facts.pop("receipt"))
    facts.pop("receipt", None)
    followed = None if ledger is None else not findings
    if as_json:
        shown = {"file": str(path), **facts, "ledger_checked": ledger is not None}
        typer.echo(json.dumps({**shown, "findings": findings}))
    else:
        _print_checked(path, facts, findings, followed)
    if findings:
        raise typer.Exit(1)


def _checked(content: bytes, key: Any) -> tuple[dict[str, Any], list[str]]:
    """Facts of an envelope (none where it has no genuine receipt) and findings against it."""
    try:
        envelope = dsse.unpack(content)
        issued = receipt_in(envelope)
    except IntegrityError as error:
        return {}, [str(error)]
    signed = None if key is None else dsse.signed_by(envelope, key)
    findings = ["envelope: is not signed by that key"] if signed is False else []
    keyids = [signature.keyid for signature in envelope.signatures]
    facts = {"keyids": keyids, "signature_verified": signed, "receipt": issued}
    return {**facts, **_facts(issued)}, findings


def _ledger_findings(ledger: Path, issued: bytes) -> list[str]:
    _read(ledger, "Give the ledger.jsonl of the rollout's record.")
    try:
        receipt_follows(whole_lines(ledger), issued)
    except IntegrityError as error:
        return [str(error)]
    return []


def _print_checked(
    path: Path, facts: dict[str, Any], findings: list[str], followed: bool | None
) -> None:
    for finding in findings:
        typer.echo(f"finding: {finding}")
    if findings:
        return
    typer.echo(f"{path}: {_sentence(facts)}")
    unchecked = "present, not checked (give --public-key)" if facts["keyids"] else "none"
    typer.echo(f"signature: {'verified' if facts['signature_verified'] else unchecked}")
    typer.echo(f"ledger: {'the receipt follows from it' if followed else 'not checked'}")


# --------------------------------------------------------------------------------- parts


def _facts(issued: bytes) -> dict[str, Any]:
    """The few things that a person wants to see of a receipt."""
    said = opened(issued)
    return {
        "receipt_sha256": said["receipt_sha256"],
        "verdict": said["verdict"],
        "rule": said["rule"],
        "subject": subject_of(said),
        "context": said["identities"]["context"],
    }


def _sentence(facts: dict[str, Any]) -> str:
    subject = facts["subject"]
    return (
        f"{facts['verdict']} ({facts['rule']}), {subject['name']} "
        f"{subject['digest']['sha256'][:12]}, receipt {facts['receipt_sha256'][:12]}"
    )


def _key(path: Path, parse: Callable[[bytes], Key], what: str, remedy: str) -> Key:
    try:
        return parse(_read(path, remedy))
    except ValueError as error:
        problem = f"no Ed25519 {what} in PEM ({str(error).splitlines()[0]:.80})"
        raise BadInput(str(path), "", problem, remedy) from None


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(str(path), "", f"cannot be read ({error.strerror})", remedy) from None
