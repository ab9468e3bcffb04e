"""Version and entry points of a project are read where its files state them, never by running."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.repo.files import REGULAR, SYMLINK, Files
from orchestrator.tasks.declared import entry_point_groups, pyproject, setup_cfg, setup_py
from orchestrator.tasks.sources.versions import static_version, version_module


def files(texts: dict[str, str]) -> Files:
    return {path: (REGULAR, text.encode()) for path, text in texts.items()}


DYNAMIC = '[project]\nname = "my-tool"\ndynamic = ["version"]\n'
STATED: dict[str, dict[str, str]] = {
    "PKG-INFO": {
        "PKG-INFO": "Name: my-tool\nVersion: 1.5\n\nVersion: 9\n",
        "setup.py": "setup(version='2')",
    },
    "project": {"pyproject.toml": '[project]\nversion = "1.5"\n'},
    "poetry": {"pyproject.toml": '[tool.poetry]\nversion = "1.5"\n'},
    "setuptools attr": {
        "pyproject.toml": f'{DYNAMIC}[tool.setuptools.dynamic]\nversion = {{attr = "my.tool.V"}}\n',
        "src/my/tool.py": "V: str = '1.5'\n",
    },
    "setuptools file": {
        "pyproject.toml": f'{DYNAMIC}[tool.setuptools.dynamic]\nversion = {{file = ["VERSION"]}}\n',
        "VERSION": "1.5\n",
    },
    "hatch": {
        "pyproject.toml": f'{DYNAMIC}[tool.hatch.version]\npath = "x/v.py"\n',
        "x/v.py": "a = 1\n__version__ = 'v1.5'\n",
    },
    "setup.cfg": {"setup.cfg": "[metadata]\nversion = 1.5\n"},
    "setup.cfg attr": {
        "setup.cfg": "[metadata]\nversion = attr: tool.__version__\n",
        "tool/__init__.py": "__version__ = '1.5'\n",
    },
    "setup.cfg file": {"setup.cfg": "[metadata]\nversion = file: V.txt\n", "V.txt": "1.5"},
    "setup.py": {"setup.py": "import setuptools\nsetuptools.setup(name=n, version='1.5')\n"},
    "package": {"src/my_tool/__init__.py": "__version__ = '1.5'\n"},
    "about": {"My_Tool/__init__.py": "", "My_Tool/__about__.py": "__version__ = VERSION = '1.5'\n"},
    "module": {"lib/my_tool.py": "VERSION = '1.5'\n"},
}


@pytest.mark.parametrize("kind", STATED)
def test_a_stated_version_is_found(kind: str) -> None:
    assert static_version(files(STATED[kind]), "My-Tool") == "1.5"


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"pyproject.toml": '[project]\nversion = 15\n[tool]\npoetry = "x"\n'},
        {"pyproject.toml": "[project\n", "setup.cfg": "version\n", "setup.py": "setup(\n"},
        {"setup.py": "setup(version=open('V').read())", "V": "1.5"},
        {"my_tool/__init__.py": "import os\n__version__ = os.environ['V']\n"},
        {"other/__init__.py": "__version__ = '1.5'\n"},
        {"my_tool/__init__.py": "def f():\n    __version__ = '1.5'\n"},
        {"my_tool/__init__.py": "__version__ = 'unknown'\n"},
        {"pyproject.toml": '[tool.hatch.version]\npath = "absent.py"\n'},
    ],
)
def test_nothing_is_guessed(texts: dict[str, str]) -> None:
    assert static_version(files(texts), "my-tool") is None


def test_links_are_not_followed() -> None:
    tree: Files = {"setup.cfg": (SYMLINK, b"[metadata]\nversion = 1.5\n")}
    assert static_version(tree, "my-tool") is None


@given(data=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_any_content_is_survived(data: bytes) -> None:
    names = ("PKG-INFO", "pyproject.toml", "setup.cfg", "setup.py", "my_tool.py")
    tree: Files = dict.fromkeys(names, (REGULAR, data))
    static_version(tree, "my-tool")
    version_module(tree, "1")
    entry_point_groups(tree)
    assert isinstance(pyproject(tree), dict) and isinstance(setup_cfg(tree), dict)
    assert isinstance(setup_py(tree), dict)


def test_deep_nesting_counts_as_nothing() -> None:
    deep = "(" * 100_000
    assert setup_py(files({"setup.py": f"setup(version={deep})"})) == {}
    assert setup_py(files({"setup.py": "setup(version=" + "-" * 5000 + "1)"})) == {}
    assert pyproject(files({"pyproject.toml": "a = " + "[" * 100_000})) == {}


# ------------------------------------------------------------------------------- entry points

WANTED = {"tool.units": {"metre": "tool:metre"}, "console_scripts": {"tool": "tool:main"}}
PLACES: dict[str, dict[str, str]] = {
    "project": {
        "pyproject.toml": '[project.entry-points."tool.units"]\nmetre = "tool:metre"\n'
        '[project.scripts]\ntool = "tool:main"\n'
    },
    "poetry": {
        "pyproject.toml": '[tool.poetry.plugins."tool.units"]\nmetre = "tool:metre"\n'
        '[tool.poetry.scripts]\ntool = "tool:main"\n'
    },
    "setup.cfg": {
        "setup.cfg": "[options.entry_points]\ntool.units =\n    metre = tool:metre\n"
        "console_scripts =\n    tool = tool:main\n"
    },
    "setup.py": {
        "setup.py": "setup(entry_points={'tool.units': ['metre = tool:metre'],\n"
        "    'console_scripts': 'tool=tool:main\\n'})\n"
    },
    "setup.py text": {
        "setup.py": 'setup(entry_points="""\n[tool.units]\nmetre = tool:metre\n'
        '[console_scripts]\ntool = tool:main\n""")\n'
    },
}


