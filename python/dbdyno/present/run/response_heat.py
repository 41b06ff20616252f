"""Shows response time over time: a heat map with throughput and activities below it, and its modes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.responses import (
    BYTES,
    DURATION,
    FAR,
    FEW_CALLS,
    FEW_SECONDS,
    IMAGES,
    SHARE,
    UNCERTAIN,
)
from dbdyno.model.sources.wait_families import Helper
from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.model.units import counted, format_count, format_ns, format_p, significant
from dbdyno.present.charts import triggers
from dbdyno.present.charts.chart import (
    HEIGHT,
    Spec,
    channel,
    chart,
    coloured,
    encoded,
    layer,
    number,
    series_keys,
    time_unit,
    tips,
)
from dbdyno.present.document.document import (
    Block,
    Cell,
    Chart,
    Column,
    Key,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.document.palette import HEAT, var
from dbdyno.present.figures.figures import percent
from dbdyno.present.figures.selection import Pick, rows_of

_SHADES = " ·░▒▓█"
"""Characters of the sketch: none, then more calls on a logarithmic scale."""
_SKETCH, _LINES = 56, 16
"""Most characters of a line of the sketch, and its most lines."""
_NARROWEST = math.log(2) / 16
"""Least height of a line: that of the buckets in which the driver counts by second."""
_AT_WORK = 0.005
"""CPUs from which on a process of maintenance is marked."""
_SMALL = 0.01
"""Share below which a figure has two digits: a slow mode has few calls."""
_SHOWN = 6
"""Activities that are drawn: those that differ most over time."""
_Row = dict[str, Any]
_AXIS: Spec = {"minExtent": 52}
"""Room for the labels of a y axis, the same in all charts below one another."""


def blocks(results: Results, pick: Pick) -> list[Block]:
    """Returns the charts and the tables of one measurement; empty if calls were not counted by second."""
    heat = rows_of(results, "response_heat", pick)
    if heat.is_empty():
        return []
    fired = triggers.of_cell(results, pick.cell)
    end_s = number(heat["end_s"].max())
    drawn = (
        _heat(results, heat, pick, fired),
        _throughput(heat, pick),
        _activities(results, pick, end_s),
        *(_of_server(results, pick, end_s, *chosen) for chosen in _COUNTED),
    )
    return [*(c for c in drawn if c), *_modes(results, pick)]


def sketch(results: Results, pick: Pick) -> list[Block]:
    """Returns the heat map drawn with characters, and the tables."""
    heat = rows_of(results, "response_heat", pick)
    if heat.is_empty():
        return [*remarks([fill("{~calls:capital} of this measurement were not counted by second.")])]
    return [_sketch(heat, pick), *_modes(results, pick)]


def _sketch(heat: pl.DataFrame, pick: Pick) -> Block:
    end_s, length_s = number(heat["end_s"].max()), number((heat["end_s"] - heat["start_s"]).max())
    together = length_s * math.ceil(end_s / length_s / _SKETCH)
    columns = math.ceil(end_s / together)
    low, high = max(1.0, number(heat["low_ns"].min())), number(heat["high_ns"].max()) + 1
    step = max(math.log(high / low) / _LINES, _NARROWEST)
    lines = math.ceil(math.log(high / low) / step - 1e-9)
    at = (pl.col("start_s") / together).floor().cast(pl.Int64)
    # The middle of a bin decides, so that lines without calls are there, too.
    middle = ((pl.col("low_ns").clip(1) * (pl.col("high_ns") + 1)).sqrt() / low).log() / step
    binned = heat.group_by(at.alias("at"), middle.floor().cast(pl.Int64).alias("line")).agg(
        pl.col("count").sum()
    )
    counts = {(line, n): count for n, line, count in binned.rows()}
    most = max(counts.values())
    rows = []
    for line in range(lines):
        of_line = [counts.get((line, n), 0) for n in range(columns)]
        drawn = "".join(_SHADES[_shade(count, most, len(_SHADES) - 1)] for count in of_line)
        rows.append({"low_ns": low * math.exp(line * step), "drawn": drawn, "count": sum(of_line)})
    shown = (
        (numeric("from"), lambda r: known(r["low_ns"], format_ns)),
        (
            Column(f"0 to {end_s:g} s, {together:g} s a character", sketch=True),
            lambda r: word(r["drawn"] or " "),
        ),
        (numeric(noun("calls")), lambda r: known(r["count"], format_count)),
    )
    title = f"{capital(noun('response_time'))} over time {pick.at}{pick.which}"
    return table(title, shown, reversed(rows), named=True)


def _shade(count: float, most: float, shades: int) -> int:
    """Returns 0 for no call, else 1 to ``shades`` on a logarithmic scale."""
    if not count:
        return 0
    return min(shades, 1 + int(shades * math.log(count) / math.log(most + 1)))


def _x(end_s: float) -> Spec:
    scale = {"domain": [0, end_s], "nice": False}
    return channel("start_s:Q", title="seconds since the start of the measurement", scale=scale)


_SPAN = (("start_s:Q", "~g", "from second"), ("end_s:Q", "~g", "to second"))


def _heat(results: Results, heat: pl.DataFrame, pick: Pick, fired: list[_Row]) -> Chart:
    # The middle of the axis: of the longest, the shortest would be a thousandth or less.
    unit, factor = time_unit(
        math.sqrt(max(1.0, number(heat["low_ns"].min())) * number(heat["high_ns"].max()))
    )
    most, end_s = number(heat["count"].max()), number(heat["end_s"].max())
    names = _classes(most)
    rows = [
        {
            "start_s": r["start_s"],
            "end_s": r["end_s"],
            "low": _digits(max(r["low_ns"], 1) / factor),
            "high": _digits((r["high_ns"] + 1) / factor),
            "calls": r["count"],
            "n": _shade(r["count"], most, len(names)),
        }
        for r in heat.to_dicts()
    ]
    paints = [var(name) for name in HEAT[-len(names) :]]
    span = {"x": _x(end_s), "x2": {"field": "end_s"}}
    title = f"{noun('response_time')}, {unit}"
    tooltip = tips(
        *_SPAN,
        ("low:Q", ",.4~r", f"from, {unit}"),
        ("high:Q", ",.4~r", f"to, {unit}"),
        ("calls:Q", ",", noun("calls")),
    )
    cells = encoded(
        layer(rows, "rect"),
        **span,
        y=channel("low:Q", title=title, axis=_AXIS, scale={"type": "log", "nice": False}),
        y2={"field": "high"},
        color=channel("n:O", scale={"domain": [*range(1, len(names) + 1)], "range": paints}, legend=None),
        tooltip=tooltip,
    )
    maintenance = _maintenance(results, pick)
    marks = encoded(
        layer(maintenance, "rect", color=var("warning")),
        **span,
        y={"value": HEIGHT - 5},
        y2={"value": HEIGHT},
        tooltip=tips(("name:N", "", "at work"), *_SPAN),
    )
    at_work = sorted({r["name"] for r in maintenance})
    note = f" Bars at the bottom: {', '.join(at_work)} at work." if at_work else ""
    return chart(
        f"{pick.key}-heat",
        f"{capital(noun('response_time'))} over time, {pick.at}{pick.which}",
        fill(
            "Each cell counts the {~calls} that ended in that time and took so long. The table "
            "of modes has the bands that are separate."
        )
        + note
        + triggers.caption_note(fired),
        [cells, marks, *triggers.marks(fired)],
        f"Heat map of {title} over time",
        rows,
        legend=[Key(f"{n} {noun('calls')}", paint, "fill") for n, paint in zip(names, paints, strict=True)],
        wide=True,
    )


def _digits(value: float) -> float:
    """Returns a value with four digits: a page has thousands of them."""
    return float(f"{value:.4g}")


def _classes(most: float) -> list[str]:
    """Returns the ranges of counts that have a colour each, as they are written."""
    shades = min(len(HEAT), max(1, int(most)))
    lows = [math.ceil((most + 1) ** (n / shades) - 1e-9) for n in range(shades)]
    ends = [*(low - 1 for low in lows[1:]), int(most)]
    return [
        format_count(low) if low >= end else f"{format_count(low)} to {format_count(end)}"
        for low, end in zip(lows, ends, strict=True)
    ]


def _maintenance(results: Results, pick: Pick) -> list[_Row]:
    """Returns the times in which the server's own maintenance was at work."""
    kinds = results.environment.server.helpers
    names = [name for name, kind in kinds.items() if kind in (Helper.CHECKPOINT, Helper.CLEANUP)]
    at_work = (pl.col("kind") == "process") & pl.col("name").is_in(names)
    rows = rows_of(results, "activity_over_time", pick).filter(at_work & (pl.col("value") >= _AT_WORK))
    return rows.select("start_s", "end_s", "name").to_dicts()


