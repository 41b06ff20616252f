"""Pages of every kind, made from the stored runs of the corpus: none is wider than its window or its paper,
each has the switch of colours."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from test_report_page import TOO_WIDE, Open
from tests.in_process import dbdyno

pytestmark = pytest.mark.browser
CORPUS = Path(__file__).parents[1] / "golden" / "corpus"
PAGES = {
    "simulated": ("report", "simulated"),
    "ladder": ("report", "ladder"),
    "variants": ("report", "variants"),
    "paced": ("report", "paced"),
    "phases": ("report", "phases"),
    "scripts": ("report", "scripts"),
    "commands": ("report", "commands"),
    "jobs": ("report", "jobs"),
    "observation": ("report", "observation"),
    "two-runs": ("compare", "ladder", "cluster"),
    "interval": ("report", "before", "after"),
    "two-intervals": ("compare", "before..after", "after..later"),
    "analysis": ("analyze", str(CORPUS / "foreign.csv"), "--predict", "48"),
}
OUTSIDE_TABLES = """Array.from(document.querySelectorAll('table')).filter(t =>
  t.getBoundingClientRect().right > t.parentElement.getBoundingClientRect().right + 1 &&
  !t.closest('details:not([open])')).map(t => (t.caption || t).textContent.slice(0, 60))"""
WIDE = TOO_WIDE.replace('".scroll', '"svg *, .scroll')
"""As TOO_WIDE, without what lies within a chart, which shows nothing beyond its own edges."""
WIDE_ON_A_PHONE = WIDE.replace('"svg', '".intervals, svg')
"""Without the plot of intervals, too, which scrolls in its own box."""
COLOUR = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("store")
    with tarfile.open(CORPUS / "runs.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_screen_and_a_phone_and_turns_its_colours(
    store: Path, tmp_path: Path, open_page: Open, name: str
) -> None:
    path = tmp_path / "page.html"
    words = (*PAGES[name], "-o", str(path), *([] if name == "analysis" else [f"--store={store}"]))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DBDYNO_CONFIG": "", "TZ": "UTC"}
    written = dbdyno(words, env, tmp_path)
    assert written.returncode == 0, written.stderr
    page = open_page(path, width=390)
    assert page.evaluate(WIDE_ON_A_PHONE) == []
    page.show(width=1280, height=900, dark=False)
    page.wait(f"innerWidth === 1280 && {WIDE}.length === 0")  # charts are drawn anew after a while
    page.wait(f"{OUTSIDE_TABLES}.length === 0")
    light = page.evaluate(COLOUR)
    page.evaluate("document.querySelector('#theme').click()")
    page.wait(f"{COLOUR} !== {light!r}")
    assert page.printed()[1] == []
    assert page.errors() == []
