"""A load that several drivers share: its parts, and their tables as those of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdyno import drive, remote
from dbdyno.model.errors import HostLost, UsageError
from dbdyno.model.schema.data_sources.drivers import with_host
from dbdyno.model.schema.tables import CoreColumn, from_core, rows, to_core
from dbdyno.remote import merging
from dbdyno.remote.instants import ours
from dbdyno.remote.shares import Part, apportioned, parts, sessions_of, share_of
from dbdyno.stats.clocks import Mapping as ClockMapping
from dbdyno.stats.clocks import Offset

WEIGHTS = st.lists(st.floats(0.1, 10), min_size=1, max_size=8)


@given(st.integers(0, 10_000), WEIGHTS)
def test_parts_are_all_of_it_and_each_is_near_its_weight(count: int, weights: list[float]) -> None:
    parts = apportioned(count, weights)
    assert sum(parts) == count
    assert all(abs(n - count * w / sum(weights)) < 1 for n, w in zip(parts, weights, strict=True))


ENTRY = {"setup": [], "call": [], "protocol": "prepared"}
PAIR = [Part(0, 3, 5), Part(3, 2, 5)]


def test_limits_of_the_load_are_divided_and_those_of_a_session_are_not() -> None:
    spec = {
        "sessions": [ENTRY | {"count": 2, "n": 0}, ENTRY | {"count": 3, "n": 1}],
        "threads": 4,
        "shared_calls": 101,
        "max_calls": 7,
        "log_calls": True,
        "seed": 9,
        "arrivals": {"kind": "poisson", "rate": [[1, 10, 10]], "seed": 1},
        "scripts": {"files": [], "seed": 3},
        "target": {"host": "db"},
    }
    first, last = (share_of(spec, part, PAIR) for part in PAIR)
    assert sessions_of(first) == 3 and sessions_of(last) == 2
    assert [(e["n"], e["count"]) for e in first["sessions"]] == [(0, 2), (1, 1)]
    assert [(e["n"], e["count"]) for e in last["sessions"]] == [(1, 2)]
    for key in ("threads", "shared_calls"):
        assert first[key] + last[key] == spec[key]
    assert first["log_limit"] + last["log_limit"] == 1_000_000
    assert (first["max_calls"], first["seed"], last["target"]) == (7, 9, {"host": "db"})
    assert (first["first_session"], last["first_session"]) == (0, 3)
    assert last["arrivals"]["part"] == {"first": 3, "end": 5, "of": 5}
    assert last["scripts"]["first_client"] == 3
    assert share_of({"sessions": 5}, PAIR[1], PAIR)["sessions"] == 2
    with pytest.raises(UsageError, match="rounds"):
        share_of({"sessions": 5, "rounds": True}, PAIR[0], PAIR)


def test_no_part_is_made_for_too_small_a_weight() -> None:
    assert [p.sessions for p in parts(2, [1, 1, 1])] == [1, 1, 0]


# -- tables -------------------------------------------------------------------------------------------------

BUCKETS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10**6)), max_size=20)


def histogram(buckets: list[tuple[int, int]]) -> dict[str, CoreColumn]:
    records = [{"low_ns": 10 * n, "high_ns": 10 * n + 9, "count": c} for n, c in buckets]
    return to_core("histogram", records)


@given(st.lists(BUCKETS, min_size=1, max_size=4))
def test_histograms_keep_each_call(all_: list[list[tuple[int, int]]]) -> None:
    merged = merging.merge((0, {"histogram": histogram(b)}) for b in all_)
    frame = from_core("histogram", merged["histogram"])
    whole = [entry for b in all_ for entry in b]
    counts = {10 * n: sum(c for m, c in whole if m == n) for n, _ in whole}
    assert dict(zip(frame["low_ns"], frame["count"], strict=True)) == counts


def test_tables_of_few_rows_are_those_of_one_driver() -> None:
    def tables(scale: int, code: str) -> Mapping[str, Mapping[str, CoreColumn]]:
        pace = dict.fromkeys((c.name for c in _columns("pace")), 10 * scale)
        commands = {"script": 0, "command": 0, "line": 1, "text": "x", "executions": scale, "failures": 0}
        commands |= {"retries": 0, "total_ns": 5 * scale, "sum_sq_ns2": 1.0, "min_ns": scale, "max_ns": scale}
        error = {"script": 0, "sqlstate": code, "count": scale, "message": f"first {scale}"}
        return {
            "pace": to_core("pace", [pace | {"over_limit": None}]),
            "script_commands": to_core("script_commands", [commands]),
            "script_errors": to_core("script_errors", [error]),
            "errors": to_core("errors", [{"session": 1, "sqlstate": code, "count": 1, "message": "m"}]),
        }

    merged = merging.merge([(0, tables(1, "40001")), (4, tables(2, "40001")), (6, tables(4, "57014"))])
    frames = {name: from_core(name, t) for name, t in merged.items()}
    (pace,) = frames["pace"].to_dicts()
    assert (pace["arrivals"], pace["lag_max_ns"], pace["idle_ns"], pace["over_limit"]) == (70, 40, 10, None)
    (command,) = frames["script_commands"].to_dicts()
    assert (command["executions"], command["total_ns"]) == (7, 35)
    assert (command["min_ns"], command["max_ns"], command["sum_sq_ns2"]) == (1, 4, 3.0)
    assert frames["script_errors"]["count"].to_list() == [3, 4]
    assert frames["script_errors"]["message"].to_list() == ["first 1", "first 4"]
    assert frames["errors"]["session"].to_list() == [1, 5, 7]


def _columns(table: str) -> Any:
    from dbdyno.model.schema.tables import RAW

    return RAW[table]


@given(st.integers(-(10**15), 10**15), st.floats(-5e-4, 5e-4), st.lists(st.integers(0, 10**14), min_size=1))
def test_instants_are_mapped_and_durations_are_not(ns: int, drift: float, times: list[int]) -> None:
    first = Offset(10**13, ns, 10)
    mapping = ClockMapping(first, Offset(2 * 10**13, ns + round(drift * 10**13), 10))
    records = [{"at_ns": t, "calls": t, "errors": 0, "live": 1, "in_call_ns": t} for t in times]
    progress = from_core("progress", ours({"progress": to_core("progress", records)}, mapping)["progress"])
    assert progress["in_call_ns"].to_list() == times
    near = [abs(a - mapping.to_ours(t)) <= 1 for a, t in zip(progress["at_ns"], times, strict=True)]
    assert all(near)
    assert all(abs(mapping.to_theirs(mapping.to_ours(t)) - t) <= 2 for t in times)


def test_a_session_is_joined_to_its_host() -> None:
    def row(host: str, first: int, sessions: int) -> dict[str, Any]:
        return {"host": host, "first_session": first, "sessions": sessions, "status": "ok"}

    drivers = rows("drivers", [row("a", 0, 2), row("b", 2, 3)])
    sessions = pl.DataFrame({"session": [4, None, 0, 2, 1]}, schema={"session": pl.Int64})
    assert with_host(sessions, drivers)["host"].to_list() == ["b", None, "a", "b", "a"]
    assert with_host(sessions, drivers.clear())["host"].to_list() == [None] * 5


# -- phases, on loads that obey ------------------------------------------------------------------------------


class ObedientLoad:
    """A load that ends its phases on order, or fails in them."""

    def __init__(self, _engine: str, spec: Mapping[str, Any]) -> None:
        self.spec, self.over, self.failure = spec, True, None
        self.orders: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def note(*_: int) -> None:
            self.orders.append(name)

        if name in ("connect", "start", "finish", "stop", "abort"):
            return note
        raise AttributeError(name)

    def wait(self, _timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.over

    def threads(self) -> list[int]:
        return []

    def progress(self) -> tuple[int, ...]:
        return 10, 1, self.spec["sessions"], 100, 2, 7

    def live_durations(self) -> list[tuple[int, int]]:
        return [(5, 1), (self.spec["sessions"], 2)]

    def backends(self) -> list[tuple[int, int, int]]:
        return [(0, 100, 100)]

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return {"histogram": histogram([(1, self.spec["sessions"])])}


def spread(count: int = 5) -> tuple[remote.SpreadLoad, list[ObedientLoad]]:
    loads: list[ObedientLoad] = []

    def make(engine: str, spec: Mapping[str, Any]) -> Any:
        loads.append(ObedientLoad(engine, spec))
        return loads[-1]

    drivers = [remote.Driver("a", make, 3), remote.Driver("b", make, 2)]
    return remote.SpreadLoad(drivers, "fake", {"sessions": count}), loads


def test_figures_of_all_drivers_are_those_of_one_load() -> None:
    load, parts = spread()
    load.connect()
    assert load.wait(1)
    assert load.lead_ns == 0  # both are here
    parts[1].over = False
    load.start(1, 2, 3)
    assert not load.wait(0.1)
    assert load.progress() == (20, 2, 5, 200, 4, 7)
    assert load.live_durations() == [(2, 2), (3, 2), (5, 2)]
    assert load.backends() == [(0, 100, 100), (3, 100, 100)]
    parts[1].over = True
    assert load.wait(1)
    load.finish()
    assert load.wait(1)
    frames = {name: from_core(name, table) for name, table in load.tables().items()}
    assert frames["histogram"]["count"].to_list() == [5]
    assert frames["drivers"].select("host", "first_session", "sessions", "status", "barrier_ns").rows() == [
        ("a", 0, 3, "ok", 1),
        ("b", 3, 2, "ok", 1),
    ]


def test_drivers_of_other_hosts_are_asked_less_often() -> None:
    load, _ = spread()
    every_time = drive.asking(load)
    assert all(map(every_time, (0, 1, 2)))  # both are here
    far = remote.Driver("far", lambda engine, spec: ObedientLoad(engine, spec), clock=object())  # type: ignore[arg-type]
    due = drive.asking(remote.SpreadLoad([far], "fake", {"sessions": 1}))
    asked = [ms for ms in range(0, 2000, 100) if due(ms * 1_000_000)]
    assert asked == [0, 300, 600, 900, 1200, 1500, 1800]


def test_a_lost_driver_fails_the_phase_with_its_name_and_the_others_go_on() -> None:
    load, (first, last) = spread()
    load.connect()
    assert load.wait(1)
    load.start(1, 2, 3)
    first.over, last.failure = False, HostLost("b", "it was killed")  # type: ignore[assignment]
    assert not load.wait(0.1)  # the other one is stopped, and has not ended yet
    assert first.orders == ["connect", "start", "stop"]
    first.over = True
    with pytest.raises(HostLost, match="b is lost: it was killed"):
        load.wait(1)
    load.finish()
    assert load.wait(1)
    frames = {name: from_core(name, table) for name, table in load.tables().items()}
    assert frames["histogram"]["count"].to_list() == [3]
    assert frames["drivers"]["status"].to_list() == ["ok", "lost"]
    assert frames["drivers"]["detail"].to_list() == [None, "it was killed"]


def test_a_driver_that_cannot_connect_breaks_off_the_others() -> None:
    load, (first, last) = spread()
    load.connect()
    from dbdyno._core import DriverError

    last.failure = DriverError("unreachable", "no route", None, 1)  # type: ignore[assignment]
    with pytest.raises(DriverError) as raised:
        load.wait(1)
    assert raised.value.args == ("unreachable", "no route", None, 4)
    assert first.orders == ["connect", "abort"]
