"""How far each data source of a cell got: rows of the table ``sources``, judged by what was actually read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import polars as pl

from dbdyno.model.engine.protocols import Server, Watch
from dbdyno.model.schema.data_source import NO_ENABLING, Enabling, Step, with_rights
from dbdyno.model.schema.data_sources import SOURCES, files
from dbdyno.model.schema.data_sources.blocking import LOCK_WAITS
from dbdyno.model.schema.tables import Tables, rows
from dbdyno.model.sources.source import READ, TRACE, Source, Status
from dbdyno.observe.watch import TRACED_EVENTS, TRACED_STATEMENTS

EXITS = "task statistics at exit"
DRIVER_TASKS = "driver tasks"
"""Read whether anything else is observed or not."""


@dataclass(frozen=True)
class _Spec:
    name: str
    provenance: str
    statuses: Callable[[Tables], pl.Series]  # of every single read
    noun: str = "reads"
    cures: Mapping[str, str] | None = None
    enabling: Enabling = NO_ENABLING


_ROLES = ("session", "helper:", "other")


def _in(roles: Sequence[str]) -> pl.Expr:
    return pl.any_horizontal(pl.col("role").str.starts_with(r) for r in roles)


_SERVERS = _in(_ROLES)


def _of_tasks(*roles: str) -> Callable[[Tables], pl.Series]:
    return lambda tables: tables["tasks"].filter(_in(roles))["status"]


def _block_io(tables: Tables) -> pl.Series:
    read = tables["tasks"].filter(_SERVERS & (pl.col("status") == "ok"))
    if read.is_empty():
        return _of_tasks(*_ROLES)(tables)
    return read.select(
        pl.when(pl.col("blkio_ns").is_null()).then(pl.lit("off")).otherwise(pl.lit("ok")).alias("status")
    )["status"]


def _in_files(keys: Sequence[str]) -> pl.Expr:
    """Rows of the table ``host`` that are of these files."""
    return pl.any_horizontal(pl.col("key").str.starts_with(f"{k}.") for k in keys)


def _registered(tables: Tables) -> Iterator[_Spec]:
    """Sources of the registry; one that is off unless asked for is among them where it was read."""
    for s in SOURCES:
        if s.file is not None:
            read = tables["host"].filter(_in_files([s.file.key]))["status"]
        elif s.counts and s.counts[0].table in tables:
            read = tables[s.counts[0].table]["status"]
        else:
            continue
        if s.option is None or read.len():
            yield _Spec(s.name, s.provenance, _known(read), cures=s.cures, enabling=s.enabling)


def _known(statuses: pl.Series) -> Callable[[Tables], pl.Series]:
    return lambda _: statuses


_OF_MEMORY = (pl.col("via") == "memory").fill_null(False)
_NOT_HERE = "the server's processes are not visible from here"
_CURES: dict[str, str] = {
    "not here": _NOT_HERE,
    "not permitted": "run as the server's user or as root (/proc may be mounted with hidepid)",
    "off": "switched off with --no-observe",
    "lost": "the source broke off",
    "vanished": "the tasks ended before they could be read",
}
_SPECS = (
    _Spec(
        "os tasks",
        "/proc/PID/task/TID/schedstat (run, run queue) and stat (user, kernel, state) of the server's tasks",
        _of_tasks(*_ROLES),
        cures={"not supported": "needs a kernel with CONFIG_SCHED_INFO"},
        enabling=Enabling(
            "CPU, run queue and sleep of every session and helper, exactly",
            "none; where /proc hides other users' processes, the server's user or root",
            (Step("sudo -E $(command -v dbdyno) run WORKLOAD --dsn DSN"),),
        ),
    ),
    _Spec(
        DRIVER_TASKS,
        "/proc/PID/task/TID/schedstat and stat of the driver's threads and of dbdyno itself",
        _of_tasks("driver", "dbdyno"),
        cures={"not supported": "needs a kernel with CONFIG_SCHED_INFO"},
        enabling=Enabling("whether the client limits a measurement", "none"),
    ),
    _Spec(
        "block I/O delay",
        "/proc/PID/task/TID/stat, field 42, of the measured tasks",
        _block_io,
        cures={
            "off": "sysctl kernel.task_delayacct=1, then restart what is measured: only processes that start "
            "later have it; one without any delay stays unknown, unless delayacct is on the kernel's command "
            "line"
        },
        enabling=Enabling(
            "time that processes wait for block devices",
            "root on the server's host",
            (Step("sysctl -w kernel.task_delayacct=1", "root"), Step("restart the server")),
        ),
    ),
    _Spec(
        "activity samples",
        "the server's activity view, each row with its task's state (R, S, D) read at once after",
        lambda tables: tables["sampler"].filter(~_OF_MEMORY)["status"],
        noun="samples",
        cures={"off": "this engine has no activity view", "lost": "the server did not answer"},
        enabling=Enabling("state, wait event and statement of each session, sampled by SQL"),
    ),
    _Spec(
        "wait event word",
        "the wait event in each backend's own memory (process_vm_readv), and its task's state at once after",
        lambda tables: tables["sampler"].filter(_OF_MEMORY)["status"],
        noun="samples",
        enabling=Enabling(
            "wait events sampled from the server's memory, at the same instant as the state of the process",
            "the server's user, or CAP_SYS_PTRACE",
            (with_rights("+sys_ptrace"),),
        ),
    ),
    _Spec(
        "scheduler trace",
        "BPF on sched_switch and sched_wakeup: each sleep and each wait for a CPU, by wait event",
        lambda tables: tables["traced"]["status"],
        cures={"lost": "switches came faster than they could be written down"},
        enabling=Enabling(
            "every sleep and every wait for a CPU, measured at each switch",
            "CAP_BPF and CAP_PERFMON; CAP_SYS_PTRACE if the server runs as another user",
            (with_rights("+bpf,+perfmon,+sys_ptrace"),),
        ),
    ),
    _Spec(
        "cgroup",
        "cpu.stat and cpuacct of the control groups of the measured processes",
        lambda tables: tables["cgroup"].filter(pl.col("scope") == "server")["status"],
        cures={
            "not supported": "the cpu controller is not enabled for the server's group",
            "not here": "the server, or its control group, is not visible from here",
        },
        enabling=Enabling("CPU time and throttling of the server's control group", "none"),
    ),
    _Spec(
        "host",
        "/proc/stat, all CPUs, in clock ticks",
        lambda tables: tables["host"].filter(~_in_files(["psi", *(f.key for f in files().values())]))[
            "status"
        ],
        enabling=Enabling("CPU of the whole machine: other processes, steal", "none"),
    ),
    _Spec(
        "pressure",
        "/proc/pressure/{cpu,io,memory}, the total of each",
        lambda tables: tables["host"].filter(_in_files(["psi"]))["status"],
        cures={
            "not supported": "needs CONFIG_PSI and, on some kernels, psi=1 at boot",
            "off": "needs psi=1 at boot",
        },
        enabling=Enabling(
            "pressure (PSI): time that tasks of the machine wait for CPU, memory and I/O",
            "root on this host",
            (Step("add psi=1 to the kernel's command line and reboot"),),
        ),
    ),
)

_OTHERS = {
    "sampler priority": "scheduling class of the threads that sample",
    LOCK_WAITS: "the server's table of locks",
    EXITS: "what the kernel says of a task as it ends (netlink taskstats), where there is no scheduler trace",
    "open files": "descriptors kept open for the files of tasks",
    "samples on disk": "a file without a name on the server's host, until the measurement ends",
}
"""What a watch tells of itself that is no series of reads -> provenance."""
_OTHERS_ENABLED = {
    "sampler priority": Enabling(
        "samples on time on a busy machine",
        "CAP_SYS_NICE",
        (with_rights("+sys_nice"),),
    ),
    LOCK_WAITS: Enabling("who makes whom wait"),
    EXITS: Enabling(
        "run queue and CPU time of each process and thread that ends between two samples",
        "CAP_NET_ADMIN, outside of containers",
        (with_rights("+net_admin"),),
    ),
    "open files": Enabling("cheap reads of many tasks", "", (Step("ulimit -n 65536"),)),
    "samples on disk": Enabling(
        "long measurements over ssh without memory for their samples on the server's host",
        "",
        (Step("set TMPDIR there to a directory on a disk with 512 MiB free"),),
    ),
}

_UNTOLD = {
    "wait event word": ("not supported", "no such word of this server is known"),
    "scheduler trace": ("off", "switched off with --waits sampled"),
}
"""A data source that was not asked for: status and why."""


@dataclass(frozen=True)
class Said:
    """What a watch says of itself."""

    trouble: str | None = None  # the first thing that went wrong with the activity samples
    states: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (status, detail)

    @staticmethod
    def by(watch: Watch) -> Said:
        return Said(watch.trouble(), watch.source_status())


def sources(
    server: Server,
    tables: Tables,
    *,
    enabled: bool = True,
    driven: bool = True,
    said: Said = Said(),
) -> pl.DataFrame:
    """Table ``sources`` of a cell: the driver where we drive, the observers, the engine's own."""
    found = judged(server.sources(), tables, enabled=enabled, driven=driven, said=said)
    drivers = (_driver(tables),) if driven else ()
    return rows("sources", [s.model_dump() for s in (*drivers, *found)])


