"""The state of each data source of a cell: rows of table ``sources``, judged by what was read."""

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
"""This source is read even if observation is off."""


@dataclass(frozen=True)
class _Spec:
    name: str
    provenance: str
    statuses: Callable[[Tables], pl.Series]  # status of every single read
    noun: str = "reads"
    cures: Mapping[str, str] | None = None
    enabling: Enabling = NO_ENABLING


_ROLES = ("session", "helper:", "other")


def _in(roles: Sequence[str]) -> pl.Expr:
    return pl.any_horizontal(pl.col("role").str.starts_with(r) for r in roles)


_SERVERS = _in(_ROLES)


def _task_statuses(*roles: str) -> Callable[[Tables], pl.Series]:
    return lambda tables: tables["tasks"].filter(_in(roles))["status"]


def _block_io(tables: Tables) -> pl.Series:
    read = tables["tasks"].filter(_SERVERS & (pl.col("status") == "ok"))
    if read.is_empty():
        return _task_statuses(*_ROLES)(tables)
    return read.select(
        pl.when(pl.col("blkio_ns").is_null()).then(pl.lit("off")).otherwise(pl.lit("ok")).alias("status")
    )["status"]


def _in_files(keys: Sequence[str]) -> pl.Expr:
    """Returns an expression: whether a row of table ``host`` is from these files."""
    return pl.any_horizontal(pl.col("key").str.starts_with(f"{k}.") for k in keys)


def _registered(tables: Tables) -> Iterator[_Spec]:
    """Yields sources of the registry. One that is off by default is included if it was read."""
    for s in SOURCES:
        if s.file is not None:
            read = tables["host"].filter(_in_files([s.file.key]))["status"]
        elif s.counts and s.counts[0].table in tables:
            read = tables[s.counts[0].table]["status"]
        elif s.reads is not None and (parts := tables.get(s.reads.parts)) is not None and parts.height:
            read = tables[s.reads.table]["status"]
            if read.is_empty():  # no part could be read, and a reason of its own is that there is none
                known = pl.col("status").is_in(get_args(Status))
                read = parts.select(pl.when(known).then("status").otherwise(pl.lit("not supported")))[
                    "status"
                ]
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
        _task_statuses(*_ROLES),
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
        _task_statuses("driver", "dbdyno"),
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

