"""The verdict cache: each distinct (suite, tree, ground) is run once.

Only PASS and FAIL are kept. A TIMEOUT may be the machine's and a VOID must be seen again. A record
that fails its own digest is no record: the suite runs again and the record is replaced.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from orchestrator.evaluator.judge import Judgement
from orchestrator.repo.files import disk_faults, write_whole
from orchestrator.spec.identity import canonical_json, digest_json
from orchestrator.spec.ports import SuiteOutcome

SCHEMA = "factorial/cached-verdict@2"
KEPT = frozenset({SuiteOutcome.PASS, SuiteOutcome.FAIL})
Key = Mapping[str, object]


class VerdictCache:
    """Files ``DIR/<2 hex>/<62 hex>.json``, named by the key's digest; safe for many writers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: Key) -> Judgement | None:
        """The judgement kept under ``key``, with its original duration, or None."""
        try:
            record = json.loads(self._path(key).read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(record, dict) or record.pop("sha256", None) != digest_json(record):
            return None
        if record.get("schema") != SCHEMA or record.get("key") != json.loads(canonical_json(key)):
            return None
        kept = record["judgement"]
        kept["outcome"] = SuiteOutcome(kept["outcome"])
        for name in ("failed_ids", "residue", "flags"):
            kept[name] = tuple(kept[name])
        return Judgement(**kept)

    def put(self, key: Key, judgement: Judgement) -> None:
        """Keep a judgement unless one is kept already; the file appears whole or not at all."""
        if judgement.outcome not in KEPT or self.get(key) is not None:
            return
        record = {"schema": SCHEMA, "key": dict(key), "judgement": asdict(judgement)}
        data = canonical_json({**record, "sha256": digest_json(record)}) + b"\n"
        path = self._path(key)
        with disk_faults():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)

    def _path(self, key: Key) -> Path:
        name = digest_json(dict(key))
        return self._directory / name[:2] / f"{name[2:]}.json"
