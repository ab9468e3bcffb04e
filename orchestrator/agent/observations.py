"""What the agent is shown: bounded text, with the digest and the bytes of the whole.

The text is cut in the middle, so that a beginning and an end stay; it never holds a time, an
address or a temporary name of ours.
"""

from dataclasses import dataclass

from orchestrator.spec.identity import sha256_hex


@dataclass(frozen=True)
class Observation:
    """``text`` has at most the limit it was made with (characters); ``full`` is the whole."""

    text: str
    full: bytes
    truncated: bool

    @property
    def sha256(self) -> str:
        """Digest of the unbounded observation."""
        return sha256_hex(self.full)


def storable(text: str) -> str:
    """Text that has UTF-8 bytes: a lone surrogate becomes ``?``."""
    return text.encode(errors="replace").decode()


def observe(body: str, limit: int) -> Observation:
    """Bound ``body``, made storable, to ``limit`` characters (at least 100)."""
    clean = storable(body)
    return Observation(cut(clean, limit), clean.encode(), len(clean) > limit)


def cut(text: str, limit: int) -> str:
    """``text``, or its first and last parts around a line that says how much is missing."""
    if len(text) <= limit:
        return text
    # The number is padded to the width of the longest it can be, so the marker's size is known.
    width = len(str(len(text)))
    marker = f"\n[... {0:{width}} characters omitted ...]\n"
    room = max(limit - len(marker), 0)
    head, tail = room - room // 3, room // 3
    omitted = f"{len(text) - head - tail:{width}}"
    return text[:head] + f"\n[... {omitted} characters omitted ...]\n" + text[len(text) - tail :]
