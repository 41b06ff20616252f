"""How each figure is obtained: the formula in words, and which data source it came from in this run."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.claim import GOOD_SCALING
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.results import Results
from dbdyno.present.accounts import BRACKET
from dbdyno.present.document import Block, texts
from dbdyno.present.figures import is_observation
from dbdyno.present.selection import TOGETHER
from dbdyno.present.sources_used import in_words


class Method(NamedTuple):
    figure: str
    formula: str
    sources: tuple[str, ...]
    status: str  # in this run


# figure, table, key there (rates, profile: name; ledger: account; rungs, microstates: column), formula
_METHODS = (
    ("calls/s", "rates", "calls_per_s",
     "measured calls of a session / (its last measured end - its first measured start), summed over the "
     "sessions; mean of repeats, with Student's 95 % interval from two repeats on"),
    ("work/s", "rates", "work_per_s", "calls/s x work units per call, counted by the server"),
    ("work per call", "rates", "work_per_call", "exact server counters of the session / its calls"),
    ("scaling", "rungs", "scaling",
     "calls/s per session / calls/s per session of the lowest rung; throughput is said to scale while "
     f"this is at least {100 * GOOD_SCALING:.0f} %"),
    ("response time", "rates", "response_mean_ns",
     "from sending a call until the server is ready again, by the driver's clock; percentiles from a "
     "histogram of all measured calls with three significant digits"),
    ("CPU", "ledger", "run", "on a CPU: schedstat field 1 of the session's task, end less start; exact"),
    ("CPU, user and kernel", "ledger", "run.user",
     "CPU split by the ratio of utime and stime, which are counted in ticks: the interval says how sure"),
    ("CPU WAIT", "ledger", "runq",
     "runnable but not running: schedstat field 2 of the session's task; throttled time lies inside. A task "
     "that is runnable while its session bears the label of a wait, or of its client, is CPU WAIT: exact in "
     "all, split by label by the joint table"),
    ("throttled, measured", "ledger", "runq.throttled",
     "runnable while the group's quota was used up: measured by the scheduler trace; lies inside CPU WAIT"),
    ("throttled, bracket", "ledger", "runq.throttled_bracket",
     "the group's cpu.stat; it sums over CPUs and so only bounds what lies inside CPU WAIT; never added"),
    ("sleep, by wait", "ledger", "sleep",
     "the joint table of (state, wait event) by (on a CPU, in the run queue, asleep). Exact tier: the wait "
     "event is read at every switch away from a CPU, the time until the wake-up is its sleep, from there to "
     "the next CPU its run queue. Sampled tier: state, wait event and the task's R/S/D read together, each "
     "sample weighted by the time it stands for, then fitted (iterative proportional fitting) to the exact "
     "margins run, run queue and off; the interval is the samples', 95 %"),
    ("client", "ledger", "client", "asleep, waiting for the client to send: the same, wait class Client"),
    ("unaccounted", "ledger", "unaccounted",
     "the session's wall time less all accounts above; signed, never clipped; bounded by steal and by the "
     "samples' error"),
    ("CPU per call", "rates", "cpu_per_call_ns", "CPU of the sessions / their calls"),
    ("CPU per work unit", "rates", "cpu_per_work_ns", "CPU of the sessions / their work units"),
    ("DB time", "profile", "DB time",
     "time in calls by the driver's clock; on an existing workload run + run queue + sleep outside the "
     "client"),
    ("top events", "top_events", "",
     "DB CPU, CPU WAIT and each wait's sleep, ranked by seconds; what a wait's label hid in the run queue "
     "stands beside it and is counted in CPU WAIT, so nothing is counted twice"),
    ("microstates", "microstates", "usr",
     "per process: USR and SYS from schedstat split by utime and stime, CPU WAIT from schedstat, LOCK, CLNT "
     "and SLP from the joint table; BLKIO from delay accounting lies inside them"),
    ("helpers", "rungs", "helpers_aas",
     "CPU of the server's own processes, read as tasks; it comes on top of the sessions'"),
    ("driver", "rungs", "driver_cpus",
     "CPU and run-queue time of the driver's own threads; conclusions leave out what they limit"),
)  # fmt: skip


_RUNG_SOURCES = {"scaling": "driver", "helpers_aas": "os tasks", "driver_cpus": "driver tasks"}


def of(results: Results) -> list[Method]:
    """All methods, with what this run says of their sources; of an observation, none of rungs and rates."""
    observed = is_observation(results)
    chosen = [m for m in _METHODS if not (observed and m[1] in ("rates", "rungs"))]
    return [Method(figure, formula, *_seen(results, table, key)) for figure, table, key, formula in chosen]


def tables(results: Results) -> list[Block]:
    """Formula, data source and status of each figure; then all sources."""
    heads = ("figure", "how it is obtained", "source in this run", "status")
    figures = [(m.figure, m.formula, ", ".join(m.sources) or "none", m.status) for m in of(results)]
    sources = results.tables["sources"].unique(maintain_order=True)
    read = sources.select("name", "provenance", "status", "detail").rows()
    of_sources = ("source", "what it reads", "status", "why not, and the cure")
    return [texts("Figures", heads, figures), texts("Data sources", of_sources, read)]


def _seen(results: Results, table: str, key: str) -> tuple[tuple[str, ...], str]:
    rows = _rows(results.tables[table], table, key)
    sources = tuple(s for s in rows["source"].unique(maintain_order=True).to_list() if s)
    return sources, _status(rows)


def _rows(frame: pl.DataFrame, table: str, key: str) -> pl.DataFrame:
    """value, source, status of one figure."""
    ok = pl.lit("ok").alias("status")
    if table == "rungs":
        return frame.select(pl.col(key).alias("value"), pl.lit(_RUNG_SOURCES[key]).alias("source"), ok)
    if table == "top_events":
        return frame.select(pl.col("seconds").alias("value"), "source", ok)
    if table == "microstates":
        return frame.select(pl.col(key).alias("value"), "source", "status")
    if table == "profile":
        rows = frame.filter((pl.col("name") == key) & (pl.col("cell") != TOGETHER))
        return rows.select(pl.col("total").alias("value"), "source", "status")
    if table == "rates":
        rows = frame.filter((pl.col("scope") == "rung") & (pl.col("name") == key))
        return rows.select("value", "source", "status")
    bound = pl.coalesce("aas", "high") if key == BRACKET else pl.col("aas")
    return account_rows(frame, key).select(bound.alias("value"), "source", "status")


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