def _throughput(heat: pl.DataFrame, pick: Pick) -> Chart:
    calls = heat.group_by("start_s", "end_s").agg(pl.col("count").sum()).sort("start_s")
    rows = calls.with_columns(rate=pl.col("count") / (pl.col("end_s") - pl.col("start_s")))
    unit = f"{noun('calls')}/s"
    bars = encoded(
        layer(rows, "bar", color=var("series-1"), opacity=0.7),
        x=_x(number(heat["end_s"].max())),
        x2={"field": "end_s"},
        y=channel("rate:Q", title=unit, axis=_AXIS, scale={"zero": True}),
        y2={"datum": 0},
        tooltip=tips(*_SPAN, ("rate:Q", ",.4~r", unit)),
    )
    title = f"Throughput by second, {pick.at}{pick.which}"
    caption = fill("{~calls:capital} that ended in each second; the last one may be cut short.")
    return chart(f"{pick.key}-heat-calls", title, caption, [bars], f"{title}, in {unit}", rows, wide=True)


def _activities(results: Results, pick: Pick, end_s: float) -> Chart | None:
    rows = rows_of(results, "activity_over_time", pick).filter(unit=SHARE).drop_nulls("value")
    if rows.is_empty():
        return None
    varied = (
        rows.group_by("name")
        .agg(pl.col("value").std().fill_null(0))
        .sort("value", "name", descending=[True, False])
    )
    names = varied["name"].head(_SHOWN).to_list()
    middle = (pl.col("start_s") + pl.col("end_s")) / 2
    shown = rows.filter(pl.col("name").is_in(names)).sort("start_s").with_columns(middle_s=middle)
    shown = shown.select("start_s", "end_s", "middle_s", "name", pl.col("value").round(4))
    channels = {
        "x": {**_x(end_s), "field": "middle_s"},
        "y": channel("value:Q", title="s/s", axis=_AXIS, scale={"zero": True}),
        "color": coloured("name", names),
    }
    lines = encoded(layer(shown, "line", interpolate="step"), **channels)
    tooltip = tips(*_SPAN, ("name:N", "", "activity"), ("value:Q", ".3~r", "s/s"))
    # Points that cannot be seen, for tooltips; with an opacity of 0 none would be drawn.
    points = encoded(layer(shown, "point", size=60, opacity=0.01), **channels, tooltip=tooltip)
    left = len(varied) - len(names)
    more = f" {counted(left, 'other')} differ less over time: table activity_over_time." if left > 0 else ""
    title = f"What went on meanwhile, {pick.at}{pick.which}"
    return chart(
        f"{pick.key}-heat-activity",
        title,
        fill(
            "Waits of {~tasks}, processes of the server at work, checkpoints in progress and time in run "
            "queues, in seconds per second."
        )
        + more,
        [lines, points],
        f"{title}, in seconds per second",
        shown,
        legend=series_keys(names),
        wide=True,
    )


