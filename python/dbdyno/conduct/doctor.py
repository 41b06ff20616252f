"""A short look at what can be measured here, and what enables the rest.

The data sources are judged by the same code as those of a run; each registered one is listed. Other needs of
a run are checked by the functions of :data:`CHECKS`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from dbdyno import limits, observe
from dbdyno.conduct.measure.cell import MachineClock, clock_of
from dbdyno.conduct.measure.conditions import Look
from dbdyno.conduct.memory import measurement_memory
from dbdyno.conduct.memory.memory import read_memory
from dbdyno.engines import embedded, open_server
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.condition import Condition
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import Clock, Pool, Server, Target, Watch
from dbdyno.model.errors import DbdynoError, NotInstalled, NotPrivileged, TargetError
from dbdyno.model.plan.plan import LimitSpec, Observation
from dbdyno.model.schema.data_source import DataSource, Enabling, Step
from dbdyno.model.schema.data_sources import SOURCES
from dbdyno.model.sources.source import TRACE, Source
from dbdyno.model.units import NS_PER_S

_LEAD_NS, LOOK_NS = NS_PER_S // 20, NS_PER_S * 3 // 10
_MEMORY_NS = 2 * NS_PER_S
_OF_SERVER = ("activity samples", "wait event word")
_SYSCTL = "sysctl -w "
_OPTIONAL = tuple(s.option.key for s in SOURCES if s.option is not None and s.stacks is not None)
"""Options of sources that are off by default. They are tried here, since they need further rights."""
_OFF_BY_DEFAULT = {
    s.name: (s.option, s.cures["off"]) for s in SOURCES if s.option is not None and s.stacks is not None
}


@dataclass(frozen=True)
class Diagnosis:
    """If ``server`` is None, ``trouble`` has the reason, and the sources are those of this machine."""

    server: ServerFacts | None
    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...]
    trouble: DbdynoError | None
    enable: Callable[[str], None] | None
    """Executes a step that is a statement for the server. Raises :class:`TargetError`."""
    started: str = ""
    """A sentence on the server that was started for the check, and on what stays. Empty if none was."""


@contextlib.contextmanager
def diagnosed(
    engine: str, target: Target, *, look_ns: int = LOOK_NS, flush: str | None = None
) -> Iterator[Diagnosis]:
    """Yields what can be measured with the server of ``target``, which stays open within the context.
    Changes nothing.

    ``look_ns``: duration of the look at data sources and steal. ``flush``: a directory in which to time
    flushes; ``""`` means the server's, if the server is dbdyno's own.
    """
    machine = target.machine or HERE
    look = Look(machine)
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(open_server(engine, target))
            facts, look = server.facts(), Look(server.machine)
            sources = [
                *_sources_of_server(server, look_ns),
                *(s for check in CHECKS for s in check(server, facts)),
            ]
            conditions = look.conditions(server, facts, flush) if server.world is None else ()
            sources = [*_complete(sources, machine, reachable=not facts.service)]
        except (TargetError, NotInstalled) as e:
            sources = list(_sources_of_machine(machine, look_ns))
            yield Diagnosis(
                None, tuple(_complete(sources, machine)), look.conditions(None, None, flush), e, None
            )
            return
        enable = getattr(server, "enable", None)
        started = _started(embedded(engine).status()) if facts.embedded else ""
        yield Diagnosis(facts, tuple(sources), conditions, None, enable, started)


def _started(status: Mapping[str, Any]) -> str:
    """Returns who started the embedded server and what stays, from its status while it runs."""
    if status.get("stays"):
        return "It was running already (dbdyno server start), and keeps running."
    where = status.get("data_dir")
    if status.get("owner_pid") != os.getpid():
        return f"It belongs to a run in progress (process {status.get('owner_pid')}); data directory: {where}"
    return f"dbdyno started it for this check and stops it at the end. Its data directory stays: {where}"


def _sources_of_server(server: Server, look_ns: int) -> list[Source]:
    """Returns the data sources as a short observation reads them."""
    if server.watching is None:
        return [*server.sources()]
    watch = observe.open_observation(server, Observation(), {}, observe.How(asked=_OPTIONAL))
    tables = _read(watch, clock_of(server), look_ns)
    return observe.judged(server.sources(), tables, reported=observe.WatchState.by(watch))


def _sources_of_machine(machine: Machine, look_ns: int) -> Iterator[Source]:
    watch = observe.open_machine(machine)
    tables = _read(watch, MachineClock(), look_ns)
    sources = observe.judged((), tables, reported=observe.WatchState.by(watch))
    yield from (s for s in sources if s.name not in _OF_SERVER)


def _read(watch: Watch, clock: Clock, look_ns: int) -> dict[str, pl.DataFrame]:
    t0_ns = clock.now_ns() + _LEAD_NS
    try:
        watch.start(t0_ns, t0_ns + look_ns)
        clock.sleep((_LEAD_NS + look_ns) / NS_PER_S)
    finally:
        watch.stop()
    return observe.frames(watch)


def _complete(sources: Sequence[Source], machine: Machine, *, reachable: bool = True) -> Iterator[Source]:
    """Adds the sources that are off by default, and removes steps that are in force already, or that would
    be taken on a host that is not ``reachable``."""
    by_name = {s.name: s for s in sources}
    there = (Step(limits.other_host()),) if reachable else ()
    missing = (
        _off_by_default(registered, registered.option.flag, by_name.get(TRACE))
        for registered in SOURCES
        if registered.option is not None and registered.name not in by_name
    )
    for s in (*(_to_do(s, machine) for s in by_name.values()), *missing):
        yield _with_steps(s, there) if s.status == "not here" else s


def _to_do(source: Source, machine: Machine) -> Source:
    """Returns the source without steps that are in force already; as off if it is by default."""
    if source.name in _OFF_BY_DEFAULT and source.status == "ok":
        option, off = _OFF_BY_DEFAULT[source.name]
        as_off = source.model_copy(update={"status": "off", "detail": off})
        return _with_steps(as_off, (Step(f"dbdyno run WORKLOAD {option.flag}"),))
    left = tuple(step for step in source.enabling.steps if not _is_in_force(step, machine.root))
    return _with_steps(source, left)


def _with_steps(source: Source, steps: tuple[Step, ...]) -> Source:
    return source.model_copy(update={"enabling": source.enabling._replace(steps=steps)})


def _off_by_default(registered: DataSource, flag: str, trace: Source | None) -> Source:
    """Returns a source that is off by default and read by the trace: it has the needs of the trace."""
    source = Source(
        name=registered.name,
        provenance=registered.provenance,
        status="off",
        detail=registered.cures["off"],
        enabling=registered.enabling,
    )
    if trace is None or trace.status == "ok":
        return source
    steps = tuple(Step(f"{step.command} {flag}", step.how) for step in trace.enabling.steps)
    enabling = registered.enabling._replace(steps=steps)
    return source.model_copy(update={"status": trace.status, "detail": trace.detail, "enabling": enabling})


def _is_in_force(step: Step, root: Path) -> bool:
    """Returns whether the kernel's parameter has the value that the step sets."""
    name, _, value = step.command.removeprefix(_SYSCTL).partition("=")
    if not step.command.startswith(_SYSCTL):
        return False
    try:
        return root.joinpath("proc/sys", *name.split(".")).read_text().strip() == value
    except OSError:
        return False


