"""Columns of the raw tables: what driver, observers and engine write, one cell at a time. Never changed."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_sources import asked, counts, keyed
from dbdyno.model.schema.data_sources.drivers import DRIVERS
from dbdyno.model.schema.data_sources.executions import RAW_EXECUTIONS
from dbdyno.model.schema.data_sources.growth import RAW_GROWTH
from dbdyno.model.schema.data_sources.memory import RAW_MEMORY
from dbdyno.model.schema.data_sources.paced import PACED, SCRIPTS
from dbdyno.model.schema.data_sources.profile import PROFILE
from dbdyno.model.schema.data_sources.sleeps import SLEEPS
from dbdyno.model.schema.data_sources.statements import STATEMENT, TEXTS

_WHO = (
    _c(
        "role",
        "str",
        "session (of a pooled cell: a server connection of its pool) | helper:<what> | other (any "
        "other backend) | driver | pooler | dbdyno",
    ),
    _c("session", "i64", "session number 0..N-1 where role is session", null=True),
)

_READ = (
    _c("before_ns", "i64", "before the read"),
    _c("after_ns", "i64", "after the read"),
)
_TASK = (
    _c("pid", "i64", "process; of the client's host + 2^32, where that is not the server's"),
    _c("tid", "i64", "task"),
    _c("start_ticks", "i64", "start time since boot in clock ticks: part of the key", null=True),
)

OF_CLIENT = 1 << 32
"""Is added to the process and task ids of the client's host, where the server is on another: its ids are
plain, and a kernel gives none beyond 2^22 (PID_MAX_LIMIT)."""

OWN_CONNECTION = "dbdyno"
"""Kind, in table ``backends``, of the connections of this very process."""
CLIENT_BACKEND = "client backend"
"""Kind of a session in the table ``backends``."""

RAW: dict[str, tuple[Column, ...]] = {
    # -- driver ---------------------------------------------------------------------------------
    "sessions": (
        _c("session", "i64", "0..N-1"),
        _c("backend_pid", "i64", "the server's process id for it, in the server's pid namespace", null=True),
        _c("connect_ns", "i64", "duration of connecting and authenticating", null=True),
        _c("prepare_ns", "i64", "duration of session set-up, preparing, warming, first probe", null=True),
        _c("began_ns", "i64", "start of its first call, from the barrier on", null=True),
        _c("first_start_ns", "i64", "start of the first measured call (paced: its real start)", null=True),
        _c("last_end_ns", "i64", "end of the last measured call", null=True),
        _c("calls", "i64", "measured calls that ended well: started (paced: due) in [t0, t1)"),
        _c("errors", "i64", "measured calls that ended in an error"),
        _c("calls_total", "i64", "all calls that ended well, from the barrier on"),
        _c("errors_total", "i64", "all calls that ended in an error, from the barrier on"),
        _c("straddle_in", "i64", "1 if a call was in flight at t0 (not measured)"),
        _c("straddle_out", "i64", "1 if the last measured call ended after t1 (measured)"),
        _c("in_call_ns", "i64", "sum of durations of measured calls that ended well (paced: from when due)"),
        _c("min_ns", "i64", "shortest measured call", null=True),
        _c("max_ns", "i64", "longest measured call", null=True),
        _c("sum_sq_ns2", "f64", "sum of squared durations of measured calls"),
        _c(
            "round_trips",
            "i64",
            "messages that calls sent and waited for, from the barrier on: one a statement or pipeline",
            null=True,
        ),
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
        _c("sqlstate", "str", "the server's code, or 08006 (ISO/IEC 9075) for a lost connection"),
        _c("count", "i64", "how often, from the barrier on"),
        _c("message", "str", "the first such message"),
    ),
    "calls": (
        _c("session", "i64", "session number"),
        _c("start_ns", "i64", "sent"),
        _c("duration_ns", "i64", "sent to ready"),
        _c("ok", "bool", "false: ended in an error"),
        _c("measured", "bool", "started (paced: due) in [t0, t1)"),
        _c("cpu", "i64", "CPU the backend last ran on, read at the call's end", null=True),
        _c(
            "migrations",
            "i64",
            "how often it was moved to another CPU: in rounds during the call, else since the session's "
            "call before (se.nr_migrations)",
            null=True,
        ),
        _c("due_ns", "i64", "when a paced call was due; NULL: not paced", null=True),
    ),
    **DRIVERS,
    **SCRIPTS,
    **PACED,
    **RAW_EXECUTIONS,
    **RAW_GROWTH,
    **RAW_MEMORY,
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
        _c("tid", "i64", "the task that was read; NULL: the process's main one", null=True),
        _c("start_ticks", "i64", "part of the key: a pid may be used again", null=True),
        *_WHO,
        _c("via", "str", "sql (the activity view) | memory (the wait event word); NULL: sql", null=True),
        _c(
            "state",
            "str",
            "state according to the server: active, idle, idle in transaction, ...; hidden: not visible",
            null=True,
        ),
        _c("wait_class", "str", "the server's wait event type", null=True),
        _c("wait_event", "str", "the server's wait event", null=True),
        _c("query_id", "i64", "where known", null=True),
        _c("leader_pid", "i64", "of a parallel worker", null=True),
        _c("task_state", "str", "R, S, D, ... from the task's stat file; F: its group is frozen", null=True),
        _c("status", "str", "of task_state"),
    ),
    "tasks": (
        _c("before_ns", "i64", "before the read"),
        _c("after_ns", "i64", "after the read"),
        *_TASK,
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
        _c(
            "scope",
            "str",
            "server | sessions | shared | driver: whose group; sessions: of nobody else; shared: of sessions "
            "and others, or a session was met there later",
        ),
        _c("version", "i64", "1 or 2"),
        _c("path", "str", "the group's directory; of one that cannot be read: why"),
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
            "psi.io.some_ns, psi.io.full_ns, psi.memory.some_ns, psi.memory.full_ns; read at t0 and t1 only: "
            "cpuN.busy_ns, and on POWER cpuN.purr_ticks idle_purr_ticks spurr_ticks idle_spurr_ticks, "
            "timebase_hz",
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
    **{a.table: a.columns for a in asked()},
    # -- scheduler trace: sums since it was attached, what is under way at the read included ------
    "traced": (
        *_READ,
        *_TASK,
        *_WHO,
        _c("run_ns", "i64", "time on a CPU", null=True),
        _c("runq_ns", "i64", "time runnable without a CPU, throttled time included", null=True),
        _c("throttled_ns", "i64", "the part throttled by a quota; NULL: unknown", null=True),
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
        _c(
            "open_ns",
            "i64",
            "part of runq_ns after a wait for the next statement, whose id is not known yet: it moves there",
            null=True,
        ),
        _c("sleeps", "i64", "how often it fell asleep so"),
        _c("begun", "i64", "waits: sleeps but those that go on with one in the same system call", null=True),
        _c("unclear", "i64", "of which sleeps where that is not known", null=True),
        _c("preempted", "i64", "how often it lost its CPU while runnable"),
        _c("run_samples", "i64", "ticks of a clock on each CPU (199 a second) that met it so", null=True),
        *STATEMENT,
        _c("run_ns", "i64", "slices on a CPU at whose end it was found so", null=True),
        _c("came_ns", "i64", "of which slices that began in another statement", null=True),
        _c("left_ns", "i64", "slices that began in this statement and ended in another", null=True),
        _c("status", "str", "of this read"),
    ),
    "wait_times": (
        *_READ,
        *_TASK,
        *_WHO,
        _c("wait_class", "str", "as in waits", null=True),
        _c("wait_event", "str", "as in waits", null=True),
        *STATEMENT,
        _c("part", "str", "sleep, or runq: in the run queue after it, or after a preemption"),
        _c(
            "from_ns",
            "i64",
            "least duration of the bucket, four for each power of two; NULL: under way",
            null=True,
        ),
        _c(
            "count",
            "i64",
            "waits of this duration since the trace was attached; read at both ends of windows",
        ),
        _c("status", "str", "of this read; lost: some durations found no room"),
    ),
    **{
        c.table: (*_READ, *_TASK, *_WHO, *c.labels, *c.figures, _c("status", "str", "of this read"))
        for c in counts()
    },
    **PROFILE,
    **SLEEPS,
    # -- engine ---------------------------------------------------------------------------------
    "backends": (
        _c("at_ns", "i64", "when the server was asked"),
        _c("pid", "i64", "the server's process id"),
        _c("tid", "i64", "its task in it; NULL: the process's main one", null=True),
        _c("backend_start_ns", "i64", "its start by the server's wall clock, since 1970", null=True),
        _c("kind", "str", "client backend, or what the engine calls that process", null=True),
        _c("leader_pid", "i64", "of a parallel worker", null=True),
        _c("user", "str", "role it is connected as", null=True),
        _c("database", "str", "database", null=True),
        _c("application", "str", "application_name", null=True),
        _c("client", "str", "client address; local: a unix socket", null=True),
        _c("query_id", "i64", "of the statement in progress", null=True),
        _c("status", "str", "of this row; not permitted: columns hidden from this role"),
    ),
    "counters": (
        _c("before_ns", "i64", "before the read"),
        _c("after_ns", "i64", "after the read"),
        _c(
            "phase",
            "str",
            "per session: before1 before2 after1 after2; else t0 t1, connect start end (of the cell)",
        ),
        _c("scope", "str", "session | server | database | pooler (its presence: the cell is pooled)"),
        _c("session", "i64", "where scope is session", null=True),
        _c("name", "str", "name in the engine's counters.toml"),
        _c("kind", "str", "counter (monotonic) | gauge"),
        _c("unit", "str", "blocks, bytes, rows, ns, count"),
        _c("value", "f64", "as of the read", null=True),
        _c("status", "str", "of this read"),
    ),
    **{
        k.table: (
            *_READ,
            _c("phase", "str", "t0 | t1"),
            *k.key,
            *k.figures,
            _c("status", "str", "of this read"),
        )
        for k in keyed()
    },
    "statement_texts": TEXTS,
    "sources": (
        _c("name", "str", "name of the data source"),
        _c("provenance", "str", "what it reads"),
        _c("status", "str", "how that went"),
        _c("detail", "str", "why not, and the cure"),
    ),
}
