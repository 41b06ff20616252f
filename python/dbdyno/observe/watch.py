"""Opens the observers of one window: the engine's own, the real ones, or none; and returns their tables as
frames."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from dbdyno import _core
from dbdyno.engines.attended import Attended
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import Load, Server, Watch, needed
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.plan import Experiment, Observation
from dbdyno.model.schema.data_source import Option
from dbdyno.model.schema.data_sources import SOURCES, TRACED, asked, options, read_tables, sampled
from dbdyno.model.schema.rawtables import OF_CLIENT
from dbdyno.model.schema.tables import CoreColumn, empty, from_core
from dbdyno.model.sources.source import READ, TRACE

Waits = Literal["auto", "sampled", "exact"]
TASK_INTERVAL_MS = 1000
THREADS = "dbdyno-"
"""Prefix of the names of the observing threads."""
TRACED_EVENTS = "wait events of the scheduler trace"
"""State of reading wait events by the trace; reported only with a trace."""
TRACED_STATEMENTS = "statements of the scheduler trace"
"""State of reading statement ids by the trace."""
_DRIVER_ALONE = {"os": False, "host": False, "trace": "off", "task_interval_ms": TASK_INTERVAL_MS}
"""Options of a watch over the driver only: nothing of the server or the machine."""


class BothHosts:
    """A watch over the server's host, and one over our own tasks on this host."""

    def __init__(self, remote: Watch, local: Watch) -> None:
        self.remote, self.local = remote, local

    def start(self, t0_ns: int, t1_ns: int) -> None:
        self.local.start(t0_ns, t1_ns)
        self.remote.start(t0_ns, t1_ns)

    def stop(self) -> None:
        self.local.stop()
        self.remote.stop()

    def latest(self) -> Mapping[str, float]:
        return self.remote.latest()

    def trouble(self) -> str | None:
        return self.remote.trouble()

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        return self.remote.source_status()

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self.remote.tables()

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self.remote.recent(since_ns)


class NoWatch:
    """A watch that reads nothing."""

    def start(self, t0_ns: int, t1_ns: int) -> None: ...

    def stop(self) -> None: ...

    def latest(self) -> Mapping[str, float]:
        return {}

    def trouble(self) -> str | None:
        return None

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        return {}

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return {}

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:  # noqa: ARG002
        return {}


@dataclass(frozen=True)
class How:
    """Options of a watch, from the experiment."""

    sample_hz: float = 10.0
    seed: int = 1
    enabled: bool = True
    waits: Waits = "auto"
    asked: tuple[str, ...] = ()  # keys of sources that are off by default
    memory_budget: float = 0.005
    hz: Mapping[str, float] = field(default_factory=dict)  # their sampling rates, if not the default
    until_ns: Mapping[str, int] = field(default_factory=dict)  # their ends, if before that of the watch

    @staticmethod
    def of(experiment: Experiment) -> How:
        e = experiment
        chosen = {key: getattr(e, key) for key in e.asked}
        hz = {key: hz for key, hz in chosen.items() if isinstance(hz, float)}
        return How(e.sample_hz, e.seed, e.observe, e.waits, e.asked, e.memory_budget, hz)

    def until(self, ends_ns: Mapping[str, int], now_ns: int) -> How:
        """Returns the options with sources that end at these times, without those that have ended."""
        left = tuple(key for key in self.asked if ends_ns.get(key, now_ns + 1) > now_ns)
        return replace(self, asked=left, until_ns=ends_ns)

    def spec(self) -> dict[str, Any]:
        """Returns the keys of ``_core.Watch``. Without a trace, sources that need it are off."""
        trace = "off" if self.waits == "sampled" else "auto"
        return {
            "sample_hz": self.sample_hz,
            "seed": self.seed,
            "memory_budget": self.memory_budget,
            "trace": trace,
            **{o.key: o.key in self.asked and trace != "off" for o in options() if o.hz is None},
            **{o.key: self._clock(o) for o in options() if o.hz is not None and o.key in self.asked},
        }

    def _clock(self, option: Option) -> dict[str, float | int | None]:
        """Returns the samples per second, and the end."""
        return {"hz": self.hz.get(option.key, option.hz), "until_ns": self.until_ns.get(option.key)}


def open_watch(server: Server, load: Load, how: How | None = None) -> Watch:
    """Opens the watch over ``load``, whose sessions are connected. It is to be started before t0.

    A server without activity view is not an error: samples are lost, everything else is read. If
    observation is off the driver's own threads are still read, as it must be known whether the client
    limits a measurement, and that does not affect the server. Raises :class:`TargetError` if ``waits``
    demands the exact tier and the trace is refused.
    """
    how = how or How()
    driver = [{"pid": pid, "tid": tid, "role": "driver"} for pid, tid in _driving(load)]
    if not how.enabled:
        return _opened_watch(server, {**_DRIVER_ALONE, "tasks": driver}, HERE)
    half = server.watch_spec(load)
    return _open(server, half, how, driver)