_COUNTED = (
    (
        IMAGES,
        1.0,
        "images/s",
        "Full-page images by second",
        "Pages written to WAL as a whole: the first change of each page after a checkpoint. "
        "The server may count them a second later.",
    ),
    (BYTES, 1e6, "MB/s", "WAL by second", "WAL that the server wrote."),
)


def _of_server(
    results: Results, pick: Pick, end_s: float, kind: str, factor: float, unit: str, title: str, caption: str
) -> Chart | None:
    """Returns the bars of a figure that the server counts; None if it does not vary."""
    rows = rows_of(results, "activity_over_time", pick).filter(unit=kind)
    if rows["value"].n_unique() < 2:
        return None
    shown = rows.sort("start_s").select("start_s", "end_s", value=(pl.col("value") / factor).round(4))
    bars = encoded(
        layer(shown, "bar", color=var("series-1"), opacity=0.7),
        x=_x(end_s),
        x2={"field": "end_s"},
        y=channel("value:Q", title=unit, axis=_AXIS, scale={"zero": True}),
        y2={"datum": 0},
        tooltip=tips(*_SPAN, ("value:Q", ",.4~r", unit)),
    )
    key, title = f"{pick.key}-heat-{unit.partition('/')[0].lower()}", f"{title}, {pick.at}"
    return chart(key, title, caption, [bars], f"{title}, in {unit}", shown, wide=True)


