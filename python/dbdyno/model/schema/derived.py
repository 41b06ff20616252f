"""The derived tables. They are computed from the raw tables and can be computed again at any time."""

from __future__ import annotations

from dbdyno.model.schema import quantiles
from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_sources import process_rates
from dbdyno.model.schema.data_sources.blocking import WAIT_CHAINS
from dbdyno.model.schema.data_sources.costs import COSTS
from dbdyno.model.schema.data_sources.devices import DEVICE_TABLES
from dbdyno.model.schema.data_sources.drivers import HOSTS
from dbdyno.model.schema.data_sources.executions import EXECUTION_TABLES
from dbdyno.model.schema.data_sources.fired import TRIGGER_TABLES
from dbdyno.model.schema.data_sources.laws import BOUNDS, LAWS
from dbdyno.model.schema.data_sources.memory import MEMORY_TABLES
from dbdyno.model.schema.data_sources.noise import TABLES as NOISE_TABLES
from dbdyno.model.schema.data_sources.paced import RUNG_PACE
from dbdyno.model.schema.data_sources.profile import DERIVED_PROFILE, DERIVED_STACKS
from dbdyno.model.schema.data_sources.response_quantiles import RESPONSE_QUANTILES
from dbdyno.model.schema.data_sources.responses import RESPONSE_TABLES
from dbdyno.model.schema.data_sources.scripted import SCRIPT_TABLES
from dbdyno.model.schema.data_sources.sleeps import DERIVED_SLEEP_STACKS, DERIVED_SLEEPS
from dbdyno.model.schema.data_sources.statements import FIGURES, STATEMENT_LEDGER, WAITS_OF
from dbdyno.model.schema.data_sources.syscalls import CALLS, SIZES
from dbdyno.model.schema.raw import TABLES, columns
from dbdyno.model.schema.table import DATABASE, DRIVEN, SERVED, Columns, Method, Table
from dbdyno.model.schema.table import REGISTERED as REGISTERED
from dbdyno.model.schema.table import register as register
from dbdyno.model.schema.table import sessions_in as sessions_in

GOOD_SCALING = 0.9
"""A rung scales if each session delivers at least this share of the throughput of a session in the lowest
rung."""

# Sessions that start calls together: the place of each call, and whether the sessions were served equally.
_CALL = (
    *CELL,
    _c("round", "i64", "1, 2, ...: all sessions began this call together"),
    _c("session", "i64", "0..N-1"),
    _c("start_ns", "i64", "sent"),
    _c("duration_ns", "i64", "sent to ready"),
    _c("cpu", "i64", "CPU it ran on, read at the call's end", null=True),
    _c("migrations", "i64", "moves to another CPU during the call", null=True),
)
ROUNDS: tuple[Column, ...] = _CALL
"""Calls of complete rounds, computed with the window and passed on."""

PLACED: tuple[Column, ...] = (
    *_CALL,
    _c("slow", "bool", "in the slower group of its round; false also where the round has no groups"),
    _c(
        "shares",
        "str",
        "cpu (another session of the round ran on the same CPU) | core (on another thread of its core) | "
        "none; NULL: its place is unknown, or it was moved",
        null=True,
    ),
)

