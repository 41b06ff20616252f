"""The hosts that drove a load together: sessions, calls, CPU and clock of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.tables import empty
from dbdyno.model.units import format_count, format_ns, significant
from dbdyno.present import figures
from dbdyno.present.document import Block, Cell, Column, known, numeric, remarks, table, word

TITLE = "Hosts that drove the load"
_Row = dict[str, Any]


def there(results: Results) -> bool:
    """Whether any measurement was driven by several hosts."""
    return not _table(results).is_empty()


def blocks(results: Results, title: str = TITLE) -> list[Block]:
    """A row for each host at each load; repeats together."""
    if not there(results):
        return []
    found = _table(results)
    due = results.tables["windows"].select("cell", due="rate_per_s")
    frame = (
        found.join(due, on="cell", maintain_order="left")
        .group_by("variant", "sessions", "due", "host", maintain_order=True)
        .agg(
            pl.col("host_sessions").first(),
            pl.col("calls", "errors").sum(),
            pl.col("rate_per_s", "session_rate_per_s", "driver_cpus", "driver_starved").mean(),
            pl.col("host_cpus").first(),
            pl.col("shortest_ns").min(),
            pl.col("clock_bound_ns").max(),
            pl.col("detail").drop_nulls().first(),
        )
    )
    several = frame["variant"].n_unique() > 1
    columns: list[tuple[Column, Callable[[_Row], Cell]]] = [
        (numeric("load"), lambda r: word(_load(results, r))),
        *([(Column("variant", shortens=True), lambda r: word(r["variant"]))] if several else []),
        (Column("host"), lambda r: word(r["host"])),
        (numeric("sessions"), lambda r: known(r["host_sessions"], format_count)),
        (numeric("calls"), lambda r: known(r["calls"], format_count)),
        (numeric("errors", 3), lambda r: known(r["errors"], format_count)),
        (numeric("calls/s"), lambda r: known(r["rate_per_s"], significant)),
        (numeric("per session"), lambda r: known(r["session_rate_per_s"], significant)),
        (numeric("shortest call", 2), lambda r: known(r["shortest_ns"], format_ns)),
        (numeric("driver CPUs"), lambda r: known(r["driver_cpus"], significant, note=_of(r))),
        (numeric("CPU WAIT", 1), lambda r: known(r["driver_starved"], _percent)),
        (numeric("clock error", 1), lambda r: known(r["clock_bound_ns"], format_ns)),
        (Column("lost", wraps=True), lambda r: word(r["detail"])),
    ]
    what = (
        "CPU WAIT: share of their runnable time for which a driver's threads waited for a CPU of their host."
    )
    return [table(title, columns, frame.to_dicts()), *remarks([what])]


def _table(results: Results) -> pl.DataFrame:
    return results.tables.get("hosts", empty("hosts"))


def _load(results: Results, row: _Row) -> str:
    load = figures.load_of(results)
    return figures.load_text(load, row["sessions"] if load.column == "sessions" else row["due"])


def _of(row: _Row) -> str:
    return "" if row["host_cpus"] is None else f"of {row['host_cpus']}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
