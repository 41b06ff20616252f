"""A watch on another host, with all times on our clock."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from dbdyno.model.schema.tables import CoreColumn
from dbdyno.remote.agent import Agent, spec_of
from dbdyno.remote.clocks import HostClock
from dbdyno.remote.instants import ours
from dbdyno.remote.merging import joined
from dbdyno.remote.wire import Tables


class RemoteWatch:
    """``dbdyno.model.engine.protocols.Watch`` of an agent; ``spec``: as for ``_core.Watch``.

    Times in ``spec`` (``until_ns``) and of :meth:`start` and :meth:`recent` are on our clock.
    """

    def __init__(self, agent: Agent, clock: HostClock, spec: Mapping[str, Any] | str) -> None:
        self._agent, self._clock = agent, clock
        mapped = dict(spec_of(spec))
        for part in ("profile", "off_cpu"):
            if mapped.get(part) and mapped[part].get("until_ns") is not None:
                mapped[part] = {**mapped[part], "until_ns": clock.to_theirs(mapped[part]["until_ns"])}
        self._of = agent.request("watch.new", spec=mapped).value
        weakref.finalize(self, agent.forget, self._of)

    def start(self, t0_ns: int, t1_ns: int) -> None:
        self._clock.measure()
        theirs = self._clock.to_theirs
        self._ask("start", t0_ns=theirs(t0_ns), t1_ns=theirs(t1_ns))

    def stop(self) -> None:
        self._ask("stop")
        self._clock.measure()

    def latest(self) -> Mapping[str, float]:
        figures: Mapping[str, float] = self._ask("latest")
        return figures

    def trouble(self) -> str | None:
        reason: str | None = self._ask("trouble")
        return reason

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        statuses: Mapping[str, tuple[str, str]] = self._ask("source_status")
        return statuses

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        """Joins the parts in which the tables lie on that host's disk."""
        parts = self._agent.request_parts("watch.tables", of=self._of)
        return joined([self._ours(part) for part in parts])

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        """Returns rows that are not on the disk yet: those of the last 10 s."""
        theirs_ns = self._clock.to_theirs(since_ns)
        return self._ours(self._agent.request_tables("watch.recent", of=self._of, since_ns=theirs_ns))

    def _ours(self, theirs: Tables) -> Tables:
        return ours(theirs, self._clock.mapping())

    def _ask(self, op: str, **arguments: Any) -> Any:
        return self._agent.request(f"watch.{op}", of=self._of, **arguments).value
