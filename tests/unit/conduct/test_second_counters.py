"""Counters by second: once a second in a window, less often if a read is slow or fails, and at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
from tests.fakery import S, made_cell

from dbdyno.conduct.measure.second_counters import SecondCounters
from dbdyno.model.errors import ServerLost

STEP_NS = S // 10


class _Server:
    """Takes ``took_ns`` to answer by its own clock; fails in the seconds ``failing``."""

    def __init__(self, took_ns: int = 0, failing: range = range(0)) -> None:
        self.at_ns, self._took_ns, self._failing = 10 * S, took_ns, failing
        self.asked: list[float] = []
        self.second_counting = self

    def now_ns(self) -> int:
        return self.at_ns

    def second_counters(self) -> list[dict[str, Any]]:
        before_ns = self.at_ns
        self.asked.append((before_ns - 10 * S) / S)
        self.at_ns += self._took_ns
        if int(self.asked[-1]) in self._failing:
            raise ServerLost("away", "")
        head = {"before_ns": before_ns, "after_ns": self.at_ns, "status": "ok"}
        return [head | {"name": "wal_position", "value": 1.0}]


def _measured(server: Any, seconds: int, *, observe: bool = True) -> pl.DataFrame:
    plan: Any = SimpleNamespace(experiment=SimpleNamespace(observe=observe))
    companion = SecondCounters(server, plan, server)
    while server.at_ns < (10 + seconds) * S:
        companion.look(None, None, None)  # type: ignore[arg-type]
        server.at_ns += STEP_NS
    companion.window_over()
    return companion.after([made_cell({}, t1=(10 + seconds) * S)])[0].tables["counter_series"]


def test_it_is_read_once_a_second_and_at_the_end():
    server = _Server()
    assert _measured(server, 5).height == 6
    assert server.asked == [0, 1, 2, 3, 4, 5]


def test_a_slow_read_is_followed_by_a_longer_pause():
    """A read of 0.8 s is made every 4 s: it takes a fifth of the time."""
    server = _Server(took_ns=4 * S // 5)
    _measured(server, 12)
    gaps = [b - a for a, b in zip(server.asked, server.asked[1:-1], strict=False)]
    assert gaps and min(gaps) >= 4


def test_a_server_that_is_away_is_asked_rarely_and_delays_nothing():
    server = _Server(failing=range(3, 100))
    assert _measured(server, 60).height == 3
    assert len(server.asked) <= 3 + 5


def test_without_observers_or_the_capability_nothing_is_read():
    server = _Server()
    assert _measured(server, 3, observe=False).is_empty() and not server.asked
    server.second_counting = None  # type: ignore[assignment]
    assert _measured(server, 3).is_empty()


def test_the_first_read_is_before_the_sessions_connect():
    server: Any = _Server()
    plan: Any = SimpleNamespace(experiment=SimpleNamespace(observe=True))
    SecondCounters(server, plan, server).before(made_cell({}).meta.cell)
    assert server.asked == [0]
