"""Cross-check: the same quantity from every data source, with relative differences and a verdict.

The first source that knows a quantity is the reference. Another agrees if it differs by no more than the
tolerance: 2 % for CPU and DB time, 0.5 % for counts. A larger difference is not comparable if the source's
resolution, its lag or its wider scope can explain it, and ``reason`` names that; else it differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.ledger.source_readings import (
    ANY,
    TICK_S,
    TOLERANCE,
    OfCell,
    SourceReading,
    db_time,
    executions,
    level,
    logical_reads,
    trips_of,
    work,
)
from dbdyno.account.making import makes
from dbdyno.model.results.brief import BRIEF, MAIN
from dbdyno.model.results.session_time import UNLABELLED
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.rawtables import OF_CLIENT
from dbdyno.model.schema.tables import ByCell, Tables, empty, known_sum, rows
from dbdyno.model.sources.source import TRACE
from dbdyno.model.sources.wait_families import TABLE as FAMILIES
from dbdyno.model.units import NS_PER_S, format_average

_SERVER = ("session", "helper:", "other", BRIEF)
_BESIDE = ("driver", "pooler", "dbdyno")
_UNNAMED = "the server did not name its processes: older ones may have ended without being read"
_OLDER = "more than all CPUs: older processes that were never read ended in the window"
_BUSY = ("user", "nice", "system", "irq", "softirq")  # guest time lies inside user (proc_stat(5))
_WHOLLY = "ended ones included"
PARTLY = "ended ones as far as read"
"""Mark of a source whose value is a lower bound."""
_TICKS = "/proc/stat counts by ticks, and counts other processes, too"
_HERTZ = 100
"""Least number of ticks per second and CPU that /proc/stat counts."""
_SHARED = "other processes are in this group, too"
_STALE = "tasks are read up to a tick late"
_BRIEFLY = "tasks are read up to a tick late, and time in the run queue is too short to be booked exactly"
_NAIVE = "not CPU time: it includes waits for a CPU, and misses CPU time under another label"

_BRIEFLY_MET = pl.col("status").is_in(["vanished", "too short"])
"""The task began or ended between two reads, so its figures are unknown."""


class _Used(NamedTuple):
    cores: float | None
    status: str
    source: str
    reason: str = ""


def cpu(cut: OfCell) -> Iterator[SourceReading]:
    """Yields CPUs that the server used: by tasks, their control group, the machine, the scheduler trace."""
    shared = _shares_group(cut)
    used = _with_ended(cut, None if shared else _SERVER)
    yield SourceReading("cpu_used", used.source, used.cores, "cores", used.status, used.reason)
    value, status = level(cut, "cgroup", "usage_ns", "server", absent="not here")
    source = "cgroup, driver included" if shared else "cgroup"
    stale, reason = _staleness(cut["cut_tasks"], None), _SHARED if shared else _STALE
    more = ANY if shared else stale
    yield SourceReading("cpu_used", source, value, "cores", status, reason, stale, more)
    yield _rest_of_machine(cut, used.cores if shared else None)
    yield from _traced(cut, None if shared else _SERVER, "cpu_used")
    value, status = level(cut, "engine", "cpu_ns", "server", absent="not supported")
    yield SourceReading("cpu_used", "engine counters", value, "cores", status)


def sessions_cpu(cut: OfCell) -> Iterator[SourceReading]:
    """Yields CPUs that the sessions used, and the estimate of samples without task states."""
    value, status = _sessions_sum(cut, "run_ns")
    yield SourceReading("cpu_sessions", "os tasks", value, "cores", status)
    yield from _waited_for(cut)
    yield from _traced(cut, ("session",), "cpu_sessions")
    value = known_sum(cut.rung("naive.cpu", "memo")["aas"])
    if value is None:
        value = known_sum(cut.rung(UNLABELLED)["aas"])
    status = "ok" if value is not None else "off"
    source = f"activity samples: {UNLABELLED}"
    yield SourceReading("cpu_sessions", source, value, "cores", status, _NAIVE, ANY, ANY)


def machine(cut: OfCell) -> Iterator[SourceReading]:
    """Yields CPUs that the machine used: the sum of all known tasks, and the machine's counters."""
    used = _with_ended(cut, None)
    drives = cut["cut_tasks"]["role"].is_in(["driver"]).any()
    source = f"{used.source}, driver included" if drives else used.source
    yield SourceReading("cpu_used_machine", source, used.cores, "cores", used.status, used.reason)
    busy, status = _busy_cpus(cut)
    yield SourceReading(
        "cpu_used_machine", "host", busy, "cores", status, _TICKS, _tick_error(cut, busy), ANY
    )
    steal, status = level(cut, "host", "cpu.steal_ns")
    yield SourceReading("steal", "host", steal, "cores", status)


