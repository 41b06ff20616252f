"""Shows what triggers captured: what fired and when, the largest parts of it, and marks on charts of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.nouns import capital
from dbdyno.model.units import NS_PER_S, format_ns, format_size
from dbdyno.present.charts import wall_clock
from dbdyno.present.charts.chart import HEIGHT, Spec, channel, encoded, layer, tips
from dbdyno.present.document.document import Block, Cell, Column, known, numeric, remarks, table, word
from dbdyno.present.document.palette import var
from dbdyno.present.figures import figures

TITLE = "What triggers captured"
_Row = dict[str, Any]
_Columns = tuple[tuple[Column, Callable[[_Row], Cell]], ...]


def any_fired(results: Results) -> bool:
    """Returns whether a trigger fired."""
    return bool(_fired(results).height)


def _fired(results: Results) -> pl.DataFrame:
    return results.tables.get("triggers_fired", empty("triggers_fired")).sort("number")


def blocks(results: Results) -> list[Block]:
    """Returns a table with one row per action, then the largest parts of each capture and the output of
    commands."""
    if not any_fired(results):
        none = "No trigger fired." if results.plan.experiment.triggers else "The run has no triggers."
        return [*remarks([none])]
    first_ns = _begin_ns(results)
    columns: _Columns = (
        (numeric("N"), lambda r: word(str(r["number"]))),
        (numeric("after"), lambda r: known((r["at_ns"] - first_ns) / NS_PER_S, _seconds)),
        (Column("at", rank=3), lambda r: word(figures.clock(results, r["at_ns"]))),
        (Column("what was done", shortens=True), lambda r: word(r["action"])),
        (Column("status"), lambda r: word(r["status"])),
        (numeric("length", 2), _length),
        (numeric("stored", 1), _stored),
        (Column("met", shortens=True), lambda r: word(r["measured"])),
        (Column("trigger", rank=4, shortens=True), lambda r: word(f"{r['trigger']}: {r['condition']}")),
    )
    rows = _fired(results).to_dicts()
    shown: list[Block] = [table("What fired", columns, rows)]
    shown += remarks([f"{r['action']} ({r['number']}): {r['detail']}" for r in rows if r["detail"]])
    shown += [b for r in rows for b in _captured(results, r)]
    run = results.info.id
    if any(r["capture"] for r in rows):
        named = f"{run} --capture N"
        shown += remarks([f"All of action N: dbdyno show {named}, dbdyno report {named} -o FILE.html"])
    return shown


def _seconds(value: float) -> str:
    return format_ns(max(0.0, value) * NS_PER_S)


def _length(row: _Row) -> Cell:
    if row["from_ns"] is None:
        return known(None, format_ns)
    return known(float(row["to_ns"] - row["from_ns"]), format_ns)


def _stored(row: _Row) -> Cell:
    return known(row["size_bytes"], format_size, "bytes") if row["size_bytes"] else word("-")


def _captured(results: Results, row: _Row) -> list[Block]:
    parts = results.tables.get("captured", empty("captured")).filter(pl.col("number") == row["number"])
    when = f"action {row['number']}, {row['action']}, {row['matched']}"
    tables: list[Block] = []
    for (kind,), rows in parts.group_by("kind", maintain_order=True):
        size = str(kind).startswith("memory")
        text: Callable[[float], str] = format_size if size else lambda v: format_ns(v * NS_PER_S)
        columns: _Columns = (
            (Column("name", shortens=True), lambda r: word(r["name"])),
            (numeric("size" if size else "time per second"), _value(text)),
            (numeric("%"), lambda r: known(r["share"], lambda v: f"{100 * v:.1f}")),
        )
        tables.append(table(f"{capital(str(kind))}: {when}", columns, rows.to_dicts()))
    if row["lines"]:
        columns = ((Column("last lines of its output", shortens=True), lambda r: word(r["line"])),)
        lines = [{"line": line} for line in row["lines"].splitlines()]
        tables.append(table(f"Output: {when}", columns, lines))
    return tables


def _value(text: Callable[[float], str]) -> Callable[[_Row], Cell]:
    return lambda row: known(row["value"], text)


def _begin_ns(results: Results) -> int:
    """Returns the start of the first measurement or window; without one, the time of the first action."""
    first = results.tables["windows"]["t0_ns"].min()
    return int(first) if first is not None else int(_fired(results)["at_ns"].min())  # type: ignore[arg-type]


# Marks on charts of time.


def moments(results: Results, from_ns: int | None = None, to_ns: int | None = None) -> list[_Row]:
    """Returns one row per firing: at_ns, seconds since ``from_ns``, the condition met, and the actions.

    Without ``from_ns`` the seconds count from the first window.
    """
    rows = _fired(results)
    if rows.is_empty():
        return []
    begin = _begin_ns(results) if from_ns is None else from_ns
    if to_ns is not None:
        rows = rows.filter((pl.col("at_ns") >= begin) & (pl.col("at_ns") < to_ns))
    firings = rows.group_by("trigger", "at_ns", maintain_order=True).agg(
        pl.col("matched").first(), pl.col("measured").first(), pl.col("action").str.join(", ")
    )
    return [
        {
            "at_ns": r["at_ns"],
            "fired_s": round((r["at_ns"] - begin) / NS_PER_S, 3),
            "fired": f"trigger {r['trigger']}: {r['matched']}",
            "action": r["action"],
        }
        for r in firings.to_dicts()
    ]


def of_cell(results: Results, cell: str | None) -> list[_Row]:
    """Returns the firings within one measurement; all of them since the first window if ``cell`` is None."""
    if cell is None:
        return moments(results)
    window = results.tables["windows"].filter(pl.col("cell") == cell)
    return moments(results, window["t0_ns"][0], window["t1_ns"][0]) if window.height else []


def marks(fired: list[_Row], clock: Results | None = None) -> list[Spec]:
    """Returns a dotted line per firing with a tooltip; empty if nothing fired.

    ``clock``: the run whose wall-clock time is the axis; else the axis has seconds.
    """
    if not fired:
        return []
    if clock is None:
        rows, x, when = fired, channel("fired_s:Q"), ("fired_s:Q", ".1f", "at second")
    else:
        times = [
            {"fired_ms": wall_clock.at_ms(clock, r["at_ns"]), "at": figures.clock(clock, r["at_ns"])}
            for r in fired
        ]
        rows, x, when = (
            [r | t for r, t in zip(fired, times, strict=True)],
            channel("fired_ms:T"),
            ("at:N", "", "at"),
        )
    line = layer(rows, "rule", color=var("text"), strokeDash=[2, 2], strokeWidth=2)
    tooltip = tips(("fired:N", "", "fired"), when, ("action:N", "", "action"))
    return [encoded(line, x=x, y={"value": 0}, y2={"value": HEIGHT}, tooltip=tooltip)]


def caption_note(fired: list[_Row]) -> str:
    """Returns the sentence that explains the marks in a caption; empty if nothing fired."""
    return " Dotted lines: a trigger fired." if fired else ""
