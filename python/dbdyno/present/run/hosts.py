"""Shows the hosts that drove a load together: sessions, calls, CPU and clock of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import format_count, format_ns, format_percent, significant
from dbdyno.present.document.document import Block, Cell, Column, known, numeric, remarks, table, word
from dbdyno.present.figures import figures

TITLE = "Hosts that drove the load"
_Row = dict[str, Any]


def blocks(results: Results, title: str = TITLE) -> list[Block]:
    """Returns one row per host and load, repeats together; empty if one host drove the load."""
    if _table(results).is_empty():
        return []
    frame = _by_load(results)
    several = frame["variant"].n_unique() > 1
    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (numeric("load"), lambda r: word(_load(results, r))),
        *([(Column("variant", shortens=True), lambda r: word(r["variant"]))] if several else []),
        (Column("host"), lambda r: word(r["host"])),
        *_FIGURES,
        (Column("lost", wraps=True), lambda r: word(r["detail"])),
    ]
    what = (
        "CPU WAIT: share of their runnable time for which a driver's threads waited for a CPU of their host."
    )
    return [table(title, columns, frame.to_dicts()), *remarks([what, *_start_note(results)])]


def brief(results: Results) -> list[Block]:
    """Returns the same in few columns, for the highest load of each variant."""
    if _table(results).is_empty():
        return []
    frame = _by_load(results)
    top = frame.filter((pl.col("sessions") == pl.col("sessions").max()).over("variant"))
    top = top.filter((pl.col("due") == pl.col("due").max()).over("variant").fill_null(True))
    several = top["variant"].n_unique() > 1
    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (Column("host", shortens=True), lambda r: word(r["host"])),
        *([(Column("variant", shortens=True), lambda r: word(r["variant"]))] if several else []),
        *(c for c in _FIGURES if c[0].head in _BRIEF),
        (Column("lost", rank=2, shortens=True), lambda r: word(r["detail"])),
    ]
    return [table(f"{TITLE}, at {_load(results, top.row(0, named=True))}", columns, top.to_dicts())]


def _by_load(results: Results) -> pl.DataFrame:
    """Returns one row per host and load, repeats together."""
    due = results.tables["windows"].select("cell", due="rate_per_s")
    return (
        _table(results)
        .join(due, on="cell", maintain_order="left")
        .group_by("variant", "sessions", "due", "host", maintain_order=True)
        .agg(
            pl.col("host_sessions").first(),
            pl.col("calls", "errors").sum(),
            pl.col("rate_per_s", "session_rate_per_s", "driver_cpus", "driver_starved").mean(),
            pl.col("host_cpus").first(),
            pl.col("shortest_ns").min(),
            pl.col("first_call_ns", "clock_bound_ns").max(),
            pl.col("detail").drop_nulls().first(),
        )
    )


def _start_note(results: Results) -> list[str]:
    """Returns a note on the time between the first calls of the hosts, where all were to start at once."""
    paced = results.tables["windows"].filter(pl.col("rate_per_s").is_not_null()).select("cell")
    unpaced = _table(results).join(paced, on="cell", how="anti")
    spread = pl.col("first_call_ns").max() - pl.col("first_call_ns").min()
    each = unpaced.group_by("cell").agg(spread=spread, bound=pl.col("clock_bound_ns").max())
    apart, bound = each["spread"].max(), each["bound"].max()
    if apart is None:
        return []
    known_to = "" if bound is None else f"; their clocks are known to {format_ns(bound)}"  # type: ignore[arg-type]
    return [f"The first calls of the hosts began within {format_ns(apart)} of each other{known_to}."]  # type: ignore[arg-type]


def _table(results: Results) -> pl.DataFrame:
    return results.tables.get("hosts", empty("hosts"))


def _load(results: Results, row: _Row) -> str:
    load = figures.load_of(results)
    return figures.load_text(load, row["sessions"] if load.column == "sessions" else row["due"])


def _cpus_note(row: _Row) -> str:
    return "" if row["host_cpus"] is None else f"of {row['host_cpus']}"


_FIGURES: tuple[tuple[Column, Callable[[_Row], Cell]], ...] = (
    (numeric("sessions"), lambda r: known(r["host_sessions"], format_count)),
    (numeric("calls"), lambda r: known(r["calls"], format_count)),
    (numeric("errors", 3), lambda r: known(r["errors"], format_count)),
    (numeric("calls/s"), lambda r: known(r["rate_per_s"], significant)),
    (numeric("per session"), lambda r: known(r["session_rate_per_s"], significant)),
    (numeric("shortest call", 2), lambda r: known(r["shortest_ns"], format_ns)),
    (numeric("first call", 2), lambda r: known(r["first_call_ns"], format_ns)),
    (numeric("driver CPUs"), lambda r: known(r["driver_cpus"], significant, note=_cpus_note(r))),
    (numeric("CPU WAIT", 1), lambda r: known(r["driver_starved"], format_percent)),
    (numeric("clock error", 1), lambda r: known(r["clock_bound_ns"], format_ns)),
)
_BRIEF = ("sessions", "calls/s", "shortest call", "driver CPUs")
