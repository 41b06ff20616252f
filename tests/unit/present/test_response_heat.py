"""The heat map of response time: every call is in a cell, bands without calls are visible, 80 columns do."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from tests.fakery import S, climb

from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty, rows
from dbdyno.present.document.document import Chart, Table
from dbdyno.present.figures.selection import Pick, pick_at
from dbdyno.present.media import text
from dbdyno.present.run import response_heat

pytestmark = pytest.mark.queries


@pytest.fixture(scope="module")
def results() -> Results:
    """Calls of 10 ms, and one of 1 s in each session, every 3 s."""
    climbed = climb(
        "fake:cpus=4,cpu=10ms,trace=off,stalls=Lock/relation:1s/3s,checkpoint=4s+3s", [2], measure_ns=8 * S
    )
    return derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)


@pytest.fixture(scope="module")
def pick(results: Results) -> Pick:
    return pick_at(results, 2)


def _charts(results: Results, pick: Pick) -> dict[str, Chart]:
    charts = [b for b in response_heat.blocks(results, pick) if isinstance(b, Chart)]
    return {c.id.removeprefix(f"{pick.key}-"): c for c in charts}


def _rows(chart: Chart, layer: int) -> list[dict]:
    return chart.spec["datasets"][chart.spec["layer"][layer]["data"]["name"]]


def test_cells_hold_all_calls_and_charts_share_their_axis(results: Results, pick: Pick):
    charts = _charts(results, pick)
    assert list(charts) == ["heat", "heat-calls", "heat-activity"]
    cells = _rows(charts["heat"], 0)
    assert sum(c["calls"] for c in cells) == results.tables["response_heat"]["count"].sum()
    domains = [c.spec["layer"][0]["encoding"]["x"]["scale"]["domain"] for c in charts.values()]
    assert domains[0][1] >= 8 and domains == [domains[0]] * 3


def test_the_checkpointer_at_work_is_marked(results: Results, pick: Pick):
    chart = _charts(results, pick)["heat"]
    marks = _rows(chart, 1)
    assert {m["name"] for m in marks} == {"checkpointer"} and "checkpointer at work" in chart.caption


@pytest.mark.parametrize("most", [1, 2, 5, 6, 7, 100, 123_456])
def test_each_count_is_in_the_class_that_names_it(most: int):
    """The classes are written as ranges; these cover all counts from 1 to the highest, in order."""
    names = response_heat._classes(most)
    shades = [response_heat._shade(n, most, len(names)) for n in range(1, min(most, 2000) + 1)]
    assert shades[0] == 1 and shades == sorted(shades)
    assert response_heat._shade(most, most, len(names)) == len(names)
    for n, shade in enumerate(shades, 1):
        low, _, high = names[shade - 1].partition(" to ")
        if " " not in low + high:  # written in full
            assert int(low) <= n <= int(high or low), (n, names)


def test_a_sketch_has_lines_without_calls_between_modes(results: Results, pick: Pick):
    shown = response_heat.sketch(results, pick)
    table = shown[0]
    assert isinstance(table, Table)
    drawn = [row.cells[1].text.strip() for row in table.rows]
    assert drawn[0] and drawn[-1] and "" in drawn, "slow calls on top, none between"
    counts = [row.cells[2].value for row in table.rows]
    assert sum(counts) == results.tables["response_heat"]["count"].sum()
    assert all(len(line.text) <= 80 for line in text.lines(shown, 80))


def test_a_run_without_the_counts_says_so(results: Results, pick: Pick):
    names = ("response_heat", "activity_over_time", "response_modes", "mode_activities")
    older = replace(results, tables=dict(results.tables) | {n: empty(n) for n in names})
    assert response_heat.blocks(older, pick) == []
    (line,) = text.lines(response_heat.sketch(older, pick), 80)
    assert "not counted by second" in line.text


def test_long_windows_are_drawn_in_at_most_56_characters(results: Results, pick: Pick):
    cell = results.tables["response_heat"]["cell"][0]
    head = results.tables["response_heat"].filter(pl.col("cell") == cell).head(1)
    long = pl.concat(
        [head.with_columns(start_s=pl.lit(30.0 * n), end_s=pl.lit(30.0 * n + 30)) for n in range(120)]
    )
    table = response_heat.sketch(
        replace(results, tables=dict(results.tables) | {"response_heat": long}), pick
    )[0]
    assert isinstance(table, Table) and max(len(r.cells[1].text) for r in table.rows) <= 56


def test_images_and_wal_have_charts_on_the_same_axis_and_units_in_the_table(results: Results, pick: Pick):
    """Images vary and are drawn, WAL does not and is not; the table has each figure in its unit."""
    over_time = results.tables["activity_over_time"]
    (head,) = over_time.filter(start_s=0.0).head(1).to_dicts()
    images = {"kind": "WAL", "name": "full-page images", "unit": "images/s"}
    wal = {"kind": "WAL", "name": "WAL", "unit": "bytes/s", "value": 1e6}
    added = [
        head | more | {"start_s": float(n), "end_s": n + 1.0}
        for n in range(8)
        for more in (images | {"value": 100.0 * n}, wal)
    ]
    goes = [
        {k: head[k] for k in ("cell", "workload", "variant", "sessions", "repeat")}
        | {"mode": 2, "kind": "WAL", "name": name, "goes": True, "share": 1.0, "p": 0.01, "status": "ok"}
        | {"unit": unit, "during": during, "otherwise": None}
        for name, unit, during in (("full-page images", "images/s", 4100.0), ("writes of sda", "ns", 35e6))
    ]
    tables = dict(results.tables) | {
        "activity_over_time": pl.concat([over_time, rows("activity_over_time", added)]),
        "mode_activities": rows("mode_activities", goes),
    }
    grown = replace(results, tables=tables)
    charts = _charts(grown, pick)
    assert "heat-images" in charts and "heat-mb" not in charts
    assert [r["value"] for r in _rows(charts["heat-images"], 0)] == [100.0 * n for n in range(8)]
    axis = charts["heat-images"].spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert axis == charts["heat"].spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    words = "\n".join(line.text for line in text.lines(response_heat.sketch(grown, pick), 80))
    assert "4,100 images/s" in words and "35.0 ms" in words


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["ok"], "No separate modes can be seen"),
        (["ok", "uncertain"], "Mode 2: its calls are apart from all others, but too few to be sure"),
        (["ok", "too few seconds"], "Mode 2: its calls ended in fewer than 3 seconds"),
        (["too few calls"], "too few calls to tell modes apart"),
    ],
)
def test_words_about_modes_are_no_surer_than_their_status(
    results: Results, pick: Pick, statuses: list[str], words: str
):
    head = results.tables["response_heat"].row(0, named=True)
    cell = {k: head[k] for k in ("cell", "workload", "variant", "sessions", "repeat")}
    figures = {"low_ns": 0, "middle_ns": 1e6, "calls": 40, "share": 0.5, "time_share": 0.5, "seconds": 1}
    modes = [cell | figures | {"mode": n, "status": status} for n, status in enumerate(statuses, 1)]
    tables = dict(results.tables) | {"response_modes": rows("response_modes", modes)}
    lines = " ".join(
        line.text for line in text.lines(response_heat.sketch(replace(results, tables=tables), pick), 80)
    )
    assert words in " ".join(lines.split())
    assert "Separate bands are" not in _charts(results, pick)["heat"].caption
