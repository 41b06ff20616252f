"""A Chromium for all tests of this folder. Pages are opened without a network."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))  # report_results

from chromium import Chromium, Page

Open = Callable[..., Page]
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
