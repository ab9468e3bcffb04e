"""The table documentation is the schema's."""

from pathlib import Path

from orchestrator.store import docs
from orchestrator.store.rows import KEYS, VOCABULARY
from orchestrator.store.schemas import ATTEMPT, TABLES

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_documentation_has_not_drifted() -> None:
    assert PAGE.read_text(encoding="utf-8") == docs.render(), (
        "run `python -m orchestrator.store.docs > docs/tables.md`"
    )


def test_every_column_is_explained_and_every_null_said() -> None:
    for columns in (*TABLES.values(), ATTEMPT):
        for column in columns:
            assert column.meaning.strip()
            assert not column.nullable or "null" in column.meaning


def test_keys_and_vocabularies_name_columns() -> None:
    for table, keys in KEYS.items():
        assert set(keys) <= {column.name for column in TABLES[table]}
    for table, name in VOCABULARY:
        (column,) = [column for column in TABLES[table] if column.name == name]
        assert all(word in column.meaning for word in VOCABULARY[table, name])
