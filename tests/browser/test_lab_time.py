"""Time travel in a browser: a span by mouse and keys, its address and tables, the way back, saving it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import Page
from test_report_page import TOO_WIDE
from tests.stored_runs import busy, observation, observed_window
from tests.unit.made_snapshots import snapshot
from tests.web.conftest import Lab, Started

from dbdyno.store import Run, SnapshotStore

Open = OpenLab = Callable[..., Page]
pytestmark = pytest.mark.browser
SHOWN = "document.documentElement?.dataset.shown === location.search"
LETTERS = """['.other', ':not(.other)'].map(
    s => getComputedStyle(document.querySelector('.picked' + s), '::before').content)"""
SIDES = """Array.from(document.querySelectorAll('#changed-events th[class*=side]'),
    th => [th.innerText, Array.from(th.classList).find(c => c.startsWith('side'))])"""
SHAPE = """(p => [p.offsetLeft, p.offsetWidth].map(v => v / p.offsetParent.clientWidth))(
    document.querySelector('.picked:not(.other)'))"""
LEAD = "document.querySelector('main > p.lead').innerText"


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    window = observed_window(tmp_path_factory.mktemp("window"))
    starts_s = [10.0 * n for n in range(6)]
    run = observation(tmp_path_factory.mktemp("observed"), window, starts_s, busy((1, 2, 3, 1, 1.5, 5)))
    run.update_info(started=run.info.started.replace(microsecond=700_000))  # shown as the second after it
    return run


@pytest.fixture
def lab(start_lab: Started, observed: Run) -> Lab:
    return start_lab(observed.path.parent)


def opened(lab: Lab, open_lab: OpenLab, observed: Run, query: str = "", **size: int) -> Page:
    page = open_lab(lab, f"/time/{observed.id}{query}", **size)
    page.wait(SHOWN)
    return page


def drag(page: Page, first: float, last: float) -> None:
    """Drags between two parts of the chart's width."""
    page.evaluate("document.querySelector('.u-over').scrollIntoView({block: 'center'})")
    r = page.evaluate("document.querySelector('.u-over').getBoundingClientRect().toJSON()")
    y = r["y"] + r["height"] / 2
    page.drag(r["x"] + first * r["width"], y, r["x"] + last * r["width"], y)


def windows(page: Page, number: int) -> None:
    """Waits until the tables are of this number of windows."""
    words = f"{number} whole window{'s' if number > 1 else ''}"
    page.wait(f"{SHOWN} && {LEAD}.includes({json.dumps(words)})")


def test_dragging_selects_whole_windows_and_the_address_and_tables_follow(
    lab: Lab, open_lab: OpenLab, observed: Run
) -> None:
    page = opened(lab, open_lab, observed)
    windows(page, 6)
    drag(page, 0.2, 0.45)  # in the second window and in the third
    windows(page, 2)
    address = page.evaluate("location.search")
    assert address.startswith("?from=20") and "&to=20" in address
    assert page.evaluate(SHAPE) == pytest.approx([1 / 6, 2 / 6], abs=0.02)
    table = page.evaluate("document.querySelector('#profile table').innerText")
    page.evaluate("delete document.documentElement.dataset.shown")
    page.open(page.evaluate("location.href"))  # the address describes the view
    windows(page, 2)
    assert page.evaluate("document.querySelector('#profile table').innerText") == table
    assert page.errors() == []


def test_back_and_forward_lead_through_the_spans(lab: Lab, open_lab: OpenLab, observed: Run) -> None:
    page = opened(lab, open_lab, observed)
    drag(page, 0.2, 0.45)
    windows(page, 2)
    drag(page, 0.55, 0.95)
    windows(page, 3)
    page.evaluate("history.back()")
    windows(page, 2)
    page.evaluate("history.back()")
    windows(page, 6)
    assert page.evaluate("document.querySelector('.picked').hidden")
    page.evaluate("history.forward()")
    windows(page, 2)
    assert page.errors() == []


