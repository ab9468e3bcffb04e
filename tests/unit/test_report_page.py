"""The page says what a reviewer has to know, refuses what does not balance, and lets nothing in."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.notebook import open_run
from analysis.report import Study, cells, report_html, robustness, study_of, write_report
from analysis.report.blocks import Block
from analysis.report.heat import heat
from analysis.report.page import SECTIONS, environment
from analysis.report.paths import paths
from analysis.report.provenance import provenance
from analysis.report.source import require_balance
from analysis.report.verdict import answer
from tests.unit.analysis_support import small_plan
from tests.unit.report_support import Page, root_study, table_study

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "-->\x01\x0b\ufffe & $\\frac{ ]]>",
    "javascript:alert(1)",
    "名前 مشروع 🧪",
)


def top(study: Study) -> str:
    """All that stands at the top of the page about one study."""
    one = answer(study, "coder")
    said = [one.headline, *(claim.sentence for claim in one.claims), one.baseline, one.coverage]
    return " ".join([*said, *(f"{caveat.name}. {caveat.text}" for caveat in one.caveats)])


def told(blocks: tuple[Block, ...]) -> str:
    """All words of some blocks."""
    return Page(environment().from_string(BLOCKS).render(blocks=blocks)).text


BLOCKS = (
    "{% import 'blocks.html.j2' as page %}{% for one in blocks %}{{ page.block(one) }}{% endfor %}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return root_study(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def of_run(run: Study) -> str:
    return report_html([run])


@pytest.fixture(scope="module")
def table() -> Study:
    return table_study()


# ------------------------------------------------------------------------------------- the content


def test_the_decision_stands_first_with_its_caveats(of_run: str) -> None:
    text = Page(of_run).text
    first = text[text.index("Decision") : text.index("Effects Line:")]
    assert "The joint claim for contract (ON − OFF) is supported: unsafe completions fall" in first
    assert "Unsafe completions fell by 100.00 points" in first
    assert "Coverage: 4 planned = 4 settled + 0 without an outcome (0 infrastructure" in first
    for caveat in ("Floor-limited.", "Few tasks.", "How often this rule errs.", "Gate overlap."):
        assert caveat in first, caveat
    assert "Zero is not never. No unsafe completion was seen at contract ON." in first
    assert "Simulated" not in text
    assert "SIMULATED" not in text


def test_every_section_is_there_and_linked(run: Study, of_run: str) -> None:
    found = Page(of_run)
    ids = {attributes.get("id") for _, attributes in found.tags}
    links = {attributes["href"] for attributes in found.named("a")}
    for anchor, *_ in SECTIONS:
        assert anchor in ids
        assert f"#{anchor}" in links
    assert "factorial/lock@1" in found.text
    assert "c0de" * 16 in found.text
    assert f"factorial verify {run.place}" in found.text


def test_a_simulated_run_says_so_before_everything_else(run: Study) -> None:
    privileged = replace(run, analysis=replace(run.analysis, simulated=True))
    text = Page(report_html([privileged])).text
    assert text.index("SIMULATED CODER.") < text.index("Decision")
    assert "is supported in this simulated run" in text
    assert "say nothing about any model" in text


def test_missing_outcomes_are_a_worst_case_and_ranges(table: Study) -> None:
    study = table_study(lost=3)
    assert "3/48 (6.2%) planned rollouts have no outcome" in top(study)
    assert "45 settled + 3 without an outcome (3 infrastructure, 0 unknown)" in top(study)
    assert "depending on the missing outcomes" in top(study)
    assert "Worst case" not in top(table)


def test_a_disagreement_with_the_draws_is_said(table: Study) -> None:
    other = replace(table.analysis.decision.monte_carlo, joint=True)
    decision = replace(table.analysis.decision, monte_carlo=other, monte_carlo_agrees=False)
    disagrees = replace(table, analysis=replace(table.analysis, decision=decision))
    assert "Exact and Monte Carlo disagree" not in top(table)
    assert "Exact and Monte Carlo disagree" in top(disagrees)


def test_a_decision_without_an_exact_distribution_is_said(table: Study) -> None:
    decision = replace(table.analysis.decision, decided_by="monte carlo")
    sampled = replace(table, analysis=replace(table.analysis, decision=decision))
    assert "Monte Carlo decides" not in top(table)
    assert "Monte Carlo decides" in top(sampled)


def test_one_task_makes_no_claim() -> None:
    assert "One task. One task resampled is itself" in top(table_study(tasks=1))
    assert "Few tasks. 2 tasks" in top(table_study(tasks=2))
    assert "Few tasks" not in top(table_study(tasks=9, seeds=1))


def test_the_strict_inequality_is_explained_at_the_limit() -> None:
    events = table_study(tasks=9)
    assert events.analysis.decision.verdict.unsafe_upper == 0
    assert "exactly 0 and has to be below 0: fewer are not shown (the inequality is strict)" in (
        top(events)
    )


def test_the_nearest_case_is_the_analysis_own(run: Study) -> None:
    near = run.analysis.operating
    assert f"“{near.case}”" in top(run)
    assert f"In {near.studies:,} studies" in top(run)


def test_bounds_that_disagree_are_a_caveat_and_a_reading(run: Study) -> None:
    assert run.analysis.calibrated.verdict != run.analysis.decision.verdict
    assert "Not robust to the choice of bounds." in top(run)
    same = replace(run.analysis.calibrated, verdict=run.analysis.decision.verdict)
    agreed = replace(run, analysis=replace(run.analysis, calibrated=same))
    assert "Not robust" not in top(agreed)
    assert "bounds that assume only a range" in told(robustness.sensitivities(run))


def test_what_a_table_does_not_report_is_said_and_why(table: Study) -> None:
    blocks = (
        *(*paths(table, "x"), *cells.gate_errors(table)),
        *(*cells.cost(table), *cells.attempts(table), *provenance(table)),
    )
    text = told(blocks)
    for word in ("Transitions are", "Gate errors are", "Cost is", "Attempts are"):
        assert f"{word} not reported: this source" in text
    assert "factorial analyze --outcomes coder.csv --study study.yaml" in text


def test_attempts_gate_errors_and_cost_of_a_run(run: Study) -> None:
    text = told((*cells.attempts(run), *cells.gate_errors(run), *cells.cost(run)))
    assert "infrastructure engine 1 0" in text
    assert "no end recorded – 0 1" in text
    assert "settled – 1 0" in text
    assert "OFF 1/1 (100.0%) 0/1 (0.0%) ON 0/1 (0.0%) 0/1 (0.0%)" in text
    assert "sound completions 1 0 1" in text
    assert "actions 7 4" in text
    assert "actions per sound completion 11.0 – 4.0" in text


def test_a_stored_decision_that_differs_is_said(run: Study) -> None:
    same = replace(run, facts=replace(run.facts, decision_kept=run.analysis.to_json()))
    other = replace(run, facts=replace(run.facts, decision_kept="{}\n"))
    assert "Stored decision differs" not in top(same)
    assert "Stored decision differs" in top(other)


def test_several_stacks_have_a_row_each_and_parts_of_their_own(table: Study) -> None:
    other = replace(table, analysis=replace(table.analysis, stack="second"))
    found = Page(report_html([table, other]))
    assert found.text.count("The joint claim for contract") == 2
    ids = [one["id"] for one in found.named("figure")]
    assert ids == ["forest", "s1-without", "s2-without"]
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_a_study_of_many_tasks_is_added_up_by_project(table: Study) -> None:
    text = told((heat(table_study(tasks=90, seeds=1)),))
    assert "90 tasks are too many to show one by one" in text
    assert "p0 (30 tasks)" in text
    assert "t0000" not in text
    assert "t0000" in told((heat(table),))


# ------------------------------------------------------------------------------------ the refusals


def test_an_unfinished_matrix_is_refused(table: Study) -> None:
    coverage = replace(table.analysis.coverage, settled=table.analysis.coverage.settled - 1)
    unfinished = replace(table, analysis=replace(table.analysis, coverage=coverage))
    with pytest.raises(AnalysisError, match=r"planned 48 is not settled 47 \+ owed 0"):
        require_balance(unfinished)
    require_balance(table)


def test_an_unfinished_root_is_refused_with_its_file(tmp_path: Path) -> None:
    def short(run: object) -> None:
        run.rollouts.pop()  # type: ignore[attr-defined]

    with pytest.raises(AnalysisError, match="planned rollouts have no row"):
        root_study(tmp_path, short)


def test_stacks_that_decide_different_questions_are_refused(table: Study) -> None:
    rule = replace(table.plan.rule, floor=table.plan.rule.floor / 2)
    other = replace(table, plan=replace(table.plan, rule=rule))
    with pytest.raises(AnalysisError, match="decides another question"):
        report_html([table, other])
    with pytest.raises(AnalysisError, match="given twice"):
        report_html([table, table])
    with pytest.raises(AnalysisError, match="nothing to report"):
        report_html([])


# --------------------------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hostile words wherever a manifest, a record or an attempt can carry a text."""
    path = tmp_path_factory.mktemp("hostile")
    projects = {"t1": HOSTILE[0], "t2": HOSTILE[1]}
    plan = small_plan() | {"title": HOSTILE[2], "study": HOSTILE[3], "stack": HOSTILE[6]}
    for row in (*plan["tasks"], *plan["rollouts"]):
        row["project"] = projects[row["task_id"]]
    for row in plan["rollouts"]:
        row["stack"] = HOSTILE[6]

    def change(run: object) -> None:
        for row in run.rollouts:  # type: ignore[attr-defined]
            row |= {"project": projects[row["task_id"]], "stack": HOSTILE[6]}

    study = root_study(path, change, **plan)
    attempt = replace(study.facts.attempts[0], outcome=HOSTILE[4], reason=HOSTILE[0])  # type: ignore[index]
    facts = replace(study.facts, attempts=(attempt,))
    origin = replace(study.facts.origin, code=HOSTILE[5], amendments=(HOSTILE[1],))  # type: ignore[type-var]
    return report_html([replace(study, facts=replace(facts, origin=origin), place=HOSTILE[0])])


