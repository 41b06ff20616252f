"""Session numbers that hold over all windows of an observation.

A watch numbers the sessions that it meets, by pid and start time. Two watches overlap for a moment, and
both may meet the same newcomers in another order; here each session gets one number for good.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

WITH_SESSIONS = ("samples", "tasks", "traced", "waits", "syscalls")
_Key = tuple[int, int | None]  # pid; start time, where the tasks can be read


class Numbers:
    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}

    @property
    def met(self) -> int:
        """How many sessions there have been."""
        return len(self._numbers)

    def alive(self, recent: Mapping[str, pl.DataFrame]) -> dict[int, int]:
        """Session number by pid, of those in the latest sample: what the next watch is told."""
        numbered = {key[0]: self._number(key) for key in _sessions(recent).values()}
        now = _latest_pids(recent["samples"])
        return {pid: number for pid, number in numbered.items() if pid in now}

    def of(self, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """``tables`` of a watch with these numbers in place of its own."""
        final = {theirs: self._number(key) for theirs, key in _sessions(tables).items()}
        return {
            name: _renumbered(frame, final) if name in WITH_SESSIONS else frame
            for name, frame in tables.items()
        }

    def _number(self, key: _Key) -> int:
        """A session whose start time was not known before is the same once it is."""
        if key[1] is not None and key not in self._numbers and (key[0], None) in self._numbers:
            self._numbers[key] = self._numbers.pop((key[0], None))
        return self._numbers.setdefault(key, len(self._numbers))


def _latest_pids(samples: pl.DataFrame) -> set[int]:
    asked = samples.filter(pl.col("via").fill_null("sql") == "sql")
    return set(asked.filter(pl.col("sample") == pl.col("sample").max())["pid"])


def _sessions(tables: Mapping[str, pl.DataFrame]) -> dict[int, _Key]:
    """The watch's own number -> who that is, in the order of the numbers."""
    seen = pl.concat(
        [tables[t].select("session", "pid", "start_ticks") for t in WITH_SESSIONS if t in tables]
    ).drop_nulls("session")
    first = seen.group_by("session").agg(pl.col("pid").first(), pl.col("start_ticks").drop_nulls().first())
    return {int(n): (int(pid), ticks) for n, pid, ticks in first.sort("session").iter_rows()}


def _renumbered(frame: pl.DataFrame, final: Mapping[int, int]) -> pl.DataFrame:
    if all(theirs == ours for theirs, ours in final.items()):
        return frame
    return frame.with_columns(
        pl.col("session").replace_strict(dict(final), default=None, return_dtype=pl.Int64)
    )
