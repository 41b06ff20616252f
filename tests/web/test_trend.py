"""A figure over the runs of the store: the document of ``dbdyno trend`` with the address's options."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.web.shell import file_name
from tests.stored_runs import copied_run
from tests.web.conftest import Lab, Started


@pytest.fixture
def lab(start_lab: Started, store_of_runs: Path, model_run: Path) -> Lab:
    for day in range(4, 8):
        copied_run(store_of_runs, model_run, f"2026010{day}-100000-lio-000{day}", tags=["b"])
    return start_lab(store_of_runs).enter()


def test_the_page_is_that_of_the_command(lab: Lab) -> None:
    page = lab.ask("/trend?figure=mean&sessions=1&tag=b").text
    words = ["trend", "--figure", "mean", "--sessions", "1", "--tag", "b", "--store", str(lab.store)]
    title = CliRunner().invoke(app, words).output.splitlines()[0]
    assert "at 1 session: 4 runs" in title and f"<h1>{title}</h1>" in page
    assert '<option value="mean" selected>' in page and '<option value="b" selected>' in page
    for place in ("20260104-100000-lio-0004", 'id="trend"', 'href="/trend" aria-current="page"'):
        assert place in page
    assert "<form" not in lab.ask("/trend?save=1").text


def test_the_words_of_the_list_choose_runs(lab: Lab) -> None:
    assert "at the peak: 7 runs" in lab.ask("/trend").text
    assert "at the peak: 1 run " in lab.ask("/trend?q=NIGHTLY+lio").text


def test_without_a_workload_that_of_the_newest_run_that_matches_is_taken(lab: Lab, model_run: Path) -> None:
    other = copied_run(lab.store, model_run, "20260108-100000-cpu-0008") / "plan.json"
    plan = json.loads(other.read_text())
    other.write_text(json.dumps(plan | {"experiment": {**plan["experiment"], "workload": "cpu"}}))
    assert "of lio at the peak: 4 runs" in lab.ask("/trend?tag=b").text
    assert "of lio at the peak: 7 runs" in lab.ask("/trend?workload=lio").text
    page = lab.ask("/trend?figure=throughput").text
    assert "at the peak: 1 run " in page and "so this is cpu, the newest run's" in html.unescape(page)
    assert 'href="/trend?figure=throughput&amp;workload=cpu"' in page
    assert "so this is" not in lab.ask("/trend?workload=lio").text
    assert (
        "so this is" in lab.ask("/trend?save=1").text and 'href="/trend' not in lab.ask("/trend?save=1").text
    )


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Throughput of lio: 1 run", "Throughput-of-lio-1-run.html"),
        ("x" * 20 + " " + "y" * 59 + " z", "x" * 20 + "-" + "y" * 59 + ".html"),
        ("x" * 20 + " " + "y" * 60, "x" * 20 + ".html"),
        ("x" * 90, "x" * 80 + ".html"),
        ("\u2026/..", "dbdyno.html"),
    ],
)
def test_the_name_of_a_saved_page_ends_with_a_word(title: str, name: str) -> None:
    assert file_name(title) == name


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("figure=p9", "no figure"),
        ("sessions=0", "no number"),
        ("sessions=9&figure=mean", "not measured at 9 sessions"),
        ("workload=%3Cb%3E", "no run of workload"),
        ("since=yesterday", "yesterday"),
        ("of=table&object=orders", "a figure needs at least two"),
        ("of=nothing&object=x", "no kind of object"),
        ("of=table", "no table is named"),
    ],
)
def test_a_question_without_an_answer_says_why_beside_its_form(lab: Lab, query: str, words: str) -> None:
    answer = lab.ask(f"/trend?{query}")
    assert answer.status == 400 and words in answer.text and "<form" in answer.text
    assert "<b>" not in answer.text