def served(cut: OfCell) -> Iterator[SourceReading]:
    """Yields DB time. Trees of tasks have none, as their tasks serve a call at the same time."""
    return iter(()) if _is_tree(cut) else db_time(cut)


def runnable(cut: OfCell) -> Iterator[SourceReading]:
    """Yields the sessions' time on a CPU or waiting for one."""
    (run, status), (runq, _) = (_sessions_sum(cut, n) for n in ("run_ns", "runq_ns"))
    both = None if run is None or runq is None else run + runq
    unit = "seconds per second"
    yield SourceReading("run_and_runq", "os tasks", both, unit, status)
    traced = [_used(_traced_tasks(cut), ("session",), name) for name in ("run_ns", "runq_ns")]
    if cut["cut_traced"].height:
        known = [v for v, _ in traced if v is not None]
        value = sum(known) if len(known) == 2 else None
        stale = 2 * _staleness(cut["cut_tasks"], ("session",)) + trips_of(cut)  # run and run queue
        yield SourceReading("run_and_runq", TRACE, value, unit, traced[0][1], _BRIEFLY, stale, stale)
    memo, client = cut.rung("runnable", "memo"), cut.rung("client")
    sampled = client.height > 0 and client["aas"].null_count() == 0 and both is not None
    value = (float(memo["aas"].sum()) if memo.height else 0.0) if sampled else None
    status = "ok" if sampled else (str(client["status"][0]) if client.height else "off")
    if not sampled and status == "ok":
        status = "not here"
    reason = "tasks found in state R; the samples' own interval counts, too"
    yield SourceReading(
        "run_and_runq", "activity samples", value, unit, status, reason, interval_of="runnable"
    )


def _sessions_sum(cut: OfCell, name: str) -> tuple[float | None, str]:
    """Returns a sum over the sessions' tasks by the operating system, per second, and its status."""
    if not _is_tree(cut):
        return _used(cut["cut_tasks"], ("session",), name)
    if cut["cut_traced"].height:
        return None, "ended ones by the trace"
    return _used(cut["cut_tasks"], ("session", BRIEF), name)


def _used(
    tasks: pl.DataFrame, roles: tuple[str, ...] | None, name: str = "run_ns"
) -> tuple[float | None, str]:
    """Returns a sum over the tasks of ``roles`` (all if None), per second. It is None if one of a session
    is unknown, other than because it began or ended between two reads."""
    of_roles = _of_roles(tasks, roles)
    unknown = of_roles[name].null_count()
    bad = of_roles.clear()
    if unknown:
        bad = of_roles.filter(pl.col(name).is_null() & (pl.col("role") == "session") & ~_BRIEFLY_MET)
    if bad.height or unknown == of_roles.height:
        why = bad if bad.height else of_roles
        return None, str(why["status"][0]) if why.height else "off"
    return float((of_roles[name] / of_roles["over_ns"]).sum()), "ok"


