"""Stack manifests: the shipped ones are valid; mistakes name file, field and remedy."""

from pathlib import Path

import pytest

from orchestrator.coders.manifest import load_stack, own_field
from orchestrator.spec.errors import BadInput
from orchestrator.spec.stack import ChatStack, LlamaCppServer, PlantedStack, RecordedStack

STACKS = Path(__file__).parents[2] / "manifests" / "stacks"
KINDS: dict[str, type] = {
    "planted-quickstart": PlantedStack,
    "smollm2-135m-cpu": ChatStack,
    "endpoint-example": ChatStack,
    "recorded-example": RecordedStack,
}


@pytest.mark.parametrize("name", KINDS)
def test_shipped_stacks_are_valid(name: str) -> None:
    stack = load_stack(STACKS / f"{name}.yaml")
    assert isinstance(stack, KINDS[name])
    assert stack.name == name


PLANTED = (STACKS / "planted-quickstart.yaml").read_text()
SMOL = (STACKS / "smollm2-135m-cpu.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "old", "new", "line"),
    [
        (PLANTED, "alpha: 0.3", "alpha: 1.5", "rates.1.alpha: input should be less than or equal"),
        (PLANTED, "alpha: 0.3", "alhpa: 0.3", "rates.1.alpha: required key is missing"),
        (PLANTED, "submit: 0.4", "sumbit: 0.4", "sumbit: unknown key"),
        (PLANTED, "privileged: true", "privileged: false", "privileged: input should be True"),
        (PLANTED, "kind: planted", "kind: plantde", "does not match any of the expected tags"),
        (PLANTED, "kind: planted", "submit: 0.1", "duplicate key 'submit'"),
        (PLANTED, "  - when: {}\n", "  - when: {evidence: stale}\n", "empty `when`"),
        (SMOL, "sha256: b", "sha256: X", "server.weights.sha256: string should match pattern"),
        (SMOL, "parallel: 4", "parallel: four", "server.parallel: input should be a valid integer"),
        (SMOL, "kind: wheel", "kind: tarball", "server.weights: "),
        (SMOL, "\ncontext_tokens: 8192", "\ncontext_tokens: 8193", "8193 exceeds the 8192 of one"),
        (SMOL, SMOL, "- a list\n", "expected a mapping at the top"),
    ],
)
def test_mistakes_name_file_field_and_remedy(
    tmp_path: Path, text: str, old: str, new: str, line: str
) -> None:
    assert old in text
    path = tmp_path / "stack.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(BadInput) as caught:
        load_stack(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert line in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load_stack(tmp_path / "none.yaml")


def test_fields_are_spelled_as_in_the_file() -> None:
    data = {"kind": "chat", "server": {"kind": "llama-cpp", "weights": {"kind": "wheel"}}}
    location = "stack.chat.server.llama-cpp.weights.wheel.sha256"
    assert own_field(data, location) == "server.weights.sha256"
    assert own_field({"kind": "planted", "planted": {}}, "stack.planted.x") == "planted.x"


def test_the_slots_of_the_shipped_model_hold_its_context() -> None:
    stack = load_stack(STACKS / "smollm2-135m-cpu.yaml")
    assert isinstance(stack, ChatStack) and isinstance(stack.server, LlamaCppServer)
    assert stack.constrain
    assert stack.context_tokens * stack.server.parallel <= stack.server.context_tokens
