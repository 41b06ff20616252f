"""A Chromium for all tests of this folder. Pages are opened without a network; only 127.0.0.1 is reached."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))  # report_results

from chromium import Chromium, Page
from tests.web.conftest import (  # noqa: F401  fixtures
    Lab,
    Started,
    model_run,
    start_lab,
    store_of_runs,
)

Open = Callable[..., Page]
OpenLab = Callable[..., Page]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None and os.environ.get("CI"):
        pytest.fail("no Chromium here: apt-get install chromium")
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    started = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def open_page(browser: Chromium) -> Iterator[Open]:
    """Opens a report and waits until its charts are drawn."""
    pages: list[Page] = []

    def opened(path: Path, *, width: int = 1280, dark: bool = False) -> Page:
        page = browser.page(width=width, height=900, dark=dark)
        pages.append(page)
        page.open(path.as_uri())
        page.wait("document.documentElement?.dataset.ready === 'yes'")
        return page

    yield opened
    for page in pages:
        browser.done(page)


@pytest.fixture
def open_lab(browser: Chromium, start_lab: Started) -> Iterator[OpenLab]:  # noqa: F811
    """Opens a page of a lab over a store, or of a lab that runs, and waits until its charts are drawn.

    The browser is let in by the address that the lab printed.
    """
    pages: list[Page] = []

    def opened(lab: Lab | Path, path: str = "/", *, width: int = 1280, dark: bool = False) -> Page:
        running = start_lab(lab) if isinstance(lab, Path) else lab
        page = browser.page(width=width, height=900, dark=dark)
        pages.append(page)
        page.open(running.printed[-1])
        page.wait(f"location.origin === '{running.address.url}' && location.search === ''")
        page.open(running.address.url + path)
        page.wait("document.documentElement?.dataset.ready === 'yes'")
        return page

    yield opened
    for page in pages:
        page.close()  # it may still speak to its lab