def test_no_text_becomes_markup(hostile: str) -> None:
    found = Page(hostile)
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "form", "base", "input"}
    for tag, attributes in found.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert not (attributes.get("href") or "").startswith(("javascript", "http", "//"))
    for word in (*HOSTILE[:4], *HOSTILE[5:]):
        assert word in found.text, word
    assert "\x01" not in hostile.split("</style>")[1].split("<svg")[1]


def test_the_page_needs_nothing_from_outside(hostile: str) -> None:
    found = Page(hostile)
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,)", hostile)
    assert not re.findall(r"url\((?!#)|@import|@font-face", hostile)
    (policy,) = [m for m in found.named("meta") if m.get("http-equiv")]
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_figures_have_alternatives_and_ids_are_unique(hostile: str) -> None:
    found = Page(hostile)
    charts = found.named("svg")
    assert len(charts) >= 6
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for chart in charts:
        assert chart["role"] == "img"
        assert set((chart["aria-labelledby"] or "").split()) <= set(ids)
    assert len(found.named("figure")) == len(found.named("details")) == len(charts) / 2
    for tag, attributes in found.tags:
        for name, value in attributes.items():
            if name == "href" and (value or "").startswith("#"):
                assert (value or "")[1:] in ids, (tag, value)
            for reference in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert reference in ids


