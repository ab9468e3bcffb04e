"""A reply is one action or invalid; what is rendered parses back; edits are atomic and bounded."""

import json

import jsonschema
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.agent.actions import (
    ACTION_SCHEMA,
    MAX_LINE,
    Action,
    Create,
    Delete,
    Edit,
    Escalate,
    Replace,
    Search,
    Shell,
    Submit,
    Test,
    View,
)
from orchestrator.agent.edits import Edited, apply_edit
from orchestrator.agent.observations import observe
from orchestrator.agent.parsing import Invalid, parse, render
from orchestrator.agent.workspace import Files, Refusal, Workspace, search, view
from orchestrator.spec.paths import protection

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SOME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
LINES = st.none() | st.integers(1, MAX_LINE)
CHANGES = st.one_of(
    st.builds(Replace, path=SOME, find=SOME, replace=TEXT),
    st.builds(Create, path=SOME, create=TEXT),
    st.builds(Delete, path=SOME, delete=st.just(True)),
)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Search, pattern=SOME, path=st.none() | SOME),
    st.builds(View, path=SOME, start_line=LINES, end_line=LINES),
    st.builds(Edit, changes=st.lists(CHANGES, min_size=1, max_size=5).map(tuple)),
    st.builds(Shell, command=SOME),
    st.builds(Test),
    st.builds(Submit),
    st.builds(Escalate, reason=SOME),
)
VALIDATOR = jsonschema.Draft202012Validator(ACTION_SCHEMA)


@given(ACTIONS, st.text(" \t\r\n", max_size=3), st.text(" \t\r\n", max_size=3))
def test_parse_gives_back_what_was_rendered(action: Action, before: str, after: str) -> None:
    assert parse(before + render(action) + after) == action


@given(ACTIONS)
def test_what_is_rendered_matches_the_schema(action: Action) -> None:
    VALIDATOR.validate(json.loads(render(action)))


VALUES = st.recursive(
    # JSON Schema takes 1.0 for an integer; the parser, which never guesses, does not.
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats().filter(lambda number: not number.is_integer())
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ("action", "pattern", "path", "start_line", "end_line", "changes", "command", "reason", "find")
)
NEAR = st.dictionaries(KEYS, VALUES | SOME, max_size=4).flatmap(
    lambda value: st.sampled_from(
        ("search", "view", "edit", "shell", "test", "submit", "escalate", "noop")
    ).map(lambda kind: {**value, "action": kind})
)


@given(NEAR)
@settings(max_examples=300)
def test_the_parser_takes_exactly_what_the_schema_allows(value: dict[str, object]) -> None:
    """On short replies the two agree; on long ones the parser alone bounds the edit texts."""
    parsed = parse(json.dumps(value))
    assert VALIDATOR.is_valid(value) == (not isinstance(parsed, Invalid))


@given(st.text() | st.text(st.characters(categories=["Cs", "Nd", "Ps"])) | NEAR.map(json.dumps))
@example('{"action":"test"}{"action":"test"}')
@example('{"action":"test","action":"submit"}')
@example('{"action":"view","path":"a","start_line":NaN}')
@example('{"action":"view","path":"a","start_line":1.0}')
@example('{"action":"view","path":"a","start_line":true}')
@example('{"action":"view","path":"a","start_line":' + "9" * 5000 + "}")
@example('{"action":"search","pattern":"x","path":null}')
@example('{"action":"edit","changes":[{"path":"a","delete":1}]}')
@example('{"action":"edit","changes":[{"path":"a","create":"","delete":true}]}')
@example('{"action":"edit","changes":[{"path":"a","create":"\\ud800"}]}')
@example('{"action":"escalate","reason":"\ud800"}')
@example('{"\ud800":1,"action":"test"}')
@example('```json\n{"action":"test"}\n```')
@example('"{\\"action\\":\\"test\\"}"')
@example("[" * 100_000)
@example("\ufeff" + '{"action":"test"}')
@settings(max_examples=300)
def test_parsing_never_raises_and_says_why_in_a_short_sentence(text: str) -> None:
    parsed = parse(text)
    if isinstance(parsed, Invalid):
        assert 0 < len(parsed.reason) <= 200 and parsed.reason.encode() and parsed.rule
    else:
        value = json.loads(text)
        assert VALIDATOR.is_valid(value)


