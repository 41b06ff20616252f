"""Finds the CPU time of a read request: CPU per call regressed on requests per call, if measurements differ
in them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, ids, known_aas, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.sources.wait_families import READ_REQUESTS, Helper, named
from dbdyno.model.units import NS_PER_S

RANGE = 2.0
"""Factor by which requests per call must differ between measurements."""
LEVEL = 0.1
"""Relative difference of requests per call below which they are one level."""


class _Call(NamedTuple):
    """Requests per call, and CPU seconds per call of the session and of the processes that read for it."""

    requests: float
    user: float
    system: float


@check("cpu-per-request")
def cost(case: Case) -> Iterator[Claim]:
    """Yields the cost for each workload, at the lowest number of sessions, where sessions do not wait for a
    CPU."""
    for workload in dict.fromkeys(c["workload"] for c in case.usable):
        of_workload = [c for c in case.usable if c["workload"] == workload]
        fewest = min(c["sessions"] for c in of_workload)
        calls = [
            (c, call) for c in of_workload if c["sessions"] == fewest and (call := _call(case, c["cell"]))
        ]
        if calls:
            yield from _cost_claim([c for c, _ in calls], [call for _, call in calls])


@of_cell
def _call(case: Case, cell: str) -> _Call | None:
    figures = case.figures(cell)
    rate, requests = figures.get("calls_per_s"), figures.get(f"{READ_REQUESTS}_per_call")
    if not rate or not requests:
        return None
    kinds = case.environment.server.helpers
    ledger = case.table("ledger", cell)
    parts = []
    for account in ("run.user", "run.system"):
        own = known_aas(account_rows(ledger, account))
        helpers = account_rows(ledger, account, scope="helper").filter(named("who", Helper.IO, kinds))
        if own is None:
            return None
        parts.append((own + (known_aas(helpers) or 0.0)) / rate)
    return _Call(requests, *parts)


def _cost_claim(cells: list[Row], calls: list[_Call]) -> Iterator[Claim]:
    requests = sorted(c.requests for c in calls)
    if requests[-1] < RANGE * requests[0]:
        return
    from dbdyno.conclude.regression.regress import LEAST_RUNGS, regress  # loads numpy

    if 1 + sum(b > a * (1 + LEVEL) for a, b in pairwise(requests)) < LEAST_RUNGS:
        return
    regression = regress(
        [c.requests for c in calls],
        [c.user + c.system for c in calls],
        ordered=False,
        user=[c.user for c in calls],
        system=[c.system for c in calls],
        units=("read request",),
    )
    if regression.total is None:
        return
    slope, system = regression.total.slope, next(p.slope for p in regression.parts if p.name == "system")
    low, high = slope.low or 0.0, slope.high or 0.0
    values = {
        "cost": slope.value,
        "low": low,
        "high": high,
        "kernel": system.value / slope.value,
        "rest": regression.total.background.value,
        "fewest": requests[0],
        "most": requests[-1],
    }
    yield claim(
        "cpu-per-request",
        values,
        slope.value * NS_PER_S,
        case="known" if low > 0 else "unsure",
        low=low * NS_PER_S,
        high=high * NS_PER_S,
        cells=ids(cells),
    )
