"""A run from the browser by the keyboard alone: fill in, see the plan, start, follow, stop."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest
from chromium import Page
from tests.browser.conftest import OpenLab
from tests.waiting import eventually
from tests.web.conftest import Lab, Started

from dbdyno.cli.web_forms import CommandForms


@pytest.fixture
def may_all(start_lab: Started, tmp_path: Path) -> Lab:
    store = tmp_path / "store"
    return start_lab(store, CommandForms(store, commands=True))


def go_to(page: Page, selector: str) -> None:
    """Presses Tab until the element has the focus."""
    for _ in range(300):
        if page.evaluate(f"document.activeElement?.matches({selector!r})"):
            return
        page.press("Tab")
    raise AssertionError(f"never reached: {selector}")


def test_a_plan_and_a_run_by_the_keyboard(may_all: Lab, open_lab: OpenLab) -> None:
    page = open_lab(may_all, "/start")
    go_to(page, "[name=commands]")
    page.write("true")
    go_to(page, "[name=sessions]")
    page.write("1,2")
    go_to(page, "[formaction='/start/plan']")
    page.press("Enter")
    page.wait("document.querySelector('#plan') && document.documentElement.dataset.ready === 'yes'")
    assert page.evaluate("document.querySelector('#plan').textContent.includes('2 measurements')")
    assert page.evaluate("document.querySelector('[name=sessions]').value") == "1,2"
    go_to(page, "[name=sessions]")
    page.evaluate("document.activeElement.select()")
    page.write("0")
    page.press("Enter")  # the first button of the form: its plan
    page.wait("document.querySelector('#error') && document.documentElement.dataset.ready === 'yes'")
    assert page.evaluate("document.activeElement.matches('[name=sessions][aria-invalid=true]')")
    assert page.evaluate("location.pathname + location.search") == "/start?command=run&sessions=0"
    page.evaluate("document.querySelector('[name=sessions]').value = '1'")
    page.evaluate("document.querySelector('details.more:has([name=runs])').open = true")
    go_to(page, "[name=runs]")
    page.write("1")
    go_to(page, "[formaction='/start/run']")
    page.press("Enter")
    # its live page, or if it has ended meanwhile, its results or the link to them
    page.wait("/^.(live|run)./.test(location.pathname) || !!document.querySelector('#links a')")
    assert [e for e in page.errors() if "/start/plan" not in e] == [], "only the refused plan"


def test_stopping_says_so_at_once_and_leaves_no_button_after_the_end(may_all: Lab, open_lab: OpenLab) -> None:
    fields = {"command": "run", "commands": "true", "runs": "1", "sessions": "1", "repeats": "500"}
    page = open_lab(may_all, "/start")
    may_all.enter()
    assert may_all.post("/start/run", urlencode(fields).encode()).status == 303
    eventually(lambda: [*may_all.store.glob("*/cells/*")])
    page.open(f"{may_all.address.url}/live")
    page.wait("document.querySelector('#stop [role=status]') !== null")  # its script runs
    stop = "document.querySelector('#stop button')"
    page.evaluate(f"{stop}.focus()")
    page.press("Enter")
    page.wait("document.getElementById('live-headline').textContent.startsWith('It stops after')")
    if not page.evaluate("document.getElementById('stop').hidden"):
        assert page.evaluate(f"{stop} === document.activeElement && {stop}.textContent") == "Stop at once"
    page.wait("document.querySelector('#live-headline a') !== null")
    assert page.evaluate("document.getElementById('stop').hidden")
    assert page.evaluate("document.activeElement.textContent") == "Open the run"
    (run,) = may_all.store.glob("*/run.json")
    late = may_all.post("/start/stop", f"run={run.parent.name}&press=1".encode())
    assert late.status == 303, "a page from before leads to the run"
    assert page.errors() == []


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_form_fits_the_window_and_every_control_has_a_name(
    width: int, dark: bool, may_all: Lab, open_lab: OpenLab
) -> None:
    page = open_lab(may_all, "/start", width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    nameless = "[...document.querySelectorAll('form :is(input:not([type=hidden]), select, textarea)')]"
    nameless += ".filter(c => !(c.labels.length || c.getAttribute('aria-label'))).map(c => c.outerHTML)"
    assert page.evaluate(nameless) == []
    assert page.errors() == []


def test_the_plan_that_is_shown_is_what_starts(may_all: Lab, open_lab: OpenLab) -> None:
    page = open_lab(may_all, "/start")
    for name, text in (("commands", "true"), ("runs", "2"), ("sessions", "1,2")):
        page.evaluate(f"document.querySelector('[name={name}]').value = {text!r}")
    page.click("[formaction='/start/plan']")
    page.wait("document.activeElement?.id === 'plan-title'")
    page.evaluate("document.querySelector('#options [name=sessions]').select()")
    go_to(page, "#options [name=sessions]")
    page.write("1")
    outdated = "document.querySelector('#outdated').checkVisibility()"
    page.wait(outdated)
    assert page.evaluate("[...document.querySelectorAll('#plan button')].every(b => b.disabled)")
    page.evaluate("document.querySelector('#options [name=sessions]').select()")
    page.write("1,2")
    assert not page.evaluate(outdated)
    page.evaluate("document.querySelector('#options [name=sessions]').value = '1'")  # unseen by the page
    page.click("#plan [formaction='/start/run']")
    page.wait("/^.(live|run|start.run)./.test(location.pathname)")
    eventually(lambda: any(may_all.store.glob("2*/plan.json")))
    (plan,) = may_all.store.glob("2*/plan.json")
    assert [cell["sessions"] for cell in json.loads(plan.read_text())["cells"]] == [1, 2]