def judged(
    of_engine: Sequence[Source],
    tables: Tables,
    *,
    enabled: bool = True,
    driven: bool = False,
    said: Said = Said(),
) -> list[Source]:
    """The observers by what they read, then the engine's own."""
    told = {s.name: s for s in of_engine}
    observed = [_judge(w, tables, told.get(w.name), enabled, said) for w in (*_SPECS, *_registered(tables))]
    if not driven:
        observed = [s for s in observed if s.name != DRIVER_TASKS]
    observed += [
        _stated(name, _OTHERS[name], _OTHERS_ENABLED[name], said.states[name])
        for name in _OTHERS
        if name in said.states
    ]
    observed += [
        _stated(s.name, s.provenance, s.enabling, said.states[s.name])
        for s in SOURCES
        if s.stacks is not None and s.name in said.states
    ]
    names = {s.name for s in observed} | {"driver"}
    return [*observed, *(s for s in told.values() if s.name not in names)]


def _stated(name: str, provenance: str, enabling: Enabling, state: tuple[str, str]) -> Source:
    """What is no series of reads, or says itself how it went."""
    status, detail = state
    return Source.model_validate(
        {"name": name, "provenance": provenance, "status": status, "detail": detail, "enabling": enabling}
    )


def _driver(tables: Tables) -> Source:
    lived = tables["sessions"].height > 0
    return Source(
        name="driver",
        provenance="every call, timed by the driver's own clock (CLOCK_MONOTONIC)",
        status="ok" if lived else "lost",
        detail="" if lived else "the driver left no sessions",
    )


