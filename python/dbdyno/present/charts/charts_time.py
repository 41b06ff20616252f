"""Draws charts of where the time went: session time stacked by rung or over time, and CPU used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import polars as pl

from dbdyno.model.plan.kinds import COMMANDS, kind_of
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.model.units import significant
from dbdyno.present.charts import triggers, wall_clock
from dbdyno.present.charts.chart import (
    HEIGHT,
    ROOM,
    Spec,
    channel,
    chart,
    coloured,
    cpu_mark,
    encoded,
    layer,
    load_axis,
    number,
    rungs_axis,
    series_keys,
    time_unit,
    tips,
)
from dbdyno.present.document.document import Block, Chart, Key, Paragraph
from dbdyno.present.document.palette import account_colours, hatch_css, hatched, hatches, var
from dbdyno.present.figures import accounts, figures
from dbdyno.present.figures.figures import Series, of_series, series_of, stretches
from dbdyno.present.figures.selection import Pick

WORTH = 0.005
"""Share of the CPUs below which a chart of helper processes is not worth drawing."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_STACKS = {
    "aas": ("seconds per second", "Where {~session_time} went", "~g"),
    "share": ("share of {~session_time}", "The same as a share of {~session_time}", ".0%"),
}
_DIVIDED = "CPU WAIT by wait"
"""Name of the form of a stack in which CPU WAIT lies beside the waits."""
_STRIPED = (
    "Stripes are CPU WAIT in the colour of the wait that had ended before. All stripes and the plain CPU "
    "WAIT together are the time in the run queue."
)
_CAPTIONS = {
    "aas": "The bar's height is {~stack_height}.",
    "share": "What grows from left to right is what a further {~single} is spent on.",
}
_BEYOND = " Above the dotted line (CPUs that may be used) they only wait."
_TWICE, _VISIBLE = " Below zero: time counted twice.", 0.005
"""Remark on a negative remainder, and the share of the time from which on it can be seen."""

_PACED = "Not drawn: time at the client, mostly of sessions for which no call was due."


Measure = Literal["aas", "share"]


def time_stacks(results: Results, series: Series, *measures: Measure) -> list[Chart | None]:
    """Returns stacked bars of session time, one per rung, in each measure; None without rows.

    A negative remainder hangs below zero.
    """
    places = accounts.at_rungs(results, series)
    means = accounts.every_mean(results, places)
    stack = partial(_time_stack, results, series, places, means)
    return [_both_forms(partial(stack, measure)) for measure in measures]


def _both_forms(form: Callable[[bool], Chart | None]) -> Chart | None:
    """Returns the form with CPU WAIT as one segment. The form with CPU WAIT by wait is its other one if it
    has stripes."""
    whole, divided = form(False), form(True)
    stripes = {hatch_css(n) for n in hatches()}
    if whole is None or divided is None or not any(k.colour in stripes for k in divided.legend):
        return whole
    return replace(whole, other=replace(divided, title=_DIVIDED, caption=_STRIPED))


def _time_stack(
    results: Results,
    series: Series,
    places: pl.DataFrame,
    means: pl.DataFrame,
    measure: Measure,
    divided: bool,
) -> Chart | None:
    load = figures.load_of(results)
    rows = accounts.stack(results, places, divided=divided, known_means=means)
    if load != figures.SESSIONS:
        rows = accounts.piled(rows.filter(pl.col("key") != "client"))
    rows = accounts.merge_small(rows)
    if rows.is_empty():
        return None
    # A job can have several tasks at once, so the stack can be higher than the number of jobs.
    tasks = kind_of(results.plan).among((COMMANDS,))
    whole = pl.col("aas").sum().over("place") if tasks else pl.col("place")
    over = whole if measure == "share" else pl.lit(1)
    drawn = _hover_rows(rows, whole).with_columns(
        pl.col("place").alias(load.column), y0=pl.col("y0") / over, y1=pl.col("y1") / over
    )
    unit, title, form = map(fill, _STACKS[measure])
    drawn_whole = load == figures.SESSIONS and not tasks
    top = number((rows["place"] if drawn_whole else 1.3 * drawn["y1"]).max())
    bars = _bars(drawn, rows, rungs_axis(load), unit, form, [f"{load.column}:O"])
    cpus = figures.usable_cpus(results, [series]) if measure == "aas" else None
    words = _CAPTIONS[measure] + (_BEYOND if cpus and cpus < top else "")
    if measure == "share" and rows["place"].n_unique() == 1:
        words = ""  # nothing grows
    below = _TWICE if number(drawn["y1"].min()) < -_VISIBLE * number(drawn["y1"].max()) else ""
    return chart(
        f"stack-{measure}",
        title,
        _caption(results, places, means, fill(words) if load == figures.SESSIONS else _PACED) + below,
        [bars, *cpu_mark(cpus, "y", top)],
        f"{title}: stacked accounts per rung, in {unit}",
        rows,
        legend=_keys(rows),
    )


