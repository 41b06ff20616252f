"""System calls by task: number, errors, time, CPU time and sizes. crates/dyno-trace/src/system_calls.rs
reads them.

A call in progress at a read has its time so far in the sums, but it is counted only when it returns.
"""

from __future__ import annotations

from dbdyno.model.schema.column import column
from dbdyno.model.schema.data_source import DataSource, Enabling, Option, ProcessRate, Step, TaskCounts
from dbdyno.model.schema.raw import columns

_FLAG = "--trace-syscalls"

CALLS = TaskCounts(
    table="syscalls",
    labels=columns("syscalls", "name"),
    figures=columns(
        "syscalls", "calls", "errors", "time_ns", "cpu_ns", "runq_ns", "client_ns", "bytes", "unclear"
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
    labels=columns("syscall_sizes", "name", "size_bytes"),
    figures=columns("syscall_sizes", "calls"),
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