@pytest.mark.parametrize("kind", PLACES)
def test_entry_points_are_found_where_they_are_declared(kind: str) -> None:
    assert entry_point_groups(files(PLACES[kind])) == WANTED


def test_what_a_build_has_made_wins() -> None:
    built = {"tool.egg-info/entry_points.txt": "[a]\nb = c:d\n"}
    assert entry_point_groups(files({**PLACES["project"], **built})) == {"a": {"b": "c:d"}}


def test_a_point_cannot_forge_a_section() -> None:
    forged = '[project.entry-points.a]\n"x\\n[pytest11]\\ny" = "m:f"\ngood = "m:g"\n'
    assert entry_point_groups(files({"pyproject.toml": forged})) == {"a": {"good": "m:g"}}


# ------------------------------------------------------------------------------- version modules

SCM: dict[str, dict[str, str]] = {
    "setuptools_scm": {"pyproject.toml": '[tool.setuptools_scm]\nversion_file = "src/t/_v.py"\n'},
    "write_to": {"pyproject.toml": '[tool.setuptools_scm]\nwrite_to = "src/t/_v.py"\n'},
    "hatch": {"pyproject.toml": '[tool.hatch.build.hooks.vcs]\nversion-file = "src/t/_v.py"\n'},
    "setup.py": {"setup.py": "setup(use_scm_version={'write_to': 'src/t/_v.py'})"},
}


@pytest.mark.parametrize("kind", SCM)
def test_a_version_module_that_a_build_writes_is_made(kind: str) -> None:
    tree = files({**SCM[kind], "src/t/__init__.py": ""})
    ((path, (mode, text)),) = version_module(tree, "1.2.dev3").items()
    assert (path, mode) == ("src/t/_v.py", REGULAR)
    assert b"__version__ = version = '1.2.dev3'\n" in text and b"(1, 2)" in text
    present = {**tree, "src/t/_v.py": (REGULAR, b"here\n")}
    assert version_module(present, "1.2") == {}


@pytest.mark.parametrize("path", ["../_v.py", "/srv/_v.py", "nowhere/_v.py", "src/t/v.txt", ""])
def test_it_is_made_in_the_project_only(path: str) -> None:
    project = f'[tool.setuptools_scm]\nwrite_to = "{path}"\n'
    tree = files({"pyproject.toml": project, "src/t/__init__.py": ""})
    assert version_module(tree, "1") == {}
