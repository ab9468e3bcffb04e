"""SQL over one run or many: complete, labelled, read-only; and decisions that are never pooled."""

import json
from pathlib import Path

import pytest

import analysis
from analysis.errors import AnalysisError
from analysis.views import VIEWS, read_attempts
from tests.unit.analysis_support import CONTRACT, Root, plan_dict, rows, small_plan

BEGUN = {"rollout_id": "t1-OFF", "attempt_id": "t1-OFF.a1", "number": 1, "lock_id": "lock"}


def made(folder: Path, run: Root | None = None) -> Path:
    """A finished run with its plan and one attempt that ended and one that did not."""
    root = (run or Root()).write(folder)
    (root / "analysis").mkdir()
    (root / "analysis" / "plan.json").write_text(json.dumps(small_plan()))
    (root / "attempts").mkdir()
    for number in (1, 2):
        begun = BEGUN | {"attempt_id": f"t1-OFF.a{number}", "number": number, "began_at": 5.0}
        (root / "attempts" / f"t1-OFF.a{number}.json").write_text(json.dumps(begun))
    ended = {"attempt_id": "t1-OFF.a1", "outcome": "unknown", "reason": "lost", "ended_at": 6.0}
    (root / "attempts" / "t1-OFF.a1.end.json").write_text(json.dumps(ended))
    (root / "attempts" / "t1-OFF.a1.ledger.jsonl").write_text("{}\n")
    return root


def test_every_file_of_a_run_has_its_view(tmp_path: Path) -> None:
    run = analysis.load(made(tmp_path / "a"))
    assert set(run.views.names()) == set(VIEWS) - {"actions"}, "this run kept no actions"
    counted = {
        name: run.sql(f"SELECT count(*) AS n FROM {name}")["n"][0] for name in run.views.names()
    }
    assert counted == {
        "rollouts": 4, "proposals": 4, "verdicts": 4, "evaluations": 8, "attempts": 2, "outcomes": 4
    }  # fmt: skip
    joined = run.sql(
        "SELECT o.unsafe, r.invalid_actions FROM outcomes o JOIN rollouts r USING (rollout_id) "
        "WHERE rollout_id = 't1-OFF'"
    )
    assert joined.to_dict("records") == [{"unsafe": True, "invalid_actions": 2}]


def test_an_attempt_without_an_end_has_null_there(tmp_path: Path) -> None:
    first, second = read_attempts(made(tmp_path / "a")).to_pylist()
    assert (first["number"], first["outcome"], first["reason"]) == (1, "unknown", "lost")
    assert (second["number"], second["outcome"], second["ended_at"]) == (2, None, None)


def test_names_that_mean_something_to_sql_or_to_a_glob_mean_nothing_here(tmp_path: Path) -> None:
    root = made(tmp_path / "it's [a]*; DROP VIEW outcomes")
    made(tmp_path / "it's a; DROP VIEW outcomes")  # what the pattern would match
    run = analysis.load(root)
    found = run.sql("SELECT DISTINCT source FROM rollouts")
    assert found["source"].tolist() == ["it's [a]*; DROP VIEW outcomes"]
    assert run.decision().coverage.planned == 4


@pytest.mark.parametrize(
    "statement",
    [
        "COPY outcomes TO '{}/stolen.csv'",
        "SELECT * FROM read_csv('{}/secret.csv')",
        "SELECT * FROM '{}/secret.csv'",
        "ATTACH '{}/other.db'",
        "SET enable_external_access = true",
        "EXPORT DATABASE '{}/export'",
        "INSTALL httpfs",
        "SELECT * FROM small_plan",
        "",
    ],
)
def test_a_query_reads_the_views_only_and_writes_nothing(tmp_path: Path, statement: str) -> None:
    run = analysis.load(made(tmp_path / "run"))
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(AnalysisError, match="query"):
        run.sql(statement.format(tmp_path))
    assert sorted(tmp_path.iterdir()) == before


def test_an_unknown_view_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="Views of this source: rollouts, proposals"):
        analysis.load(made(tmp_path / "run")).sql("SELECT * FROM runs")


def test_several_runs_are_queried_together_and_decided_apart(tmp_path: Path) -> None:
    other = Root()
    other.rollouts[0] |= {"accepted": False, "accepted_state_id": None}
    roots = [made(tmp_path / "a"), made(tmp_path / "b", other)]
    runs = analysis.load(roots)
    unsafe = runs.sql("SELECT source, sum(unsafe::INT) AS n FROM outcomes GROUP BY ALL ORDER BY 1")
    assert unsafe.to_dict("list") == {"source": ["a", "b"], "n": [2, 1]}
    assert len(runs.outcomes) == 8 and list(runs) == ["a", "b"]
    decided = runs.decisions()
    alone = {root.name: analysis.load(root).decision().to_json() for root in roots}
    assert {label: one.to_json() for label, one in decided.items()} == alone
    assert not hasattr(runs, "decision"), "a collection has no decision of its own"


def test_studies_with_other_factors_stand_in_one_view(tmp_path: Path) -> None:
    cap = plan_dict(
        {"cap": ["1", "8"]},
        [{"name": "depth", "kind": "contrast", "factor": "cap", "low": "1", "high": "8"}],
    )
    contract = plan_dict({"contract": ["OFF", "ON"]}, [CONTRACT])
    tables = {}
    for name, plan in (("depth", cap), ("contract", contract)):
        table = rows(plan, {"t1": "p", "t2": "p"}, [])
        text = [",".join(table[0])]
        text += [",".join("" if v is None else str(v) for v in row.values()) for row in table]
        tables[name] = tmp_path / f"{name}.csv"
        tables[name].write_text("\n".join(text) + "\n")
    one = analysis.load_outcomes(tables["depth"], cap)
    assert one.views.names() == ("outcomes",)
    assert one.sql("SELECT DISTINCT source FROM outcomes")["source"].tolist() == ["coder"]
    same = analysis.load_many_outcomes({"x": tables["depth"]}, cap)
    assert same.sql("SELECT count(DISTINCT cap) AS n FROM outcomes WHERE source = 'x'")["n"][0] == 2
    from analysis.many import Many

    both = Many({"d": one, "c": analysis.load_outcomes(tables["contract"], contract)})
    kinds = both.sql(
        "SELECT source, count(cap) AS a, count(contract) AS b FROM outcomes GROUP BY 1"
    )
    assert {tuple(row) for row in kinds.itertuples(index=False)} == {("d", 4, 0), ("c", 0, 4)}


def test_labels_are_as_short_as_they_can_be_and_sources_are_named_once(tmp_path: Path) -> None:
    first, second = made(tmp_path / "x" / "run"), made(tmp_path / "y" / "run")
    assert list(analysis.load([first, second])) == ["x/run", "y/run"]
    assert list(analysis.load_many({"A": first, "B": second})) == ["A", "B"]
    for twice in ([first, first], {"A": first, "B": first / ".." / "run"}):
        with pytest.raises(AnalysisError, match="twice"):
            analysis.load_many(twice)
    with pytest.raises(AnalysisError, match="Name at least one"):
        analysis.load_many([])


def test_a_damaged_attempt_is_named(tmp_path: Path) -> None:
    root = made(tmp_path / "run")
    (root / "attempts" / "t1-OFF.a2.json").write_text("[]")
    with pytest.raises(AnalysisError, match=r"t1-OFF\.a2\.json.*no JSON object"):
        analysis.load(root).sql("SELECT * FROM attempts")
    (root / "attempts" / "t1-OFF.a2.json").write_text("{")
    with pytest.raises(AnalysisError, match="not readable JSON"):
        read_attempts(root)
