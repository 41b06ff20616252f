"""A load on another host, with all times on our clock."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbdyno import _core
from dbdyno.kernel.processes import boot_id
from dbdyno.model.engine.protocols import Progress
from dbdyno.model.errors import HostLost
from dbdyno.model.schema.tables import CoreColumn
from dbdyno.remote.agent import Agent, Answer, spec_of
from dbdyno.remote.clocks import HostClock
from dbdyno.remote.instants import ours


class RemoteLoad:
    """``dbdyno.model.engine.protocols.Load`` of an agent; ``spec``: as for ``_core.Load``.

    The end of a phase is requested once, and the agent answers when it comes, so that waiting costs no
    messages. Once the agent is gone, all methods raise :class:`HostLost`, except :meth:`stop` and
    :meth:`abort`, which then do nothing.
    """

    def __init__(self, agent: Agent, clock: HostClock, engine: str, spec: Mapping[str, Any] | str) -> None:
        self.agent, self.clock = agent, clock
        self._of = agent.request("load.new", engine=engine, spec=spec_of(spec)).value
        weakref.finalize(self, agent.forget, self._of)
        self._phase: Future[Answer] | None = None
        self._tids: Sequence[int] = ()

    # -- phases ---------------------------------------------------------------------------------
    def connect(self) -> None:
        self._begin("connect")

    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None:
        theirs = self.clock.to_theirs
        self._begin("start", start_ns=theirs(start_ns), t0_ns=theirs(t0_ns), t1_ns=theirs(t1_ns))

    def finish(self) -> None:
        self._begin("finish")

    def _begin(self, op: str, **arguments: Any) -> None:
        self._ask(op, **arguments)
        self._phase = self.agent.ask("load.wait", of=self._of, timeout_s=1e9)

    def wait(self, timeout_s: float) -> bool:
        if self._phase is None:
            return True
        try:
            return bool(self._phase.result(timeout_s).value)
        except NotYet:
            return False

    def stop(self) -> None:
        self._end("stop")

    def abort(self) -> None:
        self._end("abort")

    def _end(self, op: str) -> None:
        with suppress(HostLost):
            self._ask(op)

    # -- figures --------------------------------------------------------------------------------
    def progress(self) -> Progress:
        return Progress(*self._ask("progress"))

    def live_durations(self) -> Sequence[tuple[int, int]]:
        durations: Sequence[tuple[int, int]] = self._ask("live_durations")
        return durations

    def backends(self) -> Sequence[tuple[int, int, int]]:
        backends: Sequence[tuple[int, int, int]] = self._ask("backends")
        return backends

    def threads(self) -> Sequence[int]:
        """Returns the load's threads on this host: none. See :meth:`threads_there`."""
        return ()

    def threads_there(self) -> Sequence[int]:
        """Returns the driver's threads on its host, which stay the same from connecting to the end."""
        self._tids = self._tids or self._ask("threads")
        return self._tids

    def tasks_here(self) -> Sequence[tuple[int, int]]:
        """Returns (pid, tid) of the driver's threads if they run on this host and are visible."""
        pid = self.agent.hello.pid
        if self.agent.hello.boot_id != boot_id() or not _is_agent(pid):
            return ()
        return [(pid, tid) for tid in self.threads_there()]

    def read_threads(self) -> Sequence[Mapping[str, Any]]:
        """Reads each thread once, as ``_core.read_task`` does."""
        tasks = [[self.agent.hello.pid, tid] for tid in self.threads_there()]
        return self.agent.request_each("read_task", len(tasks), tasks=tasks)

    def now_ns(self) -> int:
        return _core.now_ns()

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._tables("tables")

    def window_tables(self, window: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._tables("window_tables", window=window)

    def _tables(self, op: str, **arguments: Any) -> dict[str, dict[str, CoreColumn]]:
        theirs = self.agent.request_tables(f"load.{op}", of=self._of, **arguments)
        return ours(theirs, self.clock.mapping())

    def _ask(self, op: str, **arguments: Any) -> Any:
        return self.agent.request(f"load.{op}", of=self._of, **arguments).value


def _is_agent(pid: int) -> bool:
    """Returns whether the process with this number is an agent. In a container the number may mean another
    process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "dbdyno-agent\n"
    return False
