"""Charts of where the time went: the stack of accounts, CPU by source, the helpers."""

from __future__ import annotations

from typing import Any, Literal

import altair as alt
import polars as pl

from dbdyno.model.results import Results
from dbdyno.report import accounts, figures
from dbdyno.report.accounts import Account
from dbdyno.report.chart import (
    SHAPES,
    Chart,
    Key,
    colours,
    cpu_mark,
    finished,
    inline,
    rungs_axis,
    series_keys,
    series_scale,
    sessions_axis,
)
from dbdyno.report.figures import Series, of_series
from dbdyno.report.palette import SERIES, account_colours, shade, var

_STACKS = {
    "aas": ("seconds per second", "Where session time went", "~g"),
    "share": ("share of session time", "The same as a share of session time", ".0%"),
}
_CAPTIONS = {
    "aas": "The stack is as high as the sessions are many; work on CPUs cannot rise above the dotted line, "
    "what comes on top only waits.",
    "share": "What grows from left to right is what a further session is spent on; what lies below zero was "
    "accounted for twice (signed remainder).",
}


def account_keys(shown: list[Account]) -> list[Key]:
    paint = account_colours(shown)
    return [Key(a.label, paint[a.key], "fill", shade(a)) for a in shown]


def time_stack(results: Results, series: Series, measure: Literal["aas", "share"]) -> Chart | None:
    """Stacked bars, one a rung; a negative remainder hangs below zero."""
    shown = accounts.accounts_of(results)
    rows = accounts.stack(results, series, shown)
    if rows.is_empty():
        return None
    present = set(rows["key"].to_list())
    unit, title, form = _STACKS[measure]
    # Without nice ends, or a remainder of -0.001 would open a whole step below zero.
    scale = alt.Scale(domain=_ends(rows, measure), nice=False)
    y = alt.Y(f"{measure}:Q", title=unit, stack="zero", axis=alt.Axis(format=form), scale=scale)
    paint = account_colours(shown)
    keys = [a.key for a in shown]
    shades = alt.Scale(type="ordinal", domain=keys, range=[shade(a) for a in shown])
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(stroke=var("card"), strokeWidth=0.5)
        .encode(
            x=rungs_axis(),
            y=y,
            color=alt.Color("key:N", scale=colours(keys, [paint[k] for k in keys]), legend=None),
            opacity=alt.Opacity("key:O", scale=shades, legend=None, sort=keys),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("sessions:O"),
                alt.Tooltip("label:N", title="account"),
                alt.Tooltip("aas:Q", format=".3f", title="seconds per second"),
                alt.Tooltip("share:Q", format=".1%", title="of session time"),
            ],
        )
    )  # fmt: skip
    cpus = figures.usable_cpus(results)
    mark = cpu_mark(cpus, "y") if measure == "aas" and cpus and cpus <= _top(rows) else []
    return Chart(
        id=f"stack-{measure}",
        title=title,
        caption=_caption(results, series, measure),
        spec=finished([bars, *mark], f"{title}: stacked accounts per rung, in {unit}"),
        legend=account_keys([a for a in shown if a.key in present]),
        marks=len(rows),
    )


def _ends(rows: pl.DataFrame, measure: str) -> list[float]:
    """Lower and upper end of the stacks."""
    value = pl.col(measure)
    stacks = rows.group_by("sessions").agg(
        value.filter(value < 0).sum().alias("low"), value.filter(value > 0).sum().alias("high")
    )
    return [1.02 * _extreme(stacks["low"].min()), 1.02 * _extreme(stacks["high"].max())]


def _extreme(value: Any) -> float:
    return float(value or 0)


def _caption(results: Results, series: Series, measure: str) -> str:
    missing = accounts.missing(results, series)
    if not missing:
        return _CAPTIONS[measure]
    known = "unaccounted" not in missing
    where = " What they took lies in unaccounted." if known else ""
    return f"Not the whole account: unknown, and so not drawn: {', '.join(missing)}.{where}"