def timeline(results: Results) -> Chart | None:
    """Returns the stack over the time of an observation, with its gaps left open; None without rows.

    Time at the client is not drawn.
    """
    places = stretches(results)
    means = accounts.every_mean(results, places.select("cell", "place", "weight"))
    return _both_forms(partial(_timeline, results, places, means))


def _timeline(results: Results, places: pl.DataFrame, means: pl.DataFrame, divided: bool) -> Chart | None:
    rows = accounts.stack(results, places, divided=divided, known_means=means)
    client = rows.filter(pl.col("key") == "client")
    rows = accounts.merge_small(rows.filter(pl.col("key") != "client"))
    if rows.is_empty():
        return None
    spans = places.group_by("place").agg(pl.col("t0_ns").min(), pl.col("t1_ns").max())
    drawn = _hover_rows(rows, None).join(
        wall_clock.with_times(results, spans), on="place", maintain_order="left"
    )
    span = wall_clock.x_span(results)
    first: list[Any] = list(wall_clock.FROM_TO)
    bars = encoded(_bars(drawn, rows, span["x"], "active sessions (s/s)", "~g", first), **span)
    mean = (client["aas"] * 1.0).mean() if len(client) else None
    away = (
        ""
        if mean is None
        else f" Not drawn: {significant(number(mean))} sessions on average were at their client."
    )
    left_open = wall_clock.left_open(results)
    grey = wall_clock.GREY if left_open else ""
    fired = triggers.moments(results)
    caption = _caption(results, places, means, "")
    return chart(
        "timeline",
        fill("Where the {~time_of_tasks} went"),
        f"{caption}{away}{grey}{triggers.caption_note(fired)}".strip(),
        [
            *left_open,
            bars,
            *cpu_mark(figures.usable_cpus(results), "y", 1.3 * number(drawn["y1"].max())),
            *triggers.marks(fired, results),
        ],
        "Stacked accounts over time, in seconds per second",
        rows,
        legend=_keys(rows),
        wide=True,
    )


def variant_stack(results: Results, series: list[Series]) -> Chart | None:
    """Returns stacked bars of session time, one per variant of one load each; None without rows."""
    places = pl.concat(
        of_series(results.tables["windows"], s).select("cell", place=pl.lit(n), weight=pl.lit(1.0))
        for n, s in enumerate(series)
    )
    means = accounts.every_mean(results, places)
    rows = accounts.merge_small(accounts.stack(results, places, known_means=means))
    if rows.is_empty():
        return None
    labels = pl.DataFrame({"place": range(len(series)), "series": [s.label for s in series]})
    drawn = _hover_rows(rows, pl.col("aas").sum().over("place")).join(
        labels.cast({"place": rows.schema["place"]}), on="place", maintain_order="left"
    )
    unit, title, form = map(fill, _STACKS["aas"])
    axis = {"labelAngle": -30, "labelOverlap": False, "ticks": False}
    names = channel("series:N", title=None, sort=[s.label for s in series], axis=axis)
    top = 1.3 * number(drawn["y1"].max())
    return chart(
        "stack-aas",
        title,
        _caption(results, places, means, ""),
        [
            _bars(drawn, rows, names, unit, form, ["series:N"]),
            *cpu_mark(figures.usable_cpus(results, series), "y", top),
        ],
        f"{title}: stacked accounts per variant, in {unit}",
        rows,
        legend=_keys(rows),
    )


_MAX_READINGS = 120
"""Most pieces of a measurement in a chart; consecutive readings of the driver are merged above that."""
_SLOW_FACTOR = 2.5
"""A reading this many times longer than the median is grey: the driver did not answer in between."""


