"""The flame graph in a real browser: zoom, search, keys, an icicle on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import Page
from tests.unit.cli import test_off_cpu as asleep
from tests.unit.conduct import test_cpu_profile_shown as profile_shown

from dbdyno import present

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
FRAMES = "Array.from(document.querySelectorAll('.frames > div'))"
TEXTS = f"{FRAMES}.map(f => f.textContent)"
HITS = "Array.from(document.querySelectorAll('.frames > .hit')).map(f => f.textContent)"
FOCUSED = "document.activeElement.textContent"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return present.write_flame(profile_shown.made(), tmp_path_factory.mktemp("flame") / "flame.html")


@pytest.fixture
def page(open_page: Open, path: Path) -> Page:
    return open_page(path)


def width(page: Page, name: str) -> float:
    return float(
        page.evaluate(f"{FRAMES}.find(f => f.textContent === '{name}').getBoundingClientRect().width")
    )


def top(page: Page, name: str) -> float:
    return float(page.evaluate(f"{FRAMES}.find(f => f.textContent === '{name}').getBoundingClientRect().top"))


def click(page: Page, name: str) -> None:
    page.evaluate(f"{FRAMES}.find(f => f.textContent === '{name}').click()")


def key(page: Page, name: str) -> None:
    options = f"{{key: '{name}', bubbles: true, cancelable: true}}"
    page.evaluate(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {options}))")


def test_frames_are_as_wide_as_their_time_and_stand_on_their_callers(page: Page):
    whole = width(page, "all")
    assert width(page, "ExecScan") == pytest.approx(whole, rel=0.01)
    assert width(page, "LWLockAttemptLock") == pytest.approx(0.178 * whole, rel=0.05)
    assert top(page, "all") > top(page, "main") > top(page, "ExecScan") > top(page, "LWLockAttemptLock")
    assert page.errors() == [] and all(r.startswith("file:") for r in page.requests())


def test_a_click_zooms_and_the_button_shows_all_again(page: Page):
    whole = width(page, "all")
    click(page, "LWLockAttemptLock")
    assert width(page, "LWLockAttemptLock") == pytest.approx(whole, rel=0.01)
    assert "memcpy" not in page.evaluate(TEXTS)
    page.evaluate("document.querySelector('.flame .tools button').click()")
    assert "memcpy" in page.evaluate(TEXTS)


def test_search_marks_frames_and_says_their_share(page: Page):
    page.evaluate(
        "(function () { var s = document.querySelector('.flame input'); s.value = 'EXT4';"
        "s.dispatchEvent(new Event('input')); })()"
    )
    assert page.evaluate(HITS) == ["ext4_file_read_iter"]
    assert page.evaluate("document.querySelector('.flame output').textContent") == "matched: 25 %"


def test_every_frame_can_be_reached_with_keys(page: Page):
    page.evaluate(f"{FRAMES}.find(f => f.tabIndex === 0).focus()")
    assert page.evaluate(FOCUSED) == "all"
    for name in ("main", "ExecScan"):
        key(page, "ArrowUp")
        assert page.evaluate(FOCUSED) == name
    key(page, "ArrowUp")
    first = page.evaluate(FOCUSED)
    key(page, "Enter")
    assert width(page, first) == pytest.approx(width(page, "all"), rel=0.01)
    assert page.evaluate(FOCUSED) == first
    key(page, "Escape")
    assert width(page, first) < width(page, "all")
    key(page, "ArrowDown")
    assert page.evaluate(FOCUSED) == "ExecScan"
    key(page, "/")
    assert page.evaluate("document.activeElement.type") == "search"
    text = "document.querySelector('.flame .frame').textContent"
    assert "ExecScan" in page.evaluate(text) and "ns per LIO" in page.evaluate(text)


def test_a_flame_graph_is_an_icicle_on_a_phone(open_page: Open, path: Path):
    page = open_page(path, width=390)
    assert top(page, "all") < top(page, "main") < top(page, "ExecScan")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.errors() == []


def test_stacks_of_sleep_stand_on_their_wait_event(open_page: Open, tmp_path: Path):
    page = open_page(present.write_flame(asleep.made(), tmp_path / "asleep.html", off_cpu=True))
    whole = width(page, "all")
    assert width(page, "IO/DataFileRead") == pytest.approx(whole, rel=0.01)
    assert width(page, "WaitLong") == pytest.approx(0.7 * whole, rel=0.05)
    assert top(page, "all") > top(page, "IO/DataFileRead") > top(page, "main") > top(page, "WaitLong")
    assert page.errors() == []
