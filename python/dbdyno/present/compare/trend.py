"""Shows a figure over runs: as a document, and as JSON-ready data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

from dbdyno.model.results.trend import Trend
from dbdyno.model.schema.quantiles import RESPONSE
from dbdyno.model.units import counted, format_ns, format_rate
from dbdyno.present.charts import chart
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Key,
    Paragraph,
    Row,
    Section,
    Table,
    Verbatim,
    remarks,
    word,
)
from dbdyno.present.document.palette import var
from dbdyno.present.figures import jsondoc
from dbdyno.present.figures.title_block import described, moment

FORMAT = 1
_LINES, _COLUMNS = 9, 62
_SHOWN_ROWS = 6
"""The newest runs, which are always shown, as those beside a change are; others only where there is room."""


def document(trend: Trend) -> Document:
    """Returns the answer, the plot, the runs, and the reasons why some were left out."""
    newest = counted(len(trend.points), trend.thing)
    title = f"{trend.figure.title} of {trend.what}: {newest} on {trend.machine}"
    lead = [Paragraph(c.text, c.severity if c.severity == "warning" else "", lead=True) for c in trend.claims]
    blocks: list[Block] = [Section("", [_plot(trend)])] if len(trend.points) > 1 else []
    blocks += [
        Section("Over time", [_chart(trend)], "time", detail=True),
        Section(f"{trend.thing}s".capitalize(), [_runs(trend)], "runs"),
    ]
    left = [f"Left out ({counted(len(o.runs), trend.thing)}): {o.why}." for o in trend.left_out]
    blocks += [Section("", remarks(left))] if left else []
    return Document(title, blocks, lead=lead, about=[(n, v) for n, v in _facts(trend) if v])


def _facts(trend: Trend) -> Iterator[tuple[str, str]]:
    """Yields names and values of the title block; a value is empty if it is unknown."""
    common = trend.common
    yield "Workload", described(trend.workload) if trend.workload else common.get("workload", "")
    yield "Parameters", common.get("parameters", "").removeprefix("none")
    if trend.thing == "run":
        yield "Host", trend.machine
        yield "Server", common.get("target", "")
    else:
        yield "Server", trend.machine
    first, last = trend.points[0].started, trend.points[-1].started
    yield "When", moment(first) if first == last else f"{moment(first)} to {moment(last)}"
    yield f"{trend.thing}s".capitalize(), str(len(trend.points))


def record(trend: Trend) -> dict[str, Any]:
    """Returns the trend as JSON; docs/json.md explains each key."""
    levels = _levels(trend)
    return {
        "format": FORMAT,
        "figure": trend.figure.column,
        "unit": trend.unit,
        "what": trend.what,
        "machine": trend.machine,
        "runs": [
            {
                "id": p.run,
                "name": p.name,
                "started": p.started.isoformat(),
                "sessions": p.sessions,
                "value": p.value,
                "low": p.low,
                "high": p.high,
                "level": levels[n],
                "flagged": p.flagged,
                "remark": p.remark,
                "outlier": n in trend.outliers,
            }
            for n, p in enumerate(trend.points)
        ],
        "changes": [
            {
                "run": trend.points[s.at].run,
                "first": trend.points[s.low].run,
                "last": trend.points[s.high].run,
                "ratio": s.ratio.value,
                "low": s.ratio.low,
                "high": s.ratio.high,
                "p": s.p,
            }
            for s in trend.steps
        ],
        "left_out": [{"why": o.why, "runs": list(o.runs)} for o in trend.left_out],
        "claims": [jsondoc.finding(c) for c in trend.claims],
    }


def _unusable(trend: Trend) -> str:
    """Returns the words for flagged points."""
    return "unusable measurement" if trend.thing == "run" else "left out of conclusions"


def _text(trend: Trend, value: float) -> str:
    return format_ns(value) if trend.unit == "ns" else format_rate(value)


def _levels(trend: Trend) -> list[float]:
    """Returns the level of each run: the median of the runs between two changes."""
    levels: list[float] = []
    for a, b in pairwise([0, *(s.at for s in trend.steps), len(trend.points)]):
        some = [p for p in trend.points[a:b] if not p.flagged] or trend.points[a:b]
        levels += [median(p.value for p in some)] * (b - a)
    return levels


def _plot(trend: Trend) -> Verbatim:
    """Draws runs from left to right with characters; only the newest where there is no room for all."""
    points, levels = list(trend.points)[-_COLUMNS:], _levels(trend)[-_COLUMNS:]
    gone = len(trend.points) - len(points)
    values = [p.value for n, p in enumerate(points) if n + gone not in trend.outliers]
    low, high = min(values), max(values)
    if high - low <= 0.02 * high:
        low, high = (0.99 * high, 1.01 * high) if high > 0 else (0.0, 1.0)
    step = (high - low) / (_LINES - 1)
    wide = max(1, min(4, _COLUMNS // len(points)))
    grid = [[" "] * (wide * len(points)) for _ in range(_LINES)]
    for n, (p, level) in enumerate(zip(points, levels, strict=True)):
        for column in range(wide * n, wide * (n + 1)):
            grid[round((high - level) / step)][column] = "─"
        mark = "x" if p.flagged else "o" if n + gone in trend.outliers else "●"
        line = round((high - min(max(p.value, low), high)) / step)
        grid[line][wide * n + wide // 2] = mark
    labels = [_text(trend, high - step * n) if n % 4 == 0 else "" for n in range(_LINES)]
    room = max(map(len, labels))
    lines = [f"{label:>{room}} ┤{''.join(row)}".rstrip() for label, row in zip(labels, grid, strict=True)]
    first, last = points[0].started, points[-1].started
    one_day = first.date() == last.date()
    ends = (f"{first:%Y-%m-%d %H:%M}", f"{last:%H:%M}") if one_day else (f"{first:%F}", f"{last:%F}")
    between = max(2, wide * len(points) - len(ends[0]) - len(ends[1]))
    unit = f"({trend.unit})" if trend.unit != "ns" else ""
    lines.append(f"{' ' * (room + 2)}{ends[0]}{' ' * between}{ends[1]}  {unit}".rstrip())
    marks = f"● {trend.thing}, ─ level (median)"
    marks += ", o outlier (at the edge: beyond it)" if trend.outliers else ""
    marks += f", x {_unusable(trend)}" if any(p.flagged for p in points) else ""
    return Verbatim("\n".join([*lines, marks]), sketch=True)


_FEW = 12
"""Most values that each have a tick."""


def _chart(trend: Trend) -> Chart:
    scale, unit = _scale(trend)
    levels, rows = _levels(trend), []
    for n, p in enumerate(trend.points):
        kind = "unusable" if p.flagged else "outlier" if n in trend.outliers else trend.thing
        label = f"{p.run}{f' ({p.name})' if p.name else ''}"
        rows.append(
            {
                "n": n + 1,
                "value": p.value / scale,
                "level": levels[n] / scale,
                "kind": kind,
                "run": label,
                "day": f"{p.started:%Y-%m-%d %H:%M}",
                "shown": _text(trend, p.value),
            }
        )
    title = f"{trend.thing}, in the order of time"
    few = {"values": list(range(1, len(rows) + 1))} if len(rows) <= _FEW else {}
    x = chart.channel(
        "n:Q",
        title=title,
        axis={"tickMinStep": 1, "format": "d", **few},
        scale={"domain": [0.5, len(rows) + 0.5], "nice": False},
    )
    y = chart.channel(
        "value:Q", title=f"{trend.figure.title} ({unit})", axis=chart.LETTERS, scale={"zero": False}
    )
    names = [trend.thing, "outlier", "unusable"]
    kinds = chart.coloured("kind", names, [var("series-1"), var("series-2"), var("muted")])
    tip = [
        chart.channel(f"{f}:N", title=t)
        for f, t in (("run", trend.thing), ("day", "started (UTC)"), ("shown", unit))
    ]
    dots = chart.encoded(
        chart.layer(rows, "point", filled=True, size=60),
        x=x,
        y=y,
        tooltip=tip,
        color=kinds,
    )
    line = chart.encoded(
        chart.layer(rows, "line", interpolate="step", strokeDash=[6, 3], color=var("text")),
        x=x,
        y=chart.channel("level:Q"),
    )
    bands = [{"low": s.low + 0.5, "high": s.high + 1.5} for s in trend.steps]
    shade = chart.encoded(
        chart.layer(bands, "rect", color=var("warning"), opacity=0.18),
        x=chart.channel("low:Q", scale={"domain": [0.5, len(rows) + 0.5]}),
        x2={"field": "high"},
    )
    keys = [Key(trend.thing, var("series-1"), "dot"), Key("level", var("text"), "dash")]
    keys += [Key("outlier", var("series-2"), "dot")] if trend.outliers else []
    keys += [Key(_unusable(trend), var("muted"), "dot")] if any(p.flagged for p in trend.points) else []
    keys += [Key("change: 95 % interval", var("warning"), "fill", 0.18)] if bands else []
    article = "an" if trend.thing == "interval" else "a"
    caption = f"Each point is {article} {trend.thing}; the broken line is the level between two changes."
    name = f"{trend.figure.title} of {trend.what}"
    return Chart(
        "trend", name, caption, chart.finished([shade, line, dots], name), keys, wide=True, marks=len(rows)
    )


def _scale(trend: Trend) -> tuple[float, str]:
    if trend.unit != "ns":
        return 1.0, trend.unit
    unit, factor = chart.time_unit(max(p.value for p in trend.points))
    return factor, unit


def _runs(trend: Trend) -> Table:
    columns = (
        Column(trend.thing),
        Column("started (UTC)", rank=2),
        Column("name", rank=1, shortens=True),
        Column("sess", True, name="sessions"),
        Column(trend.figure.title.lower(), True),
        *([Column("95 % from", True), Column("to", True)] if _has_intervals(trend) else []),
        Column("to level", True),
        Column("remark", rank=1),
    )
    return Table("", columns, list(_rows(trend)), along_axis=True)


def _rows(trend: Trend) -> Iterator[Row]:
    levels, last = _levels(trend), len(trend.points) - _SHOWN_ROWS
    beside = {n + d for n in (s.at for s in trend.steps) for d in (-1, 0)}
    for n in reversed(range(len(trend.points))):
        p = trend.points[n]
        remark = p.remark or ("unusable measurement" if p.flagged else "")
        remark = "; ".join(filter(None, (remark, "outlier" if n in trend.outliers else "")))
        remark = "; ".join(filter(None, ("change" if any(s.at == n for s in trend.steps) else "", remark)))
        unit = "" if trend.unit == "ns" else f" {trend.unit}"
        cells = (
            word(p.run),
            word(f"{p.started:%Y-%m-%d %H:%M}"),
            word(p.name),
            Cell(str(p.sessions or ""), p.sessions or None),
            Cell(f"{_text(trend, p.value)}{unit}", p.value, trend.unit),
            *([_end(p.low), _end(p.high)] if _has_intervals(trend) else []),
            _to_level(p.value, levels[n]),
            word(remark),
        )
        yield Row(cells, "muted" if p.flagged else "", minor=n < last and n not in beside)


def _has_intervals(trend: Trend) -> bool:
    return trend.thing == "run" and trend.figure.column in RESPONSE


def _end(value: float | None) -> Cell:
    return Cell(UNKNOWN) if value is None else Cell(format_ns(value), value, "ns")


def _to_level(value: float, level: float) -> Cell:
    if level == 0:
        return Cell("+0.0 %", 0.0) if value == 0 else Cell(UNKNOWN)
    return Cell(f"{100 * (value / level - 1):+.1f} %", value / level - 1)
