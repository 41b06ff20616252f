"""Comparisons in the browser: the documents of ``dbdyno compare``, described by their addresses."""

from __future__ import annotations

import html
import re
import tarfile
from pathlib import Path
from urllib.parse import urlencode

import pytest

from dbdyno import conduct, present
from dbdyno.conclude.compare import Options
from dbdyno.store import RunStore, SnapshotStore
from tests.web.conftest import Lab, Started

CORPUS = Path(__file__).parents[1] / "golden" / "corpus" / "runs.tar.xz"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("store")
    with tarfile.open(CORPUS) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def runs(start_lab: Started, store_of_runs: Path) -> Lab:
    return start_lab(store_of_runs).enter()


@pytest.fixture
def others(start_lab: Started, corpus: Path) -> Lab:
    return start_lab(corpus).enter()


def ask(lab: Lab, *asked: tuple[str, str]) -> str:
    answer = lab.ask(f"/compare?{urlencode(asked)}")
    assert answer.status == 200, answer.text
    return answer.text


def texts(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", page.partition("<main")[0] + page.partition("<main")[2]))


def test_two_runs_have_the_verdicts_of_the_command(runs: Lab) -> None:
    store = RunStore(runs.store)
    one, two = store.open("last~2"), store.open("nightly")
    wanted = present.comparison(*conduct.compared_runs(store, one, two, Options()))
    page = ask(runs, ("run", one.id), ("run", two.id))
    assert f"<h1>{html.escape(wanted.title)}</h1>" in page
    for paragraph in wanted.lead:
        assert paragraph.text in texts(page)
    saved = runs.ask(f"/compare?run={one.id}&run={two.id}&save=1").text
    assert "<form" not in saved and 'href="/' not in saved


def test_one_run_has_its_variants_and_the_options_of_the_address(others: Lab) -> None:
    page = ask(others, ("run", "variants"), ("margin", "40%"), ("metric", "p95"))
    assert "baseline default" in texts(page) and "within 40 %" in texts(page)
    assert 'value="40%"' in page and 'value="p95"' in page


def test_three_runs_are_compared_with_the_first(runs: Lab) -> None:
    page = ask(runs, ("run", "last~2"), ("run", "nightly"), ("run", "last"))
    assert page.count('id="pair-1"') == page.count('id="pair-2"') == 1
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert 'href="#pair-2"' in page


def test_two_intervals_between_snapshots_are_compared(others: Lab, corpus: Path) -> None:
    wanted = present.intervals(
        conduct.compared_intervals(SnapshotStore(corpus), "before..after", "after..later")
    )
    page = ask(others, ("interval", "before..after"), ("interval", "after..later"))
    assert f"<h1>{html.escape(wanted.title)}</h1>" in page


def test_without_runs_there_is_a_form_that_offers_them(runs: Lab) -> None:
    page = ask(runs)
    offered = page.partition("<datalist")[2]
    assert 'action="/compare"' in page and offered.count("<option") == 3


def test_each_field_has_a_label_of_its_own_and_runs_their_names(runs: Lab) -> None:
    page = ask(runs, ("run", "last~2"), ("run", "nightly"), ("run", "last"), ("metric", "calls_per_s"))
    form = page.partition("<form")[2].partition("</form>")[0]
    labels = re.findall(r"<label>([^<]*) <", form)
    assert labels[:4] == ["Baseline", "Compared", "Compared, run 2", "One more"]
    assert len(set(labels)) == len(labels)
    assert "nightly (20260102-100000-lio-0002)" in texts(page)
    assert re.search(r"<option [^>]*selected[^>]*>calls per second<", form)
    assert "variant" not in "".join(labels)


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("run=last&run=last", 400, "twice"),
        ("run=last&run=nothing", 404, "no run"),
        ("run=last~1&run=last&margin=2", 400, "no share"),
        ("run=last~1&run=last&sessions=x", 400, "no number of sessions"),
        ("run=last~1&run=last&metric=nothing", 400, "nothing"),
        ("run=last~1&run=last&baseline=base", 400, "--baseline"),
        ("interval=a..b", 400, "two intervals"),
        ("interval=a..b&interval=c..d", 409, "no snapshot"),
        ("&".join(["run=last"] * 9), 400, "more than 8"),
    ],
)
def test_what_cannot_be_compared_is_said(runs: Lab, query: str, status: int, words: str) -> None:
    answer = runs.ask(f"/compare?{query}")
    assert (answer.status, words in answer.text) == (status, True), answer.text[-600:]
