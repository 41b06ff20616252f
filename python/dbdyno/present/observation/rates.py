"""Draws transactions and statements per second over the time of an observation."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import capital
from dbdyno.present.charts import triggers, wall_clock
from dbdyno.present.charts.chart import HEIGHT, Spec, channel, chart, encoded, layer, tips
from dbdyno.present.document.document import Block, Chart, Paragraph
from dbdyno.present.document.palette import var
from dbdyno.present.figures import figures, headline
from dbdyno.present.figures.selection import pick_of, rows_of


class Counted(NamedTuple):
    """A kind of work that the server counts."""

    name: str  # in the load profile
    what: str
    paint: str
    caption: str


TRANSACTIONS = Counted(
    headline.TRANSACTIONS,
    "transactions",
    "series-1",
    "Committed and rolled back. The server learns of a session's transactions about once a second, so that "
    "some are counted in the next window.",
)
STATEMENTS = Counted(
    headline.STATEMENTS, "statements", "series-3", "Executions of statements, as in the load profile."
)


def blocks(results: Results) -> list[Block]:
    """Returns a chart of transactions and one of statements, or the reason why a rate is unknown."""
    charts: list[Block] = []
    reasons: list[Block] = []
    pick = pick_of(results)
    if pick is None:
        return []
    together = rows_of(results, "profile", pick)
    for counted in (TRANSACTIONS, STATEMENTS):
        drawn = _chart(results, counted)
        if drawn is not None:
            charts.append(drawn)
        elif (rate := headline.rate(together, counted.name)).per_s is None:
            reasons.append(Paragraph(f"{capital(counted.what)} per second: unknown: {rate.why}.", "muted"))
    return [*charts, *reasons]


def by_stretch(results: Results, name: str) -> pl.DataFrame:
    """Returns the rate of a name of the load profile by stretch: place, t0_ns, t1_ns, per_s, why.

    A window that does not know the figure counts neither in the sum nor in the time. ``per_s`` is NULL if no
    window of the stretch knows it; ``why`` is then the reason of the first one.
    """
    profile = results.tables["profile"].filter(pl.col("name") == name).select("cell", "total", "status")
    windows = figures.stretches(results).join(profile, on="cell", how="left", maintain_order="left")
    known = pl.col("total").is_not_null()
    return windows.group_by("place", maintain_order=True).agg(
        pl.col("t0_ns").min(),
        pl.col("t1_ns").max(),
        per_s=pl.when(known.any()).then(pl.col("total").sum() / pl.col("weight").filter(known).sum()),
        why=pl.col("status").filter(~known).first(),
    )


def _chart(results: Results, counted: Counted) -> Chart | None:
    """Returns a step per window, and grey where the rate is unknown; None if it never is above 0."""
    rows = wall_clock.with_times(results, by_stretch(results, counted.name))
    known = rows.filter(pl.col("per_s").is_not_null()).with_columns(pl.col("per_s").round(4))
    if not known["per_s"].sum():
        return None
    span = wall_clock.x_span(results)
    y = channel("per_s:Q", title=f"{counted.what}/s", scale={"zero": True})
    tooltip = tips(*wall_clock.FROM_TO, ("per_s:Q", ",.4~r", f"{counted.what}/s"))
    area = encoded(
        layer(known, "bar", color=var(counted.paint), opacity=0.2),
        **span,
        y=y,
        y2={"datum": 0},
        tooltip=tooltip,
    )
    line = encoded(layer(known, "rule", color=var(counted.paint), strokeWidth=2.5), **span, y=y)
    fired = triggers.moments(results)
    reasons = list(dict.fromkeys(headline.reason(s or "off") for s in rows["why"].to_list() if s))
    pauses = wall_clock.left_open(results)
    why = [*(["nothing was measured"] if pauses else []), *reasons]
    grey = f" Grey: unknown, {'; '.join(why)}." if why else ""
    caption = counted.caption + grey + triggers.caption_note(fired)
    title = f"{capital(counted.what)} per second"
    layers = [*pauses, *_unknown(rows, span), area, line, *triggers.marks(fired, results)]
    return chart(f"rate-{counted.what}", title, caption, layers, f"{title} over time", known)


def _unknown(rows: pl.DataFrame, span: dict[str, Spec]) -> list[Spec]:
    unknown = rows.filter(pl.col("per_s").is_null()).drop("per_s")
    if unknown.is_empty():
        return []
    reasons = [headline.reason(status or "off") for status in unknown["why"].to_list()]
    grey = layer(unknown.with_columns(why=pl.Series(reasons)), "rect", color=var("line"), opacity=0.6)
    tooltip = tips(("why:N", "", "unknown"), *wall_clock.FROM_TO)
    return [encoded(grey, **span, y={"value": 0}, y2={"value": HEIGHT}, tooltip=tooltip)]
