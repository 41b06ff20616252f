"""How each figure is obtained: the formula in words, and which witness it came from in this run."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.finding import GOOD_SCALING
from dbdyno.model.results import Results
from dbdyno.report.accounts import BRACKET
from dbdyno.report.unknown import in_words


class Method(NamedTuple):
    figure: str
    formula: str
    sources: tuple[str, ...]
    status: str  # in this run


# figure, table, key in that table (rates: name; ledger: account; rungs: column), formula
_METHODS = (
    ("calls/s", "rates", "calls_per_s",
     "measured calls of a session / (its last measured end - its first measured start), summed over the "
     "sessions; mean of repeats, with Student's 95 % interval from two repeats on"),
    ("work/s", "rates", "work_per_s", "calls/s x work units per call, counted by the server"),
    ("work per call", "rates", "work_per_call", "exact server counters of the session / its calls"),
    ("scaling", "rungs", "scaling",
     "calls/s per session / calls/s per session of the lowest rung; the words say that a ladder scales while "
     f"this is at least {100 * GOOD_SCALING:.0f} %"),
    ("response time", "rates", "response_mean_ns",
     "from sending a call until the server is ready again, by the driver's clock; percentiles from a "
     "histogram of all measured calls with three significant digits"),
    ("CPU", "ledger", "run", "on a CPU: schedstat field 1 of the session's task, end less start; exact"),
    ("CPU, user and kernel", "ledger", "run.user",
     "CPU split by the ratio of utime and stime, which are counted in ticks: the interval says how sure"),
    ("CPU WAIT", "ledger", "runq",
     "runnable but not running: schedstat field 2 of the session's task; throttled time lies inside"),
    ("throttled", "ledger", "runq.throttled_bracket",
     "the group's cpu.stat; it sums over CPUs and so only bounds what lies inside CPU WAIT; never added"),
    ("sleep, by wait", "ledger", "sleep",
     "samples of session and task taken together: a task asleep in a named wait, weighted by the time it "
     "stands for"),
    ("client", "ledger", "client", "asleep, waiting for the client to send"),
    ("unaccounted", "ledger", "unaccounted",
     "the session's wall time less all accounts above; signed, never clipped"),
    ("CPU per call", "rates", "cpu_per_call_ns", "CPU of the sessions / their calls"),
    ("CPU per work unit", "rates", "cpu_per_work_ns", "CPU of the sessions / their work units"),
    ("helpers", "rungs", "helpers_aas",
     "CPU of the server's own processes, read as tasks; it comes on top of the sessions'"),
    ("driver", "rungs", "driver_cpus",
     "CPU and run-queue time of the driver's own threads: a starved driver invalidates a rung"),
)  # fmt: skip


_RUNG_SOURCES = {"scaling": "driver", "helpers_aas": "os tasks", "driver_cpus": "driver tasks"}


def of(results: Results) -> list[Method]:
    """All methods, with what this run says of their sources."""
    return [Method(figure, formula, *_seen(results, table, key)) for figure, table, key, formula in _METHODS]


def _seen(results: Results, table: str, key: str) -> tuple[tuple[str, ...], str]:
    frame = results.tables[table]
    if table == "rungs":
        said = pl.lit(_RUNG_SOURCES[key]).alias("source")
        rows = frame.select(pl.col(key).alias("value"), said, pl.lit("ok").alias("status"))
    else:
        column, value = ("name", "value") if table == "rates" else ("account", "aas")
        rows = frame.filter((pl.col("scope") == "rung") & (pl.col(column) == key))
        bound = pl.coalesce(value, "high") if key == BRACKET else pl.col(value)
        rows = rows.select(bound.alias("value"), "source", "status")
    sources = tuple(s for s in rows["source"].unique(maintain_order=True).to_list() if s)
    return sources, _status(rows)


def _status(rows: pl.DataFrame) -> str:
    """``known``, ``known; 3 of 4 tasks in 1 of 8``, ``unknown in 2 of 8: why``."""
    if rows.is_empty():
        return "not in this run"
    unknown = rows.filter(pl.col("value").is_null())
    partly = rows.filter(pl.col("value").is_not_null() & ~pl.col("status").is_in(["ok", "bracket"]))
    if unknown.is_empty():
        return f"known; {_reasons(partly)} in {len(partly)} of {len(rows)}" if len(partly) else "known"
    why = f": {reasons}" if (reasons := _reasons(unknown)) else ""
    return f"unknown in {len(unknown)} of {len(rows)}{why}"


def _reasons(rows: pl.DataFrame) -> str:
    return "; ".join(in_words(s) for s in rows["status"].unique(maintain_order=True).to_list() if s != "ok")