# -- other needs of a run: one function each -------------------------------------------------------


def _control_groups(server: Server, facts: ServerFacts) -> Iterator[Source]:
    """Yields the source for limits of the server's processes. Creates no group, only checks whether it
    may."""
    spec = LimitSpec(quota=1.0, cpus="0")

    def attempt() -> str:
        decision = limits.decide(spec, limits.seen(facts.main_pid, facts.local, facts.why_not_local))
        if decision.alone is not None:
            raise NotPrivileged(decision.alone)
        return ", ".join(str(place.parent) for place in decision.places)

    if server.world is None:
        adds = "variants with a CPU quota or a cpuset: --limit quota=1, cpus=0-3, the recipe limits"
        right = "root, or a delegated control group"
        yield _try("control groups", "cgroup of the server's processes", Enabling(adds, right), attempt)


def _pooler(server: Server, _facts: ServerFacts) -> Iterator[Source]:
    """Yields the source for a connection pooler in front of the server."""
    if (pooling := server.pooling) is not None:
        adds = "variants behind a connection pooler: --limit pool=4, the recipe limits"
        attempt = lambda: pooling.check_pool(Pool(1, "transaction", 1, "extended"))  # noqa: E731
        yield _try("connection pooler", "the pooler's program", Enabling(adds), attempt)


def _memory(server: Server, _facts: ServerFacts) -> Iterator[Source]:
    """Yields the source for memory, by a short read."""
    if server.world is None:
        tables = read_memory(server, "start", _MEMORY_NS)
        yield measurement_memory.source(measurement_memory.state(server, tables))


Check = Callable[[Server, ServerFacts], Iterator[Source]]
CHECKS: list[Check] = [_control_groups, _pooler, _memory]


def _try(name: str, provenance: str, enabling: Enabling, attempt: Callable[[], object]) -> Source:
    """Returns a source; an error of ``attempt`` becomes its reason, and the cure its step."""
    try:
        attempt()
    except DbdynoError as e:
        status = "not permitted" if isinstance(e, NotPrivileged) else "not supported"
        steps = (Step(e.cure.removeprefix("run as root: ")),) if e.cure else ()
        return Source.model_validate(
            {
                "name": name,
                "provenance": provenance,
                "status": "not here" if isinstance(e, TargetError) and status != "not permitted" else status,
                "detail": e.message,
                "enabling": enabling._replace(steps=steps),
            }
        )
    return Source(name=name, provenance=provenance, status="ok", enabling=enabling)