@given(st.integers(1, 2000), st.sampled_from(("[", '{"a":')))
@settings(max_examples=50)
def test_deep_nesting_is_invalid_at_every_depth(depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    inner = "1" if opening != "[" else ""
    deep = opening * depth + inner + closing * depth
    assert isinstance(parse('{"action":"escalate","reason":' + deep + "}"), Invalid)


# ------------------------------------------------------------------------- edits

PARTS = st.sampled_from(
    ("a", "A", "b.py", "B.py", "é.py", "e\u0301.py", "tests", "conftest.py", "..", ".", "", "c\\d")
)
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join).filter(bool) | SOME
FILES: st.SearchStrategy[Files] = st.dictionaries(
    st.sampled_from(("a/b.py", "a/c.py", "d.py", "x/y/z.py", "setup.cfg", "link", "bin")),
    st.tuples(
        st.sampled_from((0o100644, 0o100755, 0o120000)),
        st.sampled_from((b"one\ntwo\n", b"aaa", b"", b"\xff")),
    ),
)
KNOWN = PATHS | st.sampled_from(("a/b.py", "a/c.py", "d.py", "a", "x/y", "setup.cfg", "link"))
EDITS = st.builds(
    Edit,
    changes=st.lists(
        st.one_of(
            st.builds(
                Replace, path=KNOWN, find=st.sampled_from(("one", "a", "aa", "o")), replace=TEXT
            ),
            st.builds(Create, path=KNOWN, create=TEXT),
            st.builds(Delete, path=KNOWN, delete=st.just(True)),
        ),
        min_size=1,
        max_size=4,
    ).map(tuple),
)


@given(FILES, EDITS)
@settings(max_examples=200)
def test_an_edit_changes_production_text_only_or_nothing(files: Files, edit: Edit) -> None:
    before = dict(files)
    workspace = Workspace.of(files)
    result = apply_edit(workspace, edit)
    assert workspace.files == files == before, "values are never changed in place"
    if isinstance(result, Refusal):
        return
    assert result.workspace.state_id != workspace.state_id
    assert result.workspace == Workspace.of(result.workspace.files), "identity was kept up"
    touched = {
        p
        for p in {*files, *result.workspace.files}
        if files.get(p) != result.workspace.files.get(p)
    }
    assert tuple(sorted(touched)) == result.changed
    for path in touched:
        assert protection(path) is None and ".." not in path.split("/")
        assert files.get(path, (0, b""))[0] != 0o120000
        if path in files and path in result.workspace.files:
            assert files[path][0] == result.workspace.files[path][0]


@given(FILES, EDITS)
def test_an_edits_difference_from_the_base_is_exactly_its_changes(files: Files, edit: Edit) -> None:
    base = Workspace.of(files)
    result = apply_edit(base, edit)
    if isinstance(result, Edited):
        delta = result.workspace.delta_from(base)
        assert tuple(sorted(delta)) == result.changed
        for path, change in delta.items():
            assert (change is None) == (path not in result.workspace.files)


@given(FILES, SOME, LINES, LINES)
@settings(max_examples=100)
def test_looking_never_raises_and_is_storable(
    files: Files, text: str, start: int | None, end: int | None
) -> None:
    workspace = Workspace.of(files)
    for path in (text, *files):
        for seen in (
            search(workspace, Search(pattern=text, path=path)),
            view(workspace, View(path=path, start_line=start, end_line=end)),
        ):
            (seen.reason if isinstance(seen, Refusal) else seen).encode()


@given(st.text(max_size=400), st.integers(100, 300))
def test_observations_are_bounded_and_say_what_is_missing(text: str, limit: int) -> None:
    seen = observe(text, limit)
    assert len(seen.text) <= limit
    assert seen.truncated == (seen.text.encode() != seen.full)
    assert seen.truncated == (len(text) > limit)
