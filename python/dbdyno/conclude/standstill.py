"""Time in which sessions were kept from running by a quota, or stopped altogether."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.case import Case, known_aas
from dbdyno.model.claim import Claim
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.wait_families import STOPPED

THROTTLED = 0.25
"""Throttling is a cause of CPU WAIT from this part of it on, and"""
THROTTLED_S = 0.01
"""of session time from this part on."""
STOOD_S = 0.01
"""Stopped sessions are reported from so many seconds per second on."""


def throttled_wait(case: Case) -> Iterator[Claim]:
    """How much of CPU WAIT is throttling by a quota, where it is most."""
    exact: list[tuple[dict[str, float], dict[str, Any]]] = []
    least: list[tuple[dict[str, float], dict[str, Any]]] = []
    for cell in case.usable:
        queued, wall = case.known(cell["cell"], "runq"), case.wall(cell["cell"])
        ledger = case.table("ledger", cell["cell"])
        throttled = known_aas(account_rows(ledger, "runq.throttled"))
        low = known_aas(account_rows(ledger, "runq.throttled_bracket").with_columns(aas="low"))
        known = low if throttled is None else throttled
        if not queued or known is None or known < max(THROTTLED * queued, THROTTLED_S * wall):
            continue
        values = {"share": min(1.0, known / queued), "throttled": known, "queued": queued}
        (least if throttled is None else exact).append((values, cell))
    yield from case.worst("cpu-wait-throttled", exact or least, "share", case="exact" if exact else "least")


def stopped(case: Case) -> Iterator[Claim]:
    """Sessions whose process was stopped by a signal or a tracer, or frozen with its control group."""
    cells = []
    for cell in case.usable:
        ledger = case.table("ledger", cell["cell"])
        standing = account_rows(ledger, "sleep").filter(pl.col("detail").str.starts_with(f"{STOPPED}/"))
        seconds = known_aas(standing)
        if seconds is not None and seconds > STOOD_S:
            cells.append(({"seconds": seconds}, cell))
    yield from case.worst("sessions-stopped", cells, "seconds")