def test_keys_select_move_both_ends_and_clear(lab: Lab, open_lab: OpenLab, observed: Run) -> None:
    page = opened(lab, open_lab, observed)
    page.evaluate("document.querySelector('.timeline .plot').focus()")
    page.press("ArrowRight")
    windows(page, 1)
    page.press("ArrowRight")
    windows(page, 2)
    page.press("Space")
    page.press("ArrowLeft", shift=True)
    windows(page, 4)
    selected = page.evaluate("document.querySelector('.timeline .state').innerText")
    typed = page.evaluate(
        "['from', 'to'].map(n => document.getElementById('time-form').elements[n].value.padEnd(19, ':00'))"
    )
    assert selected == f"Selected: {typed[0].replace('T', ' ')} to {typed[1][11:]}"
    assert f"{typed[0][11:]} to {typed[1][11:]} " in page.evaluate(LEAD)
    page.press("Home")
    windows(page, 5)
    page.press("Escape")
    page.wait(f"{SHOWN} && location.search === ''")
    assert page.evaluate("document.querySelector('.timeline .state').innerText") == "No span selected"
    assert page.errors() == []


def test_keys_select_the_baseline_until_escape(lab: Lab, open_lab: OpenLab, observed: Run) -> None:
    page = opened(lab, open_lab, observed)
    drag(page, 0.55, 0.95)
    windows(page, 3)
    page.click("#time-other")  # the chart has the focus then
    page.press("ArrowLeft")
    page.wait(f"{LEAD}.startsWith('A: ') && {LEAD}.includes('3 whole windows')")
    page.press("ArrowRight")
    page.wait(f"{LEAD}.includes('2 whole windows')")
    assert page.evaluate("document.querySelector('#time-other').ariaPressed") == "true"
    page.press("Escape")
    assert page.evaluate("document.querySelector('#time-other').ariaPressed") == "false"
    page.press("ArrowLeft")
    page.wait(
        "Array.from(document.querySelectorAll('main > p.lead'))[1].innerText.includes('2 whole windows')"
    )
    assert page.evaluate("document.querySelector('#time-status').innerText") == ""
    assert page.errors() == []


def test_the_baseline_is_dragged_beside_the_span_without_moving_it(
    lab: Lab, open_lab: OpenLab, observed: Run
) -> None:
    page = opened(lab, open_lab, observed)
    drag(page, 0.55, 0.95)
    windows(page, 3)
    b = page.evaluate("location.search")
    page.click("#time-other")
    drag(page, 0.498, 0.05)  # begins within the reach of B's begin
    page.wait(f"{SHOWN} && {LEAD}.startsWith('A: ')")
    assert page.evaluate("location.search").startswith(f"{b}&against=span")
    assert page.evaluate("document.querySelector('#time-status').innerText") == ""
    page.click("#time-other")
    drag(page, 0.6, 0.05)
    page.wait(f"{SHOWN} && document.querySelector('#time-status').innerText.includes('A and B overlap')")
    assert page.errors() == []


def test_a_second_span_is_compared_and_the_baseline_is_marked(
    lab: Lab, open_lab: OpenLab, observed: Run
) -> None:
    page = opened(lab, open_lab, observed)
    drag(page, 0.55, 0.95)
    windows(page, 3)
    page.click("#time-other")
    drag(page, 0.05, 0.4)
    page.wait(f"{SHOWN} && location.search.includes('against=span')")
    page.wait("document.querySelector('#changed-events table') !== null")
    assert "A: " in page.evaluate(LEAD)
    assert not page.evaluate("document.querySelector('.picked.other').hidden")
    assert page.evaluate(LETTERS) == ['"A"', '"B"']
    assert page.evaluate(SIDES) == [["A", "side-a"], ["B", "side-b"]]
    page.click("#time-all")
    windows(page, 6)
    drag(page, 0.55, 0.95)
    windows(page, 3)
    assert page.evaluate(LETTERS)[1] == '""'  # a span that is compared with nothing has no letter
    assert page.evaluate("document.querySelector('#time-other').ariaPressed") == "false"
    assert page.errors() == []


