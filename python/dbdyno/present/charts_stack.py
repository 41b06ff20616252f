"""The stack charts: session time by rung or over time, CPU WAIT split out of every wait class."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.source import HIDDEN_STATUS
from dbdyno.model.wait_families import AT_CLIENT, WaitFamilies, families_of
from dbdyno.present import figures
from dbdyno.present.accounts import NAMES, NO_LABEL, Segment, leaves, wait_classes
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
from dbdyno.present.figures import Series, of_series
from dbdyno.present.palette import account_colours, hatch_css, hatched, var
from dbdyno.present.timeline import gaps, stretches

# Where the time went as a stack: every wait class in its sleep and its run queue, place by place.
#
# A place is a rung (the mean of its repeats) or a stretch of an observation (the mean of its windows).

_FIRST = ("run", "run.user", "run.system", "runq", f"runq:{NO_LABEL}")
_LAST = ("client", "unaccounted")
_SEGMENT: dict[str, Any] = {
    "key": pl.String, "label": pl.String, "family": pl.String, "waiting": pl.Boolean, "order": pl.Int64
}  # fmt: skip


def rungs(results: Results, series: Series) -> pl.DataFrame:
    """The cells of a ladder, each at its rung."""
    cells = of_series(results.tables["windows"], series)
    return cells.select("cell", place=pl.col("sessions"), weight=pl.lit(1.0))


def stack(results: Results, places: pl.DataFrame) -> pl.DataFrame:
    """One row a place and segment: place, key, label, family, waiting, order, aas, low, high, runq, events,
    source, y0, y1; a negative remainder hangs below zero. ``places``: cell, place, weight.

    Raises nothing; what is unknown is not there (:func:`missing` names it).
    """
    rows = means(results, places).filter(pl.col("aas").is_not_null() & (pl.col("aas") != 0))
    up = pl.col("aas").clip(lower_bound=0.0)
    value = pl.when(pl.col("aas") > 0).then(up.cum_sum().over("place")).otherwise("aas")
    told = pl.DataFrame(
        [(*s, i) for i, s in enumerate(segments(rows, families_of(results.tables)))],
        schema=_SEGMENT,
        orient="row",
    )
    rows = rows.join(told, on="key").sort("place", "order")
    return rows.with_columns(value.alias("y1")).with_columns(
        pl.when(pl.col("aas") > 0).then(pl.col("y1") - pl.col("aas")).otherwise(0.0).alias("y0")
    )


def missing_parts(results: Results, places: pl.DataFrame) -> list[str]:
    """Accounts of which at least one place does not know the time."""
    rows = means(results, places).filter(pl.col("aas").is_null())
    names = [NAMES.get(a, a) for a in rows["account"].unique(maintain_order=True).to_list()]
    return [f"waits of sessions {HIDDEN_STATUS}", *names] if hidden(results, places) else names


def hidden(results: Results, places: pl.DataFrame) -> bool:
    """Whether a place has sessions whose waits our role may not see: its waits are those of the others."""
    rows = results.tables["ledger"].join(places, on="cell", how="semi").filter(pl.col("scope") == "rung")
    waits = rows.filter(pl.col("account").is_in(["sleep", "client"]))
    return bool(waits["status"].str.contains(HIDDEN_STATUS).any())


def means(results: Results, places: pl.DataFrame) -> pl.DataFrame:
    """Place, key, account, aas, low, high, runq (CPU WAIT in all), events, source: weighted means of cells.

    A cell without a row did not see that wait: nothing there. One with NULL does not know: left out. The
    ends of a class's interval are the sums of its events' ends, which is rather too wide.
    """
    rows = _classes(leaves(results.tables["ledger"].join(places, on="cell"), "rung"))
    weight = pl.col("weight")
    whole = places.group_by("place").agg(weight.sum().alias("whole"))
    asked = pl.col("whole").first() - weight.filter(pl.col("aas").is_null()).sum()
    return (
        rows.join(whole, on="place", maintain_order="left")
        .group_by("place", "key", maintain_order=True)
        .agg(
            pl.col("account").first(),
            *(pl.when(asked > 0).then(_summed(c) / asked).alias(c) for c in ("aas", "low", "high")),
            pl.col("events").drop_nulls().first(),
            pl.col("source").unique(maintain_order=True).str.join(", "),
        )
        .with_columns(pl.col("aas").filter(pl.col("account") == "runq").sum().over("place").alias("runq"))
        .sort("place", maintain_order=True)
    )


def _summed(column: str) -> pl.Expr:
    """Weighted sum; an end of an interval is known only where all are."""
    total = (pl.col(column) * pl.col("weight")).sum()
    known = pl.col(column).is_not_null() | pl.col("aas").is_null()
    return pl.when(known.all()).then(total) if column != "aas" else total


def segments(rows: pl.DataFrame, families: WaitFamilies) -> list[Segment]:
    """The segments of a stack from the bottom up; each class's run queue lies beside its sleep, and that
    under a label of the client's below the client's time."""
    found = rows.select("key", "account").unique(maintain_order=True)
    accounts = dict(found.rows())
    named = sorted({k.split(":", 1)[1] for k in accounts if ":" in k} - {NO_LABEL})
    classes = [c for c in named if families.of(c) not in AT_CLIENT]
    clients = [f"runq:{c}" for c in named if families.of(c) in AT_CLIENT]
    further = [k for k in accounts if ":" not in k and k not in (*_FIRST, *_LAST)]
    middle = [k for c in (NO_LABEL, *classes) for k in (f"runq:{c}", f"sleep:{c}")]
    keys = [k for k in dict.fromkeys((*_FIRST, *further, *middle, *clients, *_LAST)) if k in accounts]
    made = [segment(k, families) for k in keys]
    split = any(k.startswith("runq:") for k in keys)  # elsewhere, where a place has it whole
    return [s._replace(label="CPU WAIT, not divided") if split and s.key == "runq" else s for s in made]


def segment(key: str, families: WaitFamilies) -> Segment:
    account, _, name = key.partition(":")
    if not name or key in _FIRST:
        label = f"CPU WAIT, {name}" if name else NAMES.get(account, account)
        return Segment(key, label, account, False)
    hue = families.hue(name)
    if account == "runq":
        return Segment(key, f"CPU WAIT under {name}", hue, True)
    return Segment(key, f"asleep, {name}" if name == NO_LABEL else f"asleep in {name}", hue, False)


def _classes(rows: pl.DataFrame) -> pl.DataFrame:
    """Per cell, waits and run queues by class; ``events``: the longest ones of a class in words."""
    by_class = (pl.col("account") == "sleep") | (
        (pl.col("account") == "runq") & pl.col("detail").is_not_null()
    )
    key = pl.concat_str("account", pl.lit(":"), wait_classes())
    event = pl.col("detail").str.extract(r"^[^/:]+[/:](.*)$").fill_null("")
    words = pl.when(by_class & (event != "") & (pl.col("aas") > 0)).then(
        pl.format("{} {}", event, pl.col("aas").round(3))
    )
    ends = [
        pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c) for c in ("aas", "low", "high")
    ]
    return (
        rows.with_columns(pl.when(by_class).then(key).otherwise("account").alias("key"), words.alias("words"))
        .sort("aas", descending=True, nulls_last=True, maintain_order=True)
        .group_by("cell", "place", "weight", "key", maintain_order=True)
        .agg(
            pl.col("account").first(),
            *ends,
            pl.col("words").drop_nulls().head(3).str.join(", ").alias("events"),
            pl.col("source").first(),
        )
    )


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
    places = rungs(results, series)
    rows = stack(results, places)
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
    rows = stack(results, places.select("cell", "place", "weight"))
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
    missing = missing_parts(results, places.select("cell", "place", "weight"))
    if not missing:
        return words.strip()
    known = "unaccounted" not in missing
    where = " What they took lies in unaccounted." if known else ""
    return f"Not the whole account: unknown, and so not drawn: {', '.join(missing)}.{where}"
