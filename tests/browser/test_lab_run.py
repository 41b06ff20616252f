"""A run of the lab in a real browser: links that hold the choice, evidence, folded parts, the saved page."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_report_page import CHOSEN, TOO_WIDE, figures
from tests.web.conftest import Lab, Started

from conftest import Open, OpenLab

pytestmark = pytest.mark.browser
RUN = "/run/20260103-100000-lio-0003"


@pytest.fixture
def lab(start_lab: Started, store_of_runs: Path) -> Lab:
    return start_lab(store_of_runs)


def choose(number: int) -> str:
    return f"""(function (select) {{
      select.selectedIndex = {number};
      select.dispatchEvent(new Event("change"));
      return select.value;
    }})(document.getElementById("pick"))"""


def shown(key: str) -> str:
    """Returns the condition that the page of this load has been drawn."""
    there = f"new URLSearchParams(location.search).get('show') === '{key}'"
    return f"{there} && document.documentElement?.dataset.ready === 'yes'"


def test_the_address_has_the_choice_and_leads_back_to_it(lab: Lab, open_lab: OpenLab) -> None:
    page = open_lab(lab, RUN)
    first = page.evaluate(CHOSEN)
    page.click("#environment > summary")
    page.wait("location.hash === '#environment'")
    page.evaluate("scrollTo(0, 700)")
    key = page.evaluate(choose(1))
    page.wait(shown(key))
    assert page.evaluate("Math.abs(scrollY - 700) < 150 && document.activeElement.id") == "pick"
    assert page.evaluate("document.getElementById('environment').open")
    other, address = page.evaluate(CHOSEN), page.evaluate("location.pathname + location.search")
    again = open_lab(lab, address)
    assert again.evaluate(CHOSEN) == other != first
    again.evaluate(choose(0))
    again.wait("location.search === '' && document.documentElement?.dataset.ready === 'yes'")
    assert again.evaluate(CHOSEN) == first
    assert open_lab(lab, f"{RUN}?show=nothing%22%5D").evaluate(CHOSEN) == first
    assert page.errors() == again.errors() == []


def test_a_link_into_a_folded_part_opens_it_and_opening_makes_the_link(lab: Lab, open_lab: OpenLab) -> None:
    page = open_lab(lab, f"{RUN}#environment")
    assert page.evaluate("document.getElementById('environment').open")
    assert 0 <= page.evaluate("document.getElementById('environment').getBoundingClientRect().top") < 900
    page.click("#plan > summary")
    page.wait("document.getElementById('plan').open && location.hash === '#plan'")
    page.click("#plan > summary")
    page.wait("!document.getElementById('plan').open && location.hash === ''")
    page.evaluate("document.querySelector('#methods > summary').focus()")
    page.press("Enter")
    page.wait("document.getElementById('methods').open && location.hash === '#methods'")
    page.evaluate("location.hash = '#cross-check'")
    page.wait("document.getElementById('cross-check').open")
    page.evaluate("document.querySelector('#rungs h2 a').click()")
    assert page.evaluate("location.hash") == "#rungs"
    assert page.errors() == []


def test_a_claim_opens_its_explanation_and_the_rows_that_it_rests_on(lab: Lab, open_lab: OpenLab) -> None:
    page = open_lab(lab, f"{RUN}#quality")
    claim = "document.querySelector('#quality [data-claim] a[href^=\"/explain/\"]')"
    name = page.evaluate(f"{claim}.closest('[data-claim]').dataset.claim")
    page.evaluate(f"{claim}.click()")
    page.wait(
        "location.pathname.startsWith('/explain/') && document.documentElement?.dataset.ready === 'yes'"
    )
    assert page.evaluate("document.querySelector('h1').innerText").startswith(name.rpartition("-")[0])
    page.open(f"{lab.address.url}{RUN}")
    page.wait("location.pathname.startsWith('/run/') && document.documentElement?.dataset.ready === 'yes'")
    page.evaluate("document.querySelector('a[href*=\"/table/\"]').click()")
    page.wait("location.pathname.includes('/table/') && document.documentElement?.dataset.ready === 'yes'")
    assert page.evaluate("document.querySelectorAll('#rows tbody tr').length") > 0
    assert page.errors() == []


def test_a_saved_page_works_without_the_server(
    lab: Lab, open_lab: OpenLab, open_page: Open, tmp_path: Path
) -> None:
    served = open_lab(lab, RUN)
    saved = tmp_path / "saved.html"
    saved.write_text(lab.enter().ask(f"{RUN}?save=1").text)
    page = open_page(saved)
    assert page.evaluate("document.querySelectorAll('a[href^=\"/\"]').length") == 0
    drawn = "Array.from(document.querySelectorAll('figure.chart')).filter(f => f.offsetWidth).map(f => f.id)"
    assert page.evaluate(drawn) == served.evaluate(drawn) != []
    assert {f["drawn"] for f in figures(page)} == {"yes"}
    before = page.evaluate(CHOSEN)
    key = page.evaluate(choose(1))
    assert page.evaluate(CHOSEN) != before
    chosen = tmp_path / "chosen.html"
    chosen.write_text(lab.enter().ask(f"{RUN}?save=1&show={key}").text)
    assert open_page(chosen).evaluate(CHOSEN)[0] == page.evaluate(CHOSEN)[0]
    assert page.evaluate("location.search").startswith("?show=")
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate("document.documentElement.dataset.theme") in ("dark", "light")
    assert [r for r in page.requests() if not r.startswith(("file:", "data:"))] == []
    assert page.errors() == []


PATHS = (RUN, f"{RUN}/tables", f"{RUN}/table/windows", "/explain/peak", "/compare?run=last~1&run=last")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_fits_a_phone_and_paper_and_can_be_reached_by_keys(
    lab: Lab, open_lab: OpenLab, path: str
) -> None:
    page = open_lab(lab, path, width=390)
    assert page.evaluate(TOO_WIDE) == []
    heads = "Array.from(document.querySelectorAll('thead th')).every(h => h.scope === 'col')"
    assert (
        page.evaluate(heads) and page.evaluate("document.querySelectorAll('main, nav, header').length") >= 3
    )
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    unnamed = "Array.from(document.querySelectorAll('a, button, input')).filter(n => n.offsetWidth && "
    unnamed += "!(n.textContent || n.ariaLabel || (n.labels && n.labels.length))).map(n => n.outerHTML)"
    assert page.evaluate(unnamed) == []
    assert page.printed()[1] == []
    assert page.errors() == []
