"""Shows two spans of an observation side by side, the largest changes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import polars as pl

from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.results.results import Results
from dbdyno.model.results.span_comparison import SpanComparison
from dbdyno.model.text.nouns import fill, noun
from dbdyno.model.text.visible import one_line, shortened
from dbdyno.model.units import (
    NS_PER_S,
    format_average,
    format_ns,
    format_percent,
    format_rate,
    format_size,
    significant,
)
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Paragraph,
    Section,
    numeric,
    optional,
    remarks,
    table,
    word,
)
from dbdyno.present.run.statements import texts_of

SHOWN = 20
"""Most rows of a table."""
_TEXT = 120
_NAMED = 20
"""Most query ids in a note."""
_CHANGE = "B\u00a0-\u00a0A"
_LEAST_S = 0.0005
"""Seconds per second: an event that is smaller on both sides is left out."""
_Row = dict[str, Any]
_Columns = tuple[tuple[Column, Callable[[_Row], Cell]], ...]
_EVENTS = (
    "Seconds per second. The interval is of B - A, from the intervals of both; it is empty where that of a "
    "side is not known."
)
_LOAD = "B/A: the 95 % interval is from the variation over {} blocks of windows in A and {} in B."
_FEW = "B/A: no intervals, as these take three blocks of windows on both sides."
_STEADY = "B/A: no intervals, as these take figures that vary over blocks of windows, without a block of 0."


def sections(comparison: SpanComparison, a: Results, b: Results) -> list[Section]:
    """Returns the comparison of span B with A, the baseline, whose results ``a`` and ``b`` are."""
    with speaking_of(kind_of(b.plan)):
        return [
            Section("What changed: {}".format(fill("{~events}")), _events(comparison), "changed-events"),
            Section("What changed: statements", _statements(comparison, a, b), "changed-statements"),
            Section("What changed: load", _load(comparison), "changed-load"),
            *(
                [Section("What changed: devices", _devices(comparison), "changed-devices")]
                if comparison.devices.height
                else []
            ),
        ]


def _events(comparison: SpanComparison) -> list[Block]:
    rows = comparison.events.filter(pl.max_horizontal("a", "b") >= _LEAST_S)
    if rows.is_empty():
        return [Paragraph("Neither span has sessions that were active.", "muted")]
    columns: _Columns = (
        (
            Column("{~event}", shortens=True),
            lambda r: word(noun("db_cpu") if r["name"] == "DB CPU" else r["name"]),
        ),
        (_side("a"), lambda r: optional(r["a"], format_average, "s/s")),
        (_side("b"), lambda r: optional(r["b"], format_average, "s/s")),
        (numeric(_CHANGE), _change),
        (Column("95 % interval", rank=1), lambda r: _ends(r, _signed)),
    )
    return [table("", columns, rows.head(SHOWN).to_dicts(), named=True), *remarks([_EVENTS, *_left(rows)])]


def _signed(value: float) -> str:
    return f"+{significant(value)}" if value > 0 else significant(value)


def _change(row: _Row) -> Cell:
    """A change whose interval has 0 in it is shown as it is, without a colour."""
    apart = row["low"] is not None and (row["low"] > 0 or row["high"] < 0)
    tone: Any = "" if not apart else "warning" if row["change"] > 0 else "good"
    return optional(row["change"], _signed, "s/s")._replace(tone=tone)


def _ends(row: _Row, text: Callable[[float], str]) -> Cell:
    return word(
        "" if row["low"] is None or row["high"] is None else f"{text(row['low'])} to {text(row['high'])}"
    )


def _statements(comparison: SpanComparison, a: Results, b: Results) -> list[Block]:
    rows = comparison.statements.filter(pl.col("query_id").is_not_null())
    if rows.is_empty():
        return [Paragraph("No statement was counted in either span.", "muted")]
    texts = {id: text for id, (text, *_) in (texts_of(a) | texts_of(b)).items() if text}
    time = rows["time"][0]
    several = [n for n in ("user", "database") if rows[n].n_unique() > 1]
    columns: _Columns = (
        (Column("statement", wraps=True), lambda r: _text(r, texts)),
        _time("time_per_s_a", "a"),
        _time("time_per_s_b", "b"),
        (
            numeric(_CHANGE),
            lambda r: optional(r["change"], lambda v: _plus(v, format_ns(abs(v) * NS_PER_S)), "s"),
        ),
        (_side("a", "calls/s", 2), lambda r: optional(r["calls_per_s_a"], format_rate)),
        (_side("b", "calls/s", 2), lambda r: optional(r["calls_per_s_b"], format_rate)),
        (_side("a", "mean", 1), lambda r: optional(r["mean_ns_a"], format_ns, "ns")),
        (_side("b", "mean", 1), lambda r: optional(r["mean_ns_b"], format_ns, "ns")),
        *((Column(n, rank=4), _named(n)) for n in several),
    )
    notes = [
        f"{time} per second. Empty: among all others there, or not counted. Statements have no intervals."
    ]
    shown = _without_text_as_one(rows, texts)
    return [
        table("", columns, shown.head(SHOWN).to_dicts()).without_unknown(),
        *remarks([*notes, *_left(shown)]),
    ]


_SUMS = ("time_per_s_a", "time_per_s_b", "change", "calls_per_s_a", "calls_per_s_b")


def _without_text_as_one(rows: pl.DataFrame, texts: Mapping[int, str]) -> pl.DataFrame:
    """Returns the rows with those of unknown texts as one, in its place: their ids say little.

    Those whose change is unknown are one of their own. ``query_ids`` are the statements of a row.
    """
    rows = rows.with_columns(query_ids=pl.concat_list("query_id"))
    unknown, changed = ~pl.col("query_id").is_in(list(texts)), pl.col("change").is_not_null()
    parts = [rows.filter(~unknown), *(_as_one(rows.filter(unknown, c)) for c in (changed, ~changed))]
    return pl.concat(parts, how="diagonal").sort(
        pl.col("change").abs(), descending=True, nulls_last=True, maintain_order=True
    )


def _as_one(rows: pl.DataFrame) -> pl.DataFrame:
    if rows.height < 2:
        return rows
    sums = [pl.when(pl.col(n).is_not_null().all()).then(pl.col(n).sum()).alias(n) for n in _SUMS]
    return rows.select(*sums, query_ids=pl.col("query_id").implode())


def _named(column: str) -> Callable[[_Row], Cell]:
    return lambda r: word(one_line(r[column] or ""))


def _plus(value: float, text: str) -> str:
    return f"+{text}" if value > 0 else f"-{text}" if value < 0 else text


def _side(side: Literal["a", "b"], what: str = "", rank: int = 0) -> Column:
    """Returns a column of a figure in A, the baseline, or in B."""
    return numeric(f"{what} {side.upper()}".strip(), rank)._replace(side=side)


def _time(name: str, side: Literal["a", "b"]) -> tuple[Column, Callable[[_Row], Cell]]:
    return _side(side), lambda r: optional(r[name], lambda v: format_ns(v * NS_PER_S), "s")


def _text(row: _Row, texts: Mapping[int, str]) -> Cell:
    ids = row["query_ids"]
    if len(ids) > 1:
        some = ", ".join(map(str, ids[:_NAMED])) + (", ..." if len(ids) > _NAMED else "")
        return word(f"{len(ids)} statements of unknown text", note=f"query ids {some}")
    shown = one_line(" ".join(texts.get(ids[0], f"query id {ids[0]}").split()))
    return word(shortened(shown, _TEXT, 1), note=shown[:1000])


def _load(comparison: SpanComparison) -> list[Block]:
    rows = comparison.load
    if rows.is_empty():
        return [Paragraph("No figure of the load is known in either span.", "muted")]
    columns: _Columns = (
        (Column("per second"), lambda r: word(noun("db_time") if r["name"] == "DB time" else r["name"])),
        (_side("a"), lambda r: optional(r["a"], lambda v: _amount(v, r["unit"]))),
        (_side("b"), lambda r: optional(r["b"], lambda v: _amount(v, r["unit"]))),
        (numeric("B/A"), lambda r: optional(r["ratio"], significant)),
        (Column("95 % interval", rank=1), lambda r: _ends(r, significant)),
    )
    note = _LOAD.format(*comparison.blocks)
    if rows["low"].is_null().all():
        note = _STEADY if comparison.enough_blocks else _FEW
    return [table("", columns, rows.to_dicts(), named=True), *remarks([note])]


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        return format_ns(value * NS_PER_S)
    if unit == "ratio":
        return f"{100 * value:.2f} %"
    return format_size(value) if unit == "bytes" else format_rate(value)


def _devices(comparison: SpanComparison) -> list[Block]:
    columns: _Columns = (
        (Column("device"), lambda r: word(r["device"])),
        *_pair("requests", "requests/s", format_rate),
        *_pair("read_await_ns", "r await", format_ns),
        *_pair("write_await_ns", "w await", format_ns),
        *_pair("utilisation", "busy", format_percent),
    )
    return [table("", columns, comparison.devices.to_dicts())]


def _pair(name: str, head: str, text: Callable[[float], str]) -> list[tuple[Column, Callable[[_Row], Cell]]]:
    def of(column: str) -> Callable[[_Row], Cell]:
        return lambda r: optional(r[column], text)

    return [(_side("a", head), of(f"{name}_a")), (_side("b", head), of(f"{name}_b"))]


def _left(rows: pl.DataFrame) -> list[str]:
    return [f"{rows.height - SHOWN:,} more with smaller changes."] if rows.height > SHOWN else []