def _driving(load: Load) -> Iterator[tuple[int, int]]:
    """Yields (pid, tid) of the driver's threads on this host: our own, and those of drivers in other
    processes."""
    ours = os.getpid()
    yield from ((ours, tid) for tid in load.threads())
    yield from getattr(load, "tasks_here", tuple)()


def open_observation(
    server: Server,
    chosen: Observation,
    known: Mapping[tuple[int, int], int],
    how: How | None = None,
    ours: Sequence[Mapping[str, Any]] = (),
) -> Watch:
    """Opens the watch over sessions of other clients. ``known``: their session numbers by (pid, tid) from the
    previous window; ``ours``: tasks of dbdyno in other processes.

    Raises as :func:`open_watch`, and :class:`UsageError` for an impossible filter.
    """
    return _open(
        server,
        needed(server.watching, "observe an existing workload").observation_spec(chosen, known),
        how or How(),
        ours,
    )


def open_machine(on: Machine = HERE, how: How | None = None) -> Watch:
    """Opens the watch over a machine without a server. The reading process takes the server's place."""
    own = {"pid": on.pid, "tid": on.pid, "role": "other"}
    groups_ = _groups_of("server", on.pid, on)
    machine = {"os": True, "tasks": [own], "cgroups": groups_, "host": True}
    return Attended[Watch](
        lambda _: on.watch({**machine, **(how or How()).spec(), "task_interval_ms": TASK_INTERVAL_MS}),
        _stop_abandoned,
    ).result()


def refused(server: Server, how: How) -> Iterator[str]:
    """Yields a sentence for each source that an option asks for and that cannot be read here."""
    wanted = [s for s in SOURCES if s.option is not None and s.option.key in how.asked]
    if not wanted or not how.enabled or server.world is not None:
        return
    try:
        watch = open_machine(server.machine, how)
    except _core.ObserverError:
        return  # the first measurement ends with the reason
    states = watch.source_status()
    watch.stop()
    for source in wanted:
        assert source.option is not None
        # a source without a frequency of its own is part of the trace
        status, why = states.get(source.name) or states.get(TRACE) or ("off", "--waits sampled")
        if status not in READ:
            yield f"{source.option.flag}: {source.name} {status}: {why}"


def check_exact(server: Server, how: How) -> None:
    """Raises :class:`TargetError` before a start if the exact tier is demanded and unavailable."""
    if (
        how.enabled and how.waits == "exact" and server.watching is not None
    ):  # else it is checked with the first load
        open_observation(server, Observation(), {}, how).stop()


def _open(
    server: Server, engine_half: Mapping[str, Any], how: How, tasks: Sequence[Mapping[str, Any]] = ()
) -> Watch:
    """Opens a watch over a server. ``tasks``: our own on this host."""
    away = server.machine.reached is not None
    spec = {
        **engine_half,
        "tasks": [*(() if away else tasks), *engine_half.get("tasks", ())],
        **how.spec(),
        "task_interval_ms": TASK_INTERVAL_MS,
        "cgroups": groups(engine_half, server.machine),
        "host": True,
    }
    watch = _opened_watch(server, spec)
    if how.waits == "exact":
        _demand(watch)
    if not away:
        return watch
    try:
        return BothHosts(watch, _opened_watch(server, {**_DRIVER_ALONE, "tasks": list(tasks)}, HERE))
    except BaseException:
        watch.stop()
        raise


def _opened_watch(server: Server, spec: Mapping[str, Any], machine: Machine | None = None) -> Watch:
    """Opens a watch on ``machine``, by default the server's."""
    if server.world is not None:
        return server.world.watch(spec)
    on_machine = machine or server.machine
    try:
        return Attended[Watch](lambda _: on_machine.watch(spec), _stop_abandoned).result()
    except _core.ObserverError as e:
        raise TargetError(
            f"cannot watch the server: {e.args[1]}", "dbdyno run --no-observe leaves it out"
        ) from e


def _stop_abandoned(watch: Watch) -> None:
    watch.stop()


def _demand(watch: Watch) -> None:
    states = watch.source_status()
    status, detail = states.get(TRACE, ("not supported", "this engine has none"))
    what = f"the {TRACE} is"
    if status in READ:
        status, detail = states.get(TRACED_EVENTS, ("ok", ""))
        what = f"the {TRACED_EVENTS} are"
    if status not in READ:
        watch.stop()
        raise TargetError(
            f"--waits exact: {what} {status}: {detail}",
            "--waits auto falls back to samples where the trace is refused",
        )


