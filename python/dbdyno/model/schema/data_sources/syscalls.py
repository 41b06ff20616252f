"""System calls by task: how many, errors, time, CPU inside, sizes. The reader is
crates/dyno-trace/src/system_calls.rs.

A call that is under way at a read has its time up to then in the sums, and is counted when it returns.
"""

from __future__ import annotations

from dbdyno.model.schema.column import column
from dbdyno.model.schema.data_source import DataSource, Enabling, Option, ProcessRate, Step, TaskCounts

_FLAG = "--trace-syscalls"
_NAME = column("name", "str", "system call")

CALLS = TaskCounts(
    table="syscalls",
    labels=(_NAME,),
    figures=(
        column("calls", "i64", "how often it returned"),
        column("errors", "i64", "of which with an error, or interrupted by a signal", null=True),
        column("time_ns", "i64", "from entry to exit, sleeps included"),
        column("cpu_ns", "i64", "of which on a CPU", null=True),
        column("runq_ns", "i64", "of which in the run queue", null=True),
        column("client_ns", "i64", "of which asleep, waiting for the client", null=True),
        column("bytes", "i64", "transferred, of calls that return how much", null=True),
        column("unclear", "i64", "calls with a switch that was not seen: cpu_ns is a lower bound", null=True),
    ),
    rate=ProcessRate(
        column("syscalls_per_s", "f64", "system calls, where traced", null=True),
        figure="calls",
        heading="SCL/s",
        title="system calls per second",
    ),
)
SIZES = TaskCounts(
    table="syscall_sizes",
    labels=(_NAME, column("size_bytes", "i64", "transferred so much, and less than twice as much")),
    figures=(column("calls", "i64", "how often"),),
)
SYSTEM_CALLS = DataSource(
    name="system calls",
    provenance="BPF on sys_enter and sys_exit of the server's tasks",
    cures={
        "off": f"system calls are counted by the scheduler trace when asked for: {_FLAG}",
        "lost": "there were more tasks or kinds of system calls than the trace has room for",
    },
    enabling=Enabling(
        "number, errors, duration, CPU time and sizes of system calls by process",
        "CAP_BPF and CAP_PERFMON, as the scheduler trace",
        (Step(f"dbdyno run WORKLOAD {_FLAG}"),),
    ),
    option=Option("syscalls", _FLAG, "Also count system calls (scheduler trace)."),
    counts=(CALLS, SIZES),
)
