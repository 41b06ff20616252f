"""The CPU profile: raw tables of sampled stacks, which crates/dyno-profile reads, and derived tables."""

from __future__ import annotations

from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import DataSource, Enabling, Option, SampledStacks, with_rights
from dbdyno.model.schema.raw import TABLES

PROFILE = {
    name: TABLES[name] for name in ("profile_samples", "profile_stacks", "profile_frames", "profile_losses")
}

# Derived columns.

_WHOSE = (
    _c("scope", "str", "rung (all sessions in sum) | helper (server processes working for all) | beside"),
    _c("who", "str", "rung | the role of a helper or of who is beside"),
)

DERIVED_PROFILE: tuple[Column, ...] = (
    *CELL,
    *_WHOSE,
    _c(
        "by",
        "str",
        "module | function | session | wait | statement | mode | stack: each adds up to the ledger's",
    ),
    _c(
        "name",
        "str",
        "function, module, session, class/event, query id, user or kernel, whole or cut; not sampled; others",
        null=True,
    ),
    _c("module", "str", "of a function: program or library, its part behind a colon (kernel:vfs)", null=True),
    _c("aas", "f64", "seconds on a CPU per second, without callees"),
    _c("low", "f64", "lower end of its interval", null=True),
    _c("high", "f64", "upper end of its interval", null=True),
    _c("kernel", "f64", "of which in the kernel", null=True),
    _c("total", "f64", "with callees; recursion counts once", null=True),
    _c("total_low", "f64", "lower end of its interval", null=True),
    _c("total_high", "f64", "upper end of its interval", null=True),
    _c("total_kernel", "f64", "of which in the kernel", null=True),
    _c("per_call_ns", "f64", "CPU time per call of the driver, without callees", null=True),
    _c("per_work_ns", "f64", "CPU time per unit of work, without callees", null=True),
    _c("samples", "i64", "samples, without callees"),
    _c("effective", "f64", "how many samples of equal weight all samples of who are worth", null=True),
    _c(
        "lost",
        "f64",
        "share of the samples that is missing: intervals hold it wherever it belongs",
        null=True,
    ),
    _c("status", "str", "ok | not sampled"),
)
DERIVED_STACKS: tuple[Column, ...] = (
    *CELL,
    *_WHOSE,
    _c("stack", "str", "frames, root first, separated by semicolons: module`function"),
    _c("mode", "str", "user | kernel; NULL: unknown", null=True),
    _c("wait", "str", "class/event at the samples; not sampled"),
    _c("statement", "str", "query id; not sampled"),
    _c("aas", "f64", "seconds on a CPU per second"),
    _c("samples", "i64", "samples"),
)


_FLAG = "--profile"
_CAPS = "+perfmon,+sys_ptrace,+syslog,+bpf"

CPU_PROFILE = DataSource(
    name="CPU profile",
    provenance="stacks of the server's tasks on a CPU, sampled by a clock of each CPU (perf_event_open)",
    cures={"off": f"the CPU profile is sampled when asked for: {_FLAG}"},
    enabling=Enabling(
        "where the server's CPU time goes, by function and module",
        "CAP_PERFMON; CAP_SYS_PTRACE if the server runs as another user; CAP_SYSLOG to name kernel "
        "functions; CAP_BPF for wait events and statements",
        (with_rights(_CAPS, f" {_FLAG}"),),
    ),
    option=Option(
        "profile",
        _FLAG,
        "Also sample stacks of what the server runs on CPUs (CPU profile), HZ times a second on each CPU. "
        "observe --profile=30s: for the first 30 s only.  [default: off; without HZ 49]",
        hz=49.0,
    ),
    stacks=SampledStacks(PROFILE),
)
