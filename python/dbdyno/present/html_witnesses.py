"""The same quantity from every witness: a table of the chosen rung, and all differences at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.units import significant
from dbdyno.present import figures
from dbdyno.present.figures import difference, quantity
from dbdyno.present.html_detail import chosen
from dbdyno.present.markup import Content, Html, details, el, join, table
from dbdyno.present.missing_values import in_words
from dbdyno.present.selection import Pick, Picks, rows_of

MAX_COLUMNS = 60
_UNKNOWN = el("span", figures.UNKNOWN, class_="unknown")


def witnesses(results: Results, picks: Picks) -> Html:
    """Per rung, then the differences of all rungs."""
    if results.tables["witnesses"].is_empty():
        return el("p", "No quantity had more than one witness.", class_="muted")
    return join(chosen(results, picks, _one), *_all(results))


def _one(results: Results, pick: Pick) -> Html:
    if pick.cell is None:
        return el("p", "Choose a window; below are the differences of all windows.", class_="muted")
    heads = ["quantity", "witness", "value", "unit", "difference", "agrees up to", "verdict", "why"]
    rows = list(_rows(rows_of(results, "witnesses", pick).to_dicts()))
    numeric = [h in ("value", "difference", "agrees up to") for h in heads]
    words = "each quantity from every witness that knows it; the first is the reference"
    caption = f"Witnesses {pick.at}{pick.which}: {words}"
    return table(caption, heads, rows, numeric) if rows else el("p", "No quantity here.", class_="muted")


def _rows(found: list[dict[str, Any]]) -> Iterator[list[Content]]:
    """The quantity's name stands in its first row."""
    before = ""
    for r in sorted(found, key=lambda r: [f["quantity"] for f in found].index(r["quantity"])):
        name = quantity(r["quantity"])
        value = r["value"]
        yield [
            name if name != before else "",
            r["source"],
            _UNKNOWN if value is None else significant(value, 4),
            r["unit"],
            "" if r["verdict"] == "reference" else difference(r["relative_difference"]),
            "" if r["tolerance"] is None else significant(r["tolerance"], 2),
            el("span", r["verdict"], class_=f"verdict {r['verdict']}"),
            in_words(r["status"]) if value is None else r["reason"] or "",
        ]
        before = name


def _all(results: Results) -> Iterator[Html]:
    """A row a quantity and witness, a column a rung (mean of repeats) or window: how far off."""
    frame = results.tables["witnesses"].filter(pl.col("verdict") != "reference")
    if frame.is_empty():
        return
    column, names = _columns(results, frame)
    found = {
        (q, s, c): (value, "differs" if differs else "agrees")
        for q, s, c, value, differs in frame.with_columns(column.alias("column"))
        .group_by("quantity", "source", "column", maintain_order=True)
        .agg(pl.col("relative_difference").mean(), (pl.col("verdict") == "differs").any().alias("differs"))
        .rows()
    }
    pairs = dict.fromkeys((q, s) for q, s, _ in found)
    shown = names[:MAX_COLUMNS]
    rows: list[list[Content]] = [
        [f"{quantity(q)}: {s}", *(_difference(found.get((q, s, c))) for c in shown)] for q, s in pairs
    ]
    left = f"; {len(names) - len(shown)} more are in the export" if len(shown) < len(names) else ""
    what = "window" if figures.is_observation(results) else "rung"
    caption = f"Relative difference to the reference, a column a {what}{left}; ? is unknown"
    made = table(caption, ["quantity: witness", *shown], rows, [False] + [True] * len(shown))
    yield details(f"Differences at every {what}", made)


def _columns(results: Results, frame: pl.DataFrame) -> tuple[pl.Expr, list[str]]:
    if figures.is_observation(results):
        return pl.col("repeat").cast(pl.String), [str(n) for n in frame["repeat"].unique().sort().to_list()]
    one = frame.select("workload", "variant").n_unique() == 1
    keys = frame.select("workload", "variant", "sessions").unique(maintain_order=True)
    keys = keys.sort("workload", "variant", "sessions")
    if one:
        return pl.col("sessions").cast(pl.String), keys["sessions"].cast(pl.String).to_list()
    name = pl.concat_str("variant", pl.lit(", "), pl.col("sessions").cast(pl.String))
    return name, keys.select(name).to_series().to_list()


def _difference(found: tuple[float | None, str] | None) -> Content:
    if found is None:
        return ""
    value, verdict = found
    return _UNKNOWN if value is None else el("span", difference(value), class_=f"verdict {verdict}")
