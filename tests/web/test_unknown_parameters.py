"""Parameters of an address that a page does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.conftest import Lab, Started


@pytest.fixture
def lab(start_lab: Started, store_of_runs: Path) -> Lab:
    return start_lab(store_of_runs).enter()


@pytest.mark.parametrize(
    ("path", "known"), [("/", "q, workload"), ("/compare", "run, interval"), ("/trend", "workload, name")]
)
def test_a_page_names_what_means_nothing_in_its_address(path: str, known: str, lab: Lab) -> None:
    page = lab.ask(f"{path}?find=observed&%3Cb%3E=1&theme=dark").text
    line = f"The address has find, &lt;b&gt;, which means nothing here; what it may have: {known}"
    assert line in page and "<b>" not in page


@pytest.mark.parametrize(
    "address",
    [
        "/?q=lio&workload=lio&status=complete&tag=a&sort=run&theme=dark",
        "/compare?run=last&run=last~1&margin=2%25&metric=calls_per_s&sessions=1&show=1",
        "/trend?workload=lio&figure=mean&sessions=1&tag=a&since=9999d&limit=5&name=nightly&save=1",
    ],
)
def test_a_page_knows_its_own_parameters(address: str, lab: Lab) -> None:
    assert "means nothing here" not in lab.ask(address).text