def cpu_by_source(results: Results, series: Series) -> Chart | None:
    """The same quantity, CPU used, from every witness."""
    rows = _witnesses(results, series)
    if rows.is_empty():
        return None
    names = rows["source"].unique(maintain_order=True).to_list()
    scale = series_scale(names)
    tooltip = [
        alt.Tooltip("sessions:Q"), alt.Tooltip("source:N"),
        alt.Tooltip("value:Q", format=".3f", title="CPUs used"),
        alt.Tooltip("difference:Q", format="+.1%", title="to the reference"), alt.Tooltip("verdict:N"),
    ]  # fmt: skip
    base = alt.Chart(inline(rows)).encode(
        x=sessions_axis(),
        y=alt.Y("value:Q", title="CPUs used", scale=alt.Scale(zero=True)),
        color=alt.Color("source:N", scale=scale, legend=None),
    )
    shapes = alt.Scale(
        domain=names, range=list(SHAPES[: len(names)]) if len(names) <= len(SHAPES) else list(SHAPES)
    )
    # Outlines of falling size: witnesses that agree stay visible one inside the other.
    sizes = alt.Scale(type="ordinal", domain=names, range=[160 / (i + 1) for i in range(len(names))])
    points = base.mark_point(filled=False, strokeWidth=2, opacity=1).encode(
        shape=alt.Shape("source:N", scale=shapes, legend=None),
        size=alt.Size("source:O", scale=sizes, legend=None, sort=names),
        tooltip=tooltip,
    )
    cpus = figures.usable_cpus(results)
    mark = cpu_mark(cpus, "y") if cpus and cpus <= 1.3 * _extreme(rows["value"].max()) else []
    return Chart(
        id="cpu",
        title="CPU used, by source",
        caption="Independent witnesses of one quantity: where they part, the table of witnesses says by how "
        "much, and which one is the reference.",
        spec=finished(
            [base.mark_line(strokeWidth=1.5, opacity=0.8), points, *mark], "CPUs used, by each source"
        ),
        legend=series_keys(names),
        marks=len(rows),
    )


def helpers(results: Results, series: Series) -> Chart | None:
    """CPU of the server's own processes, which work for all sessions."""
    rows = _helpers(results, series)
    if rows.is_empty():
        return None
    names = rows["who"].unique(maintain_order=True).to_list()
    scale = series_scale(names)
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(stroke=var("card"), strokeWidth=0.5)
        .encode(
            x=rungs_axis(),
            y=alt.Y("aas:Q", title="CPUs used", stack="zero"),
            color=alt.Color("who:N", scale=scale, legend=None),
            tooltip=[
                alt.Tooltip("sessions:O"), alt.Tooltip("who:N", title="process"),
                alt.Tooltip("aas:Q", format=".4f", title="CPUs used"),
            ],
        )
    )  # fmt: skip
    legend = [Key(k.label, k.colour, "fill") for k in series_keys(names)]
    return Chart(
        id="helpers",
        title="CPU of the server's own processes",
        caption="Work done for the sessions by others: it is not in the sessions' stack and comes on top.",
        spec=finished([bars], "CPUs used by the server's own processes, per rung"),
        legend=legend,
        marks=len(rows),
    )


def _top(rows: pl.DataFrame) -> float:
    highest: Any = rows["sessions"].max()
    return float(highest)


def _witnesses(results: Results, series: Series) -> pl.DataFrame:
    rows = of_series(results.tables["witnesses"], series).filter(
        pl.col("quantity").is_in(["cpu_used", "cpu_used_machine"]) & pl.col("value").is_not_null()
    )
    machine = pl.col("quantity") == "cpu_used_machine"
    rows = rows.with_columns(
        pl.when(machine).then(pl.format("{} (machine)", "source")).otherwise("source").alias("source")
    )
    return (
        rows.group_by("sessions", "source", maintain_order=True)
        .agg(
            pl.col("value").mean(),
            pl.col("relative_difference").mean().alias("difference"),
            pl.col("verdict").unique().sort().str.join(", "),
        )
        .sort("sessions", maintain_order=True)
    )


def _helpers(results: Results, series: Series) -> pl.DataFrame:
    """CPU per rung and process, mean over the cells; the smallest processes come together as one."""
    rows = accounts.leaves(of_series(results.tables["ledger"], series), "helper")
    cpu = rows.filter(pl.col("account").is_in(["run", "run.user", "run.system"]) & (pl.col("aas") > 0))
    totals = cpu.group_by("who").agg(pl.col("aas").sum()).sort(["aas", "who"], descending=[True, False])
    named = totals["who"].to_list()[: len(SERIES) - 1]
    who = pl.when(pl.col("who").is_in(named)).then("who").otherwise(pl.lit("other processes")).alias("who")
    order = [*named, "other processes"]
    cells = of_series(results.tables["windows"], series).group_by("sessions").agg(pl.len().alias("cells"))
    return (
        cpu.with_columns(who)
        .sort(pl.col("who").replace_strict(order, list(range(len(order))), return_dtype=pl.Int64))
        .group_by("sessions", "who", maintain_order=True)
        .agg(pl.col("aas").sum())
        .join(cells, on="sessions", maintain_order="left")
        .with_columns(pl.col("aas") / pl.col("cells"))
        .drop("cells")
    )
