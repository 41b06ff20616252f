"""Reads the CPU time of processes that are neither dbdyno's nor the server's, near both ends of a window.

A reading takes about 16 us for each process. The first one is made within the window and the last one after
it. In an observation one reading is the end of a window and the beginning of the next; windows in which a
reading would take more than :data:`COST` are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dbdyno.conduct.companion import Companion, OpenWatch
from dbdyno.kernel import cpu_use
from dbdyno.model.engine.protocols import Load, Server, Watch
from dbdyno.model.plan.plan import Cell, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import raw, rows

COST = 0.01
"""Share of a CPU that reading may take in an observation."""
MOST = 10
"""Processes that are stored for each window."""
_PER_PROCESS_NS = 20_000
_INT64 = 2**63
Read = Callable[[], cpu_use.Reading]


class OtherProcesses(Companion):
    """Stores in the raw table ``other_processes`` who used CPU beside the server. Off with ``--no-observe``,
    and for a simulated server."""

    def __init__(
        self,
        server: Server,
        plan: Plan,
        main_pids: Sequence[int | None],
        *,
        observing: bool = False,
        read: Read | None = None,
    ) -> None:
        """``main_pids``: the main processes of the run's servers; None for one that is not visible. ``read``
        replaces reading /proc."""
        self._root, self._observing = server.machine.root, observing
        self._ours = [server.machine.pid, *(pid for pid in main_pids if pid is not None)]
        read = read or partial(cpu_use.read, self._root)
        self._read = read if plan.experiment.observe and server.world is None else None
        self._first: cpu_use.Reading | None = None
        self._last: cpu_use.Reading | None = None

    def before(self, cell: Cell) -> None:  # noqa: ARG002
        self._first = self._last = None
        if self._observing and self._read is not None:
            self._first = self._read()

    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None) -> None:  # noqa: ARG002
        if self._read is not None and self._first is None:
            self._first = self._read()

    def window_over(self) -> None:
        if self._read is not None and self._first is not None and not self._observing:
            self._last = self._read()

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        if self._observing:
            self._next_window(raws[-1].meta.t1_ns - raws[-1].meta.t0_ns)
        if self._first is None or self._last is None:
            return raws
        table = rows(raw("other_processes"), self._rows(self._first, self._last))
        if self._observing:
            self._first, self._last = self._last, None
        return [replace(r, tables={**r.tables, "other_processes": table}) for r in raws]

    def _next_window(self, window_ns: int) -> None:
        """Reads at the end of a window, if that does not cost too much of it."""
        count = 0 if self._first is None else len(self._first.processes)
        if self._read is not None and count * _PER_PROCESS_NS <= COST * window_ns:
            self._last = self._read()

    def _rows(self, first: cpu_use.Reading, last: cpu_use.Reading) -> list[dict[str, Any]]:
        ours = cpu_use.below(first.processes, self._ours) | cpu_use.below(last.processes, self._ours)
        span = {"first_ns": first.at_ns, "last_ns": last.at_ns}
        status = cpu_use.hidden(self._root) or ("ok" if first.whole and last.whole else "not all were read")
        if not last.processes:
            return [{**span, "status": "no process could be read"}]
        used = cpu_use.others(cpu_use.used(first, last), ours)
        whole: dict[str, Any] = {
            "cpu_ns": sum(ns for _, ns, _ in used),
            "children_ns": sum(ns for *_, ns in used),
        }
        largest: list[dict[str, Any]] = [
            {
                "pid": p.pid,
                "start_ticks": p.start_ticks,
                "name": p.name,
                "user": p.user or None,
                "cpu_ns": p.cpu_ns,
                "children_ns": p.ended_ns,
            }
            for p in cpu_use.named(last, used[:MOST], self._root)
        ]
        known = (r for r in (*largest, whole) if all(v < _INT64 for v in r.values() if isinstance(v, int)))
        return [{**span, **r, "status": status} for r in known]
