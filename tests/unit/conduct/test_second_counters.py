"""Counters by second: once a second in a window, less often if a read is slow or fails, and at its end."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
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


def _tables(server: Any, seconds: int, *, observe: bool = True) -> Mapping[str, pl.DataFrame]:
    plan: Any = SimpleNamespace(experiment=SimpleNamespace(observe=observe))
    companion = SecondCounters(server, plan, server)
    while server.at_ns < (10 + seconds) * S:
        companion.look(None, None, None)  # type: ignore[arg-type]
        server.at_ns += STEP_NS
    companion.window_over()
    return companion.after([made_cell({}, t1=(10 + seconds) * S)])[0].tables


def _measured(server: Any, seconds: int) -> pl.DataFrame:
    return _tables(server, seconds)["counter_series"]


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


def _source(server: Any, **chosen: bool) -> tuple[str, str]:
    ((name, _, status, detail),) = _tables(server, 8, **chosen)["sources"].rows()
    assert name == "counters by second"
    return status, detail


def test_the_sources_say_whether_there_are_any_and_why_not():
    """A version without them answers with no rows, once; its server is not asked again."""
    assert _source(_Server()) == ("ok", "")
    assert _source(_Server(failing=range(100)))[0] == "lost"
    off = _Server()
    assert _source(off, observe=False)[0] == "off" and not off.asked
    old: Any = _Server()
    answer, old.second_counters = old.second_counters, lambda: answer()[:0]
    status, detail = _source(old)
    assert status == "not supported" and "this version" in detail and old.asked == [0]


@pytest.mark.parametrize(("denied", "status"), [(9, "not permitted"), (4, "limited")])
def test_reads_that_the_role_may_not_make_are_told_from_lost_ones(denied: int, status: str):
    server: Any = _Server()
    answer = server.second_counters

    def hidden() -> list[dict[str, Any]]:
        seen = len(server.asked) >= denied
        return [r | ({} if seen else {"value": None, "status": "not permitted"}) for r in answer()]

    server.second_counters = hidden
    assert _source(server)[0] == status


def test_an_engine_without_the_capability_has_no_such_source():
    server = _Server()
    server.second_counting = None  # type: ignore[assignment]
    tables = _tables(server, 3)
    assert tables["sources"].is_empty() and tables["counter_series"].is_empty()


def test_the_first_read_is_before_the_sessions_connect():
    server: Any = _Server()
    plan: Any = SimpleNamespace(experiment=SimpleNamespace(observe=True))
    SecondCounters(server, plan, server).before(made_cell({}).meta.cell)
    assert server.asked == [0]
