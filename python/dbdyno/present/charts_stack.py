"""The stack charts: session time by rung or over time, CPU WAIT split out of every wait class."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl

from dbdyno.model.results import Results
from dbdyno.present import figures, stack
from dbdyno.present.chart import (
    HEIGHT,
    Chart,
    Key,
    Spec,
    channel,
    colours,
    cpu_mark,
    encoded,
    finished,
    layer,
    number,
    rungs_axis,
)
from dbdyno.present.figures import Series
from dbdyno.present.palette import account_colours, hatch_css, hatched, var
from dbdyno.present.timeline import gaps, stretches

_STACKS = {
    "aas": ("seconds per second", "Where session time went", "~g"),
    "share": ("share of session time", "The same as a share of session time", ".0%"),
}
_STRIPED = (
    "Stripes are CPU WAIT: runnable without a CPU, under the label of the wait before; all stripes and "
    "the plain CPU WAIT together are the run queue. "
)
_CAPTIONS = {
    "aas": _STRIPED + "The stack is as high as the sessions are many; work on CPUs cannot rise above the "
    "dotted line, what comes on top only waits.",
    "share": "What grows from left to right is what a further session is spent on; what lies below zero was "
    "accounted for twice (signed remainder).",
}  # fmt: skip


def time_stack(results: Results, series: Series, measure: Literal["aas", "share"]) -> Chart | None:
    """Stacked bars, one a rung; a negative remainder hangs below zero."""
    places = stack.rungs(results, series)
    rows = stack.stack(results, places)
    if rows.is_empty():
        return None
    over = pl.col("place") if measure == "share" else pl.lit(1)
    drawn = _told(rows, pl.col("place")).with_columns(
        sessions="place", y0=pl.col("y0") / over, y1=pl.col("y1") / over
    )
    unit, title, form = _STACKS[measure]
    bars = _bars(drawn, rows, rungs_axis(), unit, form, [channel("sessions:O")])
    cpus = figures.usable_cpus(results)
    mark = cpu_mark(cpus, "y") if measure == "aas" and cpus and cpus <= number(rows["place"].max()) else []
    return Chart(
        id=f"stack-{measure}",
        title=title,
        caption=_caption(results, places, _CAPTIONS[measure]),
        spec=finished([bars, *mark], f"{title}: stacked accounts per rung, in {unit}"),
        legend=keys(rows),
        marks=len(rows),
    )


def timeline(results: Results) -> Chart | None:
    """The stack over an observation's time, its gaps left open; the client's time is not in it."""
    places = stretches(results)
    rows = stack.stack(results, places.select("cell", "place", "weight"))
    client = rows.filter(pl.col("key") == "client")
    rows = rows.filter(pl.col("key") != "client")
    if rows.is_empty():
        return None
    spans = places.group_by("place").agg(
        pl.col("start_s").min(), pl.col("end_s").max(), pl.col("clock").first()
    )
    drawn = _told(_lowered(rows), None).join(spans, on="place", maintain_order="left")
    axis = channel("start_s:Q", title="seconds since the start", scale={"nice": False})
    tooltip = [channel("clock:N", title="from"), channel("end_s:Q", format=".1f", title="to second")]
    bars = encoded(_bars(drawn, rows, axis, "seconds per second", "~g", tooltip), x2={"field": "end_s"})
    mean = (client["aas"] * 1.0).mean() if len(client) else None
    away = "" if mean is None else f" Not drawn: {number(mean):.1f} sessions on average were at their client."
    found = gaps(results)
    cpus = figures.usable_cpus(results)
    mark = cpu_mark(cpus, "y") if cpus and cpus <= 1.3 * number(drawn["y1"].max()) else []
    layers = [*([_gaps(found, axis)] if found else []), bars, *mark]
    return Chart(
        id="timeline",
        title="Where the time of active sessions went",
        caption=_caption(results, places, _STRIPED)
        + away
        + (" Grey: nothing was measured there." if found else ""),
        spec=finished(layers, "Stacked accounts over time, in seconds per second"),
        legend=keys(rows),
        marks=len(rows),
        wide=True,
    )  # fmt: skip


def fills(rows: pl.DataFrame) -> dict[str, tuple[str, bool]]:
    """Segment key -> name of its colour, and whether it is hatched."""
    found = rows.select("key", "family", "waiting").unique(maintain_order=True).rows()
    paint = account_colours(sorted({family for _, family, _ in found}))
    return {key: (paint[family], waiting) for key, family, waiting in found}


def keys(rows: pl.DataFrame) -> list[Key]:
    """The legend, in stacking order."""
    paint = fills(rows)
    shown = rows.sort("order").select("key", "label").unique(maintain_order=True).rows()
    return [
        Key(label, hatch_css(paint[key][0]) if paint[key][1] else var(paint[key][0]), "fill")
        for key, label in shown
    ]


def _bars(drawn: pl.DataFrame, rows: pl.DataFrame, x: Spec, unit: str, form: str, first: list[Spec]) -> Spec:
    """``first``: what the hover begins with."""
    paint = fills(rows)
    scale = colours(list(paint), [hatched(c) if w else var(c) for c, w in paint.values()])
    # Without nice ends, or a remainder of -0.001 would open a whole step below zero.
    ends = [1.02 * min(0.0, number(drawn["y1"].min())), 1.02 * number(drawn["y1"].max())]
    share = [channel("share:Q", format=".1%", title="of session time")]
    tooltip = [
        *first, channel("label:N", title="account"),
        channel("aas:Q", format=".3f", title="seconds per second"), channel("interval:N"),
        *(share if "share" in drawn.columns else []),
        channel("runq:Q", format=".3f", title="CPU WAIT in all"),
        channel("events:N", title="most of it"), channel("source:N", title="data source"),
    ]  # fmt: skip
    y = channel("y0:Q", title=unit, axis={"format": form}, scale={"domain": ends, "nice": False})
    return encoded(
        layer(drawn, "bar", stroke=var("card"), strokeWidth=0.5),
        x=x,
        y=y,
        y2={"field": "y1"},
        color=channel("key:N", scale=scale, legend=None),
        tooltip=tooltip,
    )


def _told(rows: pl.DataFrame, whole: pl.Expr | None) -> pl.DataFrame:
    """What is drawn and said on hovering; ``whole``: what a share is a share of."""
    interval = pl.when(pl.col("low").is_not_null() & pl.col("high").is_not_null()).then(
        pl.format("{} to {}", pl.col("low").round(3), pl.col("high").round(3))
    )
    share = [] if whole is None else [(pl.col("aas") / whole).alias("share")]
    return rows.select(
        "place", "key", "label", *(pl.col(c).round(6) for c in ("aas", "runq", "y0", "y1")), *share,
        interval.fill_null("not known").alias("interval"),
        pl.when(pl.col("events") != "").then("events").otherwise(pl.lit("-")).alias("events"), "source",
    )  # fmt: skip


def _lowered(rows: pl.DataFrame) -> pl.DataFrame:
    """The stack anew where a segment was taken out of it."""
    up = pl.col("aas").clip(lower_bound=0.0)
    top = pl.when(pl.col("aas") > 0).then(up.cum_sum().over("place")).otherwise("aas")
    return rows.with_columns(top.alias("y1")).with_columns(
        pl.when(pl.col("aas") > 0).then(pl.col("y1") - pl.col("aas")).otherwise(0.0).alias("y0")
    )


def _gaps(found: list[dict[str, Any]], x: Spec) -> Spec:
    tooltip = [
        channel("what:N", title="gap"), channel("start_s:Q", format=".1f", title="from second"),
        channel("end_s:Q", format=".1f", title="to second"),
    ]  # fmt: skip
    mark = layer(found, "rect", color=var("line"), opacity=0.6)
    return encoded(mark, x=x, x2={"field": "end_s"}, y={"value": 0}, y2={"value": HEIGHT}, tooltip=tooltip)


def _caption(results: Results, places: pl.DataFrame, words: str) -> str:
    missing = stack.missing(results, places.select("cell", "place", "weight"))
    if not missing:
        return words.strip()
    known = "unaccounted" not in missing
    where = " What they took lies in unaccounted." if known else ""
    return f"Not the whole account: unknown, and so not drawn: {', '.join(missing)}.{where}"
