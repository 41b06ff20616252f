"""Opens the observers of one window: the engine's own, the real ones, or none; and their tables as frames."""

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
from dbdyno.model.schema.data_sources import TRACED, asked, options, sampled
from dbdyno.model.schema.rawtables import OF_CLIENT
from dbdyno.model.schema.tables import CoreColumn, empty, from_core
from dbdyno.model.sources.source import READ, TRACE

Waits = Literal["auto", "sampled", "exact"]
TASK_INTERVAL_MS = 1000
THREADS = "dbdyno-"
"""How the names of the observing threads begin."""
TRACED_EVENTS = "wait events of the scheduler trace"
"""Whether it can read what tasks wait for; only where there is a trace."""
TRACED_STATEMENTS = "statements of the scheduler trace"
"""Whether it can read the ids of their statements."""
_DRIVER_ALONE = {"os": False, "host": False, "trace": "off", "task_interval_ms": TASK_INTERVAL_MS}
"""Nothing of the server, nothing of the machine."""


class BothHosts:
    """A watch over the server's host, and one over tasks of ours on this one."""

    def __init__(self, there: Watch, here: Watch) -> None:
        self.there, self.here = there, here

    def start(self, t0_ns: int, t1_ns: int) -> None:
        self.here.start(t0_ns, t1_ns)
        self.there.start(t0_ns, t1_ns)

    def stop(self) -> None:
        self.here.stop()
        self.there.stop()

    def latest(self) -> Mapping[str, float]:
        return self.there.latest()

    def trouble(self) -> str | None:
        return self.there.trouble()

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        return self.there.source_status()

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self.there.tables()

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self.there.recent(since_ns)


class NoWatch:
    """Nothing is read, nothing is known."""

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
    """How to watch: what the experiment says of it."""

    sample_hz: float = 10.0
    seed: int = 1
    enabled: bool = True
    waits: Waits = "auto"
    asked: tuple[str, ...] = ()  # keys of sources that are off unless asked for
    memory_budget: float = 0.005
    hz: Mapping[str, float] = field(default_factory=dict)  # of these, where it is not the source's own
    until_ns: Mapping[str, int] = field(default_factory=dict)  # of these, where they end before the watch

    @staticmethod
    def of(experiment: Experiment) -> How:
        e = experiment
        chosen = {key: getattr(e, key) for key in e.asked}
        hz = {key: hz for key, hz in chosen.items() if isinstance(hz, float)}
        return How(e.sample_hz, e.seed, e.observe, e.waits, e.asked, e.memory_budget, hz)

    def until(self, ends_ns: Mapping[str, int], now_ns: int) -> How:
        """With sources that end at these times, and without those that have ended."""
        left = tuple(key for key in self.asked if ends_ns.get(key, now_ns + 1) > now_ns)
        return replace(self, asked=left, until_ns=ends_ns)

    def spec(self) -> dict[str, Any]:
        """These keys of ``_core.Watch``; without a trace nothing is counted that it would."""
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
        """Samples a second, and until when."""
        return {"hz": self.hz.get(option.key, option.hz), "until_ns": self.until_ns.get(option.key)}


def open_watch(server: Server, load: Load, how: How | None = None) -> Watch:
    """The watch over ``load``, whose sessions are connected. To be started before t0.

    A server that cannot be asked for activity is no error: the samples are lost, everything else is read.
    Where observation is switched off the driver's own threads are read all the same: whether the client
    limits a measurement has to be known, and nothing of the server is touched for it.
    Raises :class:`TargetError` where ``waits`` demands the exact tier and the trace is refused.
    """
    how = how or How()
    driver = [{"pid": pid, "tid": tid, "role": "driver"} for pid, tid in _driving(load)]
    if not how.enabled:
        return _made(server, {**_DRIVER_ALONE, "tasks": driver}, HERE)
    half = server.watch_spec(load)
    return _open(server, half, how, driver)


def _driving(load: Load) -> Iterator[tuple[int, int]]:
    """(pid, tid) of the driver's threads on this host: our own, and those of drivers in other processes."""
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
    """The watch over sessions that are not ours. ``known``: their number by (pid, tid), of the window before;
    ``ours``: tasks of dbdyno in other processes.

    Raises as :func:`open_watch`, and :class:`UsageError` for a filter that cannot be.
    """
    return _open(
        server,
        needed(server.watching, "observe an existing workload").observation_spec(chosen, known),
        how or How(),
        ours,
    )


def open_machine(on: Machine = HERE) -> Watch:
    """The watch over a machine alone, where there is no server: the process that reads stands for one."""
    own = {"pid": on.pid, "tid": on.pid, "role": "other"}
    groups_ = _of("server", on.pid, on)
    machine = {"os": True, "tasks": [own], "cgroups": groups_, "host": True}
    return Attended[Watch](
        lambda _: on.watch({**machine, **How().spec(), "task_interval_ms": TASK_INTERVAL_MS}),
        _left,
    ).result()


def check_exact(server: Server, how: How) -> None:
    """Before a start: raises :class:`TargetError` where the exact tier is demanded and cannot be had."""
    if how.enabled and how.waits == "exact" and server.watching is not None:  # else with the first load
        open_observation(server, Observation(), {}, how).stop()


