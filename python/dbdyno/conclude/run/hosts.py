"""Checks hosts that drive a load together: one without free CPUs, one farther away, one slower for another
reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row
from dbdyno.model.results import session_time
from dbdyno.model.results.claim import Claim
from dbdyno.model.units import NS_PER_S

FARTHER = 0.2
"""Relative excess of the shortest call over that of the nearest host from which on a host is farther away."""
FARTHER_NS = 100_000
"""Excess below which the difference is within the noise of one call."""
SLOWER = 0.1
"""Share by which a host's sessions are slower than those of the others; repeats seldom agree more closely."""
LEAST_CALLS = 100
"""Calls per host that a comparison of rates and of the shortest call needs."""


@check("host-starved")
def starved(case: Case) -> Iterator[Claim]:
    """Yields a driver that waits for its own host's CPUs, and so measures that host."""
    candidates = [
        (
            {
                "host": h["host"],
                "starved": h["driver_starved"],
                "used": h["driver_cpus"],
                "cpus": h["host_cpus"],
            },
            c,
        )
        for c, hosts in _by_cell(case)
        for h in hosts
        if (h["driver_starved"] or 0.0) > session_time.STARVED and _busy(h)
    ]
    yield from case.worst("host-starved", candidates, "starved")


@check("host-network")
def network(case: Case) -> Iterator[Claim]:
    """Yields hosts that are farther away. The shortest call reveals the network, because the server's part of
    it is the same for all hosts."""
    candidates = []
    for cell, hosts in _comparable_hosts(case):
        nearest = min(hosts, key=lambda h: h["shortest_ns"])
        for host in hosts:
            more_ns = host["shortest_ns"] - nearest["shortest_ns"]
            if more_ns > max(FARTHER_NS, FARTHER * nearest["shortest_ns"]):
                values = {"host": host["host"], "nearest": nearest["host"], "more_ns": more_ns}
                candidates.append((values | {"more": more_ns / NS_PER_S}, cell))
    yield from case.worst("host-network", candidates, "more")


@check("host-slow")
def slow(case: Case) -> Iterator[Claim]:
    """Yields hosts that are slower, though neither starved nor farther away."""
    candidates = []
    for cell, hosts in _comparable_hosts(case):
        shortest_ns = min(h["shortest_ns"] for h in hosts)
        for host in hosts:
            others = median(h["session_rate_per_s"] for h in hosts if h is not host)
            share = 1 - host["session_rate_per_s"] / others if others else 0.0
            farther = host["shortest_ns"] - shortest_ns > max(FARTHER_NS, FARTHER * shortest_ns)
            is_starved = (host["driver_starved"] or 0.0) > session_time.STARVED
            if share > SLOWER and not farther and not is_starved:
                values = {"host": host["host"], "share": share, "others": others}
                candidates.append((values | {"rate": host["session_rate_per_s"]}, cell))
    yield from case.worst("host-slow", candidates, "share")


def _busy(host: Mapping[str, Any]) -> bool:
    """Returns whether the host's threads waited for a CPU long enough to show in response times."""
    used, share = host["driver_cpus"] or 0.0, host["driver_starved"] or 0.0
    threads = host["threads"] or 1
    return share < 1 and used * share / (1 - share) > session_time.WORTH_TELLING * threads


def _by_cell(case: Case) -> Iterator[tuple[Row, list[dict[str, Any]]]]:
    """Yields usable measurements by several hosts, with those hosts."""
    table = case.tables.get("hosts")
    if table is None or table.is_empty():
        return
    for cell in case.usable:
        hosts = table.filter(cell=cell["cell"], status="ok").to_dicts()
        if hosts:
            yield cell, hosts


def _comparable_hosts(case: Case) -> Iterator[tuple[Row, list[dict[str, Any]]]]:
    """Yields the same for hosts with enough calls, if at least two have them. All hosts make the same
    calls."""
    for cell, hosts in _by_cell(case):
        able = [
            h for h in hosts if h["calls"] >= LEAST_CALLS and h["session_rate_per_s"] and h["shortest_ns"]
        ]
        if len(able) > 1:
            yield cell, able
