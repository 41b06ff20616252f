"""Follows an observation by its derived parts."""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.conduct.live.following import Following, News, plain
from dbdyno.model.errors import StoreError
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import WaitFamilies
from dbdyno.model.text.visible import with_stop
from dbdyno.model.units import NS_PER_S, counted, format_given, in_minutes, whole_second
from dbdyno.plan import duration_of, window_of
from dbdyno.present.document.document import Document, KeyFigure, Paragraph, Section
from dbdyno.present.observation import live as observed
from dbdyno.store import Run

MOST_WINDOWS = 20_000
"""Windows that are kept for the chart: 55 hours of 10 s."""
_WATCH_S = 10.0
_TRIES = 3
"""Looks after which a part that cannot be read is left out: it may be replaced meanwhile."""


class ObservationFollowing(Following):
    kind = "observation"

    def __init__(self, record: Run) -> None:
        super().__init__(record)
        observation = self.plan.experiment.observation
        assert observation is not None
        self._window_ns, self._duration_ns = window_of(observation), duration_of(observation)
        self._inodes: dict[str, int] = {}  # part -> inode of its directory, which a merge changes
        self._failed: dict[tuple[str, int], int] = {}
        self._looked = False
        self._again = False  # whether a part is to be read again
        self._done: set[str] = set()  # cells
        self._every: list[observed.Moment] = []
        self._keys: set[str] = set()  # segments of the stack
        self._texts = empty("statement_texts")
        self._families = WaitFamilies()
        self._cpus: float | None = None
        self._newest: tuple[list[KeyFigure], list[Section]] = (observed.empty_figures(), [])
        self._watched_s, self._stored = -_WATCH_S, 0

    def look(self) -> list[News]:
        if time.monotonic() - self._watched_s >= _WATCH_S:
            self._watched_s = time.monotonic()
            self.record.watch()
        news: list[News] = []
        if self._changed(self.record.parts.path) or self._again:
            self._again = False
            if new := self._new_parts():
                news = self._read_all(new)
        if self._changed(self.record.path / "cells"):
            self._stored = _entries(self.record.path / "cells")
            if not news:
                news.append(News("now", {}))
        if not self._looked:  # all that there is so far is no news
            self._looked, news = True, [item for item in news if item.kind == "note"]
        named = {"headline": self.headline()} if news else {}
        return [i if i.kind == "note" else replace(i, data={**i.data, **named}) for i in news]

    def _new_parts(self) -> list[str]:
        """Returns the parts that are new or were replaced, in the order of time."""
        before, self._inodes = self._inodes, self.record.parts.inodes()
        return [name for name, inode in self._inodes.items() if before.get(name) != inode]

    @on_polars_thread
    def _read_all(self, names: Sequence[str]) -> list[News]:
        return [item for name in names for item in self._read(name, newest=name == names[-1])]

    def _read(self, name: str, *, newest: bool) -> Iterator[News]:
        try:
            tables = self.record.parts.read_one(name, observed.TABLES if newest else observed.STACKED)
            yield from self._taken(tables, newest=newest)
        except (StoreError, pl.exceptions.PolarsError) as error:
            yield from self._unreadable(name, str(getattr(error, "message", error)))

    def _unreadable(self, name: str, why: str) -> Iterator[News]:
        """Reads the part again at the next look, a few times: it may be replaced just now."""
        key = name, self._inodes.pop(name, 0)
        self._failed[key] = self._failed.get(key, 0) + 1
        self._again = self._failed[key] < _TRIES
        if not self._again:
            self._inodes[name] = key[1]
            yield News("note", {"text": f"A part of what was measured is left out: {with_stop(why)}"})

    def _taken(self, tables: dict[str, pl.DataFrame], *, newest: bool) -> Iterator[News]:
        if "cell_sources" in tables:
            columns = ("name", "provenance", "status", "detail")
            tables["sources"] = tables["cell_sources"].select(columns).unique(maintain_order=True)
        self._texts = tables["statement_texts"] = observed.texts(self._texts, tables["statement_texts"])
        results = self.results(tables)
        cells = results.tables["windows"].sort("t0_ns")["cell"].to_list()
        new = [c for c in cells if c not in self._done]
        if not new:
            return
        self._done.update(new)
        only = pl.col("cell").is_in(new)
        few = {
            t: tables[t].filter(only) if "cell" in tables[t].columns else tables[t] for t in observed.STACKED
        }
        moments = observed.moments(self.results(few))
        self._families = observed.families_in(results)
        self._cpus = observed.cpus_of(results)
        for one in moments:
            bisect.insort(self._every, one, key=lambda m: m.start_s)
        del self._every[:-MOST_WINDOWS]
        if newest:
            self._newest = (
                observed.figures_of(results, new[-1]),
                observed.blocks(results, new[-1]),
            )
        self._keys |= {key for one in moments for key in one.values}
        segments = observed.named(self._keys, self._families)
        for n, one in enumerate(moments):
            data: dict[str, Any] = {"window": one._asdict(), "segments": segments}
            if newest and n == len(moments) - 1:
                data["shown"] = plain(*self._newest)
            yield News("window", data)

    def chart(self, last_s: float | None) -> dict[str, Any]:
        every = self._every
        if last_s is not None and every:
            since_s = every[-1].end_s - last_s
            every = every[bisect.bisect_left(every, since_s, key=lambda m: m.start_s) :]
        return observed.chart(every, self._families, self._cpus)

    def headline(self) -> str:
        each = f"{format_given(self._window_ns / NS_PER_S)} s"
        if not self._every:
            return f"Windows of {each}; the first one is not worked out yet. {self._goes_on()}"
        waiting = self._stored - len(self._done)
        late = f", {counted(waiting, 'later one')} to be worked out" if waiting > 0 else ""
        ended = time.strftime("%H:%M:%S", time.localtime(whole_second(self._every[-1].end_s)))
        return f"Windows of {each}; the latest ended {ended}{late}. {self._goes_on()}"

    def _goes_on(self) -> str:
        if self.record.info.status != "running":
            return self.ENDED
        if self._duration_ns is None:
            return "It goes on until it is stopped."
        left_s = self.record.info.started.timestamp() + self._duration_ns / NS_PER_S - time.time()
        return f"About {in_minutes(max(0.0, left_s) * NS_PER_S)} left."

    def shown(self) -> Document:
        figures, blocks = self._newest
        note = "Windows appear here once they are worked out; those of a short observation at its end."
        return Document(
            f"Live: observation{self.place().replace(' on ', ' of ', 1)}",
            blocks or [Paragraph(note, "muted")],
            figures=figures,
        )


def _entries(directory: Path) -> int:
    try:
        return sum(not name.startswith(".") for name in os.listdir(directory))  # noqa: PTH208  no stat each
    except OSError:
        return 0
