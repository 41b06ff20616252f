"""Shows a measurement in phases: the table, charts over time, key figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.units import format_ns, format_rate
from dbdyno.present.charts import triggers
from dbdyno.present.charts.chart import (
    HEIGHT,
    channel,
    chart,
    encoded,
    layer,
    legible,
    number,
    time_unit,
    tips,
)
from dbdyno.present.document.document import Block, Chart, Column, Key, KeyFigure, Table, known, remarks, word
from dbdyno.present.document.palette import var
from dbdyno.present.figures import tails
from dbdyno.present.figures.targets import Targets, row_id
from dbdyno.present.run import rungs

LEGEND = (
    "due/s: calls that became due; p50 to p99: of calls that ended in the phase, from when they were due, "
    "svc p99: from the real start; late: begun more than 1 ms after; before, left: calls that waited at the "
    "begin and the end. Shares of session time: in clnt% sessions were idle as nothing was due."
)


def table(results: Results, marks: Sequence[str]) -> list[Block]:
    """Returns one row per phase in their order, then the meaning of ``marks`` and of the columns."""
    rows = results.tables["rungs"].to_dicts()
    kept = rungs.phase_columns()
    if not any(r["dropped"] for r in rows):
        kept.pop("dropped")
    cells = list(kept.values())
    drawn = [
        rungs.row(r, cells)._replace(id=row_id(n, r["sessions"], r["rate_per_s"])) for n, r in enumerate(rows)
    ]
    named = [d._replace(cells=[word(r["variant"]), *d.cells]) for r, d in zip(rows, drawn, strict=True)]
    heads = [Column("phase"), *(c for c, _ in cells)]
    shown = tails.with_reason(Table("", heads, named, along_axis=True))
    return [*shown, *remarks([*marks, LEGEND])]


def charts(results: Results) -> list[Chart]:
    """Returns calls and mean response time over the whole measurement, with the phases marked.

    Only the first repeat is drawn; empty without readings of the driver.
    """
    windows = results.tables["windows"].sort("t0_ns").filter(pl.col("repeat") == 1)
    rows = results.tables["over_time"].join(windows.select("cell", "t0_ns"), on="cell")
    if rows.is_empty():
        return []
    begin = int(windows["t0_ns"][0])
    offset = (pl.col("t0_ns") - begin) / 1e9
    rows = rows.with_columns(pl.col("start_s") + offset, pl.col("end_s") + offset).sort("start_s")
    spans = windows.select(name="variant", start_s=offset, end_s=offset + pl.col("wall_s"))
    unit, factor = time_unit(number(rows["response_mean_ns"].max() or 0.0))
    rows = rows.with_columns(time=pl.col("response_mean_ns") / factor)
    due = _due(results, spans)
    fired = triggers.moments(results, begin, round(number(windows["t1_ns"].max())))
    drawn = [
        _chart(
            rows, spans, due, fired, "calls_per_s", "calls/s", "throughput", "Calls due and served over time"
        ),
        _chart(
            rows,
            spans,
            [],
            fired,
            "time",
            f"mean response time, {unit}",
            "response",
            "Response time over time",
        ),
    ]
    return [c for c in drawn if c is not None]


def _due(results: Results, spans: pl.DataFrame) -> list[dict[str, Any]]:
    """Returns the rate that the recipe sets, at the start and the end of each phase."""
    pacing_of = {c.variant: c.pacing for c in results.plan.cells}
    ends = []
    for name, start_s, end_s in spans.rows():
        if (pacing := pacing_of.get(name)) is not None:
            last = pacing.rate_per_s if pacing.to_per_s is None else pacing.to_per_s
            ends += [{"start_s": start_s, "value": pacing.rate_per_s}, {"start_s": end_s, "value": last}]
    return ends


def _chart(
    rows: pl.DataFrame,
    spans: pl.DataFrame,
    due: list[dict[str, Any]],
    fired: list[dict[str, Any]],
    column: str,
    unit: str,
    id: str,
    title: str,
) -> Chart | None:
    shown = rows.drop_nulls(column).select(
        "start_s", "end_s", "calls", phase="variant", value=pl.col(column).round(4)
    )
    if shown.is_empty():
        return None
    x = channel("start_s:Q", title="seconds since the start of the measurement", scale={"nice": False})
    y = channel("value:Q", title=unit, scale={"zero": True})
    measured = (
        ("start_s:Q", ".1f", "from second"),
        ("value:Q", ",.4~r", unit),
        ("calls:Q", ",", "calls ended"),
    )
    step = encoded(
        layer(shown, "rule", color=var("series-1"), strokeWidth=2.5),
        x=x,
        x2={"field": "end_s"},
        y=y,
        tooltip=tips("phase:N", *measured),
    )
    edges = encoded(
        layer(spans, "rule", color=var("muted"), strokeDash=[4, 4]), x=x, y={"value": 0}, y2={"value": HEIGHT}
    )
    names = legible(spans.to_dicts(), {"x": x, "y": {"value": 10}}, "muted", align="left", dx=4)
    line = encoded(layer(due, "line", color=var("stat-p95"), strokeWidth=1.5), x=x, y=y)
    keys = [Key("served" if due else "mean", var("series-1"), "line")]
    keys += [Key("due, as the recipe asks", var("stat-p95"), "line")] if due else []
    caption = "Between two looks at the driver, about one a second; dashed lines begin the phases."
    caption += triggers.caption_note(fired)
    return chart(
        id,
        title,
        caption,
        [edges, line, step, *names, *triggers.marks(fired)],
        f"{title}, in {unit}",
        shown,
        legend=keys,
    )


def key_figures(results: Results, targets: Targets) -> list[KeyFigure]:
    """Returns the largest backlog and how long it lasted, the highest rate, and the slowest phase."""
    rows = results.tables["rungs"].to_dicts()
    response_target = targets.named("response")
    most = max(rows, key=lambda r: r["backlog_end"] or 0.0)
    slow = max(rows, key=lambda r: r["response_p99_ns"] or 0.0)
    rate = max(rows, key=lambda r: r["calls_per_s"] or 0.0)
    recovery = next((c for c in results.findings if c.id == "phase-recovery"), None)
    seconds = None if recovery is None or recovery.value is None else recovery.value.value * 1e9
    longest = known(slow["response_p99_ns"], format_ns)
    shown = [
        KeyFigure(
            "Most calls served", known(rate["calls_per_s"], format_rate, "calls/s"), f"in {rate['variant']}"
        ),
        KeyFigure(
            "Largest backlog at an end",
            known(most["backlog_end"], lambda v: f"{v:,.0f}", "calls"),
            f"of {most['variant']}",
        ),
        KeyFigure(
            "99 % of calls within at worst",
            longest,
            tails.note(longest, 0.99, f"in {slow['variant']}"),
            response_target,
        ),
    ]
    lasted = (
        [KeyFigure("Backlog gone after", known(seconds, format_ns), "", response_target)] if recovery else []
    )
    return [*shown, *lasted]
