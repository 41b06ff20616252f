"""Tables of the windows, the input of the ledger. They are not stored but computed again when needed."""

from __future__ import annotations

from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_sources import counts
from dbdyno.model.schema.data_sources.blocking import BLOCKED
from dbdyno.model.schema.data_sources.statements import FIGURES, KEY, STATEMENT
from dbdyno.model.schema.derived import ROUNDS
from dbdyno.model.schema.raw import columns

_WHOSE = (
    _c("pid", "i64", "process"),
    _c("role", "str", "as in tasks; a parallel worker of a session has role session"),
    _c("session", "i64", "the session it works for", null=True),
)

CUT: dict[str, tuple[Column, ...]] = {
    "rounds": ROUNDS,
    "cut_tasks": (
        *CELL,
        *_WHOSE,
        _c("tid", "i64", "task"),
        _c("start_ticks", "i64", "part of the key", null=True),
        _c("worker", "bool", "a parallel worker of the session"),
        _c("from_ns", "i64", "middle of the read nearest to t0; without reads, t0"),
        _c("to_ns", "i64", "middle of the read nearest to t1; without reads, t1"),
        _c("wall_ns", "i64", "to - from: the W of the ledger"),
        _c("over_ns", "i64", "what its time is divided by: W, or the window if partial"),
        _c("partial", "bool", "it appeared or vanished inside the window"),
        _c("run_ns", "i64", "time on a CPU", null=True),
        _c("runq_ns", "i64", "time in the run queue", null=True),
        _c("user_ns", "i64", "tick resolution", null=True),
        _c("system_ns", "i64", "tick resolution", null=True),
        _c("blkio_ns", "i64", "block I/O delay", null=True),
        _c("children_ns", "i64", "CPU of its ended children", null=True),
        _c("unread_ns", "i64", "of that, over its W, what no read of those children has", null=True),
        _c("slices", "i64", "times it got a CPU", null=True),
        _c("voluntary", "i64", "voluntary context switches", null=True),
        _c("involuntary", "i64", "involuntary ones", null=True),
        _c("state_a", "str", "R, S, D at the first of the two reads", null=True),
        _c("state_b", "str", "and at the last", null=True),
        _c("status", "str", "of the reads; also: too short, too brief, reset (a counter went down)"),
    ),
    "cut_samples": (
        *CELL,
        *_WHOSE,
        _c("tid", "i64", "task"),
        _c("start_ticks", "i64", "part of the key", null=True),
        _c("sample", "i64", "number of the sample"),
        _c("via", "str", "sql | memory"),
        _c("at_ns", "i64", "when this row was read"),
        _c(
            "skew_ns",
            "i64",
            "from label to task state: it may have fallen asleep or woken between",
            null=True,
        ),
        _c("state", "str", "state according to the server", null=True),
        _c("wait_class", "str", "the server's wait event type", null=True),
        _c("wait_event", "str", "the server's wait event", null=True),
        _c("query_id", "i64", "where known", null=True),
        _c("leader_pid", "i64", "of a parallel worker", null=True),
        _c("worker", "bool", "a parallel worker of the session"),
        _c("task_state", "str", "R, S, D, ...; F: frozen", null=True),
        _c("status", "str", "of task_state"),
    ),
    "cut_sampler": (
        *CELL,
        _c("sample", "i64", "number of a sample inside the window that was answered"),
        _c("via", "str", "sql | memory"),
        _c("late_ns", "i64", "how long after its due time it began: the sampler's own run queue"),
        _c("at_ns", "i64", "its instant"),
        _c("low_ns", "i64", "start of the time it stands for"),
        _c("high_ns", "i64", "end of the time it stands for"),
    ),
    "cut_statements": (
        *CELL,
        *KEY,
        *FIGURES,
        _c("wall_s", "f64", "between the two reads", null=True),
        *columns("statement_reads", "evictions"),
        _c("status", "str", "ok | lower bound: why"),
    ),
    "cut_statement_samples": (
        *CELL,
        _c("query_id", "i64", "of the statement", null=True),
        _c("doing", "str", "run (runnable) | wait | ? (active, no task state)"),
        _c("wait_class", "str", "where doing is wait", null=True),
        _c("wait_event", "str", "where doing is wait", null=True),
        _c("seconds", "f64", "that these samples stand for"),
        _c("samples", "i64", "how many"),
    ),
    "cut_blocked": (
        *CELL,
        *BLOCKED,
        _c("session", "i64", "session that waits; NULL: not one of ours", null=True),
        _c("seconds", "f64", "that the sample stands for"),
    ),
    "served": (
        *CELL,
        _c("sample", "i64", "number of a sample inside the window of an observation"),
        _c("via", "str", "sql | memory"),
        _c("at_ns", "i64", "its instant"),
        _c("n", "i64", "sessions that it saw neither idle nor asleep at their client"),
    ),
    "cut_traced": (
        *CELL,
        *_WHOSE,
        _c("tid", "i64", "task"),
        _c("start_ticks", "i64", "part of the key", null=True),
        _c("worker", "bool", "a parallel worker of the session"),
        _c("from_ns", "i64", "middle of the read nearest to t0"),
        _c("to_ns", "i64", "middle of the read nearest to t1"),
        _c("wall_ns", "i64", "to - from"),
        _c("over_ns", "i64", "what its time is divided by: W, or the window if partial"),
        _c("partial", "bool", "it appeared or vanished inside the window"),
        *(
            _c(name, "i64", f"growth of {name} of the table traced", null=True)
            for name in (
                "run_ns",
                "runq_ns",
                "throttled_ns",
                "sleep_ns",
                "blocked_ns",
                "voluntary",
                "involuntary",
            )
        ),
        _c("slack_ns", "i64", "half the brackets of its two reads", null=True),
        _c("status", "str", "of the reads"),
        _c("processes", "i64", "how many, where it is the sum of several brief ones", null=True),
    ),
    "cut_waits": (
        *CELL,
        *_WHOSE,
        _c("tid", "i64", "task"),
        _c("start_ticks", "i64", "part of the key", null=True),
        _c("wait_class", "str", "NULL: none", null=True),
        _c("wait_event", "str", "NULL: none", null=True),
        *(
            _c(name, "i64", f"growth of {name} of the table waits", null=True)
            for name in ("sleep_ns", "runq_ns", "throttled_ns", "sleeps", "preempted", "run_samples")
        ),
        _c("begun", "i64", "growth of begun; NULL: of some of these sleeps it is not known", null=True),
        _c("status", "str", "ok, or why the wait event could not be read"),
    ),
    "cut_statement_waits": (
        *CELL,
        _c("worker", "bool", "of parallel workers"),
        *STATEMENT,
        _c("wait_class", "str", "NULL: none", null=True),
        _c("wait_event", "str", "NULL: none", null=True),
        *(
            _c(name, "f64", f"growth of {name}_ns of the table waits, seconds per second", null=True)
            for name in ("sleep", "runq", "throttled", "run", "came", "left")
        ),
        _c("runq_low", "f64", "lower end of runq; equal where its statement is known", null=True),
        _c("runq_high", "f64", "upper end", null=True),
        *(
            _c(name, "i64", f"growth of {name} of the table waits", null=True)
            for name in ("sleeps", "preempted", "run_samples")
        ),
        *(
            _c(name, "f64", f"{what} a second, as the seconds are", null=True)
            for name, what in (
                ("waits_per_s", "waits that began"),
                ("sleeps_per_s", "sleeps that began"),
                ("preempted_per_s", "preemptions"),
            )
        ),
        _c("status", "str", "ok, or why the wait event could not be read"),
    ),
    "cut_wait_times": (
        *CELL,
        *STATEMENT,
        _c("wait_class", "str", "NULL: none", null=True),
        _c("wait_event", "str", "NULL: none", null=True),
        _c("part", "str", "sleep | runq"),
        _c("low_ns", "i64", "least duration of the bucket"),
        _c("count", "i64", "growth: waits that ended"),
        _c("status", "str", "of the reads; lost: there were more"),
    ),
    **{
        f"cut_{c.table}": (
            *CELL,
            *_WHOSE,
            _c("tid", "i64", "task"),
            _c("start_ticks", "i64", "part of the key", null=True),
            *c.labels,
            *(_c(f.name, "i64", "growth", null=f.null) for f in c.figures),
        )
        for c in counts()
    },
    "cut_bins": (
        *CELL,
        _c("session", "i64", "session; of its own task, workers are not in it"),
        _c("start_ns", "i64", "start of the bin"),
        _c("end_ns", "i64", "its end"),
        _c("known_ns", "i64", "how much of it lies between two reads of the task"),
        _c("run_ns", "f64", "time on a CPU in it", null=True),
        _c("runq_ns", "f64", "time in the run queue in it", null=True),
    ),
    "cut_work": (
        *CELL,
        _c("session", "i64", "session"),
        _c("name", "str", "counter"),
        _c("unit", "str", "of the counter"),
        _c("is_work", "bool", "it counts the workload's unit of work: it is named so, in small letters"),
        _c(
            "value", "f64", "what the session's calls added, from the barrier on, probes taken off", null=True
        ),
        _c("probe", "f64", "what one probe adds", null=True),
        _c("status", "str", "of the probes; also: reset"),
    ),
    "cut_levels": (
        *CELL,
        _c("origin", "str", "cgroup | host | engine"),
        _c("scope", "str", "server | driver | database | host"),
        _c("place", "str", "path of the group", null=True),
        _c("key", "str", "name of the counter"),
        _c("delta", "f64", "its growth in the window", null=True),
        _c("wall_ns", "i64", "time between those reads", null=True),
        _c("first", "f64", "value at the first of them", null=True),
        _c("last", "f64", "value at the last of them", null=True),
        _c("status", "str", "of the reads; also: reset"),
        _c(
            "own",
            "f64",
            "growth by dbdyno's own statements, taken off; NULL: delta lags and holds them",
            null=True,
        ),
        _c(
            "warm_up",
            "f64",
            "part of the growth that is taken off as that of calls before the barrier, an estimate; "
            "NULL: the counter had none",
            null=True,
        ),
    ),
}
