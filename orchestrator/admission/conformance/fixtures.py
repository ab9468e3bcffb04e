"""Three managed projects, one per toolchain, each small enough to read: a base tree with a defect,
a sound change, and changes that are not.

A fixture is verified by its own toolchain: the project's tests judge, nothing of this room does.
"""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.admission.verifier import SEARCH_PATH
from orchestrator.repo.files import REGULAR, Files

Manifest = dict[str, object]


@dataclass(frozen=True)
class Fixture:
    """``base`` fails its own tests, ``good`` passes them, each of ``bad`` fails; all are whole
    contents of ``code``, the one file that an agent has to change.
    """

    name: str
    toolchain: str
    code: str
    base: str
    good: str
    bad: tuple[str, str]
    others: dict[str, str]
    suite: tuple[str, ...]
    argv: tuple[str, ...]
    timeout_s: float = 60.0
    memory_mib: int = 1024
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> Files:
        """The base tree."""
        texts = {**self.others, self.code: self.base}
        return {path: (REGULAR, text.encode()) for path, text in texts.items()}

    def manifest(self) -> Manifest:
        """The fixture's own manifest: its tests are the one gate."""
        return {
            "schema": "factorial/admission@1",
            "name": f"fixture-{self.name}",
            "gates": [self.gate()],
            "suite": list(self.suite),
            "environment": {**self.environment, **_located(self)[1]},
            "tools": _located(self)[0],
        }

    def gate(self, **changes: object) -> Manifest:
        """The gate that is the fixture's own tests."""
        gate: Manifest = {
            "name": "tests",
            "layer": "L1",
            "argv": list(self.argv),
            "timeout_s": self.timeout_s,
            "memory_mib": self.memory_mib,
        }
        return {**gate, **changes}


def unavailable(fixture: Fixture) -> str | None:
    """Why a fixture's toolchain cannot be had here, or None."""
    if fixture.toolchain == "python3" or shutil.which(fixture.toolchain):
        return None  # the sandbox shows an interpreter of its own
    return f"{fixture.toolchain} not installed"


def _located(fixture: Fixture) -> tuple[dict[str, str], dict[str, str]]:
    """Tools to be shown and variables to be set, where the sandbox has no toolchain by itself."""
    found = shutil.which(fixture.toolchain)
    if fixture.toolchain == "python3" or found is None:
        return {}, {}
    if fixture.toolchain == "go":
        return _located_go()
    program = Path(found).resolve()
    if program.is_relative_to("/usr"):
        return {}, {}
    home = f"/opt/{fixture.toolchain}"
    return {home: str(program.parents[1])}, {"PATH": f"{home}/bin:{SEARCH_PATH}"}


def _located_go() -> tuple[dict[str, str], dict[str, str]]:
    """The Go tree. Distributions split it and link its parts: they keep their place to each other,
    and even below /usr it has to be shown, where the sandbox hides parts of it.
    """
    root = Path(_go_root()).resolve()
    home = f"/opt/go/lib/{root.name}"
    tools = {home: str(root)}
    sources = (root / "src").resolve().parent
    if sources != root:
        tools[f"/opt/go/share/{sources.name}"] = str(sources)
    return tools, {"GOROOT": home, "PATH": f"{home}/bin:{SEARCH_PATH}"}


def _go_root() -> str:
    asked = subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


