"""The pages say what is there: commands, options, fields with defaults, files, make targets."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from pydantic import BaseModel

from orchestrator.cli.main import COMMANDS, app
from orchestrator.coders.manifest import load_stack
from orchestrator.spec import stack, study, task
from orchestrator.spec.manifest import Frozen, load, validate
from tests.unit.cli_support import nested

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
MANIFESTS = (REPOSITORY / "docs" / "manifests.md").read_text(encoding="utf-8")
HOWTO = (REPOSITORY / "docs" / "howto.md").read_text(encoding="utf-8")

SECTIONS: dict[str, type[Frozen]] = {
    "Task manifest": task.TaskManifest,
    "Requires": task.Requires,
    "Task": task.Task,
    "`source: {kind: sdist}`": task.SdistSource,
    "`source: {kind: git}`": task.GitSource,
    "`source: {kind: patches}`": task.PatchSource,
    "Pinned file": task.PinnedFile,
    "Release": task.Release,
    "Environment": task.Environment,
    "`kind: planted`": stack.PlantedStack,
    "Rates": stack.PlantedRates,
    "`kind: recorded`": stack.RecordedStack,
    "`kind: chat`": stack.ChatStack,
    "`server: {kind: endpoint}`": stack.EndpointServer,
    "`server: {kind: llama-cpp}`": stack.LlamaCppServer,
    "`weights: {kind: wheel}`": stack.WheelWeights,
    "`weights: {kind: file}`": stack.FileWeights,
    "Study": study.Study,
    "Task selection": study.TaskSelection,
    "Factor": study.Factor,
    "Budgets": study.Budgets,
    "Sampling": study.Sampling,
    "Sandbox": study.SandboxSpec,
    "Effect `kind: contrast`": study.Contrast,
    "Effect `kind: linear`": study.Linear,
    "Effect `kind: interaction`": study.Interaction,
    "Decision": study.Decision,
    "Family": study.Family,
    "Inference": study.Inference,
}
"""Heading of ``docs/manifests.md`` -> the model that it describes."""

NOT_WRITTEN_BY_PEOPLE = {stack.StackManifest, study.Arm, task.InGit}
ABSENT = {"none", "derived", "all but pilots", "as below"}
"""Words for a default that is no scalar."""


def rows(heading: str) -> dict[str, list[str]]:
    """Field -> type, default, meaning of one section."""
    found = re.search(rf"^### {re.escape(heading)}\n(.*?)(?=^##|\Z)", MANIFESTS, re.S | re.M)
    assert found is not None, heading
    table = re.findall(r"^\| `(\w+)` \|(.*)\|(.*)\|(.*)\|$", found[1], re.M)
    return {name: [cell.strip() for cell in cells] for name, *cells in table}


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_field_is_described_with_its_default(heading: str) -> None:
    fields = {f.alias or name: f for name, f in SECTIONS[heading].model_fields.items()}
    described = rows(heading)
    assert list(described) == list(fields)
    for name, field in fields.items():
        kind, default, _ = described[name]
        assert kind
        if field.is_required():
            assert default == "required", name
        else:
            assert _says(default, field.get_default(call_default_factory=True)), (name, default)


def _says(cell: str, default: Any) -> bool:
    if default is None or isinstance(default, BaseModel | tuple):
        return cell in ABSENT
    return bool(yaml.safe_load(cell) == default)


def test_every_manifest_model_has_a_section() -> None:
    models = {
        value
        for module in (task, stack, study)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Frozen) and value is not Frozen
    }
    assert models - NOT_WRITTEN_BY_PEOPLE == set(SECTIONS.values())


def test_every_factor_and_level_is_described() -> None:
    for factor, levels in study.FACTOR_LEVELS.items():
        (row,) = re.findall(rf"^\| [^|]*`{factor}`[^|]* \|.*$", MANIFESTS, re.M)
        assert all(f"`{level}`" in row or f'`"{level}"`' in row for level in levels or ())


@pytest.mark.parametrize("path", sorted((REPOSITORY / "manifests").glob("*/*.yaml")), ids=str)
def test_shipped_manifests_are_valid(path: Path) -> None:
    models = {"tasks": task.TaskManifest, "studies": study.Study}
    if path.parent.name == "stacks":
        load_stack(path)
    else:
        load(path, models[path.parent.name])


# ------------------------------------------------------------------------------ commands and files


def calls() -> Iterator[tuple[str, str]]:
    """(page, call) for every ``factorial`` command line in a code block or between backticks."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```\w*\n(.*?)```", text, re.S)
        lines = [line for block in blocks for line in block.splitlines()]
        lines += re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
        for line in lines:
            if found := re.search(r"(?:^|/|-- )factorial ([a-z].*)", line.strip()):
                yield page.name, found[1].split("#")[0].strip()


@pytest.mark.parametrize(("page", "call"), sorted(set(calls())))
def test_commands_and_options_of_the_pages_exist(page: str, call: str) -> None:
    words = call.split()
    command: Any = typer.main.get_command(app)
    while words and (inside := nested(command)) is not None:
        assert words[0] in inside, f"{page}: factorial {call}"
        command = inside[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        assert not word.startswith("--") or word in known, f"{page}: factorial {call}"


def test_the_pages_name_every_command() -> None:
    named = {call.split()[0] for _, call in calls()}
    assert {*COMMANDS} - {"doctor"} <= named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_of_the_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("http") or (page.parent / link).is_file(), link
    made_by_the_reader = {"mine.yaml", "NAME.txt"}
    roots = "orchestrator|analysis|manifests|tests|docs|infra"
    for path in re.findall(rf"(?<![\w/.])((?:{roots})/[\w./-]+\w)", text):
        if Path(path).name in made_by_the_reader or "docs/validation" in path:
            continue
        if path.startswith("analysis/") and Path(path).name in {"plan.json", "decision.json"}:
            continue  # of a run, not of the repository
        assert (REPOSITORY / path).exists(), path


def test_make_targets_of_the_pages_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    helped = set(re.findall(r'@echo "make ([a-z-]+)', makefile))
    assert helped == targets - {"help"}
    for page in PAGES:
        named = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.M)
        assert set(named) <= targets, page.name


# -------------------------------------------------------------------------------- worked examples


def examples() -> list[str]:
    return [
        "\n".join(line.removeprefix("   ") for line in block.splitlines())
        for block in re.findall(r"```yaml\n(.*?)```", HOWTO, re.S)
    ]


def test_the_examples_are_valid() -> None:
    new_task, endpoint, server, variant = (yaml.safe_load(text) for text in examples())
    validate(new_task, task.TaskManifest, "howto")
    validate({"stack": endpoint}, stack.StackManifest, "howto")
    server["server"]["weights"]["sha256"] = "0" * 64
    chat = {**endpoint, "context_tokens": 8192, **server}
    validate({"stack": chat}, stack.StackManifest, "howto")
    quickstart = yaml.safe_load((REPOSITORY / "manifests/studies/quickstart.yaml").read_text())
    validate({**quickstart, "families": [], **variant}, study.Study, "howto")