# -- tables --

_WHY_NOT = {
    UNCERTAIN: "its {~calls} are apart from all others, but too few to be sure that they are a mode.",
    FAR: "its {~calls} are few, and each took many times as long as any other; that may be chance.",
    FEW_SECONDS: "its {~calls} ended in fewer than 3 seconds, as those of a single stall do.",
}


def _modes(results: Results, pick: Pick) -> list[Block]:
    rows = rows_of(results, "response_modes", pick).sort("mode").to_dicts()
    if not rows:
        return []
    activities = rows_of(results, "mode_activities", pick).sort(
        "mode", pl.col("goes").not_(), "p", "kind", "name", nulls_last=True
    )
    notes = []
    if rows[0]["status"] == FEW_CALLS:
        notes.append(fill("There are too few {~calls} to tell modes apart."))
    elif len(rows) == 1:
        notes.append(
            fill(
                "No separate modes can be seen. Modes that overlap, are less than about 3 times apart, or "
                "have few {~calls}, would look the same."
            )
        )
    for status, why in _WHY_NOT.items():
        numbers = [str(r["mode"]) for r in rows if r["status"] == status]
        notes += [f"Mode {n}: {fill(why)}" for n in [", ".join(numbers)] if n]
    shown: list[Block] = [table(f"Modes of {noun('response_time')} {pick.at}{pick.which}", _MODES, rows)]
    if activities.height:
        title = f"What goes with the modes {pick.at}{pick.which}"
        shown.append(table(title, _ACTIVITIES, activities.to_dicts()))
        notes.append(
            "Going together is no proof of a cause. p: by chance, adjusted for all activities (Holm)."
        )
    return [*shown, *remarks(notes)]


def _range(row: _Row) -> Cell:
    """Returns the ends; unknown in tables of older versions."""
    return known(
        row["shortest_ns"], lambda shortest: f"{format_ns(shortest)} to {format_ns(row['longest_ns'])}"
    )


def _status(row: _Row) -> Cell:
    return word("" if row["status"] == "ok" else row["status"])


def _dash(name: str, text: Callable[[float], str]) -> Callable[[_Row], Cell]:
    return lambda row: word("-") if row[name] is None else known(row[name], text)


def _amount(name: str) -> Callable[[_Row], Cell]:
    def amount(row: _Row) -> Cell:
        if row[name] is None:
            return word("-")
        unit = row["unit"]
        return known(row[name], format_ns if unit == DURATION else lambda v: f"{significant(v)} {unit}")

    return amount


_MODES: tuple[tuple[Column, Callable[[_Row], Cell]], ...] = (
    (numeric("mode"), lambda r: word(str(r["mode"]))),
    (numeric("median"), lambda r: known(r["middle_ns"], format_ns)),
    (numeric("range"), _range),
    (numeric("{~calls}"), lambda r: known(r["calls"], format_count)),
    (numeric("%"), lambda r: known(r["share"], lambda v: percent(v) if v >= _SMALL else f"{100 * v:.2g}")),
    (numeric("seconds", 1), lambda r: known(r["seconds"], str)),
    (numeric("every"), _dash("every_s", lambda v: f"{v:.1f} s")),
    (Column("status", rank=2), _status),
)
_ACTIVITIES: tuple[tuple[Column, Callable[[_Row], Cell]], ...] = (
    (numeric("mode"), lambda r: word(str(r["mode"]))),
    (Column("activity", shortens=True), lambda r: word(r["name"])),
    (Column("goes with"), lambda r: word("yes" if r["goes"] else "?" if r["status"] != "ok" else "no")),
    (numeric("during"), _amount("during")),
    (numeric("otherwise"), _amount("otherwise")),
    (numeric("p", 1), _dash("p", format_p)),
    (Column("kind", rank=3), lambda r: word(r["kind"])),
    (Column("status", rank=2), _status),
)
