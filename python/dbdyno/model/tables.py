"""The written schema between collectors and readers: every raw and derived table, column by column.

All ``*_ns`` time stamps are CLOCK_MONOTONIC nanoseconds of the host dbdyno runs on; the run's
``run.json`` holds one simultaneous pair of monotonic and wall-clock time. NULL means unknown; the
``status`` column beside it says why (:data:`dbdyno.model.source.Status`). Raw tables are stored per cell
and never changed; derived tables can be made again from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from dbdyno.model.column import CELL, Column, Type
from dbdyno.model.column import column as _c
from dbdyno.model.cut import CUT

SCHEMA_VERSION = 2

_POLARS: dict[Type, Any] = {"i64": pl.Int64, "f64": pl.Float64, "str": pl.String, "bool": pl.Boolean}


_WHO = (
    _c("role", "str", "session | helper:<what> | other (somebody else's backend) | driver | dbdyno"),
    _c("session", "i64", "session number 0..N-1 where role is session", null=True),
)

_READ = (
    _c("before_ns", "i64", "before the read"),
    _c("after_ns", "i64", "after the read"),
)
_TASK = (
    _c("pid", "i64", "process"),
    _c("tid", "i64", "task"),
    _c("start_ticks", "i64", "start time since boot in clock ticks: part of the key", null=True),
)

RAW: dict[str, tuple[Column, ...]] = {
    # -- driver ---------------------------------------------------------------------------------
    "sessions": (
        _c("session", "i64", "0..N-1"),
        _c("backend_pid", "i64", "the server's process id for it, in the server's pid namespace", null=True),
        _c("connect_ns", "i64", "duration of connecting and authenticating", null=True),
        _c("prepare_ns", "i64", "duration of session set-up, preparing, warming, first probe", null=True),
        _c("first_start_ns", "i64", "start of the first measured call", null=True),
        _c("last_end_ns", "i64", "end of the last measured call", null=True),
        _c("calls", "i64", "measured calls that ended well: started in [t0, t1)"),
        _c("errors", "i64", "measured calls that ended in an error"),
        _c("calls_total", "i64", "all calls that ended well, from the barrier on"),
        _c("errors_total", "i64", "all calls that ended in an error, from the barrier on"),
        _c("straddle_in", "i64", "1 if a call was in flight at t0 (not measured)"),
        _c("straddle_out", "i64", "1 if the last measured call ended after t1 (measured)"),
        _c("in_call_ns", "i64", "sum of durations of measured calls that ended well"),
        _c("min_ns", "i64", "shortest measured call", null=True),
        _c("max_ns", "i64", "longest measured call", null=True),
        _c("sum_sq_ns2", "f64", "sum of squared durations of measured calls"),
        _c(
            "end_reason",
            "str",
            "deadline | stopped (Ctrl-C) | lost (connection broke) | aborted | limit (call limit)",
        ),
        _c("end_detail", "str", "message where end_reason is lost or aborted", null=True),
    ),
    "histogram": (
        _c("low_ns", "i64", "lowest duration of the bucket, inclusive"),
        _c("high_ns", "i64", "highest duration of the bucket, inclusive"),
        _c("count", "i64", "measured calls in it, all sessions (3 significant digits)"),
    ),
    "errors": (
        _c("session", "i64", "session number"),
        _c("sqlstate", "str", "the server's code, or 08006 for a lost connection"),
        _c("count", "i64", "how often, from the barrier on"),
        _c("message", "str", "the first such message"),
    ),
    "calls": (
        _c("session", "i64", "session number"),
        _c("start_ns", "i64", "sent"),
        _c("duration_ns", "i64", "sent to ready"),
        _c("ok", "bool", "false: ended in an error"),
        _c("measured", "bool", "started in [t0, t1)"),
        _c("cpu", "i64", "CPU the backend last ran on, read at the call's end", null=True),
    ),
    "progress": (
        _c("at_ns", "i64", "when the driver was asked, about once a second"),
        _c("calls", "i64", "calls ended well since the barrier"),
        _c("errors", "i64", "calls ended in an error"),
        _c("live", "i64", "sessions that have not ended"),
        _c("in_call_ns", "i64", "sum of durations of ended calls"),
    ),
    # -- observers ------------------------------------------------------------------------------
    "samples": (
        _c("sample", "i64", "number of the sample; all rows of one sample were read together"),
        _c("sql_before_ns", "i64", "before the server was asked"),
        _c("sql_after_ns", "i64", "when its answer was there"),
        _c("task_ns", "i64", "when the task's state was read", null=True),
        _c("pid", "i64", "the server's process id"),
        _c("start_ticks", "i64", "part of the key: a pid may be used again", null=True),
        *_WHO,
        _c("via", "str", "sql (the activity view) | memory (the wait event word); NULL: sql", null=True),
        _c("state", "str", "the server's word: active, idle, idle in transaction, ...", null=True),
        _c("wait_class", "str", "the server's wait event type", null=True),
        _c("wait_event", "str", "the server's wait event", null=True),
        _c("query_id", "i64", "where known", null=True),
        _c("leader_pid", "i64", "of a parallel worker", null=True),
        _c("task_state", "str", "R, S, D, ... from the task's stat file", null=True),
        _c("status", "str", "of task_state"),
    ),
    "tasks": (
        _c("before_ns", "i64", "before the read"),
        _c("after_ns", "i64", "after the read"),
        _c("pid", "i64", "process"),
        _c("tid", "i64", "task"),
        _c("start_ticks", "i64", "start time since boot in clock ticks: part of the key", null=True),
        _c("comm", "str", "task name", null=True),
        *_WHO,
        _c("run_ns", "i64", "time on a CPU (schedstat 1)", null=True),
        _c("runq_ns", "i64", "time in the run queue, throttled time included (schedstat 2)", null=True),
        _c("slices", "i64", "time slices (schedstat 3)", null=True),
        _c("user_ns", "i64", "user CPU time (utime, tick resolution)", null=True),
        _c("system_ns", "i64", "kernel CPU time (stime, tick resolution)", null=True),
        _c("blkio_ns", "i64", "block I/O delay (stat 42); NULL where delay accounting is off", null=True),
        _c("children_ns", "i64", "CPU of ended children waited for (stat 16, 17)", null=True),
        _c("voluntary", "i64", "voluntary context switches; read at the window's ends only", null=True),
        _c("involuntary", "i64", "involuntary ones", null=True),
        _c("cpu", "i64", "CPU last run on", null=True),
        _c("state", "str", "R, S, D, ...", null=True),
        _c("status", "str", "of this read"),
    ),
    "cgroup": (
        _c("before_ns", "i64", "before the read"),
        _c("after_ns", "i64", "after the read"),
        _c("scope", "str", "server | driver: whose group"),
        _c("version", "i64", "1 or 2"),
        _c("path", "str", "the group's directory"),
        _c(
            "key",
            "str",
            "usage_ns user_ns system_ns nr_periods nr_throttled throttled_ns (units normalised to ns)",
        ),
        _c("value", "i64", "as of the read", null=True),
        _c("status", "str", "of this read"),
    ),
    "host": (
        _c("before_ns", "i64", "before the read"),
        _c("after_ns", "i64", "after the read"),
        _c(
            "key",
            "str",
            "cpu.user_ns cpu.nice_ns cpu.system_ns cpu.idle_ns cpu.iowait_ns cpu.irq_ns cpu.softirq_ns "
            "cpu.steal_ns (all CPUs), cpus, context_switches, procs_running, procs_blocked, psi.cpu.some_ns, "
            "psi.io.some_ns, psi.io.full_ns, psi.memory.some_ns, psi.memory.full_ns",
        ),
        _c("value", "i64", "as of the read", null=True),
        _c("status", "str", "of this read"),
    ),
    "sampler": (
        _c("sample", "i64", "number of the sample"),
        _c("due_ns", "i64", "when it was due (one random instant in each interval)"),
        _c("start_ns", "i64", "when it began"),
        _c("end_ns", "i64", "when it was done"),
        _c("status", "str", "ok | lost (server did not answer) | off"),
        _c("via", "str", "sql | memory; samples are numbered apart for each; NULL: sql", null=True),
    ),
    # -- scheduler trace: sums since it was attached, what is under way at the read included ------
    "traced": (
        *_READ,
        *_TASK,
        *_WHO,
        _c("run_ns", "i64", "time on a CPU", null=True),
        _c("runq_ns", "i64", "time runnable without a CPU, throttled time included", null=True),
        _c("throttled_ns", "i64", "of which throttled by a quota; NULL: not to be told", null=True),
        _c("sleep_ns", "i64", "time asleep, from switch-out to wake-up", null=True),
        _c("blocked_ns", "i64", "of which uninterruptible (D)", null=True),
        _c("voluntary", "i64", "switches into sleep", null=True),
        _c("involuntary", "i64", "switches away while runnable", null=True),
        _c("status", "str", "of this read; lost: events were missed"),
    ),
    "waits": (
        *_READ,
        *_TASK,
        *_WHO,
        _c("wait_class", "str", "wait event type read at switch-out; NULL: none", null=True),
        _c("wait_event", "str", "wait event", null=True),
        _c("sleep_ns", "i64", "asleep under this label"),
        _c("runq_ns", "i64", "runnable without a CPU under this label, throttled time included"),
        _c("throttled_ns", "i64", "of which throttled", null=True),
        _c("sleeps", "i64", "how often it fell asleep so"),
        _c("preempted", "i64", "how often it lost its CPU while runnable"),
        _c("status", "str", "of this read"),
    ),
    "syscalls": (
        *_READ,
        *_TASK,
        *_WHO,
        _c("name", "str", "system call"),
        _c("calls", "i64", "how often it returned"),
        _c("time_ns", "i64", "from entry to exit, sleeps included"),
        _c("status", "str", "of this read"),
    ),
    # -- engine ---------------------------------------------------------------------------------
    "backends": (
        _c("at_ns", "i64", "when the server was asked"),
        _c("pid", "i64", "the server's process id"),
        _c("backend_start_ns", "i64", "its start by the server's wall clock, since 1970", null=True),
        _c("kind", "str", "client backend, parallel worker, walwriter, io worker, ...", null=True),
        _c("leader_pid", "i64", "of a parallel worker", null=True),
        _c("user", "str", "role it is connected as", null=True),
        _c("database", "str", "database", null=True),
        _c("application", "str", "application_name", null=True),
        _c("client", "str", "client address; local: a unix socket", null=True),
        _c("query_id", "i64", "of the statement now under way", null=True),
        _c("status", "str", "of this row; not permitted: columns hidden from this role"),
    ),
    "counters": (
        _c("before_ns", "i64", "before the read"),
        _c("after_ns", "i64", "after the read"),
        _c("phase", "str", "per session: before1 before2 after1 after2; else t0 t1"),
        _c("scope", "str", "session | server | database"),
        _c("session", "i64", "where scope is session", null=True),
        _c("name", "str", "name in the engine's counters.toml"),
        _c("kind", "str", "counter (monotonic) | gauge"),
        _c("unit", "str", "blocks, bytes, rows, ns, count"),
        _c("value", "f64", "as of the read", null=True),
        _c("status", "str", "of this read"),
    ),
    "sources": (
        _c("name", "str", "witness"),
        _c("provenance", "str", "what it reads"),
        _c("status", "str", "how that went"),
        _c("detail", "str", "why not, and the cure"),
    ),
}

DERIVED: dict[str, tuple[Column, ...]] = {
    "windows": (
        *CELL,
        _c("t0_ns", "i64", "start of the measured window"),
        _c("t1_ns", "i64", "its end"),
        _c("wall_s", "f64", "t1 - t0"),
        _c("status", "str", "ok | short (cut, usable) | invalid"),
        _c("reason", "str", "why, where status is not ok", null=True),
    ),
    "rates": (
        *CELL,
        _c("scope", "str", "rung | session"),
        _c("session", "i64", "where scope is session", null=True),
        _c(
            "name",
            "str",
            "calls_per_s, work_per_s, response_mean_ns, response_p50_ns ... cpu_per_call_ns, ...",
        ),
        _c("unit", "str", "1/s, ns, blocks/s, ..."),
        _c("value", "f64", "NULL: unknown", null=True),
        _c("status", "str", "why unknown"),
        _c("source", "str", "which witness"),
    ),
    "ledger": (
        *CELL,
        _c(
            "scope",
            "str",
            "rung (all sessions in sum) | session | helper (server processes working for all) | "
            "beside (other backends, driver, dbdyno) | memo (lies inside accounts of the rung, never added)",
        ),
        _c("session", "i64", "where scope is session", null=True),
        _c("who", "str", "rung | session | the role of a helper or of who is beside"),
        _c(
            "account",
            "str",
            "run.user run.system run runq runq.throttled_bracket sleep client unaccounted, block_io, ...; "
            "memo: wall, label.run and label.runq (CPU and run queue by wait label), state.run, state.runq, "
            "state.sleep (by the server's state), workers.run, workers.runq, workers.sleep, margin.off",
        ),
        _c("detail", "str", "wait class/event of a sleep account", null=True),
        _c("aas", "f64", "seconds per second; NULL: unknown", null=True),
        _c("low", "f64", "lower end of its interval", null=True),
        _c("high", "f64", "upper end of its interval", null=True),
        _c("status", "str", "why unknown"),
        _c("source", "str", "which witness"),
    ),
    "events": (
        *CELL,
        _c("scope", "str", "rung (all sessions in sum) | session | helper"),
        _c("session", "i64", "where scope is session", null=True),
        _c("who", "str", "rung | session | what the helper is"),
        _c("state", "str", "the server's word: active, idle, ...; NULL: not known", null=True),
        _c("wait_class", "str", "NULL: no wait event", null=True),
        _c("wait_event", "str", "NULL: no wait event", null=True),
        *(
            _c(f"{part}{end}", "f64", f"seconds per second {what} under this label{note}", null=True)
            for part, what in (("run", "on a CPU"), ("sleep", "asleep"), ("runq", "in the run queue"))
            for end, note in (("", ""), ("_low", ", lower end"), ("_high", ", upper end"))
        ),
        _c("waits_per_s", "f64", "sleeps a second; known only to the scheduler trace", null=True),
        _c("samples", "f64", "samples that saw this label; NULL: traced, not sampled", null=True),
        _c("status", "str", "why unknown"),
        _c("source", "str", "which witness: scheduler trace | wait event word, raked | activity view, raked"),
    ),
    "microstates": (
        *CELL,
        _c("pid", "i64", "process"),
        _c("start_ticks", "i64", "part of the key", null=True),
        _c("role", "str", "as in tasks"),
        _c("session", "i64", "session", null=True),
        _c("worker", "bool", "a parallel worker of that session"),
        _c("name", "str", "what it is: application, user and database; or the helper's name"),
        _c("wall_s", "f64", "how long it was seen"),
        *(
            _c(f"{part}{end}", "f64", f"{what}, seconds per second{note}", null=True)
            for part, what in (
                ("usr", "on a CPU in user mode"),
                ("sys", "on a CPU in the kernel"),
                ("cpu_wait", "in the run queue"),
                ("lock", "asleep in a lock or latch"),
                ("client", "asleep waiting for its client"),
                ("sleep", "asleep in anything else"),
            )
            for end, note in (("", ""), ("_low", ", lower end"), ("_high", ", upper end"))
        ),
        _c("block_io", "f64", "block I/O delay: lies inside sleep and lock", null=True),
        _c("unaccounted", "f64", "signed remainder", null=True),
        _c("voluntary_per_s", "f64", "voluntary context switches", null=True),
        _c("involuntary_per_s", "f64", "involuntary ones", null=True),
        _c("slices_per_s", "f64", "times it got a CPU", null=True),
        _c("syscalls_per_s", "f64", "system calls, where traced", null=True),
        _c("status", "str", "why unknown"),
        _c("source", "str", "which witnesses"),
    ),
    "strips": (
        *CELL,
        _c("session", "i64", "session"),
        _c("start_s", "f64", "since t0"),
        _c("end_s", "f64", "since t0"),
        _c("part", "str", "run | runq | a wait class in words | asleep | unknown"),
        _c("share", "f64", "of that time"),
    ),
    "profile": (
        *CELL,
        _c("name", "str", "DB time, DB CPU, CPU WAIT, logical reads, WAL, commits, ..."),
        _c("unit", "str", "s, blocks, bytes, count, ..."),
        _c("total", "f64", "over the window", null=True),
        _c("per_s", "f64", "per second", null=True),
        _c("per_transaction", "f64", "per commit or rollback", null=True),
        _c("per_execution", "f64", "per statement executed", null=True),
        _c("per_call", "f64", "per call of the driver", null=True),
        _c("status", "str", "why unknown, and what would make it known"),
        _c("source", "str", "which witness"),
    ),
    "top_events": (
        *CELL,
        _c("rank", "i64", "1..10 by seconds"),
        _c("name", "str", "DB CPU | CPU WAIT | class/event (asleep in it)"),
        _c("seconds", "f64", "over the window, all sessions"),
        _c("low", "f64", "lower end of its interval", null=True),
        _c("high", "f64", "upper end", null=True),
        _c("share", "f64", "of DB time", null=True),
        _c("runq_s", "f64", "seconds under its label in the run queue: counted in CPU WAIT", null=True),
        _c("waits", "f64", "how often, where traced", null=True),
        _c("mean_ns", "f64", "mean sleep, where traced", null=True),
        _c("source", "str", "which witness"),
    ),
    "witnesses": (
        *CELL,
        _c("quantity", "str", "cpu_used, work_per_call, executions, ..."),
        _c("source", "str", "which witness"),
        _c("value", "f64", "NULL: unknown", null=True),
        _c("unit", "str", "cores, blocks, calls"),
        _c("relative_difference", "f64", "against the first ok witness of that quantity", null=True),
        _c("tolerance", "f64", "a difference up to this agrees, in the unit", null=True),
        _c("verdict", "str", "reference | agrees | differs | unknown"),
        _c("status", "str", "why unknown"),
        _c("reason", "str", "why the tolerance is so, and what may lie behind a difference", null=True),
    ),
    "rungs": (
        _c("workload", "str", "workload"),
        _c("variant", "str", "variant"),
        _c("sessions", "i64", "the rung"),
        _c("repeats", "i64", "cells that went into this row"),
        _c("status", "str", "ok | short | invalid: the worst of them"),
        _c("calls", "i64", "measured calls, all repeats"),
        _c("errors", "i64", "measured calls that ended in an error, all repeats"),
        _c(
            "calls_per_s",
            "f64",
            "sum over sessions of calls / (last end - first start); mean of repeats",
            null=True,
        ),
        _c("calls_per_s_low", "f64", "95 % interval over repeats; NULL with one repeat", null=True),
        _c("calls_per_s_high", "f64", "its upper end", null=True),
        _c("work_per_s", "f64", "work units per second", null=True),
        _c("work_per_call", "f64", "work units per call, counted", null=True),
        _c(
            "scaling",
            "f64",
            "calls_per_s / (sessions x calls_per_s per session of the lowest rung)",
            null=True,
        ),
        _c("response_mean_ns", "f64", "mean duration of measured calls", null=True),
        _c("response_p50_ns", "f64", "median, 3 digits", null=True),
        _c("response_p95_ns", "f64", "95th percentile", null=True),
        _c("response_p99_ns", "f64", "99th percentile", null=True),
        _c("response_max_ns", "f64", "longest", null=True),
        _c("run_aas", "f64", "sessions on CPU (seconds per second)", null=True),
        _c("runq_aas", "f64", "sessions in the run queue: CPU WAIT", null=True),
        _c("sleep_aas", "f64", "sessions asleep in a wait that is not the client", null=True),
        _c("client_aas", "f64", "sessions waiting for their client", null=True),
        _c("unaccounted_aas", "f64", "signed remainder", null=True),
        _c("helpers_aas", "f64", "CPU of the server's own processes", null=True),
        _c("cpu_per_call_ns", "f64", "session CPU per call", null=True),
        _c("cpu_per_work_ns", "f64", "session CPU per work unit", null=True),
        _c("top_wait", "str", "the wait that took most session time, client left out", null=True),
        _c("driver_cpus", "f64", "CPUs the driver used", null=True),
        _c("driver_starved", "f64", "driver's run-queue time / (run + run-queue)", null=True),
    ),
}

OF_CELL = {
    f"cell_{t}": (*CELL, *RAW[t])
    for t in ("sessions", "histogram", "errors", "progress", "sampler", "sources", "backends")
}
"""Raw tables of several cells in one, with the cell's key; handed on by the room window, not stored."""

