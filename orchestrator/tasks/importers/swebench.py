"""Rows in the format of SWE-bench become tasks: a base commit, a fix and the tests that prove it.

Ids of tests are carried as the row lists them; whether they are found is for eligibility to say.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from orchestrator.spec.errors import BadInput, IntegrityError
from orchestrator.spec.manifest import Frozen, validate
from orchestrator.spec.task import CommitId, Slug
from orchestrator.tasks.importers.drafts import (
    REPO,
    Draft,
    Refusal,
    Request,
    refusal,
    repository_url,
)
from orchestrator.tasks.importers.rows import Row, read_rows
from orchestrator.tasks.sources.endpoints import Expected
from orchestrator.tasks.sources.expected import expected_bytes
from orchestrator.tasks.sources.patches import patch_sections

URL_TEMPLATE = "https://github.com/{repo}"
TEXT_BYTES = 16 << 20


def _storable(text: str) -> str:
    """Text that can be written as UTF-8 and is not absurdly long."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("is not Unicode text") from None
    if size > TEXT_BYTES:
        raise ValueError(f"is longer than {TEXT_BYTES >> 20} MiB")
    return text


def _listed(value: object) -> object:
    """A list, or the JSON text of one: both are in use."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("is neither a list nor the JSON text of one") from None


Text = Annotated[str, AfterValidator(_storable)]
Ids = Annotated[tuple[Text, ...], BeforeValidator(_listed), Field(strict=False)]
Patch = Annotated[str, Field(min_length=1), AfterValidator(_storable)]
Statement = Annotated[str, Field(min_length=20), AfterValidator(_storable)]
Version = Annotated[str, Field(min_length=1), AfterValidator(_storable)]


class SwebenchRow(Frozen):
    """The fields of a row that are used; others may be there.

    ``version``: of the project, taken where its tree does not say. ``environment_setup_commit``
    and hints are not used: environments are pinned by requirements files.
    """

    model_config = ConfigDict(extra="ignore")

    instance_id: Slug
    repo: Annotated[str, Field(pattern=f"^{REPO.pattern}$")]
    base_commit: CommitId
    patch: Patch
    test_patch: Patch
    problem_statement: Statement
    FAIL_TO_PASS: Ids
    PASS_TO_PASS: Ids
    version: Version | None = None


@dataclass(frozen=True)
class SwebenchOptions:
    """``url_template``: URL with ``{repo}``; ``distributions``: ``owner/name`` -> distribution,
    where that is not called as the repository is."""

    url_template: str = URL_TEMPLATE
    distributions: Mapping[str, str] = field(default_factory=dict)


def swebench_drafts(
    path: Path, request: Request, options: SwebenchOptions = SwebenchOptions()
) -> Iterator[Draft | Refusal]:
    """A draft or refusal per row of ``path`` that ``request`` wants, in the file's order."""
    if request.python is None:
        problem = "rows do not say which Python they need"
        raise BadInput(str(path), "python", problem, "Give --python, such as `--python 3.11`.")
    for number, row in read_rows(path, tuple(SwebenchRow.model_fields)):
        label = _label(number, row)
        if _passed_over(row, request):
            continue
        try:
            yield row if isinstance(row, Refusal) else _draft(label, row, request, options)
        except BadInput as error:
            yield refusal(label, error)


def _label(number: int, row: Row) -> str:
    name = row.get("instance_id") if isinstance(row, dict) else None
    return f"row {number} ({name[:80]})" if isinstance(name, str) and name else f"row {number}"


def _passed_over(row: Row, request: Request) -> bool:
    name = row.get("instance_id") if isinstance(row, dict) else None
    return isinstance(name, str) and not request.wants(name)


def _draft(label: str, data: Row, request: Request, options: SwebenchOptions) -> Draft:
    row = validate(data, SwebenchRow, label)
    owner, _, name = row.repo.partition("/")
    fix, tests = (_patch(label, part, getattr(row, part)) for part in ("patch", "test_patch"))
    expected = Expected(row.FAIL_TO_PASS, row.PASS_TO_PASS)
    source = {
        "kind": "patches",
        "name": options.distributions.get(row.repo, name),
        "url": repository_url(row.repo, options.url_template, request, label),
        "base": row.base_commit,
        **({"version": row.version} if row.version else {}),
    }
    stem = f"{owner}__{name}"
    return Draft(
        row=label,
        task_id=row.instance_id,
        project=name,
        python=str(request.python),
        source=source,
        statement=row.problem_statement,
        files={
            "patch": ("fix.patch", fix),
            "test_patch": ("test.patch", tests),
            "expected": ("expected.json", expected_bytes(expected)),
        },
        keys=(row.instance_id, f"{stem}-{row.version}", stem)
        if row.version
        else (row.instance_id, stem),
    )


def _patch(label: str, part: str, text: str) -> bytes:
    """A patch as bytes, its last line ended; BadInput where it has no section that can be used."""
    data = text.encode()
    data = data if data.endswith(b"\n") else data + b"\n"
    try:
        list(patch_sections(data))
    except IntegrityError as error:
        remedy = "Use a patch as `git diff --binary` writes it."
        raise BadInput(label, part, f"{error.subject} {error.detail}", remedy) from None
    return data
