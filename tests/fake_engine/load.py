"""The fake server's load: all its time passes within :meth:`FakeLoad.wait`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dbdyno.model.engine.protocols import Progress
from dbdyno.model.schema.tables import CoreColumn, to_core
from tests.fake_engine import records
from tests.fake_engine.programs import Schedule
from tests.fake_engine.world import DRIVER_PID, FIRST_PID, World

CONNECT_NS = records.CONNECT_NS + records.PREPARE_NS


class FakeLoad:
    """See :class:`dbdyno.model.engine.protocols.Load`."""

    def __init__(
        self,
        world: World,
        work: records.Work,
        log_calls: bool,
        max_calls: int | None,
        *,
        rounds: bool = False,
    ) -> None:
        self.world = world
        self._work = work
        self._log_calls = log_calls
        self._max_calls = max_calls
        self._rounds = rounds
        self._planned: Schedule | None = None
        self._played = False

    def connect(self) -> None:
        self._pass(len(self.world.sessions) * CONNECT_NS)

    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None:
        self._planned = Schedule(start_ns, t0_ns, t1_ns, self._max_calls, self._rounds)

    def finish(self) -> None:
        self._pass(records.PREPARE_NS)

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002  (virtual time passes at once)
        if self._planned is not None and not self._played:
            self._played = True
            self.world.play(self._planned)
        return True

    def stop(self) -> None:
        if self._planned is not None and not self._played:
            self._planned = replace(self._planned, t1_ns=self._planned.start_ns, stopped=True)

    def abort(self) -> None:
        self.stop()

    def progress(self) -> Progress:
        calls = [c for s in self.world.sessions for c in s.calls]
        good = [c for c in calls if c.sqlstate is None]
        live = sum(s.end_reason is None for s in self.world.sessions)
        return Progress(len(good), len(calls) - len(good), live, sum(c.end_ns - c.start_ns for c in good))

    def live_durations(self) -> Sequence[tuple[int, int]]:
        calls = [c for s in self.world.sessions for c in s.calls]
        return [(c.end_ns - c.start_ns, 1) for c in calls if c.sqlstate is None]

    def backends(self) -> Sequence[tuple[int, int, int]]:
        return [(s.number, FIRST_PID + s.number, FIRST_PID + s.number) for s in self.world.sessions]

    def threads(self) -> Sequence[int]:
        return [DRIVER_PID]

    def now_ns(self) -> int:
        return self.world.machine.now_ns

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        sessions, schedule = self.world.sessions, self._planned
        if schedule is None:
            return {}
        tables = {
            "sessions": [records.session(s, schedule) for s in sessions],
            "histogram": records.histogram(sessions, schedule),
            "second_histogram": records.second_histogram(sessions, schedule),
            "errors": [row for s in sessions for row in records.errors(s)],
            "counters": [row for s in sessions for row in records.counters(s, self._work, schedule.start_ns)],
            "progress": records.progress(sessions, schedule.start_ns, self.world.machine.now_ns),
        }
        if self.world.arrivals is not None:
            tables |= records.paced(sessions, schedule, self.world.arrivals)
        if self._log_calls:
            tables["calls"] = [row for s in sessions for row in records.calls(s, schedule)]
        return {name: to_core(name, rows) for name, rows in tables.items()}

    def _pass(self, ns: int) -> None:
        self.world.machine.run_until(self.world.machine.now_ns + ns)
