"""Excel's own charts on a sheet with the figures they draw: change a figure and the chart follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl
import xlsxwriter  # type: ignore[import-untyped]
from xlsxwriter.format import Format  # type: ignore[import-untyped]

from dbdyno.model.results import Results
from dbdyno.present import figures, headline, stack
from dbdyno.present.figures import Series
from dbdyno.present.palette import SERIES, account_colours, light

_STATISTICS = ("mean", "p50", "p95", "p99")
_HEIGHT = 22  # rows that a chart covers
_SIZE = {"width": 760, "height": 420}


class Block(NamedTuple):
    """A table with a chart beside it; the first column is sessions."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[float | None]]
    unit: str
    colours: Sequence[str]  # one a column after the first; "a/b": stripes of a on b
    stacked: bool = False
    dashed: int | None = None  # number of the column that is the line of perfect scaling


def add(book: xlsxwriter.Workbook, results: Results, bold: Format) -> None:
    """A sheet ``charts``; one block under the other, per series. None for an observation: it has no rungs."""
    if figures.is_observation(results):
        return
    sheet = book.add_worksheet("charts")
    row = 0
    series = figures.series_of(results)
    for one in series:
        name = f"{one.label}: " if len(series) > 1 else ""
        for block in _blocks(results, one):
            if block.rows:
                _write(book, sheet, row, block._replace(title=name + block.title), bold)
                row += max(_HEIGHT, len(block.rows) + 3)
    sheet.set_column(0, 0, 10)
    sheet.set_column(1, 12, 14)


def _blocks(results: Results, series: Series) -> list[Block]:
    return [
        _throughput(results, series),
        _response(results, series),
        _stack(results, series),
        _cpu(results, series),
    ]


def _throughput(results: Results, series: Series) -> Block:
    found = headline.answer(results, series)
    column = found.rate_column if found else "calls_per_s"
    unit = found.unit if found else "calls/s"
    rows = figures.ladder(results, series).to_dicts()
    slope = next((r[column] / r["sessions"] for r in rows if r[column] is not None), None)
    values = [[r["sessions"], r[column], None if slope is None else slope * r["sessions"]] for r in rows]
    colours = [SERIES[0], "muted"]
    return Block("Throughput", ["sessions", unit, "perfect scaling"], values, unit, colours, dashed=2)


def _response(results: Results, series: Series) -> Block:
    rows = figures.ladder(results, series).to_dicts()
    values = [
        [
            r["sessions"],
            *(None if r[f"response_{s}_ns"] is None else r[f"response_{s}_ns"] / 1e6 for s in _STATISTICS),
        ]
        for r in rows
    ]
    colours = [f"stat-{s}" for s in _STATISTICS]
    return Block("Response time", ["sessions", *(f"{s}, ms" for s in _STATISTICS)], values, "ms", colours)


def _stack(results: Results, series: Series) -> Block:
    rows = stack.stack(results, stack.rungs(results, series)).rename({"place": "sessions"})
    names = rows.sort("order").select("key", "label", "waiting", "family").unique("key", maintain_order=True)
    values = _wide(rows, "key", "aas", names["key"].to_list()) if len(rows) else []
    paint = account_colours(sorted(set(names["family"].to_list())))
    colours = [paint[f] + ("/runq" if w else "") for f, w in names.select("family", "waiting").rows()]
    heads = ["sessions", *names["label"].to_list()]
    return Block("Where session time went", heads, values, "seconds per second", colours, stacked=True)


def _cpu(results: Results, series: Series) -> Block:
    rows = figures.of_series(results.tables["witnesses"], series).filter(pl.col("quantity") == "cpu_used")
    means = rows.group_by("sessions", "source", maintain_order=True).agg(pl.col("value").mean())
    names = means.filter(pl.col("value").is_not_null())["source"].unique(maintain_order=True).to_list()
    colours = [SERIES[i % len(SERIES)] for i in range(len(names))]
    values = _wide(means.sort("sessions"), "source", "value", names) if names else []
    return Block("CPU used, by source", ["sessions", *names], values, "CPUs", colours)


def _wide(rows: pl.DataFrame, name: str, value: str, names: Sequence[str]) -> list[list[float | None]]:
    """One row a rung, one column a name; absent is unknown."""
    known = {(r["sessions"], r[name]): r[value] for r in rows.to_dicts()}
    rungs: list[int] = rows["sessions"].unique().sort().to_list()
    return [[n, *(known.get((n, k)) for k in names)] for n in rungs]


def _write(book: xlsxwriter.Workbook, sheet: Any, top: int, block: Block, bold: Format) -> None:
    sheet.write_string(top, 0, block.title, bold)
    for column, head in enumerate(block.heads):
        sheet.write_string(top + 1, column, head, bold)
    for r, values in enumerate(block.rows, start=top + 2):
        for column, value in enumerate(values):
            if value is not None:
                sheet.write_number(r, column, value)
    sheet.insert_chart(top, len(block.heads) + 1, _chart(book, top, block))


def _chart(book: xlsxwriter.Workbook, top: int, block: Block) -> Any:
    kind = (
        {"type": "column", "subtype": "stacked"}
        if block.stacked
        else {"type": "scatter", "subtype": "straight"}
    )
    chart = book.add_chart(kind)
    first, last = top + 2, top + 1 + len(block.rows)
    for column in range(1, len(block.heads)):
        name, _, stripes = block.colours[column - 1].partition("/")
        colour = light(name)
        line = {"color": colour, "width": 2.0}
        if column == block.dashed:
            line["dash_type"] = "dash"
        look = {"fill": {"color": colour}, "gap": 40} if block.stacked else {"line": line}
        if stripes:
            pattern = {"pattern": "wide_upward_diagonal", "fg_color": colour, "bg_color": light(stripes)}
            look = {"pattern": pattern, "gap": 40}
        chart.add_series(
            {
                "name": ["charts", top + 1, column],
                "categories": ["charts", first, 0, last, 0],
                "values": ["charts", first, column, last, column],
                **look,
            }
        )
    chart.set_title({"name": block.title, "name_font": {"size": 12}})
    chart.set_x_axis({"name": "sessions", "label_position": "low"})
    chart.set_y_axis({"name": block.unit, "major_gridlines": {"visible": True, "line": {"color": "#DDDDDD"}}})
    chart.set_legend({"position": "bottom"})
    chart.set_size(_SIZE)
    chart.show_blanks_as("gap")  # unknown is a gap, not 0
    return chart