def test_a_section_that_takes_long_is_read_when_it_is_opened_and_follows_the_span(
    lab: Lab, open_lab: OpenLab, observed: Run
) -> None:
    page = opened(lab, open_lab, observed)
    page.evaluate("document.querySelector('#waits').open = true")
    page.wait("document.querySelector('#waits table') !== null")
    first = page.evaluate("document.querySelector('#waits table').innerText")
    drag(page, 0.05, 0.1)
    windows(page, 1)
    page.wait("document.querySelector('#waits[open] table') !== null")
    assert page.evaluate("document.querySelector('#waits table').innerText") != first
    assert page.errors() == []


def test_a_saved_page_needs_no_server_and_its_chart_can_be_zoomed(
    lab: Lab, open_lab: OpenLab, open_page: Open, observed: Run, tmp_path: Path
) -> None:
    page = opened(lab, open_lab, observed)
    drag(page, 0.2, 0.45)
    windows(page, 2)
    saved = lab.enter().ask(page.evaluate("location.pathname + document.querySelector('a.keep').search"))
    assert saved.headers["content-disposition"].startswith("attachment")
    (tmp_path / "saved.html").write_text(saved.text)
    alone = open_page(tmp_path / "saved.html")
    assert "2 whole windows" in alone.evaluate(LEAD)
    assert alone.evaluate("document.querySelector('#waits table') !== null")  # without a server to ask
    before = alone.evaluate("document.querySelector('.timeline canvas').toDataURL()")
    alone.click("#time-in")
    alone.wait(f"document.querySelector('.timeline canvas').toDataURL() !== {json.dumps(before)}")
    drag(alone, 0.6, 0.9)
    assert alone.evaluate(SHAPE) == pytest.approx([0, 1], abs=0.02)  # the span of the tables stays
    assert alone.requests() == [(tmp_path / "saved.html").as_uri()] and alone.errors() == []


def test_a_span_of_snapshots_is_in_the_address_too(open_lab: OpenLab, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    for n in range(7):
        store.add(snapshot(10 * n, {"databases": [{"database": "app", "active_ns": n * n * 10**9}]}))
    page = open_lab(tmp_path / "store", "/snapshots")
    page.wait("document.querySelector('.timeline canvas') !== null")
    drag(page, 0.2, 0.45)
    page.wait("location.search.includes('from=2026-11-01T00%3A10%3A00Z&to=2026-11-01T00%3A30%3A00Z')")
    page.wait("document.querySelector('h1')?.innerText.startsWith('2026-11-01 00:10:00 to 00:30:00')")
    page.wait("document.querySelector('.picked:not(.other)')?.offsetWidth > 50")
    page.evaluate("document.querySelector('.timeline .plot').focus()")
    for minute in (40, 50):  # the chart has the focus again in the page that is loaded
        page.press("ArrowRight")
        page.wait(f"location.search.includes('to=2026-11-01T00%3A{minute}')")
        page.wait("document.activeElement?.matches('.timeline .plot')")
    page.evaluate("delete document.documentElement.dataset.shown")
    page.evaluate("""(s => { s.value = '1d'; s.dispatchEvent(new Event('change')); })(
        document.querySelector('#time-form select'))""")
    page.wait(f"{SHOWN} && document.querySelector('#time-status').innerText.includes('No two snapshots')")
    assert page.evaluate("document.querySelector('h1').innerText").startswith("2026-11-01 00:10:00 to 00:50")
    assert "400" in page.errors()[0] and len(page.errors()) == 1


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_it_without_scrolling_sideways(
    lab: Lab, open_lab: OpenLab, observed: Run, dark: bool
) -> None:
    page = opened(lab, open_lab, observed, "?against=1h", width=390, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") == 390 and page.evaluate(TOO_WIDE) == []
    assert page.evaluate("document.querySelector('.timeline canvas').offsetWidth") > 250
    assert page.errors() == [] or "400" in page.errors()[0]


def test_without_its_code_the_chart_says_how_to_get_it(
    lab: Lab, open_lab: OpenLab, observed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbdyno.web.shell.bundled", lambda _: "")
    page = opened(lab, open_lab, observed)
    assert "bundle_charts.py" in page.evaluate("document.querySelector('.timeline').innerText")
    assert page.evaluate("document.querySelector('#profile table') !== null") and page.errors() == []
