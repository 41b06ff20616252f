"""The report between two snapshots in a real browser: one selector for all, and nothing overflows."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_report_page import TOO_WIDE, Open
from tests.unit.snapshot_cases import DATABASES, story

from dbdyno import present
from dbdyno.account.snapshot_figures import figures
from dbdyno.account.snapshots import interval
from dbdyno.conclude.snapshots.snapshots import claims, unused

pytestmark = pytest.mark.browser
SHOWN = (
    """Array.from(document.querySelectorAll('.choice .of')).filter(d => !d.hidden).map(d => d.dataset.pick)"""
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    of_interval = figures(interval(*story()))
    shown = present.interval(of_interval, claims(of_interval), unused(of_interval))
    return present.write(shown, tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_snapshot_page_fits_and_one_selector_shows_a_database(
    report: Path, open_page: Open, width: int
) -> None:
    page = open_page(report, width=width)
    assert page.errors() == []
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate(SHOWN) == ["all", "all"]
    page.evaluate(
        f"(s => {{ s.value = {DATABASES[1]!r}; s.dispatchEvent(new Event('change')); }})"
        "(document.querySelector('#pick'))"
    )
    assert page.evaluate(SHOWN)[0] == DATABASES[1]
    assert page.evaluate("document.querySelectorAll('nav ol a').length") >= 12
    assert page.evaluate("document.documentElement.innerText.includes('<script>alert(')")
