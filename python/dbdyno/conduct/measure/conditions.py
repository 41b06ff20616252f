"""Checks of the machine and the server: reads facts once, then judges them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from dbdyno import observe
from dbdyno.conclude.machines.conditions import machine_conditions
from dbdyno.kernel import cpu_use, processes
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.condition import Condition, ServerConditions
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.machine_facts import Busy, Flush, MachineFacts
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import DbdynoError
from dbdyno.model.units import NS_PER_S

_MOST_NS = NS_PER_S // 50
"""Limit of reading open files before a run: a server may have thousands of sessions with many files."""
BUSY_NS = NS_PER_S
"""Least interval in which the use of the CPUs is looked at. CPU time is counted in ticks of 10 ms."""
_NO_DIRECTORY = "name a directory of the server's disk: dbdyno doctor --flush DIRECTORY"


class Look:
    """Begins to measure steal time, and the CPU time of all processes, when it is created."""

    def __init__(self, machine: Machine = HERE) -> None:
        self._machine = machine
        self._begin_ns, self._stat = time.monotonic_ns(), observe.cpu_times(machine.root)
        self._cpus = processes.cpus_allowed(machine.pid, machine.root)
        self._first = cpu_use.read(machine.root, self._cpus)

    def _busy(self, main_pid: int | None) -> Busy | None:
        """Waits for the rest of the interval. ``main_pid``: of a server that works for dbdyno alone."""
        left_ns = BUSY_NS - (time.monotonic_ns() - self._first.at_ns)
        time.sleep(max(0, left_ns) / NS_PER_S)
        root, ours = self._machine.root, {self._machine.pid} | ({main_pid} if main_pid is not None else set())
        return cpu_use.busy_between(self._first, cpu_use.read(root, self._cpus), ours, root)

    def conditions(
        self, server: Server | None, facts: ServerFacts | None, flush: str | None = None
    ) -> tuple[Condition, ...]:
        """Returns all checks, those of the server first. ``flush`` is a directory to write in, empty for the
        server's. Without a server, returns the checks of this machine. Raises :class:`TargetError`."""
        of_server = None if server is None or server.conditions is None else server.conditions.conditions()
        own = () if of_server is None else of_server.conditions
        if facts is not None and not facts.here:
            known = MachineFacts(flush=observe.flush_probe(Path(flush))) if flush else None
            return (*own, *machine_conditions(None, of_server, facts.here_detail, probed=known))
        files = server.conditions.data_files if server is not None and server.conditions is not None else None
        busy = self._busy(facts.main_pid if facts is not None and facts.embedded else None)
        machine_facts = observe.machine_facts(
            None if facts is None else facts.main_pid,
            files,
            self._machine.root,
            stat_before=self._stat,
            look_s=(time.monotonic_ns() - self._begin_ns) / NS_PER_S,
            busy=busy,
        )
        if server is not None and server.settings is not None:
            machine_facts = replace(machine_facts, server_clock=dict(server.settings.clock_facts()))
        if flush is not None:
            machine_facts = replace(machine_facts, flush=_time_flushes(flush, of_server))
        return (*own, *machine_conditions(machine_facts, of_server))


def _time_flushes(chosen: str, of_server: ServerConditions | None) -> Flush:
    """Times flushes in the given directory; without one, only in the data directory of the embedded
    server."""
    if chosen:
        return observe.flush_probe(Path(chosen))
    if of_server is None or not of_server.ours or of_server.directory is None:
        return Flush("?", "", "", "", None, 0, trouble=_NO_DIRECTORY)
    return observe.flush_probe(Path(of_server.directory))


def before_run(server: Server, facts: ServerFacts) -> tuple[Condition, ...]:
    """Returns the checks that need attention, within milliseconds, without timing flushes and without the
    server's program.

    Returns none if the server does not answer: checks must not fail a run.
    """
    if server.world is not None or server.conditions is None:
        return ()
    with contextlib.suppress(DbdynoError):
        of_server = server.conditions.conditions()
        files = server.conditions.data_files if of_server.direct_io else None
        root = server.machine.root
        machine_facts = (
            observe.machine_facts(facts.main_pid, files, root, most_ns=_MOST_NS) if facts.here else None
        )
        conditions = (*of_server.conditions, *machine_conditions(machine_facts, of_server, facts.here_detail))
        return tuple(c for c in conditions if c.asks)
    return ()
