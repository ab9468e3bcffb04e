"""The report in a real browser: nothing overflows, nothing is fetched, nothing is complained about.

A phone's width, a desk's width and paper; a run, several stacks, and hostile words. Pictures of
every view stay in the test's temporary folder.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.report import Study, write_report
from orchestrator.cli.report import report
from tests.e2e.support import make_workspace
from tests.services.browser import View, look
from tests.unit.report_support import root_study, table_study

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]
PHONE, DESK = 360, 1280
WORD = "<img src=x onerror=document.title='broken'>" + "unbroken" * 12

MEASURE = """(() => {
  const box = e => e.getBoundingClientRect();
  const seen = e => box(e).width > 0 && box(e).height > 0;
  const shown = [...document.querySelectorAll("figure svg")].filter(seen);
  const texts = shown.flatMap(svg => [...svg.querySelectorAll("text")]);
  return {
    page: document.documentElement.scrollWidth,
    window: innerWidth,
    outside: [...document.querySelectorAll("body *")]
      .filter(e => seen(e) && !e.closest(".scroll") && !e.closest("svg") && !e.matches(".skip"))
      .filter(e => box(e).right > innerWidth + 1 || box(e).left < -1).map(e => e.outerHTML),
    figures: document.querySelectorAll("figure").length,
    charts: shown.length,
    smallest: Math.min(...texts.map(e => box(e).height)),
    cut: texts.filter(e => box(e).right > innerWidth + 1 || box(e).left < 0)
      .map(e => e.textContent),
    marks: shown.every(svg => svg.querySelectorAll("use, path").length > 3),
    title: document.title,
    hatched: getComputedStyle(document.querySelector(".answer")).borderLeftStyle,
  };
})()"""


def _stacks(path: Path) -> Path:
    stacks = [table_study(tasks=24, stack=name, lost=at) for at, name in enumerate("abcd")]
    write_report(stacks, path / "stacks.html")
    return path / "stacks.html"


def _outlandish(path: Path) -> Path:
    write_report([_hostile(root_study(path / "run"))], path / "hostile.html")
    return path / "hostile.html"


def _root(path: Path) -> Path:
    """A real run through the command."""
    workspace = make_workspace(
        path / "work",
        stack={"rates": [{"alpha": 0.6, "beta": 0.3, "overfit": 0.2}], "submit": 0.3, "test": 0.4},
    )
    workspace.run("run", str(workspace.study), "--root", "runs/mini")
    report([workspace.path / "runs/mini"], out=path / "root.html")
    return path / "root.html"


def _hostile(study: Study) -> Study:
    """Long, unbreakable and dangerous words in the places that carry words."""
    tasks = tuple(replace(task, project=WORD) for task in study.plan.tasks)
    return replace(
        study,
        place=WORD,
        plan=replace(study.plan, tasks=tasks),
        analysis=replace(study.analysis, title=WORD, stack=WORD, study=WORD),
    )


PAGES = {"stacks": _stacks, "hostile": _outlandish, "root": _root}


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PAGES[request.param](tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module", params=[PHONE, DESK])
def view(request: pytest.FixtureRequest, page: Path) -> View:
    shot = page.with_suffix(f".{request.param}.png")
    found = look(page, request.param, MEASURE, shot)
    assert shot.read_bytes().startswith(b"\x89PNG")
    return found


def value(view: View) -> dict[str, Any]:
    return dict(view.value)


def test_nothing_is_complained_about_and_nothing_is_fetched(view: View) -> None:
    assert view.messages == []
    assert [url for url in view.requests if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in view.requests if url.startswith("file:")]) == 1
    assert value(view)["title"] != "broken"


def test_the_page_never_scrolls_sideways(view: View) -> None:
    assert value(view)["page"] <= value(view)["window"]
    assert value(view)["outside"] == []


def test_one_of_two_widths_of_each_figure_is_drawn_whole_and_legible(view: View) -> None:
    assert value(view)["figures"] == value(view)["charts"] > 0
    assert value(view)["cut"] == []
    assert value(view)["smallest"] >= 9, "pixels"
    assert value(view)["marks"]


def test_it_prints(view: View) -> None:
    assert view.pdf.startswith(b"%PDF")
    assert view.pdf.count(b"/Type /Page\n") + view.pdf.count(b"/Type /Page ") >= 2


def test_the_check_sees_a_page_that_overflows_complains_and_fetches(tmp_path: Path) -> None:
    """A negative control: the same script and the same browser on a bad page."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><title>x</title><div class=answer><p style='width:900px'>wide</p>"
        "<img src='http://example.invalid/a.png'><script>console.error('said')</script></div>"
    )
    seen = look(page, PHONE, MEASURE, tmp_path / "bad.png")
    assert seen.value["page"] > PHONE
    assert any("said" in message for message in seen.messages)
    assert "http://example.invalid/a.png" in seen.requests
