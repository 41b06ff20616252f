"""The CPU profile: raw tables of sampled stacks. The reader is crates/dyno-profile."""

from __future__ import annotations

from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import DataSource, Enabling, Option, SampledStacks, with_rights

LOSSES: tuple[Column, ...] = (
    _c("start_ns", "i64", "samples that are missing: between this"),
    _c("end_ns", "i64", "and this"),
    _c(
        "reason",
        "str",
        "lost: no room in the kernel's buffer | malformed | missed ticks: the clock was held back",
    ),
    _c("lost", "i64", "how many"),
)
PROFILE: dict[str, tuple[Column, ...]] = {
    "profile_samples": (
        _c("t_ns", "i64", "when the sample was taken"),
        _c("cpu", "i64", "CPU"),
        _c("session", "i64", "session; NULL: none", null=True),
        _c("pid", "i64", "process"),
        _c("tid", "i64", "task"),
        _c("role", "str", "as in tasks"),
        _c("mode", "str", "user | kernel"),
        _c("wait_class", "str", "wait event type at the sample; NULL: none", null=True),
        _c("wait_event", "str", "wait event", null=True),
        _c("label_status", "str", "of the label"),
        _c(
            "query_id",
            "i64",
            "the statement that ran, or ran last; NULL: none, or see query_status",
            null=True,
        ),
        _c("query_status", "str", "ok | lost | why ids are not known; NULL: not read", null=True),
        _c("stack", "i64", "number in profile_stacks"),
        _c("cut", "bool", "the stack is incomplete"),
    ),
    "profile_stacks": (
        _c("stack", "i64", "number of the stack"),
        _c("position", "i64", "0 is the leaf"),
        _c("frame", "i64", "number of the frame"),
    ),
    "profile_frames": (
        _c("frame", "i64", "number of the frame"),
        _c("function", "str", "NULL: no symbol", null=True),
        _c(
            "module",
            "str",
            "kernel, kernel:ext4, basename of the executable or library, vdso, jit",
            null=True,
        ),
        _c("path", "str", "of the object; NULL for the kernel", null=True),
        _c("address", "i64", "offset in the object", null=True),
        _c("source", "str", "source file of the function, where known", null=True),
        _c("kind", "str", "user | kernel"),
    ),
    "profile_losses": LOSSES,
}

# As it is derived.

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