TABLES = RAW | DERIVED | CUT | OF_CELL


def schema(table: str) -> dict[str, Any]:
    """Polars schema of ``table``."""
    return {c.name: _POLARS[c.type] for c in TABLES[table]}


def empty(table: str) -> pl.DataFrame:
    return pl.DataFrame(schema=schema(table))


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with exactly the columns, order and types of ``table``; absent nullable columns become NULL.

    Raises :class:`ValueError` on an unknown column, an absent one that may not be NULL, or a NULL in one
    that may not hold it.
    """
    columns = TABLES[table]
    if extra := set(frame.columns) - {c.name for c in columns}:
        raise ValueError(f"table {table}: unknown columns {sorted(extra)}")
    for c in columns:
        if c.null:
            continue
        if c.name not in frame.columns:
            raise ValueError(f"table {table}: column {c.name} is missing")
        if frame[c.name].null_count():
            raise ValueError(f"table {table}: NULL in {c.name}")
    exprs = [
        (pl.col(c.name) if c.name in frame.columns else pl.lit(None)).cast(_POLARS[c.type]).alias(c.name)
        for c in columns
    ]
    return frame.select(exprs)


def rows(table: str, records: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Records (dicts) as a conforming frame."""
    names = [c.name for c in TABLES[table]]
    unknown = {k for r in records for k in r} - set(names)
    if unknown:
        raise ValueError(f"table {table}: unknown columns {sorted(unknown)}")
    data = {n: [r.get(n) for r in records] for n in names}
    return conform(table, pl.DataFrame(data, schema=schema(table)))