def _staleness(tasks: pl.DataFrame, roles: tuple[str, ...] | None) -> float:
    """Returns the error in cores of two reads of tasks that ran."""
    ran = _of_roles(tasks, roles).filter((pl.col("run_ns") > 0) & (pl.col("over_ns") > 0))
    return float((2 * TICK_S * NS_PER_S / ran["over_ns"]).sum() or 0.0)


def _tick_error(cut: OfCell, busy: float | None) -> float:
    """Returns the 95 % error in cores of counting by ticks: that of a share of so many independent looks."""
    row = cut.level("host", "cpus")
    cpus = row["last"] if row else None
    if busy is None or cpus is None:
        return 0.0
    share = min(1.0, max(0.0, busy / cpus))
    looks = _HERTZ * cpus * cut["windows"]["wall_s"][0]
    # Twice the binomial standard error of a share.
    return float(2 * cpus * math.sqrt(share * (1 - share) / looks))


def _of_roles(tasks: pl.DataFrame, roles: tuple[str, ...] | None) -> pl.DataFrame:
    if roles is None:
        return tasks
    return tasks.filter(reduce(or_, (pl.col("role").str.starts_with(role) for role in roles)))


def _with_ended(cut: OfCell, roles: tuple[str, ...] | None) -> _Used:
    """Returns CPUs used by the tasks, with processes of the server that ended in the window unread.

    The kernel adds a child's whole CPU time to its parent when it was waited for
    (proc_pid_stat(5), cutime). The part of it that was read is subtracted
    (:func:`~dbdyno.model.results.brief.children`). A child older than the window that was never read
    brings CPU time from before it that cannot be subtracted: then only readings count.
    """
    tasks = cut["cut_tasks"]
    if _is_tree(cut) and cut["cut_traced"].height:
        trace = _traced_tasks(cut)
        rest = tasks.join(trace, on=["pid", "tid", "start_ticks"], how="anti", nulls_equal=True)
        both = [v for v, _ in (_used(rest, roles), _used(trace, roles)) if v is not None]
        return _Used(sum(both), "ok", f"os tasks, ended ones by the {TRACE}")
    if _is_tree(cut):
        value, status = _used(tasks, roles)
        return _Used(value, status, "os tasks" if value is None else f"os tasks, {_WHOLLY}")
    tasks = tasks.filter(pl.col("pid") != 0)  # brief sessions are among the children
    value, status = _used(tasks, roles)
    main = tasks.filter(pl.col("role") == MAIN).drop_nulls("children_ns")
    if value is None:
        return _Used(value, status, "os tasks")
    if main.is_empty():
        brief = _of_roles(tasks, _SERVER).filter(_BRIEFLY_MET & pl.col("run_ns").is_null()).height
        return _Used(None, f"{brief} came and went", "os tasks") if brief else _Used(value, "ok", "os tasks")
    if (main["children_ns"] <= 0).all():
        return _Used(value, status, "os tasks")
    unread = main["unread_ns"] / main["over_ns"]
    row = cut.level("host", "cpus")
    cpus = row["last"] if row else None
    if unread.null_count():
        return _Used(value, status, f"os tasks, {PARTLY}", _UNNAMED)
    used = value + float(unread.sum())
    if cpus is not None and used > cpus * (1 + TOLERANCE["cpu_used"]):
        return _Used(value, status, f"os tasks, {PARTLY}", _OLDER)
    return _Used(used, status, f"os tasks, {_WHOLLY}")


def _is_tree(cut: OfCell) -> bool:
    """Returns whether sessions are trees of processes. Then ended tasks are among the tasks."""
    return cut["cell_executions"].height > 0


