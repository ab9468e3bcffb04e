"""Edits written by the planted coder turn the current files into the target's, byte for byte."""

import json
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.coders.edit_script import MAX_HUNKS, edit_script, occurs_once
from orchestrator.coders.planted import PlantedCoder, TaskVariants, Variant
from orchestrator.spec.identity import Entry, Tree, sha256_hex
from orchestrator.spec.ports import CoderRequest, FileChange, PrivilegedView
from orchestrator.spec.stack import PlantedStack

# Few distinct lines, so that windows have to grow; odd line ends, empty files, no final newline.
LINES = st.sampled_from(["a\n", "b\n", "a", "\n", "  a\n", "é\r\n", "\x0c\n", "aa\n", "\u2028"])
CONTENT = st.lists(LINES, max_size=12).map(lambda lines: "".join(lines).encode())
PATHS = st.sampled_from(["pkg/a.py", "pkg/b.py", "pkg/new.py", "pkg/é.py"])
FILES = st.dictionaries(PATHS, CONTENT, max_size=4)


def apply(files: Mapping[str, bytes], changes: list[dict[str, str | bool]]) -> dict[str, bytes]:
    """A tiny exact-match editor: changes in order, `find` exactly once, no overwriting."""
    now = dict(files)
    for change in changes:
        path = str(change["path"])
        if "create" in change:
            assert path not in now
            now[path] = str(change["create"]).encode()
        elif "delete" in change:
            del now[path]
        else:
            text, find = now[path].decode(), str(change["find"])
            assert sum(text.startswith(find, at) for at in range(len(text))) == 1
            now[path] = text.replace(find, str(change["replace"])).encode()
    return now


@given(FILES, FILES)
def test_a_script_reproduces_its_target(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    assert apply(before, edit_script(before, after)) == after


def test_overlapping_occurrences_count() -> None:
    assert not occurs_once("aaa", "aa")
    assert not occurs_once("aaa", "")
    assert not occurs_once("aaa", "b")
    assert occurs_once("baa", "aa")


def test_a_file_makes_room_for_a_directory_and_back() -> None:
    file, directory = {"z": b"1\n"}, {"z/a": b"2\n"}
    for before, after in ((file, directory), (directory, file)):
        assert ["delete" in change for change in edit_script(before, after)] == [True, False]


def test_many_hunks_become_one_change() -> None:
    old = "".join(f"{n}\n" for n in range(200)).encode()
    new = "".join(f"{n}{'x' if n % 2 else ''}\n" for n in range(200)).encode()
    script = edit_script({"f": old}, {"f": new})
    assert len(script) == 1 < MAX_HUNKS
    assert apply({"f": old}, script) == {"f": new}


# --------------------------------------------------------------------- base -> variant -> variant


def variant(base: Mapping[str, tuple[int, bytes]], after: Mapping[str, bytes]) -> Variant:
    delta: dict[str, FileChange | None] = {p: None for p in base if p not in after}
    for path, content in after.items():
        if path not in base or base[path][1] != content:
            entry = Entry(base[path][0] if path in base else 0o100644, sha256_hex(content))
            delta[path] = FileChange(entry, content)
    return Variant(
        state_id({p: base[p][0] if p in base else 0o100644 for p in after}, after), delta
    )


def state_id(modes: Mapping[str, int], files: Mapping[str, bytes]) -> str:
    return Tree({p: Entry(modes[p], sha256_hex(c)) for p, c in files.items()}).state_id


def request(state: str, seed: int) -> CoderRequest:
    view = PrivilegedView(state, {}, 3, state, None)
    return CoderRequest("r", "t", 1, 1, seed, (), 0.3, 0.9, 64, 900.0, view)


STACK = PlantedStack.model_validate(
    {
        "schema": "factorial/stack@1",
        "kind": "planted",
        "name": "p",
        "privileged": True,
        "rates": [{"alpha": 0.5, "beta": 0.5}],
        "submit": 0.0,
    }
)


@settings(max_examples=60)
@given(
    FILES,
    st.lists(FILES, min_size=4, max_size=4, unique_by=lambda f: tuple(sorted(f.items()))),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6),
)
def test_a_walk_over_variants_keeps_files_and_state_in_step(
    base: dict[str, bytes], targets: list[dict[str, bytes]], seeds: list[int]
) -> None:
    if base in targets:
        base = {**base, "pkg/base_only.py": b"x = 1\n"}
    tree = {path: (0o100644, content) for path, content in base.items()}
    modes = dict.fromkeys(base, 0o100644)
    found = [variant(tree, target) for target in targets]
    task = TaskVariants(state_id(modes, base), tree, tuple(found[:2]), (), tuple(found[2:]))
    coder = PlantedCoder(STACK, {"t": task})
    files, state = base, task.base_state_id
    for seed in seeds:
        action = json.loads(coder.reply(request(state, seed)).text)
        assert action["action"] == "edit" and action["changes"]
        files = apply(files, action["changes"])
        arrived = state_id(dict.fromkeys(files, 0o100644), files)
        assert arrived != state and task.find(arrived) is not None
        state = arrived
