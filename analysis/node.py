"""Strict reading of JSON: every value is asked for by name and type, every complaint has a place.

A :class:`Node` is one JSON object together with where it stands in which file; nothing is coerced,
and keys that nobody asks for are refused by :meth:`Node.only`.
"""

from dataclasses import dataclass
from fractions import Fraction

from analysis.errors import AnalysisError


@dataclass(frozen=True)
class Node:
    """A JSON object and its place. ``place`` is a dotted path, empty at the top."""

    file: str
    place: str
    data: dict[str, object]

    def at(self, key: str) -> str:
        """Dotted path of a key."""
        return f"{self.place}.{key}" if self.place else key

    def error(self, key: str, problem: str, remedy: str = "Correct the value.") -> AnalysisError:
        """An error about one key, for the caller to raise."""
        return AnalysisError(self.file, self.at(key), problem, remedy)

    def only(self, *known: str) -> None:
        """Refuse keys other than ``known``."""
        for key in sorted(self.data.keys() - set(known)):
            raise self.error(key, "unknown key", f"Remove it (known: {', '.join(known)}).")

    def get(self, key: str) -> object:
        """A required value of any type."""
        if key not in self.data:
            raise self.error(key, "required key is missing", "Add the key.")
        return self.data[key]

    def text(self, key: str) -> str:
        """A required string."""
        value = self.get(key)
        if not isinstance(value, str):
            raise self.error(key, f"expected a string, found {value!r}")
        return value

    def flag(self, key: str) -> bool:
        """A required true or false."""
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, found {value!r}")
        return value

    def whole(self, key: str, low: int) -> int:
        """A required whole number, at least ``low``."""
        value = self.get(key)
        if type(value) is not int or value < low:
            raise self.error(key, f"expected a whole number of at least {low}, found {value!r}")
        return value

    def number(self, key: str, low: float, high: float) -> Fraction:
        """A required number in [low, high], exactly as its decimal notation says (0.05 = 1/20)."""
        value = self.get(key)
        if type(value) not in (int, float) or not low <= float(str(value)) <= high:
            raise self.error(key, f"expected a number from {low} to {high}, found {value!r}")
        return Fraction(str(value))

    def items(self, key: str) -> list[object]:
        """A required list."""
        value = self.get(key)
        if not isinstance(value, list):
            raise self.error(key, f"expected a list, found {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A required list of strings."""
        values = self.items(key)
        for value in values:
            if not isinstance(value, str):
                raise self.error(key, f"expected strings, found {value!r}")
        return tuple(str(value) for value in values)

    def mapping(self, key: str) -> dict[str, str]:
        """A required object whose values are strings."""
        node = self.node(key)
        return {name: node.text(name) for name in node.data}

    def node(self, key: str) -> "Node":
        """A required object."""
        return self._wrap(self.at(key), self.get(key))

    def nodes(self, key: str) -> tuple["Node", ...]:
        """A required list of objects."""
        values = self.items(key)
        return tuple(self._wrap(f"{self.at(key)}[{i}]", value) for i, value in enumerate(values))

    def _wrap(self, place: str, value: object) -> "Node":
        if not isinstance(value, dict):
            raise AnalysisError(
                self.file, place, f"expected an object, found {value!r}", "Correct the value."
            )
        return Node(self.file, place, value)
