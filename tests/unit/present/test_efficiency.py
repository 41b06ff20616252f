"""Efficiency is one figure with one doubt, in the table, the key figures and the chart."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results
from tests.unit.conclude.test_scaling_laws import ladder_of
from tests.unit.report_results import World
from tests.unit.shown import as_text

from dbdyno.conclude.scaled import scaled
from dbdyno.model.plan.adaptive import Adaptive
from dbdyno.model.results.results import Results
from dbdyno.present import report
from dbdyno.present.document.document import Paragraph, Table
from dbdyno.present.figures import efficiency, figures
from dbdyno.present.figures.targets import Targets
from dbdyno.present.run import charts, rungs
from dbdyno.present.run.key_figures import key_figures
from dbdyno.present.scaling import scaling_document


def _tile(results: Results) -> str:
    figure = next(f for f in key_figures(results, Targets(results, ())) if f.name.startswith("Sessions"))
    return figure.note


def _column(results: Results) -> list[str]:
    (table,) = (b for b in rungs.tables(results) if isinstance(b, Table))
    at = next(n for n, c in enumerate(table.columns) if c.head == "eff%")
    return [r.cells[at].text for r in table.rows]


def _remarks(results: Results) -> str:
    return " ".join(b.text for b in rungs.tables(results) if isinstance(b, Paragraph))


def _with_scaling(results: Results, scaling: list[float]) -> Results:
    frame = results.tables["rungs"].with_columns(scaling=pl.Series(scaling))
    loads = frame["sessions"].to_list()
    known = scaled(ladder_of(loads, [100.0 * n * s for n, s in zip(loads, scaling, strict=True)]))
    ladder = replace(known.ladder, workload="lio", variant="base")
    tables = {**results.tables, "rungs": frame}
    return replace(results, tables=tables, scaling=(replace(known, ladder=ladder),))


def test_a_disturbed_load_marks_table_and_key_figure_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "disturbed_loads", lambda *_: {1})
    results = report_results.results(World(rungs=(1, 2)))
    assert all(text.endswith("?") for text in _column(results))
    assert "? %: uncertain, because the machine was not quiet" in _tile(results)
    assert "? after an efficiency: uncertain, because the machine was not quiet." in _remarks(results)
    assert report.document(results).figures[0].name == "Peak throughput, at least"


@pytest.mark.parametrize(("highest", "doubtful"), [(1.49, True), (1.01, False)])
def test_an_efficiency_above_one_beyond_noise_is_doubted_and_the_reason_given(
    highest: float, *, doubtful: bool
) -> None:
    results = _with_scaling(report_results.results(World(rungs=(1, 2, 4))), [1.0, 0.98, highest])
    mark = "?" if doubtful else ""
    assert _column(results) == ["100", "98", f"{100 * highest:.0f}{mark}"]
    assert ("? after an efficiency: above 100 %" in _remarks(results)) == doubtful
    series = figures.series_of(results)[0]
    rung = figures.ladder(results, series).to_dicts()[-1]
    assert bool(efficiency.of_ladder(results, series)(rung).why) == doubtful


def test_one_load_has_no_efficiency_and_no_line_of_perfect_scaling() -> None:
    results = report_results.results(World(rungs=(4,)))
    series = figures.series_of(results)
    assert efficiency.reference(results, series[0]) is None and _tile(results) == ""
    drawn = charts.throughput(results, series)
    assert drawn is not None and "perfect scaling" not in str(drawn.legend) + drawn.caption + str(drawn.spec)
    heads = [c.head for c in rungs.running("LIO", results=results)[0]]
    assert "eff%" not in heads
    assert "fficiency" not in as_text(report.brief(results), 100)


def test_a_load_that_the_client_limited_is_compared_with_nothing() -> None:
    """The first of two or three loads is left out: of two none remains to compare with."""
    for loads, shown in (((1, 2), None), ((1, 2, 4), ["", "100", "90"])):
        results = report_results.results(World(rungs=loads))
        first = pl.col("sessions") == 1
        status = pl.when(first).then(pl.lit("client")).otherwise("status").alias("status")
        scaling = pl.Series("scaling", [1.7, 1.0, 0.9][: len(loads)])
        frame = results.tables["rungs"].with_columns(status, scaling)
        results = replace(results, tables={**results.tables, "rungs": frame})
        if shown is None:
            assert "fficiency" not in _remarks(results) + _tile(results)
        else:
            assert _column(results) == shown
            assert "from 2 sessions on" in _remarks(results)


def test_lines_of_a_ladder_that_goes_on_have_an_efficiency() -> None:
    results = report_results.results(World(rungs=(1,)))
    more = report_results.results(World(rungs=(1, 2)))
    auto = results.plan.model_copy(update={"adaptive": Adaptive(top=8, most_rungs=16, near=4, repeats=1)})
    for plan in (more.plan, auto):
        heads = [c.head for c in rungs.running("LIO", results=replace(results, plan=plan))[0]]
        assert "eff%" in heads


def test_a_ladder_without_one_session_names_the_load_it_refers_to() -> None:
    results = report_results.results(World(rungs=(2, 4)))
    assert "Efficiency: of perfect scaling from 2 sessions on." in _remarks(results)
    assert _tile(results).endswith("% against 2 sessions")
    drawn = charts.throughput(results, figures.series_of(results))
    assert drawn is not None and "perfect scaling from 2 sessions" in str(drawn.legend)
    alone = report_results.results(World(rungs=(1, 4)))
    assert "Efficiency: of perfect scaling." in _remarks(alone) and "against" not in _tile(alone)


def test_an_analysis_that_refers_to_another_load_says_so_and_so_does_the_table() -> None:
    results = _with_scaling(report_results.results(World(rungs=(1, 2, 4, 8))), [1.0, 1.6, 1.5, 1.2])
    (scaling,) = results.scaling
    means = scaling.residuals.group_by("load").agg(pl.col("efficiency").mean())
    first = means.filter((pl.col("efficiency") - 1).abs() < 1e-9)["load"].to_list()
    assert first == [2]
    assert scaling_document.measured(scaling).title.endswith("; efficiency against 2 sessions")
    assert "from 1 session on (the analysis of scaling refers to 2 sessions)." in _remarks(results)


def test_lines_mark_what_is_preliminary() -> None:
    results = report_results.results(World(rungs=(1, 2)))
    columns, line = rungs.running("LIO", results=results)
    at = next(n for n, c in enumerate(columns) if c.head == "sleep%")
    row = results.tables["rungs"].row(0, named=True) | {"sleep_aas": 0.5}
    assert line(row).cells[at].text == "50"
    assert line(row | {"preliminary": True}).cells[at].text == "~50"


def test_a_rate_has_the_same_digits_in_the_table_as_in_sentences_and_key_figures() -> None:
    """Five repeats that vary by a tenth."""
    results = report_results.results(World(rungs=(1, 2, 4), repeats=5))
    frame = results.tables["rungs"].with_columns(
        calls_per_s=pl.Series([1851.0, 1849.0, 1700.0]),
        calls_per_s_low=pl.lit(1500.0),
        calls_per_s_high=pl.lit(2200.0),
    )
    (table, *_) = rungs.tables(replace(results, tables={**results.tables, "rungs": frame}))
    assert isinstance(table, Table)
    at = next(n for n, c in enumerate(table.columns) if c.head == "calls/s")
    assert [r.cells[at].text for r in table.rows] == ["1.85 k", "1.85 k", "1.70 k"]


def test_each_tile_of_several_variants_names_its_load_and_its_variant() -> None:
    results = report_results.results(report_results.REPEATED)
    peak, *others = key_figures(results, Targets(results, ()))
    assert peak.name.endswith("(base)") and peak.note.startswith("at ")
    assert all("(base)" in f.name for f in others)
    assert all("session" in f.name.lower() for f in others)