PLACEMENTS: tuple[Column, ...] = (
    *CELL,
    _c("rounds", "i64", "whole measured rounds"),
    _c("median_ns", "i64", "median duration of its calls"),
    _c("alone_ns", "i64", "the same of one session by itself (same workload, variant)", null=True),
    _c("max_over_min", "f64", "slowest over fastest call of a round, median of the rounds", null=True),
    _c("cv", "f64", "standard deviation over mean within a round, median of the rounds", null=True),
    _c("skew_ns", "i64", "last start less first start of a round, median of the rounds"),
    _c(
        "p_groups",
        "f64",
        "probability of such a separation in one population; NULL: fewer than 3 sessions",
        null=True,
    ),
    _c("groups", "bool", "p_groups below 5 %"),
    _c("group_rounds", "i64", "rounds with two groups"),
    _c("slow_sessions", "i64", "sessions in the slower group, the most frequent number", null=True),
    _c("ratio", "f64", "slower over faster group, median of these rounds", null=True),
    _c("ratio_low", "f64", "95 % interval by bootstrap of rounds; NULL under 5 of them", null=True),
    _c("ratio_high", "f64", "its upper end", null=True),
    _c("known", "i64", "calls of these rounds whose place is known"),
    _c("slow_calls", "i64", "slow calls of these rounds"),
    _c("slow_known", "i64", "of which the place is known"),
    _c("slow_core", "i64", "slow ones that shared a core"),
    _c("slow_cpu", "i64", "slow ones that shared a CPU"),
    _c("fast_core", "i64", "others that shared a core"),
    _c("fast_cpu", "i64", "others that shared a CPU"),
    _c("p_core", "f64", "chance of that, were it all one who shares a core (permutation)", null=True),
    _c("p_cpu", "f64", "the same of a CPU", null=True),
    _c("shared", "str", "why they are slower: core | cpu; NULL: unknown", null=True),
    _c("calls", "i64", "calls of all rounds"),
    _c("moved", "i64", "calls that migrated to another CPU", null=True),
    _c("resettled", "i64", "calls that ran on another CPU than the session's call before", null=True),
    _c("all_core", "i64", "calls that shared a core (all rounds)"),
    _c("all_cpu", "i64", "calls that shared a CPU"),
    _c("all_known", "i64", "calls whose place is known"),
)

