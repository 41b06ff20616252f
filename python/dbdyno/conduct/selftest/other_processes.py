"""CPU time of the machine, of the server's processes and of dbdyno, read apart from the ledger's own
sources.

The difference is the CPU time of all other processes, including those that lived between two reads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

from dbdyno.conclude.ground_truth import CpuUse
from dbdyno.kernel import processes
from dbdyno.model.units import NS_PER_S, TICK_NS

_STEAL = 7
_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
_OWN, _CHILDREN = (11, 12), (13, 14)  # fields of stat after the name: 14 to 17 of proc_pid_stat(5)


class Reading(NamedTuple):
    """CPU time in ns, since boot or since the start of the processes."""

    at_ns: int
    busy_ns: int
    steal_ns: int
    server_ns: int
    own_ns: int
    queued_ns: int  # of the server's processes
    until_ns: int = 0  # end of the read


class Meter:
    """Reads at both ends of a window, in a thread of its own."""

    def __init__(self, main_pid: int | None, t0_ns: int, t1_ns: int) -> None:
        self._main_pid, self._ends = main_pid, (t0_ns, t1_ns)
        self._readings: list[Reading] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if main_pid is not None:
            self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the server has ended, or is hidden from us
            for end_ns in self._ends:
                self._over.wait(max(0, end_ns - time.monotonic_ns()) / NS_PER_S)
                self._readings.append(read(self._main_pid or 0))

    def used(self) -> CpuUse | None:
        """Returns the CPUs in use between both ends, or until now if the window was cut short; None if
        unknown."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if len(self._readings) < 2:
            return None
        first, last = self._readings
        used = between(first, last)
        ends = zip(self._ends, self._readings, strict=True)
        late_ns = sum(max(0, reading.until_ns - end_ns) for end_ns, reading in ends)
        return used and used._replace(late=late_ns / (last.at_ns - first.at_ns))


def read(main_pid: int, root: Path = processes.ROOT) -> Reading:
    """Reads the use of the CPUs that the server's main process may run on. Raises :class:`OSError`."""
    busy_ns, steal_ns = cpu_times(
        (root / "proc/stat").read_text(encoding="ascii"), processes.cpus_allowed(main_pid, root)
    )
    at_ns = time.monotonic_ns()
    ended_ns = _cpu_ns(main_pid, root, _CHILDREN)
    alive = [_alive(pid, root) for pid in processes.tree(main_pid, root)]
    server_ns = ended_ns + sum(cpu_ns for cpu_ns, _ in alive)
    own_ns, queued_ns = time.process_time_ns(), sum(queued_ns for _, queued_ns in alive)
    return Reading(at_ns, busy_ns, steal_ns, server_ns, own_ns, queued_ns, time.monotonic_ns())


def cpu_times(stat: str, cpus: Set[int]) -> tuple[int, int]:
    """Returns busy and stolen time (ns) of these CPUs by the lines of /proc/stat (proc_stat(5)).

    Raises :class:`OSError` if it has no line of them: a container may number CPUs in its own way.
    """
    wanted = {f"cpu{cpu}" for cpu in cpus}
    rows = [
        [int(field) for field in fields]
        for name, *fields in map(str.split, stat.splitlines())
        if name in wanted
    ]
    if not rows:
        raise OSError("no line of the CPUs that the server may use")
    steal = sum(row[_STEAL] for row in rows if len(row) > _STEAL)
    return sum(row[i] for row in rows for i in _BUSY if i < len(row)) * TICK_NS, steal * TICK_NS


def between(first: Reading, last: Reading) -> CpuUse | None:
    """Returns the use between two readings in CPUs; None if they lie too close together."""
    span_ns = last.at_ns - first.at_ns
    if span_ns < NS_PER_S // 2:
        return None
    used = zip(first[1:6], last[1:6], strict=True)
    busy, steal, server, own, queued = ((b - a) / span_ns for a, b in used)
    return CpuUse(others=busy - server, own=own, steal=steal, queued=max(0.0, queued))


def _alive(pid: int, root: Path) -> tuple[int, int]:
    """Returns CPU time and run-queue time of a process in ns."""
    try:
        text = (root / f"proc/{pid}/schedstat").read_text(encoding="ascii")
        return _cpu_ns(pid, root, _OWN), int(text.split()[1])
    except OSError:
        return 0, 0  # it has ended: its time is with that of the main process's children


def _cpu_ns(pid: int, root: Path, which: tuple[int, int]) -> int:
    text = (root / f"proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()
    return sum(int(fields[i]) for i in which) * TICK_NS