def within(results: Results, pick: Pick) -> list[Block]:
    """Returns charts of throughput and mean response time of one measurement, reading by reading.

    Empty if there are fewer than two readings of the driver.
    """
    rows = _readings(results, pick)
    if len(rows) < 2:
        return []
    slow = rows.filter(
        pl.col("end_s") - pl.col("start_s") > _SLOW_FACTOR * (pl.col("end_s") - pl.col("start_s")).median()
    )
    unit, factor = time_unit(number(rows["response_mean_ns"].max()))
    shown = rows.with_columns(time=pl.col("response_mean_ns") / factor)
    calls, time = noun("calls"), noun("response_time")
    drawn = (
        (
            "calls_per_s",
            f"{noun('calls')}/s",
            f"Throughput over time, {pick.at}",
            "series-1",
            f"{capital(calls)} that ended between two looks at the driver, about one a second.",
        ),
        (
            "time",
            f"mean {time}, {unit}",
            f"{capital(time)} over time, {pick.at}",
            "stat-p95",
            f"Mean duration of the {calls} that ended in between; "
            "percentiles are stored for the whole alone.",
        ),
    )
    fired = triggers.of_cell(results, pick.cell)
    part = _part(results, pick, number(rows["start_s"].min()), number(rows["end_s"].max()))
    charts = [
        _over_time(shown, slow, fired, pick, column, axis, title, paint, f"{caption}{part}")
        for column, axis, title, paint, caption in drawn
    ]
    return [c for c in charts if c]


def _part(results: Results, pick: Pick, start_s: float, end_s: float) -> str:
    """Returns a sentence on which part is drawn; empty if all but 1 % of the measurement is."""
    wall_s = results.of_cell("windows", pick.cell)["wall_s"][0] if pick.cell else None
    if wall_s is None or end_s - start_s >= 0.99 * wall_s:
        return ""
    return (
        f" Drawn from the first look to the last, {start_s:.1f} to {end_s:.1f} s of {wall_s:.1f} s; figures "
        "of the measurement are of all of it."
    )


