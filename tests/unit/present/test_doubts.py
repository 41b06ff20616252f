"""Doubts about a headline stand above it in every medium; names and labels fit their figures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit import report_results
from tests.unit.shown import as_html, as_text

from dbdyno import present
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.scaled import scalings_of
from dbdyno.model.plan.plan import Adaptive
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.plan import Findings, Seen
from dbdyno.plan.adaptive import knee_found
from dbdyno.present import report
from dbdyno.present.document.document import Chart, Column, Paragraph, Row, Table, walk, word
from dbdyno.present.figures import headline, jsondoc
from dbdyno.present.media import markdown
from dbdyno.stats.estimates import Mean
from dbdyno.stats.knee import level_with_best, noise_or_scatter


def _with_others(used: float) -> Results:
    """A run on 8 CPUs of which other processes used ``used``."""
    results = report_results.results()
    values = {"used": used, "place": "at 8 sessions", "measurements": "4 measurements", "who": ""}
    return replace(results, findings=(claim("foreign-load", values, used, case="run"), *results.findings))


@pytest.mark.parametrize(("used", "doubtful"), [(1.7, True), (0.15, False)])
def test_cpu_that_others_used_stands_above_a_headline_that_is_no_assertion(
    used: float, doubtful: bool
) -> None:
    results = _with_others(used)
    asserted = [p.text for p in report.lead(results) if p.lead]
    assert bool(asserted) != doubtful
    document = jsondoc.document(results)
    assert bool(document["doubts"]) == doubtful
    assert [*document].index("doubts") < [*document].index("summary")
    first = document["summary"][0].split(".")[0]
    shown = (
        as_text(report.document(results), 160),
        as_text(present.report.brief(results), 160),
        as_html(report.document(results).lead),
        markdown.page(report.document(results)),
    )
    for text in shown:
        above = " ".join(text.partition(first[:30])[0].split())
        assert ("Other processes used" in above) == doubtful
        assert ("may be wrong" in above) == doubtful


def test_a_doubt_is_about_measurements_that_the_answer_rests_on() -> None:
    """Of 30 measurements two are fewer than a tenth; they are a tenth of an answer that rests on ten."""
    results = report_results.results(report_results.World(rungs=(1, 2, 4), repeats=10))
    cells = results.tables["windows"]["cell"].to_list()
    values = {"used": 1.7, "place": "at 1 session", "measurements": "2 measurements", "who": ""}
    others = claim("foreign-load", values, 1.7, case="run", cells=cells[:2])
    with_others = replace(results, findings=(others, *results.findings))
    assert headline.doubts(with_others) == []
    everywhere = others.model_copy(update={"cells": tuple(cells[:3])})
    assert headline.doubts(replace(results, findings=(everywhere,))) == [everywhere]
    for rests_on, doubtful in ((cells[:10], True), (cells[10:], False)):
        reply = Claim(id="peak", text="Peak.", cells=tuple(rests_on))
        assert bool(headline.doubts(replace(with_others, reply=(reply,)))) == doubtful


def test_no_axis_has_an_si_prefix_below_one() -> None:
    """d3 writes 0.9 with the bare format ``~s`` as 900m."""
    results = report_results.results()
    charts = [b for b in walk(report.document(results).blocks) if isinstance(b, Chart)]
    assert len(charts) > 5
    for chart in charts:
        text = json.dumps(chart.spec)
        assert not [part for part in text.split('"format": "')[1:] if part.split('"')[0].endswith("s")]


def test_time_of_a_unit_of_work_has_its_own_name() -> None:
    """Response times are of calls: what a call takes over the LIO that it does is none."""
    scaling = scalings_of(report_results.results())[0]
    assert scaling.ladder.time_name == "time per LIO"
    shown = present.scaling((scaling,))
    text = as_text(shown, 200)
    assert "time per LIO" in text and "esponse time" not in text
    charts = [b for b in walk(shown.blocks) if isinstance(b, Chart)]
    (time,) = (c for c in charts if c.id.endswith("response-model"))
    assert time.title == "Time per LIO" and "time per LIO, " in json.dumps(time.spec)
    texts = [b.text for b in walk(shown.blocks) if isinstance(b, Paragraph)]
    assert not [t for t in texts if "esponse time" in t]


def test_an_auto_ladder_and_the_headline_agree_on_what_is_below_the_peak() -> None:
    """The last of these loads has 79 % of the peak, which is within their scatter."""
    values = [100.0, 70.0, 110.0, 80.0, 120.0, 85.0, 115.0, 95.0]
    means = {n: Mean(1, x) for n, x in enumerate(values, 1)}
    assert 8 in level_with_best(means, noise_or_scatter(means).share)
    rule = Adaptive(top=8, most_rungs=16, near=4, repeats=1)
    seen = tuple(Seen(n, x, figure=None) for n, x in enumerate(values, 1))
    assert "falls" not in knee_found(Findings(rule, seen)).parts
    sure = tuple(Seen(n, x, figure=None) for n, x in enumerate([100, 200, 300, 400, 400, 380, 350, 300], 1))
    assert "falls" in knee_found(Findings(rule, sure)).parts


def test_a_source_that_all_rows_have_stands_in_the_caption() -> None:
    columns = (Column("event"), Column("source"))
    same = Table("Events", columns, [Row([word(n), word("sampled")]) for n in "ab"])
    shown = same.shown(sketches=False)
    assert (shown.title, [c.head for c in shown.columns]) == ("Events; source: sampled", ["event"])
    other = Table("Events", columns, [Row([word(n), word(n)]) for n in "ab"]).shown(sketches=False)
    assert (other.title, len(other.columns)) == ("Events", 2)
