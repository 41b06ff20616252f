"""The list of runs in a browser: sorting, filters in the address, choice, labels, removal, the saved page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import Page
from test_report_page import TOO_WIDE
from tests.stored_runs import copied_run
from tests.web.conftest import Lab, Started

from dbdyno.store.listing import start_ticks

Open = OpenLab = Callable[..., Page]
pytestmark = pytest.mark.browser
ONE, TWO, THREE = (f"2026010{n}-100000-lio-000{n}" for n in (1, 2, 3))
HOSTILE = "<img src=x onerror=document.title='broken'>"
IDS = "Array.from(document.querySelectorAll('#rows tr')).map(r => r.dataset.run)"
CURVES = "document.querySelectorAll('#rows svg polyline').length"


@pytest.fixture
def lab(start_lab: Started, store_of_runs: Path) -> Lab:
    return start_lab(store_of_runs)


def ids(page: Page) -> list[str]:
    shown: list[str] = page.evaluate(IDS)
    return shown


def choose(page: Page, *runs: str) -> None:
    for run in runs:
        page.click(f"tr[data-run='{run}'] input")


def text(page: Page, element: str) -> str:
    return str(page.evaluate(f"document.querySelector({json.dumps(element)}).innerText"))


def test_runs_are_sorted_by_the_keyboard_and_found_by_words(lab: Lab, open_lab: OpenLab) -> None:
    page = open_lab(lab)
    assert ids(page) == [THREE, TWO, ONE] and text(page, "#count") == "3 runs"
    page.wait(f"{CURVES} === 3")
    page.evaluate("document.querySelector('button[data-sort=started]').focus()")
    page.press("Enter")
    assert ids(page) == [ONE, TWO, THREE]
    assert page.evaluate("document.querySelector('[data-column=started]').ariaSort") == "ascending"
    assert page.evaluate("document.querySelectorAll('[aria-sort]').length") == 1
    page.evaluate("document.querySelector('#words').focus()")
    page.write("NIGHT lio")
    page.wait(f"{IDS}.length === 1")
    page.wait("location.search === '?q=NIGHT+lio&sort=started'")
    assert page.evaluate("document.querySelector('#over-time').search") == "?q=NIGHT+lio"
    page.open(page.evaluate("location.href"))
    page.wait(f"{IDS}.length === 1 && document.querySelector('#words').value === 'NIGHT lio'")
    assert text(page, "#count") == "1 of 3 runs"
    page.click("#clear")
    assert ids(page) == [ONE, TWO, THREE]
    assert page.errors() == []


def test_only_a_hundred_of_many_rows_are_drawn_until_more_are_wanted(
    lab: Lab, model_run: Path, open_lab: OpenLab
) -> None:
    document = json.loads((model_run / "run.json").read_text())
    for n in range(240):
        run = lab.store / f"20260201-{n:06}-lio-{n:04x}"
        run.mkdir()
        (run / "run.json").write_text(json.dumps(document | {"id": run.name, "name": f"n{n}"}))
    page = open_lab(lab, "/?sort=run")
    page.wait(f"{IDS}.length === 100")
    page.evaluate("document.querySelector('#more').click()")
    page.wait(f"{IDS}.length > 100")
    page.evaluate("document.querySelector('#more').focus()")  # scrolling there may show the rest already
    page.press("Enter")
    page.wait(f"{IDS}.length === 243 && document.querySelector('#more').hidden")
    assert page.errors() == []


def test_two_chosen_runs_are_compared(lab: Lab, open_lab: OpenLab) -> None:
    plan = lab.store / ONE / "plan.json"
    document = json.loads(plan.read_text())
    document["variants"] = [{"name": "a"}, {"name": "b"}]
    plan.write_text(json.dumps(document))
    page = open_lab(lab)
    assert page.evaluate("document.querySelector('#compare').hidden")
    choose(page, THREE)
    assert page.evaluate("document.querySelector('#compare').hidden")  # it has one variant
    choose(page, THREE, ONE)
    assert text(page, "#compare") == "Compare its variants"
    choose(page, ONE, THREE, ONE)  # the newest first
    assert text(page, "#compare") == "Compare 2 runs" and "oldest" in text(page, "#chosen")
    assert page.evaluate("document.querySelector('#compare').search") == f"?run={ONE}&run={THREE}"
    assert page.evaluate("document.querySelector('#label').hidden")


def test_a_run_is_labelled_with_hostile_words_that_stay_words(lab: Lab, open_lab: OpenLab) -> None:
    page = open_lab(lab)
    choose(page, TWO)
    page.click("#label")
    page.wait("document.querySelector('#label-dialog').open")
    page.click("#label-present input")  # removes the tag a
    page.click("#label-tags")
    page.write("b, c")
    page.evaluate("document.querySelector('#label-name').select()")
    page.write("last")
    page.press("Enter")
    page.wait("!document.querySelector('#label-error').hidden")
    assert "could be taken for something else" in text(page, "#label-error")
    page.evaluate("document.querySelector('#label-name').select()")
    page.write(HOSTILE)
    page.press("Enter")
    page.wait("!document.querySelector('#label-dialog').open")
    page.wait(f"document.querySelector(\"tr[data-run='{TWO}'] a\").textContent === {json.dumps(HOSTILE)}")
    chips = f"Array.from(document.querySelectorAll(\"tr[data-run='{TWO}'] .chip\")).map(c => c.textContent)"
    assert page.evaluate(chips) == ["b", "c"]
    assert page.evaluate("document.title") == "dbdyno: Runs"
    page.click(f"tr[data-run='{TWO}'] .chip")
    assert ids(page) == [TWO]
    assert [e for e in page.errors() if "400" not in e] == []


def test_runs_are_removed_once_agreed(lab: Lab, model_run: Path, open_lab: OpenLab) -> None:
    me = {"status": "running", "ended": None, "pid": 1, "pid_start_ticks": start_ticks(1)}
    running = copied_run(lab.store, model_run, "20260104-100000-lio-0004", **me).name
    (lab.store / ONE / "run.json").write_text("{")
    page = open_lab(lab)
    link = "document.querySelector(\"tr[data-run='%s'] th a\")?.pathname ?? null"
    places = [page.evaluate(link % run) for run in (running, THREE, ONE)]
    assert places == [f"/live/{running}", f"/run/{THREE}", None]
    assert "damaged" in text(page, f"tr[data-run='{ONE}'] [data-head=Status]")
    choose(page, running, THREE, ONE)
    page.click("#remove")
    page.wait("document.querySelector('#remove-dialog').open")
    assert text(page, "#remove-title").startswith("Remove 2 runs, ")
    assert running not in text(page, "#remove-rows") and THREE in text(page, "#remove-rows")
    page.press("Escape")
    assert len(ids(page)) == 4
    page.click("#remove")
    page.wait("document.querySelector('#remove-dialog').open")
    page.click("#remove-agreed")
    page.wait(f"{IDS}.length === 2")
    assert text(page, "#notice") == "2 runs removed"
    assert page.evaluate("document.activeElement.id") == "notice"
    assert sorted(p.name for p in lab.store.iterdir() if p.is_dir()) == [TWO, running]
    assert page.errors() == []


def test_what_changes_elsewhere_comes_by_itself_and_the_choice_stays(
    lab: Lab, model_run: Path, open_lab: OpenLab
) -> None:
    page = open_lab(lab)
    choose(page, ONE)
    copied_run(lab.store, model_run, "20260104-100000-lio-0004")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as on return to the tab
    page.wait(f"{IDS}.length === 4")
    assert page.evaluate(f"document.querySelector(\"tr[data-run='{ONE}'] input\").checked")
    assert page.evaluate("document.activeElement.closest('tr').dataset.run") == ONE


def test_the_saved_page_has_the_list_and_its_curves_without_a_server(
    lab: Lab, open_lab: OpenLab, open_page: Open, tmp_path: Path
) -> None:
    open_lab(lab)
    saved = tmp_path / "runs.html"
    saved.write_text(lab.enter().ask("/?q=lio&sort=started&save=1").text)
    page = open_page(saved)
    assert ids(page) == [ONE, TWO, THREE] and page.evaluate(CURVES) == 3
    for part in ("td input", "td a", "th a"):
        assert page.evaluate(f"document.querySelector('#rows {part}')") is None
    assert page.evaluate("document.querySelector('#over-time').checkVisibility()") is False
    page.click("button[data-sort=started]")
    assert ids(page) == [THREE, TWO, ONE]
    assert page.requests() == [saved.as_uri()] and page.errors() == []


@pytest.mark.parametrize("path", ["/", "/trend"])
def test_the_page_fits_a_phone_and_paper(lab: Lab, model_run: Path, open_lab: OpenLab, path: str) -> None:
    changes = {
        "name": "x" * 60,
        "note": "y" * 200,
        "tags": ["z" * 60],
        "group": "20260109-100000-observe-0009",
    }
    for day in (4, 5):
        copied_run(lab.store, model_run, f"2026010{day}-100000-lio-000{day}", **changes)
    page = open_lab(lab, path, width=390)
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.printed()[1] == []
