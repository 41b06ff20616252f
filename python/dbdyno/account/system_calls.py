"""Tables ``system_calls`` and ``system_call_sizes``: of all sessions, of each session, and of the server's
other processes; per cell, and over all cells of a load together. Pure.

Counts and times are exact between two reads of a task. A share of DB time leaves out sleep for the client.
A share of CPU relates to all CPU time of the same tasks, user mode included.
"""

from __future__ import annotations

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.results.ledger_rows import groups, top_level
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.syscalls import CALLS, SIZES
from dbdyno.model.schema.tables import Tables, conform, empty, sum_if_all_known
from dbdyno.model.units import NS_PER_S

_CELL = [c.name for c in CELL]
_WHOSE = ["cell", "session", "who"]
_FIGURES = [f.name for f in CALLS.figures]
_RATES = {"work_calls": "calls_per_s", "work_units": "work_per_s"}
_BASES = ["wall_s", "db_time_s", "cpu_s", *_RATES]
"""Denominators of shares and ratios: one value for all system calls of the same tasks."""


@makes("system_calls", reads=("ledger", "rates"))
def system_calls(tables: Tables) -> pl.DataFrame:
    """Returns system calls per cell, from ``cut_syscalls``, ``windows``, ``ledger`` and ``rates``."""
    counted = tables["cut_syscalls"]
    if counted.is_empty():
        return empty("system_calls")
    figures = _by_scope(counted, ["name"], _FIGURES)
    figures = figures.join(tables["windows"].select("cell", "wall_s"), on="cell", maintain_order="left")
    for bases in (_time_bases(tables["ledger"]), _work_rates(tables["rates"])):
        figures = figures.join(bases, on=_WHOSE, how="left", nulls_equal=True, maintain_order="left")
    return _with_shares(figures.with_columns(pl.col("db_time_s", "cpu_s", *_RATES) * pl.col("wall_s")))


@makes("system_call_sizes")
def system_call_sizes(tables: Tables) -> pl.DataFrame:
    """Returns sizes per cell from ``cut_syscall_sizes``: of all sessions, and of other processes."""
    counted = tables["cut_syscall_sizes"]
    if counted.is_empty():
        return empty("system_call_sizes")
    rows = _by_scope(counted, ["name", "size_bytes"], [f.name for f in SIZES.figures])
    return conform("system_call_sizes", rows.filter(pl.col("who") != "session").drop("session"))


@makes("system_calls", "system_call_sizes", stage="total")
def system_calls_total(tables: Tables) -> dict[str, pl.DataFrame]:
    """Returns both tables over all usable cells of a workload, variant and load together (cell ``all``)."""
    frames_by_name = {name: [empty(name)] for name in ("system_calls", "system_call_sizes")}
    for head, cells in groups(tables["windows"]):
        in_load = pl.col("cell").is_in([w["cell"] for w in cells]) & (pl.col("who") != "session")
        named = [pl.lit(v).alias(k) for k, v in head.items()]
        calls, sizes = (tables[name].filter(in_load) for name in frames_by_name)
        if calls.height:
            each = calls.unique(["cell", "who"], maintain_order=True)
            bases = each.group_by("who").agg(sum_if_all_known(n) for n in _BASES)
            sums = calls.group_by("session", "who", "name", maintain_order=True)
            summed = sums.agg(sum_if_all_known(n) for n in _FIGURES).join(
                bases, on="who", maintain_order="left"
            )
            frames_by_name["system_calls"].append(_with_shares(summed.with_columns(named)))
        if sizes.height:
            by = ["who", "name", "size_bytes"]
            summed = sizes.group_by(by, maintain_order=True).agg(pl.col("calls").sum())
            frames_by_name["system_call_sizes"].append(
                conform("system_call_sizes", summed.with_columns(named))
            )
    return {name: pl.concat(frames) for name, frames in frames_by_name.items()}


def _by_scope(counted: pl.DataFrame, label: list[str], figures: list[str]) -> pl.DataFrame:
    """Sums figures over all sessions (``rung``), each session, and each role of other processes."""
    of_sessions, none = pl.col("role") == "session", pl.lit(None, pl.Int64)
    sessions = counted.filter(of_sessions)
    scopes = (
        sessions.with_columns(session=none, who=pl.lit("rung")),
        sessions.with_columns(who=pl.lit("session")),
        counted.filter(~of_sessions).with_columns(session=none, who="role"),
    )
    by = [*_CELL, "session", "who", *label]
    sums = pl.concat(scopes).group_by(by).agg(sum_if_all_known(n) for n in figures)
    return sums.sort(by, nulls_last=True)


def _time_bases(ledger: pl.DataFrame) -> pl.DataFrame:
    """Returns DB time and CPU time in seconds per second. Processes other than sessions have no DB time."""
    rows = top_level(ledger).filter(pl.col("account").is_in(["run", "runq", "sleep"]))
    served = pl.col("scope").is_in(["rung", "session"])
    run = pl.col("aas").filter(pl.col("account") == "run")
    return (
        rows.filter(served | (pl.col("account") == "run"))
        .group_by(_WHOSE, maintain_order=True)
        .agg(
            db_time_s=pl.when(served.first() & (pl.col("aas").null_count() == 0)).then(pl.col("aas").sum()),
            cpu_s=pl.when((run.len() > 0) & (run.null_count() == 0)).then(run.sum()),
        )
    )


def _work_rates(rates: pl.DataFrame) -> pl.DataFrame:
    """Returns calls and units of work per second of the workload."""
    value = {n: pl.col("value").filter(pl.col("name") == rate).first() for n, rate in _RATES.items()}
    return rates.with_columns(who="scope").group_by(_WHOSE, maintain_order=True).agg(**value)


def _with_shares(rows: pl.DataFrame) -> pl.DataFrame:
    served_s = (pl.col("time_ns") - pl.col("client_ns")) / NS_PER_S
    every = pl.col("calls").sum().over(_WHOSE)
    ratios = {
        "calls_share": (pl.col("calls"), every),
        "db_time_share": (served_s, pl.col("db_time_s")),
        "cpu_share": (pl.col("cpu_ns") / NS_PER_S, pl.col("cpu_s")),
        "per_call": (pl.col("calls"), pl.col("work_calls")),
        "cpu_per_call_ns": (pl.col("cpu_ns"), pl.col("work_calls")),
        "per_work": (pl.col("calls"), pl.col("work_units")),
        "cpu_per_work_ns": (pl.col("cpu_ns"), pl.col("work_units")),
    }
    shares = {n: pl.when(whole > 0).then(part / whole) for n, (part, whole) in ratios.items()}
    return conform("system_calls", rows.with_columns(**shares, source=pl.lit("system calls")))
