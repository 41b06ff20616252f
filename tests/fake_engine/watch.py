"""The observers of the fake world: they read the timelines as the real ones read /proc and the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbdyno.model.schema.tables import CoreColumn, to_core
from dbdyno.model.units import NS_PER_S
from tests.fake_engine import levels, readings, tracing
from tests.fake_engine.machine import Task
from tests.fake_engine.roster import Known, roster
from tests.fake_engine.sampling import Sample, Sampler, is_down
from tests.fake_engine.trace import Doing
from tests.fake_engine.world import World

FIRST_NS = 5_000_000  # the first sample is taken this long before t0
CLOSE_NS = 1_000_000  # no read so shortly before the last one
TIMES = {"samples": "sql_after_ns", "sampler": "end_ns"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Spec:
    """The keys of a watch's specification that the fake server uses. Without them a watch only asks."""

    hz: float = 10.0
    seed: int = 1
    every_ns: int = 1_000_000_000
    os: bool = True
    host: bool = True
    memory_hz: float = 0.0
    trace: bool = False
    syscalls: bool = False
    adopt: bool = False
    sessions: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(spec: Mapping[str, Any]) -> Spec:
        return Spec(
            hz=float(spec.get("sample_hz", 10.0)),
            seed=int(spec.get("seed", 1)),
            every_ns=int(spec.get("task_interval_ms", 1000)) * 1_000_000,
            os=bool(spec.get("os", True)),
            host=bool(spec.get("host", True)),
            memory_hz=float(spec.get("memory_hz", 0.0)),
            trace=spec.get("trace", "off") != "off",
            syscalls=bool(spec.get("syscalls", False)),
            adopt=bool(spec.get("adopt", False)),
            sessions=tuple((int(n), int(pid)) for n, pid, _ in spec.get("sessions", ())),
        )