_TABLES: tuple[Table, ...] = (
    Table(
        "rungs",
        (
            _c("workload", "str", "workload"),
            _c("variant", "str", "variant"),
            _c("sessions", "i64", "load level"),
            _c("rate_per_s", "f64", "calls per second that were to become due; NULL: not paced", null=True),
            _c("repeats", "i64", "cells that went into this row"),
            _c("status", "str", "ok | short | client (limited by it) | invalid: the worst of them"),
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
                "calls_per_s / (sessions x calls_per_s of one in the lowest rung)",
                null=True,
            ),
            _c("response_mean_ns", "f64", "mean duration of measured calls", null=True),
            *quantiles.columns("response_", "f64"),
            _c("response_max_ns", "f64", "longest", null=True),
            _c("run_aas", "f64", "sessions on CPU (seconds per second)", null=True),
            _c("runq_aas", "f64", "sessions in the run queue: CPU WAIT", null=True),
            _c("sleep_aas", "f64", "sessions asleep in a wait that is not the client", null=True),
            _c("client_aas", "f64", "sessions waiting for their client", null=True),
            _c("pool_queue_aas", "f64", "sessions queued for a pool's server connections", null=True),
            _c("unaccounted_aas", "f64", "signed remainder", null=True),
            _c(
                "tasks_aas",
                "f64",
                "tasks of commands, or of sessions and parallel workers: shares are of them; NULL: sessions",
                null=True,
            ),
            _c("helpers_aas", "f64", "CPU of the server's own processes", null=True),
            _c("cpu_per_call_ns", "f64", "session CPU per call", null=True),
            _c("cpu_per_work_ns", "f64", "session CPU per work unit", null=True),
            _c("top_wait", "str", "the wait that took most session time, client left out", null=True),
            _c("driver_cpus", "f64", "CPUs the driver used", null=True),
            _c("driver_starved", "f64", "driver's run-queue time / (run + run-queue)", null=True),
            *RUNG_PACE,
        ),
        methods=(
            Method(
                "scaling",
                "scaling",
                "calls/s per session / calls/s per session of the lowest rung; throughput scales while this "
                f"is at least {100 * GOOD_SCALING:.0f} %",
                kinds=(DATABASE,),
            ),
            Method(
                "helpers",
                "helpers_aas",
                "CPU of {~launcher}, read as tasks; it comes on top of the {~owners}'",
                kinds=(DRIVEN,),
            ),
            Method(
                "driver",
                "driver_cpus",
                "CPU and run-queue time of the driver's own threads; conclusions leave out what they limit",
                kinds=(DRIVEN,),
            ),
        ),
    ),
    Table(
        "ledger",
        (
            *CELL,
            _c(
                "scope",
                "str",
                "rung (all sessions in sum) | session | brief (those too brief to be sampled, in sum) | "
                "helper (server processes working for all) | beside (other backends, driver, dbdyno) | memo "
                "(lies inside accounts of the rung, never added)",
            ),
            _c("session", "i64", "where scope is session", null=True),
            _c("who", "str", "rung | session | the role of a helper or of who is beside"),
            _c(
                "account",
                "str",
                "run.user run.system run runq runq.throttled_bracket sleep client pool.queue unaccounted, "
                "block_io, ...; "
                "memo: wall, label.run (CPU by wait label), state.run, state.runq, "
                "state.sleep (by the server's state), workers.run, workers.runq, workers.sleep, margin.off, "
                "pool.connections, pool.idle, client.between, client.in_transaction",
            ),
            _c(
                "parent",
                "str",
                "the account that this row is a part of: count it there alone. The parts of runq bear its "
                "name, and add up to it; NULL: no part",
                null=True,
            ),
            _c("detail", "str", "wait class/event of a sleep account, or of a part of runq", null=True),
            _c("aas", "f64", "seconds per second; NULL: unknown", null=True),
            _c("low", "f64", "lower end of its interval", null=True),
            _c("high", "f64", "upper end of its interval", null=True),
            _c("status", "str", "why unknown"),
            _c("source", "str", "data source"),
        ),
        sessions="some",
        methods=(
            Method("CPU", "run", "on a CPU: schedstat field 1 of {~task}, end less start; exact"),
            Method(
                "CPU, user and kernel",
                "run.user",
                "CPU split by the ratio of utime and stime, which are counted in ticks: the interval says "
                "how sure",
            ),
            Method(
                "CPU WAIT",
                "runq",
                "runnable but not running: schedstat field 2 of {~task}; throttled time lies "
                "inside{~labelled}",
            ),
            Method(
                "throttled, measured",
                "runq.throttled",
                "runnable while the group's quota was used up: measured by the scheduler trace; lies inside "
                "CPU WAIT",
            ),
            Method(
                "throttled, bracket",
                "runq.throttled_bracket",
                "the group's cpu.stat; it sums over CPUs and so only bounds what lies inside CPU WAIT; "
                "never added",
            ),
            Method(
                "sleep, by wait",
                "sleep",
                "the joint table of (state, wait event) by (on a CPU, in the run queue, asleep). Exact "
                "tier: the wait event is read at every switch away from a CPU, the time until the wake-up "
                "is its sleep, from there to the next CPU its run queue. Sampled tier: state, wait event "
                "and the task's R/S/D read together, each sample weighted by the time it stands for, then "
                "fitted (iterative proportional fitting) to the exact margins run, run queue and off; the "
                "interval is the samples', 95 %",
                kinds=(SERVED,),
            ),
            Method(
                "client",
                "client",
                "asleep, waiting for the client to send: the same, wait class Client",
                kinds=(SERVED,),
            ),
            Method(
                "unaccounted",
                "unaccounted",
                "{~wall} less all accounts above; signed, never clipped; bounded by steal "
                "and by the samples' error",
            ),
        ),
    ),
    Table(
        "events",
        (
            *CELL,
            _c("scope", "str", "rung (all sessions in sum) | session | helper"),
            _c("session", "i64", "where scope is session", null=True),
            _c("who", "str", "rung | session | what the helper is"),
            _c("state", "str", "state according to the server: active, idle, ...; NULL: unknown", null=True),
            _c("wait_class", "str", "NULL: no wait event", null=True),
            _c("wait_event", "str", "NULL: no wait event", null=True),
            *(
                _c(f"{part}{end}", "f64", f"seconds per second {what} under this label{note}", null=True)
                for part, what in (("run", "on a CPU"), ("sleep", "asleep"), ("runq", "in the run queue"))
                for end, note in (("", ""), ("_low", ", lower end"), ("_high", ", upper end"))
            ),
            _c(
                "waits_per_s",
                "f64",
                "waits that began a second; known only to the scheduler trace",
                null=True,
            ),
            _c("sleeps_per_s", "f64", "sleeps a second; a wait may have several", null=True),
            _c("samples", "f64", "samples with this label; NULL: traced, not sampled", null=True),
            _c("status", "str", "why unknown"),
            _c("source", "str", "scheduler trace | wait event word, estimated | activity view, estimated"),
        ),
        sessions="some",
        options=("events",),
    ),
    Table(
        "windows",
        (
            *CELL,
            _c("t0_ns", "i64", "start of the measured window"),
            _c("t1_ns", "i64", "its end"),
            _c("wall_s", "f64", "t1 - t0"),
            _c("status", "str", "ok | short (cut, usable) | invalid"),
            _c("reason", "str", "why, where status is not ok", null=True),
            _c("rate_per_s", "f64", "calls per second that become due (at t0); NULL: not paced", null=True),
        ),
    ),
    Table(
        "rates",
        (
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
            _c("source", "str", "data source"),
        ),
        methods=(
            Method(
                "{~calls}/s",
                "calls_per_s",
                "measured {~calls} of a {~slot} / (its last measured end - its first measured start), summed "
                "over all {~slots}; mean of repeats, with Student's 95 % interval from two repeats on",
                kinds=(DRIVEN,),
            ),
            Method(
                "work/s",
                "work_per_s",
                "calls/s x work units per call, counted by the server",
                kinds=(DATABASE,),
            ),
            Method(
                "work per call",
                "work_per_call",
                "exact server counters of the session / its calls",
                kinds=(DATABASE,),
            ),
            Method(
                "{~response_time}",
                "response_mean_ns",
                "{~from_where}; percentiles from a histogram of all measured {~calls} with three significant "
                "digits",
                kinds=(DRIVEN,),
            ),
            Method(
                "CPU per {~call}", "cpu_per_call_ns", "CPU of the {~owners} / their {~calls}", kinds=(DRIVEN,)
            ),
            Method(
                "CPU per work unit",
                "cpu_per_work_ns",
                "CPU of the {~owners} / their work units",
                kinds=(DRIVEN,),
            ),
        ),
    ),
    Table(
        "cores",
        (
            *CELL,
            _c("threads", "f64", "CPUs busy, whoever used them: thread-seconds per second", null=True),
            _c("cores", "f64", "cores with any thread busy: core-seconds per second", null=True),
            _c("low", "f64", "lower end: of its interval, or of what is possible", null=True),
            _c("high", "f64", "upper end", null=True),
            _c("looks", "i64", "samples of the tasks that show which threads ran together", null=True),
            _c("status", "str", "ok | off (not read) | not here | no topology"),
            _c("source", "str", "data source, and the method that gives the value within its bounds"),
        ),
        json=False,
    ),
    Table(
        "microstates",
        (
            *CELL,
            _c("pid", "i64", "process"),
            _c("tid", "i64", "task; NULL: the process's main one", null=True),
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
            *(rate.column for rate in process_rates()),
            _c("status", "str", "why unknown"),
            _c("source", "str", "data sources"),
        ),
        sessions="all",
        options=("microstates",),
        methods=(
            Method(
                "microstates",
                "usr",
                "per process: USR and SYS from schedstat split by utime and stime, CPU WAIT from schedstat, "
                "LOCK, CLNT and SLP from the joint table; BLKIO from delay accounting lies inside them",
            ),
        ),
    ),
    Table(
        "strips",
        (
            *CELL,
            _c("session", "i64", "session"),
            _c("pid", "i64", "its process; of several the one with the lowest number", null=True),
            _c("start_s", "f64", "since t0"),
            _c("end_s", "f64", "since t0"),
            _c("part", "str", "run | runq | a wait class in words | asleep | unknown"),
            _c("share", "f64", "of that time"),
        ),
        sessions="all",
        json=False,
    ),
    Table(
        "over_time",
        (
            *CELL,
            _c("start_s", "f64", "since t0: when the driver was asked, about once a second"),
            _c("end_s", "f64", "when it was asked next"),
            _c("calls", "i64", "calls that ended in between"),
            _c("errors", "i64", "calls that ended in an error"),
            _c("calls_per_s", "f64", "calls / (end_s - start_s)"),
            _c(
                "response_mean_ns",
                "f64",
                "mean duration of those calls (percentiles: whole measurements only); NULL: none ended",
                null=True,
            ),
        ),
        json=False,
    ),
    Table(
        "profile",
        (
            *CELL,
            _c("name", "str", "DB time, DB CPU, CPU WAIT, logical reads, WAL, commits, ..."),
            _c("unit", "str", "s, blocks, bytes, count, ..."),
            _c("total", "f64", "over the window", null=True),
            _c("per_s", "f64", "per second", null=True),
            _c("per_transaction", "f64", "per commit or rollback", null=True),
            _c("per_execution", "f64", "per statement executed", null=True),
            _c("per_call", "f64", "per call of the driver", null=True),
            _c("status", "str", "why unknown, and what would make it known"),
            _c("source", "str", "data source"),
        ),
        together=True,
        options=("profile",),
        methods=(
            Method(
                "DB time",
                "DB time",
                "time in calls by the driver's clock; on an existing workload run + run queue + sleep "
                "outside the client",
                kinds=(SERVED,),
            ),
        ),
    ),
    COSTS,
    Table(
        "top_events",
        (
            *CELL,
            _c("rank", "i64", "1..10 by seconds"),
            _c("name", "str", "DB CPU | CPU WAIT | class/event (asleep in it)"),
            _c("seconds", "f64", "over the window, all sessions"),
            _c("low", "f64", "lower end of its interval", null=True),
            _c("high", "f64", "upper end", null=True),
            _c("share", "f64", "of DB time", null=True),
            _c("runq_s", "f64", "seconds under its label in the run queue: counted in CPU WAIT", null=True),
            _c("waits", "f64", "waits that began, where the trace could count them", null=True),
            _c("sleeps", "f64", "sleeps that began, where traced; a wait may have several", null=True),
            _c("mean_ns", "f64", "time asleep of a wait, in the mean", null=True),
            _c("mean_queued_ns", "f64", "the same with its time in the run queue (CPU WAIT)", null=True),
            _c("source", "str", "data source"),
        ),
        together=True,
        options=("profile",),
        methods=(
            Method(
                "{~top_events}",
                "",
                "{~db_cpu}, CPU WAIT and each wait's sleep, ranked by seconds; what a wait's label hid in "
                "the run queue stands beside it and is counted in CPU WAIT, so nothing is counted twice",
            ),
        ),
    ),
    Table(
        "data_sources",
        (
            *CELL,
            _c("quantity", "str", "cpu_used, work_per_call, executions, ..."),
            _c("source", "str", "data source"),
            _c("value", "f64", "NULL: unknown", null=True),
            _c("unit", "str", "cores, blocks, calls"),
            _c(
                "relative_difference",
                "f64",
                "relative to the first data source of that quantity with status ok",
                null=True,
            ),
            _c("tolerance", "f64", "a difference up to this agrees, in the unit", null=True),
            _c("verdict", "str", "reference | agrees | differs | not comparable | unknown"),
            _c("status", "str", "why unknown"),
            _c("reason", "str", "reason for the tolerance, and possible causes of a difference", null=True),
        ),
        options=("cross_check",),
        older=("witnesses",),
    ),
    LAWS,
    BOUNDS,
    Table(
        "statements",
        (
            *CELL,
            _c("rank", "i64", "by DB time if known, else execution time; all others last"),
            _c(
                "query_id",
                "i64",
                "of the statement; NULL: hidden from this role, or all others in sum",
                null=True,
            ),
            _c("user", "str", "role; NULL: all others in sum, or sampled only", null=True),
            _c("database", "str", "database; NULL: as above, or it is gone", null=True),
            _c("toplevel", "bool", "false: inside a function, its time is part of the caller's"),
            _c("others", "i64", "statements in the row of all others; NULL: one statement", null=True),
            *FIGURES,
            _c("share", "f64", "of the time of all top-level statements", null=True),
            _c(
                "db_time_s",
                "f64",
                "time that sessions spent in it, from samples; NULL: met by none",
                null=True,
            ),
            _c("db_time_share", "f64", "of the time that sessions spent in any statement", null=True),
            _c("cpu_s", "f64", "of which on a CPU", null=True),
            _c("cpu_wait_s", "f64", "of which in the run queue", null=True),
            _c("top_wait", "str", "class/event in which it slept longest", null=True),
            _c("wall_s", "f64", "between the two reads", null=True),
            *columns("statement_reads", "evictions"),
            _c("status", "str", "ok | lower bound: why | sampled only"),
            _c("source", "str", "data sources"),
        ),
        together=True,
        options=("statements",),
        methods=(
            Method(
                "Top SQL",
                "calls",
                "growth of the server's counters by statement, from before the first call to after the last "
                "(of an observation between the ends of a window); DB time and CPU WAIT from the scheduler "
                "trace, else from samples; without dbdyno's own",
                kinds=(SERVED,),
            ),
        ),
    ),
    Table("statement_texts", TABLES["statement_texts"], options=("statements",)),
    Table(
        "system_calls",
        (
            *CELL,
            _c("session", "i64", "session", null=True),
            _c("who", "str", "rung (all sessions in sum) | session | the role of other processes"),
            _c("name", "str", "system call"),
            *CALLS.figures,
            _c("wall_s", "f64", "length of the window", null=True),
            _c("db_time_s", "f64", "session time that is not sleep for the client", null=True),
            _c("cpu_s", "f64", "CPU time of these tasks, user and kernel", null=True),
            _c("work_calls", "f64", "calls of the workload in the window", null=True),
            _c("work_units", "f64", "its units of work", null=True),
            _c("calls_share", "f64", "of all their system calls", null=True),
            _c("db_time_share", "f64", "time inside, less sleep for the client, of DB time", null=True),
            _c("cpu_share", "f64", "CPU time inside, of their CPU time", null=True),
            _c("per_call", "f64", "system calls per call of the workload", null=True),
            _c("cpu_per_call_ns", "f64", "CPU time inside, per call of the workload", null=True),
            _c("per_work", "f64", "system calls per unit of work", null=True),
            _c("cpu_per_work_ns", "f64", "CPU time inside, per unit of work", null=True),
            _c("source", "str", "data source"),
        ),
        sessions="some",
        together=True,
        options=("syscalls",),
    ),
    Table(
        "system_call_sizes",
        (
            *CELL,
            _c("who", "str", "rung (all sessions in sum) | the role of other processes"),
            *SIZES.labels,
            *SIZES.figures,
        ),
        together=True,
        options=("syscalls",),
    ),
    Table("statement_ledger", (*CELL, *STATEMENT_LEDGER), together=True, options=("statements",)),
    Table(
        "wait_histogram",
        (
            *CELL,
            *WAITS_OF,
            _c("low_ns", "i64", "least duration of the bucket; four for each power of two"),
            _c("high_ns", "i64", "greatest"),
            _c("count", "i64", "sleeps or stays in the run queue that ended"),
        ),
        together=True,
        json=False,
    ),
    Table(
        "wait_durations",
        (
            *CELL,
            *WAITS_OF,
            _c("count", "i64", "sleeps or stays in the run queue that ended"),
            _c("seconds", "f64", "time waited in the window, all sessions"),
            _c(
                "mean_ns",
                "f64",
                "seconds / begun (in the run queue: / count); NULL where waits under way outlast all that "
                "ended",
                null=True,
            ),
            _c("p50_ns", "i64", "median: upper end of its bucket, at most 25 % too high", null=True),
            _c("p99_ns", "i64", "99th percentile, the same; NULL of fewer than 1,000", null=True),
            _c("max_ns", "i64", "longest, the same", null=True),
            _c("begun", "f64", "sleeps or stays in the run queue that began: whole"),
            _c("waits", "f64", "waits that began (asleep), where the trace could count them", null=True),
            _c("status", "str", "ok | lost: some durations found no room"),
        ),
        together=True,
        options=(
            "statements",
            "events",
        ),
    ),
    Table(
        "wait_chains",
        (*CELL, *WAIT_CHAINS),
        together=True,
        options=("chains",),
        methods=(
            Method(
                "wait chains",
                "seconds",
                "the ledger's sleep in lock waits, divided as samples of the lock table were: each waiter "
                "followed to the root, which waits for no lock",
                kinds=(SERVED,),
            ),
        ),
    ),
    *RESPONSE_TABLES,
    RESPONSE_QUANTILES,
    *SCRIPT_TABLES,
    *EXECUTION_TABLES,
    # The raw tables of all measurements in one: what they left behind, resets before them, tables too large.
    Table("growth", (*CELL, *TABLES["growth"]), older=("grown",)),
    Table("resets", (*CELL, *TABLES["resets"]), older=("resets_done",)),
    Table("large_scans", (*CELL, *TABLES["large_scans"]), older=("large_scans_read",)),
    Table(
        "other_processes",
        (
            *CELL,
            _c("pid", "i64", "one of those that used most CPU; NULL: all that could be read", null=True),
            _c("name", "str", "name by the kernel, without arguments", null=True),
            _c("user", "str", "its user; NULL: not readable", null=True),
            _c("cpus", "f64", "CPUs used, those of its ended children included; NULL: not known", null=True),
            _c("children_cpus", "f64", "of which ended children used", null=True),
            _c("status", "str", "ok, or why some processes are not visible"),
        ),
    ),
    *MEMORY_TABLES,
    *DEVICE_TABLES,
    *TRIGGER_TABLES,
    *NOISE_TABLES,
    Table("hosts", HOSTS),
    Table(
        "machine_growth",
        (
            *CELL,
            _c("origin", "str", "host | cgroup (of the server)"),
            _c("place", "str", "path of the group", null=True),
            _c("key", "str", "name of the counter, as in the raw tables host and cgroup"),
            _c("last", "f64", "value at the end of the window", null=True),
            _c("delta", "f64", "growth in the window; NULL: a momentary value, or reset", null=True),
            _c("wall_ns", "i64", "time between the reads of the growth", null=True),
            _c("status", "str", "of the reads; also: reset"),
        ),
        shown=False,
    ),
    Table("placed", PLACED, json=False),
    Table("placements", PLACEMENTS),
    Table("cpu_profile", DERIVED_PROFILE, together=True, json=False),
    Table("cpu_stacks", DERIVED_STACKS, sessions="all", json=False),
    Table("sleep_profile", DERIVED_SLEEPS, together=True, json=False),
    Table("sleep_code", DERIVED_SLEEP_STACKS, sessions="all", json=False),
)

register(*_TABLES)
DERIVED = Columns()
"""Columns of all derived tables that are shown, by name."""
