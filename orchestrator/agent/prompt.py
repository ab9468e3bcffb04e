"""Prompts as files, and the conversation that they make.

Each text that the agent is ever shown around its own words is a file with ``$name`` placeholders,
so that the lock hashes it. The conversation is bounded by a deterministic policy: the oldest
observations give way first, then the oldest turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from orchestrator.agent.budgets import Left
from orchestrator.spec.errors import BadInput
from orchestrator.spec.manifest import read_text
from orchestrator.spec.ports import Message

LEFT = ("actions", "revisions", "tests")

PLACEHOLDERS: dict[str, tuple[str, ...]] = {
    "system": LEFT,
    "task": ("statement", "files"),
    "observation": ("body", *LEFT),
    "invalid": ("reason",),
    "refused": ("reason",),
    "shell": ("status", "output"),
    "shell-writes": ("paths",),
    "test": ("payload",),
    "stale": ("payload",),
    "stale-edit": ("payload",),
    "applied": (),
    "accepted": (),
    "rejected": (),
    "completed": (),
    "not-completed": (),
    "escalated": (),
    "elided": (),
    "dropped": ("turns",),
}
"""Prompt files (``NAME.md``) and the placeholders that each has to hold, no more and no fewer."""


@dataclass(frozen=True)
class Prompts:
    """The loaded templates, by name."""

    templates: dict[str, str]

    def fill(self, name: str, **values: object) -> str:
        """One text with its placeholders filled; values are not expanded again."""
        return Template(self.templates[name]).substitute(values)


def load_prompts(directory: Path) -> Prompts:
    """Read every prompt file of PLACEHOLDERS. Raises BadInput naming file, field and remedy."""
    return Prompts({name: _load(directory / f"{name}.md", names) for name, names in _ALL})


_ALL = tuple(PLACEHOLDERS.items())


def _load(path: Path, expected: Sequence[str]) -> str:
    text = read_text(path).strip("\n")
    template = Template(text)
    if not template.is_valid():
        raise BadInput(str(path), "", "a lone $ is no placeholder", "Write $$ for a dollar sign.")
    found = set(template.get_identifiers())
    for name in sorted(set(expected) - found):
        raise BadInput(str(path), f"${name}", "placeholder is missing", f"Put ${name} somewhere.")
    for name in sorted(found - set(expected)):
        known = ", ".join(f"${known}" for known in expected) or "none"
        raise BadInput(str(path), f"${name}", "unknown placeholder", f"Known here: {known}.")
    return text


# --------------------------------------------------------------------------------- bounds


@dataclass(frozen=True)
class Bounds:
    """Longest prompt and longest single observation, in characters."""

    prompt: int = 400_000
    observation: int = 6_000


CHARACTERS_PER_TOKEN = 2.5
"""Cautious for numbered source code; a prompt that is too long would cost the agent its action."""


def bounds_for(context_tokens: int | None, max_new_tokens: int) -> Bounds:
    """Bounds for a context window; the default where the coder has none."""
    if context_tokens is None:
        return Bounds()
    room = max(int((context_tokens - max_new_tokens) * CHARACTERS_PER_TOKEN), 1_000)
    return Bounds(room, min(max(room // 6, 400), Bounds.observation))


# --------------------------------------------------------------------------------- conversation


@dataclass(frozen=True)
class Exchange:
    """One turn: the coder's reply, whole, and what it was shown for it."""

    reply: str
    observation: str


def opening(prompts: Prompts, statement: str, files: str, left: Left) -> tuple[Message, Message]:
    """The two messages before the first turn."""
    return (
        Message("system", prompts.fill("system", **vars(left))),
        Message("user", prompts.fill("task", statement=statement.strip(), files=files)),
    )


def conversation(
    prompts: Prompts,
    opened: tuple[Message, Message],
    turns: Sequence[Exchange],
    limit: int,
) -> tuple[Message, ...]:
    """The messages of the next request, within ``limit`` characters where the policy can reach it.

    Oldest observations become a one-line marker; if all but the last are markers and it is still
    too long, oldest turns are dropped and their number is stated. The last turn always stays whole.
    """
    kept, marker = list(turns), prompts.fill("elided")
    excess = sum(len(m.content) for m in opened) + sum(map(_size, kept)) - limit
    for index, turn in enumerate(kept[:-1]):
        if excess <= 0:
            break
        if len(turn.observation) > len(marker):
            kept[index] = Exchange(turn.reply, marker)
            excess -= len(turn.observation) - len(marker)
    dropped = 0
    excess += len(_note(prompts, len(kept))) if excess > 0 else 0
    while excess > 0 and dropped < len(kept) - 1:
        excess -= _size(kept[dropped])
        dropped += 1
    return (*_opened(prompts, opened, dropped), *_messages(kept[dropped:]))


def _size(turn: Exchange) -> int:
    return len(turn.reply) + len(turn.observation)


def _opened(prompts: Prompts, opened: tuple[Message, Message], dropped: int) -> tuple[Message, ...]:
    if not dropped:
        return opened
    system, task = opened
    return system, Message("user", task.content + _note(prompts, dropped))


def _note(prompts: Prompts, dropped: int) -> str:
    return "\n\n" + prompts.fill("dropped", turns=dropped)


def _messages(turns: Sequence[Exchange]) -> list[Message]:
    return [
        message
        for turn in turns
        for message in (Message("assistant", turn.reply), Message("user", turn.observation))
    ]