def _judge(spec: _Spec, tables: Tables, told: Source | None, enabled: bool, said: Said) -> Source:
    """With what would enable it: the engine's own words win."""
    found = _judged(spec, tables, told, enabled, said)
    enabling = told.enabling if told is not None and told.enabling.adds else spec.enabling
    return found.model_copy(update={"enabling": enabling})


def _judged(spec: _Spec, tables: Tables, told: Source | None, enabled: bool, said: Said) -> Source:
    """``ok`` as soon as one read is; the detail then counts those that are not."""
    provenance = told.provenance if told else spec.provenance
    if not enabled and spec.name != DRIVER_TASKS:
        return Source(name=spec.name, provenance=provenance, status="off", detail=_CURES["off"])
    counts = _counts(spec.statuses(tables))
    announced = said.states.get(spec.name)
    if announced is None and not counts:
        announced = _untold(spec.name, tables)
    if announced is not None and (not counts or "ok" not in (*counts, announced[0])):  # it told why
        return Source.model_validate(
            {"name": spec.name, "provenance": provenance, "status": announced[0], "detail": announced[1]}
        )
    status = _verdict(counts)
    detail = _cure(spec, status) if status != "ok" else _exceptions(counts, spec.noun)
    if announced is not None and (status, announced[0]) == ("ok", "limited"):
        status, detail = "limited", "; ".join(d for d in (announced[1], detail) if d)
    if spec.name == TRACE and status in READ:
        detail = "; ".join(d for d in (detail, *_without(said)) if d)
    if said.trouble and spec.name == "activity samples" and "lost" in counts:
        detail = f"{detail}: {said.trouble}"
    if told and told.detail and status != "ok":
        detail = f"{detail}; {told.detail}"
    return Source(name=spec.name, provenance=provenance, status=status, detail=detail)


def _without(said: Said) -> Iterator[str]:
    """What the trace runs without, and why."""
    lacks = {
        TRACED_EVENTS: "run, run queue and sleep without wait events",
        TRACED_STATEMENTS: "no time by statement",
    }
    for name, words in lacks.items():
        status, why = said.states.get(name, ("ok", ""))
        if status != "ok" and why:
            yield f"{words}: {why}"


def _untold(name: str, tables: Tables) -> tuple[str, str] | None:
    """Status and why of a data source that was not asked for."""
    tasks = _verdict(_counts(_of_tasks(*_ROLES)(tables)))
    if tasks == "not here":
        return None
    if tasks == "not permitted" and name in _UNTOLD:
        return tasks, _CURES[tasks]
    return _UNTOLD.get(name)


def _counts(statuses: pl.Series) -> dict[Status, int]:
    found: dict[str, int] = dict(statuses.value_counts().iter_rows())
    return {known: found[known] for known in get_args(Status) if known in found}


def _verdict(counts: Mapping[Status, int]) -> Status:
    if not counts:
        return "not here"
    return "ok" if "ok" in counts else max(counts, key=lambda status: counts[status])


def _cure(spec: _Spec, status: Status) -> str:
    return (spec.cures or {}).get(status) or _CURES.get(status, "")


def _exceptions(counts: Mapping[Status, int], noun: str) -> str:
    """``3 vanished of 120 reads``."""
    total = sum(counts.values())
    others = [f"{n} {status}" for status, n in counts.items() if status != "ok"]
    return f"{', '.join(others)} of {total} {noun}" if others else ""