def groups(spec: Mapping[str, Any], machine: Machine = HERE) -> list[dict[str, Any]]:
    """Returns the groups to read: the server's if visible, separate ones of sessions, and our own if on
    the same host; innermost first in each hierarchy."""
    groups_ = []
    if spec.get("os") and (server_pid := _some_pid(spec)) is not None:
        groups_ += _groups_of("server", server_pid, machine)
        groups_ += _session_groups(spec, groups_, machine)
    return groups_ if machine.reached is not None else groups_ + _groups_of("driver", os.getpid())


def _session_groups(
    spec: Mapping[str, Any], known: Sequence[Mapping[str, Any]], machine: Machine
) -> list[dict[str, Any]]:
    """Returns groups of single sessions that are not the server's, with scope ``shared`` if they contain
    other processes."""
    pids = {int(pid) for _, pid, *_ in spec.get("sessions", ()) if pid}
    if machine.reached is None and (main := spec.get("main_pid")):
        pids |= children_of(int(main), machine.root)
    places, separate = {group["path"] for group in known}, []
    for group in (group for pid in sorted(pids) for group in _groups_of("sessions", pid, machine)):
        if group["path"] not in places:
            places.add(group["path"])
            alone = members_of(group["path"]) <= pids
            separate.append(group if alone else {**group, "scope": "shared"})
    return separate


def children_of(pid: int, root: Path = Path("/")) -> set[int]:
    """Returns the child processes; empty if they are hidden from us (proc_pid_children(5))."""
    try:
        return {int(n) for n in (root / f"proc/{pid}/task/{pid}/children").read_text().split()}
    except (OSError, ValueError):
        return set()


def members_of(group: str) -> set[int]:
    """Returns the processes in a control group, with -1 for invisible ones."""
    try:
        return {int(n) or -1 for n in (Path(group) / "cgroup.procs").read_text().split()}
    except (OSError, ValueError):
        return {-1}


def _some_pid(spec: Mapping[str, Any]) -> int | None:
    """Returns the main process, or else a session's, which is normally in the same group."""
    pids = [spec.get("main_pid"), *(pid for _, pid, *_ in spec.get("sessions", ()))]
    return next((pid for pid in pids if pid), None)


def _groups_of(scope: str, pid: int, machine: Machine = HERE) -> list[dict[str, Any]]:
    try:
        directories = machine.find_cgroups(pid, machine.root)
        return [{"scope": scope, "version": v, "path": path} for v, path in directories]
    except OSError:  # gone, or hidden from us: no rows, as the source's status says
        return []


_ASKED = tuple(a.table for a in asked())
_WHOLE: Mapping[str, Sequence[str]] = {}
TABLES = ("samples", "tasks", "cgroup", "host", "sampler", *read_tables(), *_ASKED, *TRACED, *sampled())


def frames(watch: Watch) -> dict[str, pl.DataFrame]:
    """Returns all tables of a watch; absent ones are empty."""
    return _with_own_tasks(_frames(watch.tables()), watch, lambda here: here.tables())


def recent_frames(
    watch: Watch, since_ns: int, names: Sequence[str] = TABLES, needed: Mapping[str, Sequence[str]] = _WHOLE
) -> dict[str, pl.DataFrame]:
    """Returns the same, or some of them, with only the rows read since then. ``needed``: columns by table, if
    not all."""
    tables = _frames(watch.recent(since_ns), names, needed)
    return _with_own_tasks(tables, watch, lambda here: here.recent(since_ns), needed)


def _with_own_tasks(
    tables: dict[str, pl.DataFrame],
    watch: Watch,
    read: Callable[[Watch], Mapping[str, Mapping[str, CoreColumn]]],
    needed: Mapping[str, Sequence[str]] = _WHOLE,
) -> dict[str, pl.DataFrame]:
    """Adds our tasks of this host. All other tables are from the server's host."""
    if not isinstance(watch, BothHosts) or "tasks" not in tables:
        return tables
    ours = _frames(read(watch.local), ("tasks",), needed)["tasks"].with_columns(
        pl.col("pid", "tid") + OF_CLIENT
    )
    return {**tables, "tasks": pl.concat([tables["tasks"], ours])}


def _frames(
    columns: Mapping[str, Mapping[str, CoreColumn]],
    names: Sequence[str] = TABLES,
    needed: Mapping[str, Sequence[str]] = _WHOLE,
) -> dict[str, pl.DataFrame]:
    return {name: _frame(name, columns.get(name, {}), needed.get(name, ())) for name in names}


def _frame(name: str, columns: Mapping[str, CoreColumn], needed: Sequence[str]) -> pl.DataFrame:
    if any(len(payload) for kind, payload, _ in columns.values() if kind != "str"):
        return from_core(name, columns, needed)
    return empty(name).select(needed) if needed else empty(name)
