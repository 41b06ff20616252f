"""Its watches, which follow its own law, as the world is virtual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbdyno.model.schema.tables import CoreColumn, to_core
from tests.second_engine.load import SecondLoad
from tests.second_engine.world import CYCLE, GUESTS, Task, reads, samples, tasks

UNREAD = (
    "driver tasks",
    "block I/O delay",
    "wait event word",
    "scheduler trace",
    "cgroup",
    "host",
    "pressure",
)


class SecondWatch:
    """See :class:`dbdyno.model.engine.protocols.Watch`."""

    def __init__(self, load: SecondLoad, seed: int) -> None:
        self._load, self._seed = load, seed

    def start(self, t0_ns: int, t1_ns: int) -> None: ...

    def stop(self) -> None: ...

    def latest(self) -> Mapping[str, float]:
        return {}

    def trouble(self) -> str | None:
        return None

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        return dict.fromkeys(UNREAD, ("not supported", "the law says nothing of it"))

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:  # noqa: ARG002
        return self.tables()

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        load = self._load
        return seen(load.tasks(), load.began_ns, load.t1_ns, self._seed)


def seen(guests: list[Task], from_ns: int, to_ns: int, seed: int) -> dict[str, Mapping[str, CoreColumn]]:
    """Returns the tables of a watch."""
    read = [row for task in guests for row in reads(task, to_ns, from_ns)]
    sampled, taken = samples(guests, from_ns, to_ns, seed)
    tables = {"tasks": read, "samples": sampled, "sampler": taken, "cgroup": [], "host": []}
    return {name: to_core(name, rows) for name, rows in tables.items()}


class GuestWatch(SecondWatch):
    """A watch over sessions of somebody else's.

    It numbers those that it meets itself, the last first, except those of which a task was given.
    """

    def __init__(self, clock: SecondLoad, spec: Mapping[str, Any]) -> None:
        super().__init__(clock, spec["seed"])
        self._known = {(pid, tid): number for pid, tid, number in spec["known"]}
        self._from_ns = self._t1_ns = clock.now_ns()
        self._stopped_ns: int | None = None

    def start(self, t0_ns: int, t1_ns: int) -> None:  # noqa: ARG002
        self._t1_ns = t1_ns

    def stop(self) -> None:
        self._stopped_ns = self._stopped_ns or self._load.now_ns()

    def latest(self) -> Mapping[str, float]:
        return {"run": 0.6} if self._met(self._until_ns) else {}

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._since(self._from_ns)

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        skipped = max(0, since_ns - self._from_ns) // CYCLE
        return self._since(self._from_ns + skipped * CYCLE)

    @property
    def _until_ns(self) -> int:
        return min(self._stopped_ns or self._load.now_ns(), self._t1_ns)

    def _since(self, from_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        return seen(self._met(from_ns), from_ns, self._until_ns, self._seed)

    def _met(self, from_ns: int) -> list[Task]:
        guests = [t for t in tasks(GUESTS, self._until_ns) if t.ends_ns is None or t.ends_ns > from_ns]
        first = max(self._known.values(), default=-1) + 1
        met = sorted({t.session for t in guests}, reverse=True)
        numbers = {session: first + n for n, session in enumerate(met)}
        numbers |= {t.session: self._known[t.pid, t.tid] for t in guests if (t.pid, t.tid) in self._known}
        return [t._replace(session=numbers[t.session]) for t in guests]
