"""System calls by task: how many, and how long. The reader is crates/dyno-trace/src/system_calls.rs."""

from __future__ import annotations

from dbdyno.model.column import column
from dbdyno.model.data_source import DataSource, Enabling, Option, ProcessRate, Step, TaskCounts

_FLAG = "--trace-syscalls"

SYSTEM_CALLS = DataSource(
    name="system calls",
    provenance="BPF on sys_enter and sys_exit of the server's tasks",
    cures={
        "off": f"system calls are counted by the scheduler trace when asked for: {_FLAG}",
        "lost": "there were more tasks or kinds of system calls than the trace has room for",
    },
    enabling=Enabling(
        "number and duration of system calls by process",
        "CAP_BPF and CAP_PERFMON, as the scheduler trace",
        (Step(f"dbdyno run WORKLOAD {_FLAG}"),),
    ),
    option=Option("syscalls", _FLAG, "Also count system calls (scheduler trace)."),
    counts=TaskCounts(
        table="syscalls",
        label=column("name", "str", "system call"),
        figures=(
            column("calls", "i64", "how often it returned"),
            column("time_ns", "i64", "from entry to exit, sleeps included"),
        ),
        rate=ProcessRate(
            column("syscalls_per_s", "f64", "system calls, where traced", null=True),
            figure="calls",
            heading="SCL/s",
            title="system calls per second",
        ),
    ),
)