def _open(
    server: Server, engine_half: Mapping[str, Any], how: How, tasks: Sequence[Mapping[str, Any]] = ()
) -> Watch:
    """``tasks``: of ours on this host."""
    away = server.machine.reached is not None
    spec = {
        **engine_half,
        "tasks": [*(() if away else tasks), *engine_half.get("tasks", ())],
        **how.spec(),
        "task_interval_ms": TASK_INTERVAL_MS,
        "cgroups": groups(engine_half, server.machine),
        "host": True,
    }
    watch = _made(server, spec)
    if how.waits == "exact":
        _demand(watch)
    if not away:
        return watch
    try:
        return BothHosts(watch, _made(server, {**_DRIVER_ALONE, "tasks": list(tasks)}, HERE))
    except BaseException:
        watch.stop()
        raise


def _made(server: Server, spec: Mapping[str, Any], machine: Machine | None = None) -> Watch:
    """``machine``: whose; the server's."""
    if server.world is not None:
        return server.world.watch(spec)
    of = machine or server.machine
    try:
        return Attended[Watch](lambda _: of.watch(spec), _left).result()
    except _core.ObserverError as e:
        raise TargetError(
            f"cannot watch the server: {e.args[1]}", "dbdyno run --no-observe leaves it out"
        ) from e


def _left(watch: Watch) -> None:
    watch.stop()


def _demand(watch: Watch) -> None:
    told = watch.source_status()
    status, detail = told.get(TRACE, ("not supported", "this engine has none"))
    what = f"the {TRACE} is"
    if status in READ:
        status, detail = told.get(TRACED_EVENTS, ("ok", ""))
        what = f"the {TRACED_EVENTS} are"
    if status not in READ:
        watch.stop()
        raise TargetError(
            f"--waits exact: {what} {status}: {detail}",
            "--waits auto falls back to samples where the trace is refused",
        )


def groups(spec: Mapping[str, Any], machine: Machine = HERE) -> list[dict[str, Any]]:
    """Groups to read: the server's, if it is seen, those of sessions apart, and our own, if that is the same
    host; innermost first in each hierarchy."""
    found = []
    if spec.get("os") and (server_pid := _some_pid(spec)) is not None:
        found += _of("server", server_pid, machine)
        found += _apart(spec, found, machine)
    return found if machine.reached is not None else found + _of("driver", os.getpid())


def _apart(
    spec: Mapping[str, Any], known: Sequence[Mapping[str, Any]], machine: Machine
) -> list[dict[str, Any]]:
    """Groups of single sessions beside the server's; ``shared`` where other processes are in them, too."""
    pids = {int(pid) for _, pid, *_ in spec.get("sessions", ()) if pid}
    if machine.reached is None and (main := spec.get("main_pid")):
        pids |= children_of(int(main), machine.root)
    places, found = {group["path"] for group in known}, []
    for group in (group for pid in sorted(pids) for group in _of("sessions", pid, machine)):
        if group["path"] not in places:
            places.add(group["path"])
            alone = members_of(group["path"]) <= pids
            found.append(group if alone else {**group, "scope": "shared"})
    return found


def children_of(pid: int, root: Path = Path("/")) -> set[int]:
    """Processes that it has started; none where they are hidden from us (proc(5), children)."""
    try:
        return {int(n) for n in (root / f"proc/{pid}/task/{pid}/children").read_text().split()}
    except (OSError, ValueError):
        return set()


def members_of(group: str) -> set[int]:
    """Processes in a control group; -1 for those that cannot be known."""
    try:
        return {int(n) or -1 for n in (Path(group) / "cgroup.procs").read_text().split()}
    except (OSError, ValueError):
        return {-1}


def _some_pid(spec: Mapping[str, Any]) -> int | None:
    """The main process, or else a session's: they share their group unless somebody parted them."""
    pids = [spec.get("main_pid"), *(pid for _, pid, *_ in spec.get("sessions", ()))]
    return next((pid for pid in pids if pid), None)


def _of(scope: str, pid: int, machine: Machine = HERE) -> list[dict[str, Any]]:
    try:
        found = machine.find_cgroups(pid, machine.root)
        return [{"scope": scope, "version": v, "path": path} for v, path in found]
    except OSError:  # gone, or hidden from us: no rows, and the source says so
        return []


_ASKED = tuple(a.table for a in asked())
TABLES = ("samples", "tasks", "cgroup", "host", "sampler", *_ASKED, *TRACED, *sampled())


def frames(watch: Watch) -> dict[str, pl.DataFrame]:
    """All tables of a watch; one it does not have is empty."""
    return _joined(_frames(watch.tables()), watch, lambda here: here.tables())


def recent_frames(watch: Watch, since_ns: int, names: Sequence[str] = TABLES) -> dict[str, pl.DataFrame]:
    """The same, or some of them, with what was read since then only."""
    found = _frames(watch.recent(since_ns), names)
    return _joined(found, watch, lambda here: here.recent(since_ns))


def _joined(
    found: dict[str, pl.DataFrame],
    watch: Watch,
    read: Callable[[Watch], Mapping[str, Mapping[str, CoreColumn]]],
) -> dict[str, pl.DataFrame]:
    """With our tasks of this host; of other tables those of the server's host are all."""
    if not isinstance(watch, BothHosts) or "tasks" not in found:
        return found
    ours = _frames(read(watch.here), ("tasks",))["tasks"].with_columns(pl.col("pid", "tid") + OF_CLIENT)
    return {**found, "tasks": pl.concat([found["tasks"], ours])}


def _frames(
    made: Mapping[str, Mapping[str, CoreColumn]], names: Sequence[str] = TABLES
) -> dict[str, pl.DataFrame]:
    return {name: from_core(name, made[name]) if name in made else empty(name) for name in names}
