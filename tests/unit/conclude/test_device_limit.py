"""Whether a device limits a load: devices of a known law under a simulated server with waits for I/O.

A device serves ``servers`` requests at once, ``SERVICE_S`` each; sessions ask it again after ``ELSEWHERE_S``
(the bounds of asymptotic analysis: Denning and Buzen, Computing Surveys 10 (1978) 225, section 6). Little's
law gives requests in flight and response times.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.fakery import Climb, climb

from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import rows

pytestmark = [pytest.mark.queries]

S = 1_000_000_000
SERVICE_S, ELSEWHERE_S, BYTES = 0.004, 0.001, 8192
WAITS = "fake:cpus=16,cpu=1ms,wait=IO/DataFileRead:9ms"
COMPUTES = "fake:cpus=16,cpu=9ms,wait=IO/DataFileRead:1ms"
LADDER = (1, 4, 16)


def figures(sessions: int, servers: int, seconds: float) -> dict[str, int]:
    """Counters of a device after ``seconds``."""
    rate = min(sessions / (SERVICE_S + ELSEWHERE_S), servers / SERVICE_S)
    in_flight = sessions - rate * ELSEWHERE_S
    number = round(rate * seconds)
    return {
        "reads": number,
        "read_bytes": number * BYTES,
        "read_ns": round(number * in_flight / rate * S),
        "weighted_ns": round(in_flight * seconds * S),
        "io_ns": round(seconds * S),  # busy all the time, whatever it could do beside
    }


@cache
def climbed_once(dsn: str, ladder: tuple[int, ...]) -> Climb:
    return climb(dsn, ladder, measure_ns=4 * S, hz=20.0)


def run(dsn: str, servers: int, ladder: tuple[int, ...] = LADDER, **changes: Any) -> dict[str, Claim]:
    """Claims of a ladder on a device of this law. ``changes``: counters of the device at the highest load."""
    climbed = climbed_once(dsn, ladder)
    cells = [with_device(c, servers, changes if c is climbed.cells[-1] else {}) for c in climbed.cells]
    return claims(replace(climbed, cells=cells))


def claims(climbed: Climb) -> dict[str, Claim]:
    return {f.id: f for f in derive(climbed.info, climbed.plan, climbed.environment, climbed.cells).findings}


def with_device(cell: Any, servers: int, changes: dict[str, Any]) -> Any:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    zero = dict.fromkeys(("reads", "read_bytes", "read_ns", "writes", "written_bytes", "write_ns"), 0)
    zero |= dict.fromkeys(("weighted_ns", "io_ns", "in_flight"), 0)
    last = zero | figures(cell.meta.cell.sessions, servers, (t1 - t0) / S) | changes
    reads = [
        {"before_ns": at, "after_ns": at, "device": "sda", "status": "ok"} | counters
        for at, counters in ((t0, zero), (t1, last))
    ]
    place = {"before_ns": t0, "after_ns": t0, "place": "data", "path": "/d", "device": "sda", "status": "ok"}
    tables = {"devices": rows("devices", reads), "places": rows("places", [place])}
    return replace(cell, tables={**cell.tables, **tables})


def test_a_device_that_serves_one_request_at_a_time_limits() -> None:
    """At 1 session 4 ms; at 16 it serves 250 a second, and all others queue: (16 - 0.25) / 250 = 63 ms."""
    limit = run(WAITS, servers=1)["device-limit"]
    assert (
        limit.slots["device"] == "sda" and limit.slots["places"] == "data" and limit.slots["kind"] == "reads"
    )
    assert limit.slots["await"] == pytest.approx(63e6, rel=0.01)
    assert limit.slots["before"] == pytest.approx(4e6, rel=0.01)
    assert limit.slots["queue"] == pytest.approx(15.75, rel=0.01)
    assert limit.slots["requests"] == pytest.approx(250, rel=0.01)


@pytest.mark.parametrize(
    ("why", "dsn", "servers", "changes"),
    [
        ("it serves 64 at once, though it is busy all the time", WAITS, 64, {}),
        ("sessions do not wait for it", COMPUTES, 1, {}),
        ("it delivers more bytes than before", WAITS, 1, {"read_bytes": 1_000 * 65_536}),
        ("it delivers more requests than before", WAITS, 1, {"writes": 4_000}),
        ("no request queues", WAITS, 1, {"weighted_ns": 2 * S}),
        ("a counter went back", WAITS, 1, {"reads": -1}),
    ],
)
def test_no_device_is_blamed_without_cause(why: str, dsn: str, servers: int, changes: dict[str, Any]) -> None:
    assert "device-limit" not in run(dsn, servers, **changes), why


def test_few_requests_prove_nothing() -> None:
    few = {"reads": 50, "read_bytes": 50 * BYTES, "read_ns": 50 * S}
    assert "device-limit" not in run(WAITS, 1, **few)


def test_from_one_load_nothing_follows() -> None:
    assert "device-limit" not in run(WAITS, 1, ladder=(16,))
