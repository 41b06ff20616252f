"""The CPU profile: raw tables of sampled stacks. The reader is crates/dyno-profile."""

from __future__ import annotations

from dbdyno.model.column import Column
from dbdyno.model.column import column as _c
from dbdyno.model.data_source import DataSource, Enabling, Option, SampledStacks, Step

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
        _c("stack", "i64", "number in profile_stacks"),
        _c("cut", "bool", "the stack is incomplete"),
    ),
    "profile_stacks": (
        _c("stack", "i64", "number of the stack"),
        _c("position", "i64", "0 is the leaf"),
        _c("frame", "i64", "number in profile_frames"),
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
}

_FLAG = "--profile"
_CAPS = "+perfmon,+sys_ptrace,+syslog"

CPU_PROFILE = DataSource(
    name="CPU profile",
    provenance="stacks of the server's tasks on a CPU, sampled by a clock of each CPU (perf_event_open)",
    cures={"off": f"the CPU profile is sampled when asked for: {_FLAG}"},
    enabling=Enabling(
        "where the server's CPU time goes, by function and module",
        "CAP_PERFMON; CAP_SYS_PTRACE if the server runs as another user; CAP_SYSLOG to name kernel functions",
        (
            Step(
                "sudo -E setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups "
                f"--inh-caps={_CAPS} --ambient-caps={_CAPS} $(command -v dbdyno) run WORKLOAD {_FLAG}"
            ),
        ),
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
