"""Another host as a :class:`dbdyno.model.engine.machine.Machine`, read and observed by an agent there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from dbdyno import _core
from dbdyno.model.engine.machine import PageCounts, Reached
from dbdyno.model.errors import HostLost
from dbdyno.model.schema.tables import CoreColumn
from dbdyno.model.units import NS_PER_S, TICK_NS
from dbdyno.remote.agent import Agent
from dbdyno.remote.clocks import EXCHANGES, HostClock
from dbdyno.remote.files import Files, tree
from dbdyno.remote.load import RemoteLoad
from dbdyno.remote.watch import RemoteWatch
from dbdyno.remote.wire import Tables, WrongAnswer

Opened = Callable[[bool], Agent]
"""Connects to the agent. ``True``: again, during a run, so that no password may be asked for."""
_CONNECT_S = 15.0
_LEAST, _MEASURING_NS = 5, NS_PER_S // 4
"""Least number of exchanges that show a clock's offset; about the time that all of them may take."""


class RemoteMachine:
    """See :class:`Machine`. ``opened`` connects to the agent, at first and after it was lost."""

    def __init__(self, opened: Opened, host: str, user: str | None = None, by: str = "ssh") -> None:
        self._opened, self._host, self._user, self._by = opened, host, user, by
        self._agent = opened(False)
        try:
            self._begin()
        except BaseException:
            self._agent.close()
            raise

        self._files = Files(self._agent)
        self.root: Path = tree(self._files, self)

    def _begin(self) -> None:
        """Measures its clock with as many exchanges as there is time for."""
        trip_ns = max(1, HostClock(self._agent.clock, _LEAST).round_trip_ns)
        self.clock = HostClock(self._agent.clock, max(_LEAST, min(EXCHANGES, _MEASURING_NS // trip_ns)))
        # start times of processes count from boot; as parts of keys they need one shift of whole ticks
        self._ticks = round(self.clock.mapping().first.ns / TICK_NS)

    @property
    def reached(self) -> Reached | None:
        bound_ns = self.clock.mapping().bound_ns
        return Reached(host=self._host, user=self._user, by=self._by, clock_bound_ns=bound_ns)

    @property
    def uid(self) -> int:
        return self._agent.hello.uid

    @property
    def pid(self) -> int:
        return self._agent.hello.pid

    @property
    def architecture(self) -> str:
        return self._agent.hello.arch

    def boot_s(self) -> float:
        """Reads ``/proc/uptime``, which counts from CLOCK_BOOTTIME in hundredths of a second."""
        content = (self.root / "proc/uptime").read_text()
        with self._agent.trusted():
            if (match := re.match(r"[0-9]{1,15}(\.[0-9]{1,9})? ", content, re.ASCII)) is None:
                raise WrongAnswer("no time since its boot in /proc/uptime")
        return float(match[0])

    def ahead(self, paths: Iterable[Path], folders: Iterable[Path] = ()) -> AbstractContextManager[None]:
        return self._files.ahead(map(str, paths), map(str, folders))

    def find_cgroups(
        self, pid: int | None, root: Path, controllers: Sequence[str] | None = None
    ) -> Sequence[tuple[int, str]]:
        arguments = {"pid": pid, "root": str(root), "controllers": controllers}
        cgroups: Sequence[tuple[int, str]] = self._ask("find_cgroups", **arguments)
        return cgroups

    def read_task(self, pid: int, tid: int) -> Mapping[str, Any]:
        (answer,) = self._agent.request_each("read_task", 1, tasks=[[pid, tid]])
        read: Mapping[str, Any] = answer
        return read

    def read_behind(self, pid: int, program: str, symbol: str, offset: int) -> tuple[int | None, str, str]:
        arguments = {"pid": pid, "program": program, "symbol": symbol, "offset": offset}
        value: tuple[int | None, str, str] = self._ask("read_behind", **arguments)
        return value

    def page_cache(
        self, files: Sequence[tuple[str | Path, bytes, int]], block_bytes: int, budget_ns: int
    ) -> PageCounts:
        requested = [[str(path), len(blocks), first] for path, blocks, first in files]
        body = b"".join(blocks for _, blocks, _ in files)
        how = {"block_bytes": block_bytes, "budget_ns": budget_ns}
        return self._agent.request_each("page_cache", len(requested), body, files=requested, **how)

    def watch(self, spec: Mapping[str, Any]) -> LastingWatch:
        return LastingWatch(self._agent, self.clock, spec, self._ticks)

    def connects(self, engine: str, spec: Mapping[str, Any], same: Callable[[int], bool]) -> bool:
        load = RemoteLoad(self._agent, self.clock, engine, spec)
        try:
            load.connect()
            return load.wait(_CONNECT_S) and all(same(pid) for _, pid, _ in load.backends())
        except _core.DriverError:
            return False
        finally:
            load.abort()

    def revive(self) -> None:
        if self._agent.lost is None:
            return
        self._agent.close()
        self._agent = self._files.agent = self._opened(True)
        self._begin()

    def close(self) -> None:
        self._agent.close()

    def _ask(self, op: str, **arguments: Any) -> Any:
        return self._agent.request(op, **arguments).value


class LastingWatch(RemoteWatch):
    """A watch that reports the loss of its host instead of failing. What the agent had read is lost."""

    def __init__(self, agent: Agent, clock: HostClock, spec: Mapping[str, Any], ticks: int) -> None:
        """``ticks``: by how much their process start times are ahead of ours."""
        clock.measure()  # now, since start has to be quick
        super().__init__(agent, clock, spec)
        self.lost: str | None = None
        self._ticks = ticks

    @property
    def bound_ns(self) -> int:
        """Error bound of the times in its tables on our clock."""
        return self._clock.mapping().bound_ns

    def start(self, t0_ns: int, t1_ns: int) -> None:
        theirs = self._clock.to_theirs
        with self._noting_loss():
            self._ask("start", t0_ns=theirs(t0_ns), t1_ns=theirs(t1_ns))

    def stop(self) -> None:
        with self._noting_loss():
            super().stop()

    def latest(self) -> Mapping[str, float]:
        with self._noting_loss():
            return super().latest()
        return {}

    def trouble(self) -> str | None:
        with self._noting_loss():
            return super().trouble()
        return self.lost

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        with self._noting_loss():
            return super().source_status()
        return {}

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        with self._noting_loss():
            return super().tables()
        return {}

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        with self._noting_loss():
            return super().recent(since_ns)
        return {}

    def _ours(self, theirs: Tables) -> Tables:
        return self._with_ticks(super()._ours(theirs))

    def _noting_loss(self) -> _NotingLoss:
        return _NotingLoss(self)

    def _with_ticks(self, tables: Tables) -> Tables:
        import numpy as np

        for columns in tables.values():
            if "start_ticks" in columns:
                kind, payload, validity = columns["start_ticks"]
                theirs: Any = np.frombuffer(payload, dtype="<i8")
                columns["start_ticks"] = (kind, (theirs - self._ticks).tobytes(), validity)
        return tables


class _NotingLoss(suppress):
    def __init__(self, watch: LastingWatch) -> None:
        super().__init__(HostLost)
        self._watch = watch

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if isinstance(error, HostLost) and self._watch.lost is None:
            self._watch.lost = error.message
        return bool(super().__exit__(kind, error, trace))