CoreColumn = tuple[str, Any, bytes | None]
"""A column as the Rust core hands it over: type, payload, validity.

``i64``/``f64``: little-endian bytes; ``bool``: one byte a value; ``str``: ``(codes, categories)`` with
little-endian 32-bit codes, -1 for NULL, or simply a list of ``str | None``.
Validity: one byte a value, 1 = known; ``None`` = all known (and for ``str`` the payload itself says it).
"""


def from_core(table: str, columns: Mapping[str, CoreColumn]) -> pl.DataFrame:
    """A table of the Rust core as a conforming frame."""
    return conform(table, pl.DataFrame({name: _series(name, c) for name, c in columns.items()}))


def _texts(name: str, payload: Any) -> pl.Series:
    if isinstance(payload, list):
        return pl.Series(name, payload, dtype=pl.String)
    codes = pl.Series(name, np.frombuffer(payload[0], dtype="<i4"))
    categories = pl.Series(name, payload[1], dtype=pl.String)
    return categories.gather(codes.set(codes < 0, None).cast(pl.UInt32))


def _series(name: str, column: CoreColumn) -> pl.Series:
    kind, payload, validity = column
    if kind == "str":
        return _texts(name, payload)
    if kind == "bool":
        values = pl.Series(name, np.frombuffer(payload, dtype=np.uint8)).cast(pl.Boolean)
    else:
        values = pl.Series(name, np.frombuffer(payload, dtype="<i8" if kind == "i64" else "<f8"))
    if validity is None:
        return values
    known = pl.Series(np.frombuffer(validity, dtype=np.uint8)).cast(pl.Boolean)
    return pl.select(pl.when(known).then(values).otherwise(None).alias(name)).to_series()
