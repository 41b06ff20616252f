"""Off-CPU stacks: the code in which tasks sleep. crates/dyno-trace reads them with crates/dyno-profile."""

from __future__ import annotations

from dbdyno.model.schema.data_source import DataSource, Enabling, Option, SampledStacks, with_rights
from dbdyno.model.schema.data_sources.profile import DERIVED_PROFILE, DERIVED_STACKS
from dbdyno.model.schema.raw import TABLES

SLEEPS = {name: TABLES[name] for name in ("sleep_samples", "sleep_stacks", "sleep_frames", "sleep_losses")}

# The derived columns are those of the CPU profile with other texts.

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