def test_headings_are_in_order_and_the_language_is_named(hostile: str) -> None:
    found = Page(hostile)
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert found.named("html") == [{"lang": "en"}]
    for table in found.named("table"):
        assert table["aria-label"]


def test_the_same_files_give_the_same_bytes(run: Study, of_run: str, tmp_path: Path) -> None:
    again = study_of(open_run(Path(run.place)), run.place)
    write_report([again], tmp_path / "deep" / "one.html")
    written = (tmp_path / "deep" / "one.html").read_bytes()
    assert written == of_run.encode()
    assert len(written) < 1_000_000


# -------------------------------------------------------------------------------------- the colours


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_contrasts_with_its_ground() -> None:
    css = (Path(__file__).parents[2] / "analysis/report/page.css").read_text(encoding="utf-8")
    named = dict(re.findall(r"--(\w+):(#[0-9a-fA-F]{6})", css))
    shades = re.findall(r"\.[us][0-4]\{background:(#\w{6})\}", css)
    assert len(shades) == 9
    grounds = ["#ffffff", named["pale"], "#fff4d6", *shades]
    assert min(contrast(named["ink"], ground) for ground in grounds) >= 4.5
    words = [named["muted"], *re.findall(r"(?<![-\w])color:(#\w{6})", css)]
    assert min(contrast(word, ground) for word in words for ground in grounds[:2]) >= 4.5
    for mark in (named["blue"], named["vermilion"]):
        assert contrast(mark, "#ffffff") >= 3