def _waited_for(cut: OfCell) -> Iterator[SourceReading]:
    """Yields CPUs that executions of commands used, by wait4. One that crosses an end of the window counts
    in part."""
    ran = cut["cell_executions"].drop_nulls(["user_ns", "system_ns"])
    if not _is_tree(cut):
        return
    t0, t1 = (cut["windows"][name][0] for name in ("t0_ns", "t1_ns"))
    start, end = pl.max_horizontal("start_ns", pl.lit(t0)), pl.min_horizontal("end_ns", pl.lit(t1))
    part = (end - start).clip(0) / (pl.col("end_ns") - pl.col("start_ns"))
    used = (pl.col("user_ns") + pl.col("system_ns")) / (t1 - t0)
    cut_off = (pl.col("start_ns") < t0) | (pl.col("end_ns") > t1)
    sums = ran.select(value=(used * part).sum(), straddling=used.filter(cut_off & (part > 0)).sum())
    value, straddling = sums.row(0) if ran.height else (None, 0.0)
    reason = "executions that straddle an end of the window; daemons are waited for by nobody of theirs"
    status = "ok" if ran.height else "lost"
    yield SourceReading("cpu_sessions", "executions", value, "cores", status, reason, ANY, straddling)


def _rest_of_machine(cut: OfCell, shared_used: float | None) -> SourceReading:
    """Returns the whole machine's use less that of processes other than the server's."""
    busy, status = _busy_cpus(cut)
    if shared_used is not None:
        ticks = _tick_error(cut, busy)
        return SourceReading("cpu_used", "host: whole machine", busy, "cores", status, _TICKS, ticks, ANY)
    others = cut["cut_tasks"].filter(pl.col("role").is_in(_BESIDE)).drop_nulls("run_ns")
    less = float((others["run_ns"] / others["over_ns"]).sum() or 0.0)
    sessions_known = (
        cut["cut_tasks"].filter((pl.col("role") == "session") & pl.col("run_ns").is_not_null()).height > 0
    )
    if busy is None or not sessions_known:
        return SourceReading("cpu_used", "host", None, "cores", status if busy is None else "not here")
    name, ticks = "host: whole machine less driver and dbdyno", _tick_error(cut, busy)
    return SourceReading("cpu_used", name, max(0.0, busy - less), "cores", "ok", _TICKS, ticks, ANY)


def _busy_cpus(cut: OfCell) -> tuple[float | None, str]:
    parts = [level(cut, "host", f"cpu.{name}_ns") for name in _BUSY]
    bad = next((s for v, s in parts if v is None), None)
    return (None, bad) if bad else (sum(v for v, _ in parts if v is not None), "ok")


def _traced_tasks(cut: OfCell) -> pl.DataFrame:
    return cut["cut_traced"].filter(pl.col("run_ns").is_not_null())


def _traced(cut: OfCell, roles: tuple[str, ...] | None, quantity: str) -> Iterator[SourceReading]:
    """Yields the trace's value, unknown unless the trace followed all tasks of the sum."""
    trace = _traced_tasks(cut)
    if trace.is_empty():
        return
    tasks = _of_roles(cut["cut_tasks"], roles).filter(pl.col("run_ns") > 0)
    missed = tasks.join(trace, on=["pid", "tid"], how="anti").height
    value, status = _used(trace, (*roles, BRIEF) if roles is not None and _is_tree(cut) else roles)
    if missed:
        value, status = None, f"{missed} of {tasks.height} tasks not traced"
    stale = _staleness(cut["cut_tasks"], roles)
    yield SourceReading(quantity, TRACE, value, "cores", status, _STALE, stale, stale)


def _shares_group(cut: OfCell) -> bool:
    """Returns whether the driver runs in the server's control group, so that the group counts both."""
    rows = [row for (origin, _), rows in cut.levels.items() if origin == "cgroup" for row in rows]
    server, driver = ({r["place"] for r in rows if r["scope"] == scope} for scope in ("server", "driver"))
    return bool(server & driver)


