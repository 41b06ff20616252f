"""Reads a few counters of the server about once a second in a window, over the control connection.

The ends of windows are read by others, and at their own time: a read here is over before, or given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.conduct.companion import Companion, OpenWatch
from dbdyno.model.engine.protocols import Clock, Load, Server, Watch
from dbdyno.model.errors import Abandoned, TargetError
from dbdyno.model.plan.plan import Cell, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.source import Source
from dbdyno.model.units import NS_PER_S

TABLE, NAME = "counter_series", "counters by second"
EVERY_NS = NS_PER_S
_SHARE = 5
"""A read takes at most a fifth of the time: a slow one, of a far or busy server, is followed by a longer
pause."""
_FAILED_NS, _LONGEST_NS = 5 * NS_PER_S, 60 * NS_PER_S
_AROUND_NS = 2 * NS_PER_S
"""Reads this long before and after a window are of it, too."""


class SecondCounters(Companion):
    """Stores the raw table ``counter_series``, and in ``sources`` whether there are any. Off with
    ``--no-observe``, and where the engine reads none."""

    def __init__(self, server: Server, plan: Plan, clock: Clock) -> None:
        self._can, self._lacking = server.second_counting is not None, False
        self._counting = server.second_counting if plan.experiment.observe else None
        self._clock = clock
        self._reads: list[Mapping[str, Any]] = []
        self._due_ns, self._pause_ns = 0, _FAILED_NS

    def before(self, cell: Cell) -> None:  # noqa: ARG002
        """Reads once, so that what a first statement reads of the server's catalogue is not in a window."""
        if self._counting is not None:
            self._read()

    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None) -> None:  # noqa: ARG002
        if self._counting is not None and self._clock.now_ns() >= self._due_ns:
            self._read()

    def window_over(self) -> None:
        if self._counting is not None and self._reads:
            self._read()

    def _read(self) -> None:
        assert self._counting is not None
        begun_ns = self._clock.now_ns()
        answer = None
        with suppress(TargetError, Abandoned):  # whoever needs the server will notice
            answer = self._counting.second_counters()
        took_ns = self._clock.now_ns() - begun_ns
        if answer is None:
            self._due_ns = begun_ns + took_ns + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, _LONGEST_NS)
            return
        self._reads += answer
        self._due_ns, self._pause_ns = begun_ns + max(EVERY_NS, _SHARE * took_ns), _FAILED_NS
        if not answer:  # this version has none
            self._counting, self._lacking = None, True

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        """Adds the reads in and around each window. Those of a window in progress remain."""
        if not self._can:
            return raws
        answers = self._counting is not None and self._pause_ns == _FAILED_NS
        if self._reads and answers and self._reads[-1]["after_ns"] < raws[-1].meta.t1_ns:  # of an observation
            self._read()
        reads = rows(TABLE, self._reads)
        self._reads = [r for r in self._reads if r["after_ns"] >= raws[-1].meta.t1_ns - _AROUND_NS]
        return [self._with(_around(reads, r), r) for r in raws]

    def _with(self, reads: pl.DataFrame, raw: RawCell) -> RawCell:
        line = rows("sources", [self._source(reads["status"]).model_dump()])
        return replace(
            raw, tables={**raw.tables, TABLE: reads, "sources": pl.concat([raw.tables["sources"], line])}
        )

    def _source(self, statuses: pl.Series) -> Source:
        failed = statuses.filter(statuses != "ok")
        status, detail = "ok", ""
        if self._lacking:
            status, detail = "not supported", "this version of the server has none that can be read so often"
        elif self._counting is None:
            status, detail = "off", "switched off with --no-observe"
        elif statuses.is_empty():
            status, detail = "lost", "the server did not answer, or too late"
        elif len(failed) == len(statuses):
            status, detail = failed[0], "the role may not read them, or the statement failed"
        elif len(failed):
            status, detail = "limited", f"{len(failed)} of {len(statuses)} figures could not be read"
        if detail:
            detail += " (dbdyno help tails)"
        provenance = "a few counters of the server, read about once a second in the window"
        return Source.model_validate(
            {"name": NAME, "provenance": provenance, "status": status, "detail": detail}
        )


def _around(reads: pl.DataFrame, raw: RawCell) -> pl.DataFrame:
    first_ns, last_ns = raw.meta.t0_ns - _AROUND_NS, raw.meta.t1_ns + _AROUND_NS
    return reads.filter((pl.col("after_ns") >= first_ns) & (pl.col("before_ns") <= last_ns))
