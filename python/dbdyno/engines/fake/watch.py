"""The observers of the fake world: they read the timelines as the real ones read /proc and the server."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from dbdyno.engines.fake import readings
from dbdyno.engines.fake.core import core_table
from dbdyno.engines.fake.trace import Doing
from dbdyno.engines.fake.world import World
from dbdyno.model.tables import CoreColumn
from dbdyno.model.units import NS_PER_S

SAMPLE_NS = 100_000  # how long a sample takes besides the law's skew
FIRST_NS = 5_000_000  # the first sample is taken this long before t0


class FakeWatch:
    """See :class:`dbdyno.model.protocols.Watch`. ``os`` and ``host`` false: those tables say "not here"."""

    def __init__(self, world: World, spec: Mapping[str, Any]) -> None:
        self._world = world
        self._hz = float(spec.get("sample_hz", 10.0))
        self._seed = int(spec.get("seed", 1))
        self._every_ns = int(spec.get("task_interval_ms", 1000)) * 1_000_000
        self._os = bool(spec.get("os", True))
        self._host = bool(spec.get("host", True))
        self._span: tuple[int, int] | None = None

    def start(self, t0_ns: int, t1_ns: int) -> None:
        self._span = (t0_ns, t1_ns)

    def stop(self) -> None:
        """Nothing runs on by itself here."""

    def latest(self) -> Mapping[str, float]:
        if self._span is None or self._world.schedule is None:
            return {}
        now_ns = min(self._span[1], self._world.machine.now_ns) - 1
        shares: dict[str, float] = {}
        for task in self._world.tasks.values():
            i = task.timeline.index(now_ns)
            doing, label = task.timeline.doing[i], task.timeline.labels[i]
            name = label.wait_class or "" if doing is Doing.SLEEP else doing.value
            shares[name] = shares.get(name, 0.0) + 1 / len(self._world.tasks)
        return shares

    def trouble(self) -> str | None:
        return None

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        if self._span is None or self._world.schedule is None:
            return {}
        world, reads = self._world, self._read_times()
        due = self._sample_times()
        made = {
            "samples": readings.samples(world, [(n, t) for n, t in due if not self._lost(t)], self._os),
            "sampler": [self._sampler(n, t) for n, t in due],
            "tasks": readings.tasks(world, reads, self._os),
            "cgroup": readings.cgroup(world, reads) if self._os else [],
            "host": readings.host(world, reads) if self._host and self._os else [],
        }
        return {name: core_table(name, rows) for name, rows in made.items()}

    def _read_times(self) -> list[int]:
        assert self._span is not None
        t0, t1 = self._span
        t1 = min(t1, self._world.machine.now_ns)
        between = range(t0 + self._every_ns, t1, self._every_ns)
        first = max(self._world.born_ns, t0 - FIRST_NS)
        return sorted({first, t0, *(t for t in between if t < t1 - 1_000_000), t1})

    def _sample_times(self) -> list[tuple[int, int]]:
        """One random instant in each interval of the window; the first before t0."""
        assert self._span is not None
        t0, t1 = self._span
        chance = random.Random(self._seed)
        interval = NS_PER_S / self._hz
        starts = range(int((t1 - t0) / interval))
        due = [t0 + int((i + chance.random()) * interval) for i in starts]
        passed = [t for t in due if t <= self._world.machine.now_ns]
        return list(enumerate([max(self._world.born_ns, t0 - FIRST_NS), *passed]))

    def _lost(self, due_ns: int) -> bool:
        law, schedule = self._world.law, self._world.schedule
        assert schedule is not None
        since = due_ns - schedule.start_ns
        in_gap = law.gap is not None and law.gap[0] <= since < law.gap[1]
        return in_gap or (law.down is not None and since >= law.down)

    def _sampler(self, number: int, due_ns: int) -> dict[str, Any]:
        end_ns = due_ns + SAMPLE_NS + self._world.law.skew
        status = "lost" if self._lost(due_ns) else "ok"
        return {"sample": number, "due_ns": due_ns, "start_ns": due_ns, "end_ns": end_ns, "status": status}