_STOLEN = {
    "trace": "the scheduler trace counts what the hypervisor withheld, too",
    "books": "the CPU time of tasks may include what the hypervisor withheld",
}
_ON_CPU = ("cpu_used", "cpu_sessions", "cpu_used_machine", "run_and_runq")
_CELL = [c.name for c in CELL]
_NEEDED = (
    *("windows", "rates", "cell_sessions", "cell_sources", "cell_executions", "events"),
    *("cut_tasks", "cut_work", "cut_levels", "cut_traced", "cut_waits"),
)
_QUANTITIES = (cpu, sessions_cpu, machine, served, runnable, executions, work, logical_reads)


@makes("data_sources", reads=("rates", "events"))
def cross_check(tables: Tables, ledger: pl.DataFrame) -> pl.DataFrame:
    """Returns table ``data_sources`` of all cells."""
    records: list[dict[str, Any]] = []
    needed = {name: tables.get(name, empty(name)) for name in _NEEDED}
    needed["cut_tasks"] = needed["cut_tasks"].filter(pl.col("pid") < OF_CLIENT)
    parts = ByCell({**needed, "ledger": ledger, FAMILIES: tables[FAMILIES]})
    for cell in tables["windows"]["cell"]:
        cell_tables = OfCell(parts.of(cell))
        window = cell_tables["windows"].row(0, named=True)
        head = {name: window[name] for name in _CELL}
        readings = [t for read in _QUANTITIES for t in read(cell_tables)]
        records += [head | row for row in _judged(readings, cell_tables)]
    return rows("data_sources", records)


def _judged(readings: list[SourceReading], cut: OfCell) -> Iterator[dict[str, Any]]:
    """Yields a row with verdict per reading."""
    references: dict[str, SourceReading] = {}
    steal = next(
        (reading.value for reading in readings if reading.quantity == "steal" and reading.value is not None),
        0.0,
    )
    for reading in readings:
        row = {name: getattr(reading, name) for name in ("quantity", "source", "value", "unit", "status")}
        row |= {"relative_difference": None, "verdict": "unknown", "reason": reading.reason or None}
        if reading.value is not None and reading.quantity not in references:
            references[reading.quantity] = reading
            row["verdict"] = "reference"
        elif reading.value is not None:
            first = references[reading.quantity]
            reference = first.value or 0.0
            difference = reading.value - reference
            row["tolerance"] = allowed = TOLERANCE[reading.quantity] * abs(reference)
            row["relative_difference"] = difference / reference if reference else None
            row["verdict"] = "differs"
            by = {_clock_of(reading), _clock_of(first)}
            stolen = steal if len(by) > 1 and reading.quantity in _ON_CPU else 0.0
            if abs(difference) <= allowed or _within_interval(reading, reference, cut):
                row["verdict"] = "agrees"
            elif difference > 0 and first.source.endswith(PARTLY):
                row |= {"verdict": "not comparable", "reason": first.reason}
            elif -reading.low_by - allowed <= difference <= reading.high_by + allowed:
                row["verdict"] = "not comparable"
            elif -reading.low_by - allowed - stolen <= difference <= reading.high_by + allowed + stolen:
                why = _STOLEN["trace" if "trace" in by else "books"]
                row |= {"verdict": "not comparable", "reason": f"{why}: {format_average(steal)} CPUs"}
        yield row


def _clock_of(t: SourceReading) -> str:
    """Returns the clock of a source of CPU time. The trace sees only switches, so time that the hypervisor
    withheld between two is CPU time to it. Ticks of the machine do not count it. The kernel's books of
    tasks and groups count it unless the kernel subtracts it (PARAVIRT_TIME_ACCOUNTING)."""
    return "trace" if TRACE in t.source else "ticks" if t.source.startswith("host") else "books"


def _within_interval(t: SourceReading, reference: float, cut: OfCell) -> bool:
    """Returns whether the samples' own interval holds the reference."""
    if t.interval_of is None:
        return False
    memo = cut.rung(t.interval_of, "memo")
    low, high = memo["low"].min(), memo["high"].max()
    return isinstance(low, float) and isinstance(high, float) and low <= reference <= high