_REPORTED = {
    "sampler priority": "scheduling class of the threads that sample",
    LOCK_WAITS: "the server's table of locks",
    EXITS: "what the kernel says of a task as it ends (netlink taskstats), where there is no scheduler trace",
    "open files": "descriptors kept open for the files of tasks",
    "samples on disk": "a file without a name on the server's host, until the measurement ends",
}
"""Sources that are not a series of reads, whose state a watch reports -> provenance."""
_REPORTED_ENABLING = {
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

_NOT_REQUESTED = {
    "wait event word": ("not supported", "no such word of this server is known"),
    "scheduler trace": ("off", "switched off with --waits sampled"),
}
"""Status and reason of data sources that were not requested."""


@dataclass(frozen=True)
class WatchState:
    """The state that a watch reports of itself."""

    trouble: str | None = None  # the first error of the activity samples
    states: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (status, detail)

    @staticmethod
    def by(watch: Watch) -> WatchState:
        return WatchState(watch.trouble(), watch.source_status())


def sources(
    server: Server,
    tables: Tables,
    *,
    enabled: bool = True,
    driven: bool = True,
    reported: WatchState = WatchState(),
) -> pl.DataFrame:
    """Returns table ``sources`` of a cell: the driver if we drive, the observers, and the engine's own."""
    judged_sources = judged(server.sources(), tables, enabled=enabled, driven=driven, reported=reported)
    drivers = (_driver(tables),) if driven else ()
    return rows("sources", [s.model_dump() for s in (*drivers, *judged_sources)])


def judged(
    of_engine: Sequence[Source],
    tables: Tables,
    *,
    enabled: bool = True,
    driven: bool = False,
    reported: WatchState = WatchState(),
) -> list[Source]:
    """Returns the observers' sources by what was read, then the engine's own."""
    by_name = {s.name: s for s in of_engine}
    observed = [
        _source(w, tables, by_name.get(w.name), enabled, reported) for w in (*_SPECS, *_registered(tables))
    ]
    if not driven:
        observed = [s for s in observed if s.name != DRIVER_TASKS]
    observed += [
        _reported_source(name, _REPORTED[name], _REPORTED_ENABLING[name], reported.states[name])
        for name in _REPORTED
        if name in reported.states
    ]
    observed += [
        _reported_source(s.name, s.provenance, s.enabling, reported.states[s.name])
        for s in SOURCES
        if s.stacks is not None and s.name in reported.states
    ]
    names = {s.name for s in observed} | {"driver"}
    return [*observed, *(s for s in by_name.values() if s.name not in names)]


def _reported_source(name: str, provenance: str, enabling: Enabling, state: tuple[str, str]) -> Source:
    """Returns a source that is not a series of reads, by its reported state."""
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


def _source(spec: _Spec, tables: Tables, own: Source | None, enabled: bool, reported: WatchState) -> Source:
    """Returns a source with its means of enabling; the engine's take precedence."""
    source = _source_state(spec, tables, own, enabled, reported)
    enabling = own.enabling if own is not None and own.enabling.adds else spec.enabling
    return source.model_copy(update={"enabling": enabling})


def _source_state(
    spec: _Spec, tables: Tables, own: Source | None, enabled: bool, reported: WatchState
) -> Source:
    """Returns a source: ``ok`` as soon as one read is, and the detail then counts the others."""
    provenance = own.provenance if own else spec.provenance
    if not enabled and spec.name != DRIVER_TASKS:
        return Source(name=spec.name, provenance=provenance, status="off", detail=_CURES["off"])
    counts = _counts(spec.statuses(tables))
    announced = reported.states.get(spec.name)
    if announced is None and not counts:
        announced = _not_requested(spec.name, tables, own)
    if announced is not None and (
        not counts or "ok" not in (*counts, announced[0])
    ):  # the reported reason is better
        return Source.model_validate(
            {"name": spec.name, "provenance": provenance, "status": announced[0], "detail": announced[1]}
        )
    status = _verdict(counts)
    detail = _cure(spec, status) if status != "ok" else _exceptions(counts, spec.noun)
    if announced is not None and (status, announced[0]) == ("ok", "limited"):
        status, detail = "limited", "; ".join(d for d in (announced[1], detail) if d)
    if spec.name == TRACE and status in READ:
        detail = "; ".join(d for d in (detail, *_trace_lacks(reported)) if d)
    if reported.trouble and spec.name == "activity samples" and "lost" in counts:
        detail = f"{detail}: {reported.trouble}"
    if own and own.detail and status != "ok":
        detail = f"{detail}; {own.detail}"
    return Source(name=spec.name, provenance=provenance, status=status, detail=detail)


def _trace_lacks(reported: WatchState) -> Iterator[str]:
    """Yields what the trace runs without, and why."""
    lacks = {
        TRACED_EVENTS: "run, run queue and sleep without wait events",
        TRACED_STATEMENTS: "no time by statement",
    }
    for name, effect in lacks.items():
        status, why = reported.states.get(name, ("ok", ""))
        if status != "ok" and why:
            yield f"{effect}: {why}"


def _not_requested(name: str, tables: Tables, own: Source | None) -> tuple[str, str] | None:
    """Returns status and reason of a data source that was not requested, the engine's if it has one."""
    tasks = _verdict(_counts(_task_statuses(*_ROLES)(tables)))
    if tasks == "not here":
        return None
    if tasks == "not permitted" and name in _NOT_REQUESTED:
        return tasks, _CURES[tasks]
    if name in _NOT_REQUESTED and own is not None and own.status != "ok":
        return own.status, own.detail
    return _NOT_REQUESTED.get(name)


def _counts(statuses: pl.Series) -> dict[Status, int]:
    counts: dict[str, int] = dict(statuses.value_counts().iter_rows())
    return {known: counts[known] for known in get_args(Status) if known in counts}


def _verdict(counts: Mapping[Status, int]) -> Status:
    if not counts:
        return "not here"
    return "ok" if "ok" in counts else max(counts, key=lambda status: counts[status])


def _cure(spec: _Spec, status: Status) -> str:
    return (spec.cures or {}).get(status) or _CURES.get(status, "")


def _exceptions(counts: Mapping[Status, int], noun: str) -> str:
    """Returns a text such as ``3 vanished of 120 reads``."""
    total = sum(counts.values())
    others = [f"{n} {status}" for status, n in counts.items() if status != "ok"]
    return f"{', '.join(others)} of {total} {noun}" if others else ""