class FakeWatch:
    """See :class:`dbdyno.model.engine.protocols.Watch`.

    ``os`` and ``host`` false: those tables say "not here". ``memory_hz`` and ``trace`` are off where the
    specification is silent. ``chosen``: which client backends of somebody else's load become sessions.
    """

    def __init__(
        self,
        world: World,
        spec: Mapping[str, Any],
        chosen: Callable[[Task], bool] | None = None,
    ) -> None:
        self._law = world.law
        self._spec = Spec.of(spec)
        self._chosen = chosen
        self._world = world
        self._span: tuple[int, int] | None = None
        self._stopped_ns: int | None = None

    def start(self, t0_ns: int, t1_ns: int) -> None:
        self._span = (t0_ns, t1_ns)
        if self._spec.adopt:
            self._world.look_at(t0_ns, t1_ns)

    def stop(self) -> None:
        if self._stopped_ns is None:
            self._stopped_ns = self._world.machine.now_ns

    def latest(self) -> Mapping[str, float]:
        world = self._played
        if world is None or self._span is None:
            return {}
        now_ns = min(self._span[1], world.machine.now_ns) - 1
        alive = [
            k.task for k in self._known(world) if k.role == "session" and k.task.timeline.alive_at(now_ns)
        ]
        shares: dict[str, float] = {}
        for task in alive:
            i = task.timeline.index(now_ns)
            doing, label = task.timeline.doing[i], task.timeline.labels[i]
            name = label.wait_class or "" if doing is Doing.SLEEP else doing.name.lower()
            shares[name] = shares.get(name, 0.0) + 1 / len(alive)
        return shares

    def trouble(self) -> str | None:
        world = self._played
        down = world is not None and is_down(self._law, world.machine.now_ns - world.zero_ns)
        return "the fake server closed the connection" if down else None

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        """Returns statuses of ``wait event word`` and ``scheduler trace``, if they were asked for."""
        return dict(self._source_statuses())

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return {name: to_core(name, rows) for name, rows in self._rows().items()}

    def samples(self) -> dict[str, list[Row]]:
        """Returns rows of ``samples`` and ``sampler`` alone, for another series of a load that was played."""
        world = self._played
        assert world is not None
        return self._sampled(world, self._known(world), 0)

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        """Returns rows read since then."""
        return {
            name: to_core(name, [r for r in rows if r[TIMES.get(name, "after_ns")] >= since_ns])
            for name, rows in self._rows(since_ns).items()
        }

    # -- what is read ---------------------------------------------------------------------------------

    @property
    def _played(self) -> World | None:
        return self._world if self._world.span is not None else None

    def _rows(self, since_ns: int = 0) -> dict[str, list[Row]]:
        """Returns all rows without samples before ``since_ns``."""
        world, spec = self._played, self._spec
        if world is None or self._span is None or not (reads := self._read_times(world)):
            return {}
        known = self._known(world)
        ends = [reads[0], reads[-1], *self._span]
        tables = self._sampled(world, known, since_ns) | {
            "tasks": readings.tasks(world, known, reads, ends, spec.os),
            "cgroup": levels.cgroup(world, reads) if spec.os else [],
            "host": levels.host(world, reads) if spec.host and spec.os else [],
        }
        if spec.trace and world.law.trace and spec.os:
            tables |= self._traced(world, reads)
        return tables

    def _sampled(self, world: World, known: Sequence[Known], since_ns: int) -> dict[str, list[Row]]:
        tables: dict[str, list[Row]] = {"samples": [], "sampler": []}
        for sampler in self._samplers(world):
            samples = [s for s in self._samples(world, sampler) if s.start_ns >= since_ns - NS_PER_S]
            tables["samples"] += sampler.rows(samples, known, self._spec.os)
            tables["sampler"] += [sampler.sampler_row(s) for s in samples]
        return tables

    def _traced(self, world: World, reads: Sequence[int]) -> dict[str, list[Row]]:
        """Returns rows of the trace.

        It knows all of the server's tasks from their birth on, but their roles only from the samples,
        and calls those that none met ``other``.
        """
        known = self._known(world)
        met = {id(k.task) for k in known}
        unmet = [Known(t, "other", None, t.timeline.born_ns) for t in world.machine.tasks if id(t) not in met]
        read = list(tracing.reads([*known, *unmet], reads))
        tables = {
            "traced": [row for of in read for row in tracing.traced(of)],
            "waits": [row for of in read for row in tracing.waits(of)],
        }
        if self._spec.syscalls:
            tables["syscalls"] = [row for of in read for row in tracing.syscalls(of)]
        return tables

    def _known(self, world: World) -> list[Known]:
        sampled = [s.start_ns for s in self._samples(world, self._asking(world)) if not s.lost]
        numbers = {pid: n for n, pid in self._spec.sessions}
        return roster(world, sampled, self._chosen if self._spec.adopt else None, numbers)

    def _asking(self, world: World) -> Sampler:
        return Sampler("sql", world.law, self._spec.hz, self._spec.seed)

    def _samplers(self, world: World) -> list[Sampler]:
        spec, law = self._spec, self._law
        samplers = [self._asking(world)]
        if spec.memory_hz > 0 and law.word and spec.os:
            samplers.append(Sampler("memory", law, spec.memory_hz, spec.seed))
        return samplers

    def _samples(self, world: World, sampler: Sampler) -> list[Sample]:
        assert self._span is not None
        first = max(world.born_ns, self._span[0] - FIRST_NS)
        now_ns = world.machine.now_ns if self._stopped_ns is None else self._stopped_ns
        return sampler.samples(first, self._span, now_ns, world.zero_ns)

    def _read_times(self, world: World) -> list[int]:
        """Returns the planned reads until now, and a last one if the watch was stopped before its time."""
        assert self._span is not None
        t0, t1 = self._span
        now_ns = world.machine.now_ns if self._stopped_ns is None else self._stopped_ns
        end = min(t1, now_ns)
        first = max(world.born_ns, t0 - FIRST_NS)
        between = range(t0 + self._spec.every_ns, end - CLOSE_NS, self._spec.every_ns)
        reads = sorted({first, t0, *between, t1})
        last = [end] if self._stopped_ns is not None and end > t0 else []
        return sorted({t for t in reads if t <= now_ns}.union(last))

    def _source_statuses(self) -> list[tuple[str, tuple[str, str]]]:
        spec, law = self._spec, self._law
        asked = (
            ("wait event word", spec.memory_hz > 0, law.word, "word=on in the fake DSN"),
            ("scheduler trace", spec.trace, law.trace, "trace=on in the fake DSN"),
        )
        statuses = []
        for name, wanted, permitted, cure in asked:
            if wanted and not spec.os:
                statuses.append((name, ("not here", "the server runs on another host: run dbdyno there")))
            elif wanted:
                statuses.append((name, ("ok", "") if permitted else ("not permitted", f"{cure} permits it")))
        return statuses