PYTHON = Fixture(
    name="python",
    toolchain="python3",
    code="cart/pricing.py",
    base='''"""Prices in cents."""


def total(prices: list[int], discount: int) -> int:
    """Sum of the prices less ``discount`` percent, rounded down; never below zero."""
    return sum(prices) - discount
''',
    good='''"""Prices in cents."""


def total(prices: list[int], discount: int) -> int:
    """Sum of the prices less ``discount`` percent, rounded down; never below zero."""
    return max(0, sum(prices) * (100 - discount) // 100)
''',
    bad=(
        '''"""Prices in cents."""


def total(prices: list[int], discount: int) -> int:
    """Sum of the prices less ``discount`` percent, rounded down; never below zero."""
    return sum(prices)
''',
        '''"""Prices in cents."""


def total(prices: list[int], discount: int) -> int:
    """Sum of the prices less ``discount`` percent, rounded down; never below zero."""
    return -sum(prices)
''',
    ),
    others={
        "README": "Prices of a cart.\n",
        "cart/__init__.py": "",
        "ci/release.sh": "#!/bin/sh\nexit 0\n",
        "tests/__init__.py": "",
        "tests/test_pricing.py": """import unittest

from cart.pricing import total


class Total(unittest.TestCase):
    def test_discount_is_a_percentage(self) -> None:
        self.assertEqual(total([100, 300], 25), 300)

    def test_rounds_down(self) -> None:
        self.assertEqual(total([99], 50), 49)

    def test_never_below_zero(self) -> None:
        self.assertEqual(total([10], 200), 0)
""",
    },
    suite=("tests/**",),
    argv=("python3", "-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."),
)

NODE = Fixture(
    name="node",
    toolchain="node",
    code="src/slug.mjs",
    base="export const slug = (title) => title.replace(' ', '-');\n",
    good=(
        "export const slug = (title) =>\n"
        "  title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '');\n"
    ),
    bad=(
        "export const slug = (title) => title.toLowerCase();\n",
        "export const slug = () => '';\n",
    ),
    others={
        "README": "Titles as parts of addresses.\n",
        "package.json": '{"name": "slug", "version": "1.0.0", "type": "module", "private": true}\n',
        "ci/release.sh": "#!/bin/sh\nexit 0\n",
        "tests/slug.test.mjs": """import assert from 'node:assert/strict';
import test from 'node:test';
import { slug } from '../src/slug.mjs';

test('words are joined', () => assert.equal(slug('One Two Three'), 'one-two-three'));
test('nothing dangles', () => assert.equal(slug(' (Hello!) '), 'hello'));
""",
    },
    suite=("tests/**",),
    argv=("node", "--test", "tests/"),
)

GO = Fixture(
    name="go",
    toolchain="go",
    code="interval.go",
    base="""package interval

// Overlap is the length that two half-open intervals share, or 0.
func Overlap(a, b, c, d int) int { return b - c }
""",
    good="""package interval

// Overlap is the length that two half-open intervals share, or 0.
func Overlap(a, b, c, d int) int {
	low, high := a, b
	if c > low {
		low = c
	}
	if d < high {
		high = d
	}
	if high < low {
		return 0
	}
	return high - low
}
""",
    bad=(
        """package interval

// Overlap is the length that two half-open intervals share, or 0.
func Overlap(a, b, c, d int) int { return 0 }
""",
        """package interval

// Overlap is the length that two half-open intervals share, or 0.
func Overlap(a, b, c, d int) int { return a }
""",
    ),
    others={
        "README": "Half-open intervals.\n",
        "go.mod": "module example.org/interval\n\ngo 1.18\n",
        "ci/release.sh": "#!/bin/sh\nexit 0\n",
        "interval_test.go": """package interval

import "testing"

func TestOverlap(t *testing.T) {
	for _, row := range [][5]int{{0, 4, 2, 6, 2}, {0, 1, 5, 9, 0}, {0, 9, 2, 3, 1}} {
		if got := Overlap(row[0], row[1], row[2], row[3]); got != row[4] {
			t.Errorf("Overlap(%v) = %d", row[:4], got)
		}
	}
}
""",
    },
    suite=("*_test.go",),
    argv=("go", "test", "./..."),
    timeout_s=300.0,
    memory_mib=2048,
    environment={
        "CGO_ENABLED": "0",
        "GOCACHE": "/tmp/go-cache",
        "GOFLAGS": "-mod=mod",
        "GOPATH": "/tmp/go",
        "GOTOOLCHAIN": "local",
    },
)

FIXTURES: dict[str, Fixture] = {f.name: f for f in (PYTHON, NODE, GO)}