def _readings(results: Results, pick: Pick) -> pl.DataFrame:
    """Returns the rows of table ``over_time`` of a measurement, with consecutive rows merged where there
    are many."""
    rows = results.of_cell("over_time", pick.cell) if pick.cell else results.tables["over_time"].clear()
    size = -(-len(rows) // _MAX_READINGS) or 1
    calls, spent = pl.col("calls").sum(), (pl.col("response_mean_ns") * pl.col("calls")).sum()
    return (
        rows.sort("start_s")
        .group_by(pl.int_range(pl.len()) // size, maintain_order=True)
        .agg(
            pl.col("start_s").min(),
            pl.col("end_s").max(),
            calls,
            pl.col("errors").sum(),
            response_mean_ns=pl.when(calls > 0).then(spent / calls),
        )
        .with_columns(calls_per_s=pl.col("calls") / (pl.col("end_s") - pl.col("start_s")))
    )


def _over_time(
    rows: pl.DataFrame,
    slow: pl.DataFrame,
    fired: list[dict[str, Any]],
    pick: Pick,
    column: str,
    unit: str,
    title: str,
    paint: str,
    caption: str,
) -> Chart | None:
    """Returns a step chart of one column, grey where the driver did not answer for long; None without
    values."""
    known = rows.filter(pl.col(column).is_not_null()).select(
        "start_s", "end_s", "calls", "errors", value=pl.col(column).round(4)
    )
    if known.is_empty():
        return None
    axis = channel("start_s:Q", title="seconds since the start of the measurement", scale={"nice": False})
    span = {"x": axis, "x2": {"field": "end_s"}}
    y = channel("value:Q", title=unit, scale={"zero": True})
    tooltip = tips(
        ("start_s:Q", ".1f", "from second"),
        ("end_s:Q", ".1f", "to second"),
        ("value:Q", ",.4~r", unit),
        ("calls:Q", ",", f"{noun('calls')} ended"),
        ("errors:Q", ",", "errors"),
    )
    grey = encoded(
        layer(slow.select("start_s", "end_s"), "rect", color=var("line"), opacity=0.6),
        **span,
        y={"value": 0},
        y2={"value": HEIGHT},
    )
    area = encoded(
        layer(known, "bar", color=var(paint), opacity=0.25), **span, y=y, y2={"datum": 0}, tooltip=tooltip
    )
    step = encoded(layer(known, "rule", color=var(paint), strokeWidth=2.5), **span, y=y)
    if len(slow):
        caption += " Grey: the driver could not be asked in between."
    caption += triggers.caption_note(fired)
    layers = [grey, area, step, *triggers.marks(fired)]
    name = "calls-over-time" if column == "calls_per_s" else "response-over-time"
    return chart(f"{pick.key}-{name}", title, caption, layers, f"{title}, in {unit}", known)


def fills(rows: pl.DataFrame) -> dict[str, tuple[str, bool]]:
    """Returns for each key of a segment the name of its colour, and whether it is hatched."""
    segments = rows.select("key", "family", "waiting").unique(maintain_order=True).rows()
    paint = account_colours(sorted({family for _, family, _ in segments}))
    return {key: (paint[family], waiting) for key, family, waiting in segments}


def _keys(rows: pl.DataFrame) -> list[Key]:
    """Returns the entries of the legend in the order of the stack."""
    paint = {key: hatch_css(name) if waiting else var(name) for key, (name, waiting) in fills(rows).items()}
    shown = rows.sort("order").select("key", "label").unique(maintain_order=True).rows()
    return [Key(label, paint[key], "fill") for key, label in shown]


def _bars(drawn: pl.DataFrame, rows: pl.DataFrame, x: Spec, unit: str, form: str, first: list[Any]) -> Spec:
    """Returns the stacked bars. ``first`` are the first lines of the tooltip."""
    paint = {key: hatched(name) if waiting else var(name) for key, (name, waiting) in fills(rows).items()}
    # Without nice ends, or a remainder of -0.001 would open a whole step below zero.
    ends = [1.02 * min(0.0, number(drawn["y1"].min())), 1.02 * number(drawn["y1"].max())]
    tooltip = tips(
        *first,
        ("label:N", "", "account"),
        ("aas:Q", ".3f", "seconds per second"),
        "interval:N",
        *([("share:Q", ".1%", f"of {noun('session_time')}")] if "share" in drawn.columns else []),
        ("runq:Q", ".3f", "CPU WAIT in all"),
        ("events:N", "", "most of it"),
        ("source:N", "", "data source"),
    )
    return encoded(
        layer(drawn, "bar", stroke=var("card"), strokeWidth=0.5),
        x=x,
        y=channel("y0:Q", title=unit, axis={"format": form}, scale={"domain": ends, "nice": False}),
        y2={"field": "y1"},
        color=coloured("key", paint, paint.values()),
        tooltip=tooltip,
    )


def _hover_rows(rows: pl.DataFrame, whole: pl.Expr | None) -> pl.DataFrame:
    """Returns the columns that are drawn and those of the tooltip.

    ``whole`` is the expression that a share refers to; None leaves the share out.
    """
    interval = pl.when(pl.col("low").is_not_null() & pl.col("high").is_not_null()).then(
        pl.format("{} to {}", pl.col("low").round(3), pl.col("high").round(3))
    )
    share = [] if whole is None else [(pl.col("aas") / whole).alias("share")]
    return rows.select(
        "place",
        "key",
        "label",
        *(pl.col(c).round(6) for c in ("aas", "runq", "y0", "y1")),
        *share,
        interval.fill_null("not known").alias("interval"),
        pl.when(pl.col("events") != "").then("events").otherwise(pl.lit("-")).alias("events"),
        "source",
    )


def _caption(results: Results, places: pl.DataFrame, means: pl.DataFrame, caption: str) -> str:
    """Returns the caption, or a note which parts of the account are missing."""
    missing = accounts.missing_parts(results, places.select("cell", "place", "weight"), means)
    if not missing:
        return caption.strip()
    known = "unaccounted" not in missing
    where = " What they took lies in unaccounted." if known else ""
    return f"{accounts.undrawn(missing, places['place'].n_unique())}{where}"


def cpu_by_source(results: Results, series: Series) -> Chart | None:
    """Returns a chart of CPUs used, from every data source that measures them; None if none was used."""
    load, rows = figures.load_of(results), _cpu_rows(results, series)
    if not number(rows["value"].max()):
        return None
    names = rows["source"].unique(maintain_order=True).to_list()
    base = {
        "x": load_axis(load),
        "y": channel("value:Q", title="CPUs used", scale={"zero": True}),
        "color": coloured("source", names),
    }
    shapes = {"domain": names, "range": list(_SHAPES[: len(names)])}
    # Outlines of falling size: sources that agree stay visible one inside the other.
    sizes = {"type": "ordinal", "domain": names, "range": [160 / (i + 1) for i in range(len(names))]}
    points = encoded(
        layer(rows, "point", filled=False, strokeWidth=2, opacity=1),
        **base,
        shape=channel("source:N", scale=shapes, legend=None),
        size=channel("source:O", scale=sizes, legend=None, sort=names),
        tooltip=tips(
            f"{load.column}:Q",
            "source:N",
            ("value:Q", ".3f", "CPUs used"),
            ("difference:Q", "+.1%", "to the reference"),
            "verdict:N",
        ),
    )
    lines = encoded(layer(rows, "line", strokeWidth=1.5, opacity=0.8), **base)
    return chart(
        "cpu",
        "CPU used, by source",
        "Independent data sources of one quantity: where they differ, the cross-check says by how much, and "
        "which one is the reference.",
        [
            lines,
            points,
            *cpu_mark(figures.usable_cpus(results, [series]), "y", 1.3 * number(rows["value"].max())),
        ],
        "CPUs used, by each source",
        rows,
        legend=series_keys(names),
    )


def _cpu_rows(results: Results, series: Series) -> pl.DataFrame:
    """Returns sessions or rate, source, value, difference and verdict, averaged over repeats."""
    column = figures.load_of(results).column
    rows = of_series(figures.by_load(results, results.tables["data_sources"]), series).filter(
        pl.col("quantity").is_in(["cpu_used", "cpu_used_machine"]) & pl.col("value").is_not_null()
    )
    machine = pl.when(pl.col("quantity") == "cpu_used_machine").then(pl.format("{} (machine)", "source"))
    return (
        rows.with_columns(source=machine.otherwise("source"))
        .group_by(column, "source", maintain_order=True)
        .agg(
            pl.col("value").mean(),
            pl.col("relative_difference").mean().alias("difference"),
            pl.col("verdict").unique().sort().str.join(", "),
        )
        .sort(column, maintain_order=True)
    )


def helpers(results: Results, series: Series) -> Chart | None:
    """Returns a chart of the CPU of the server's own processes; None where it is below ``WORTH``."""
    load, rows = figures.load_of(results), _helper_rows(results, series)
    if _most_cpus(rows) < WORTH * (figures.usable_cpus(results) or 1):
        return None
    names = rows["who"].unique(maintain_order=True).to_list()
    bars = encoded(
        layer(rows, "bar", stroke=var("card"), strokeWidth=0.5),
        x=rungs_axis(load),
        y=channel("aas:Q", title="CPUs used", stack="zero"),
        color=coloured("who", names),
        tooltip=tips(f"{load.column}:O", ("who:N", "", "process"), ("aas:Q", ".4f", "CPUs used")),
    )
    return chart(
        "helpers",
        f"CPU of {noun('launcher')}",
        fill("Work done for the {~owners} by others: it is not in the {~owners}' stack and comes on top."),
        [bars],
        f"CPUs used by {noun('launcher')}, per rung",
        rows,
        legend=series_keys(names, "fill"),
    )


def _most_cpus(rows: pl.DataFrame) -> float:
    """Returns the CPUs at the rung where most are used."""
    return number(rows.group_by(rows.columns[0]).agg(pl.col("aas").sum())["aas"].max())


def idle_helpers(results: Results) -> list[Block]:
    """Returns a line of text in place of the chart of helpers where that would show almost nothing."""
    least = WORTH * (figures.usable_cpus(results) or 1)
    used = [_most_cpus(rows) for s in series_of(results) if len(rows := _helper_rows(results, s))]
    if not used or max(used) >= least:
        return []
    return [Paragraph(f"CPU of {noun('launcher')}: at most {significant(max(used), 2)} CPUs.", "muted")]


def _helper_rows(results: Results, series: Series) -> pl.DataFrame:
    """Returns CPU by rung and process, averaged over the cells. The smallest processes are merged into
    one."""
    column = figures.load_of(results).column
    rows = accounts.leaves(of_series(figures.by_load(results, results.tables["ledger"]), series), "helper")
    cpu = rows.filter(pl.col("account").is_in(["run", "run.user", "run.system"]) & (pl.col("aas") > 0))
    totals = cpu.group_by("who").agg(pl.col("aas").sum()).sort(["aas", "who"], descending=[True, False])
    order = [*totals["who"].to_list()[: ROOM - 2], "other processes"]
    who = pl.when(pl.col("who").is_in(order)).then("who").otherwise(pl.lit(order[-1])).alias("who")
    cells = of_series(results.tables["windows"], series).group_by(column).agg(pl.len().alias("cells"))
    return (
        cpu.with_columns(who)
        .sort(pl.col("who").replace_strict(order, list(range(len(order))), return_dtype=pl.Int64))
        .group_by(column, "who", maintain_order=True)
        .agg(pl.col("aas").sum())
        .join(cells, on=column, maintain_order="left")
        .with_columns(pl.col("aas") / pl.col("cells"))
        .drop("cells")
    )
