"""Off-CPU stacks: where tasks sleep. The reader is crates/dyno-trace, with crates/dyno-profile."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import DataSource, Enabling, Option, SampledStacks, with_rights
from dbdyno.model.schema.data_sources.profile import DERIVED_PROFILE, DERIVED_STACKS, LOSSES, PROFILE

_LOST = {
    "start_ns": "stacks that are missing: between this",
    "reason": "lost: no room in the trace's buffer | malformed | of tasks not known yet",
}
SLEEPS: dict[str, tuple[Column, ...]] = {
    "sleep_samples": (
        _c("t_ns", "i64", "when the sleep began"),
        _c("slept_ns", "i64", "until it was woken; NULL: still asleep at the end", null=True),
        _c("chance", "f64", "with which it was chosen: its time stands for 1/chance of such time"),
        _c("session", "i64", "session; NULL: none", null=True),
        _c("pid", "i64", "process"),
        _c("tid", "i64", "task"),
        _c("role", "str", "as in tasks"),
        _c("wait_class", "str", "wait event type as it fell asleep; NULL: none", null=True),
        _c("wait_event", "str", "wait event", null=True),
        _c("label_status", "str", "of the label"),
        _c("query_id", "i64", "statement; NULL: none, or unknown", null=True),
        _c("query_status", "str", "of the statement's id"),
        _c("stack", "i64", "number in sleep_stacks"),
        _c("cut", "bool", "the stack is incomplete"),
    ),
    "sleep_stacks": PROFILE["profile_stacks"],
    "sleep_frames": PROFILE["profile_frames"],
    "sleep_losses": (
        *(c._replace(doc=_LOST.get(c.name, c.doc)) for c in LOSSES),
        _c("asleep_ns", "i64", "about so much sleep they stood for"),
    ),
}

# As it is derived: columns as those of the CPU profile.

_KERNEL = ("kernel", "total_kernel")
_DOC = {
    "by": "module | function | session | wait | statement | stack: rows of a kind add up to the sleep",
    "name": "function, module, session, class/event, statement, whole or cut stack; not sampled; others",
    "aas": "seconds asleep per second, without callees",
    "lost": "share of the chosen sleep whose stacks are missing: intervals hold it wherever it belongs",
    "per_call_ns": "sleep per call of the driver, without callees",
    "per_work_ns": "sleep per unit of work, without callees",
    "stack": "the wait event, then frames, root first, separated by semicolons: module`function",
    "mode": "NULL",
}
DERIVED_SLEEPS, DERIVED_SLEEP_STACKS = (
    tuple(c._replace(doc=_DOC.get(c.name, c.doc)) for c in columns if c.name not in _KERNEL)
    for columns in (DERIVED_PROFILE, DERIVED_STACKS)
)

_FLAG = "--off-cpu"
_CAPS = "+bpf,+perfmon,+sys_ptrace,+syslog"

OFF_CPU = DataSource(
    name="off-CPU stacks",
    provenance="stacks of the server's tasks as they fall asleep, sampled by the scheduler trace (BPF)",
    cures={"off": f"stacks of sleeping tasks are taken when asked for: {_FLAG}"},
    enabling=Enabling(
        "which code sleeps in which wait event, and for how long",
        "CAP_BPF and CAP_PERFMON, Linux 5.15; CAP_SYS_PTRACE if the server runs as another user; CAP_SYSLOG "
        "to name kernel functions",
        (with_rights(_CAPS, f" {_FLAG}"),),
    ),
    option=Option(
        "off_cpu",
        _FLAG,
        "Also sample stacks of what the server's processes sleep in (off-CPU), about HZ a second in sum.  "
        "[default: off; without HZ 199]",
        hz=199.0,
    ),
    stacks=SampledStacks(SLEEPS),
)
