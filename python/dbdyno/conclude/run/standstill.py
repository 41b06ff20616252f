"""Reports time in which a CPU quota or a stop kept sessions from running."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.checking import check
from dbdyno.conclude.ladder.ladders import quota_cure
from dbdyno.conclude.run.case import SESSION_LEDGER, Case, known_aas, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.sources.wait_families import STOPPED

THROTTLED = 0.25
"""Part of CPU WAIT from which on throttling is a cause of it, if :data:`THROTTLED_S` holds as well."""
THROTTLED_S = 0.01
"""Least share of session time."""
OF_SESSION = 0.25
"""Part of its own time from which on a session is throttled, whatever the number of other sessions."""
STOOD_S = 0.01
"""Seconds per second from which on stopped sessions are reported."""


@check("cpu-wait-throttled")
def throttled_wait(case: Case) -> Iterator[Claim]:
    """Yields the part of CPU WAIT that is throttling by a quota, where it is largest."""
    exact: list[tuple[dict[str, Any], dict[str, Any]]] = []
    least: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for cell in case.usable:
        queued, wall = case.known(cell["cell"], "runq"), case.wall(cell["cell"])
        ledger = case.table("ledger", cell["cell"])
        throttled = known_aas(account_rows(ledger, "runq.throttled"))
        low = known_aas(account_rows(ledger, "runq.throttled_bracket").with_columns(aas="low"))
        known = low if throttled is None else throttled
        if not queued or known is None or known < max(THROTTLED * queued, THROTTLED_S * wall):
            continue
        values: dict[str, Any] = {
            "share": min(1.0, known / queued),
            "throttled": known,
            "queued": queued,
        }
        values["raise_the_quota"] = quota_cure(case, cell["variant"])
        (least if throttled is None else exact).append((values, cell))
    yield from case.worst("cpu-wait-throttled", exact or least, "share", case="exact" if exact else "least")


@check("sessions-throttled")
def throttled_sessions(case: Case) -> Iterator[Claim]:
    """Yields sessions that a quota kept from running for much of their own time; without the scheduler trace,
    the most throttled group that contains sessions only."""
    exact: list[tuple[dict[str, Any], dict[str, Any]]] = []
    groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for cell in case.usable:
        places = _throttled_groups(case, cell["cell"])
        names = ", ".join(name for name, _ in places)
        cure = f"raise the quota of {names}" if names else quota_cure(case, cell["variant"])
        if sessions := _throttled_sessions(case, cell["cell"]):
            pid, share = max(sessions, key=lambda s: s[1])
            values = {"sessions": len(sessions), "pid": str(pid), "share": share, "group": names}
            exact.append((values | {"raise_the_quota": cure}, cell))
        elif places and places[0][1] >= OF_SESSION:
            groups.append(({"share": places[0][1], "group": places[0][0], "raise_the_quota": cure}, cell))
    candidates = exact or groups
    parts = ["group"] if exact and max(exact, key=lambda f: f[0]["share"])[0]["group"] else []
    yield from case.worst(
        "sessions-throttled", candidates, "share", case="exact" if exact else "group", parts=parts
    )


@of_cell
def _throttled_sessions(case: Case, cell: str) -> list[tuple[int, float]]:
    """Returns process and throttled part of its time of each session that was throttled for much of it."""
    ledger = case.table(SESSION_LEDGER, cell)
    parts = account_rows(ledger, "run", "runq", "sleep", "client", scope="session")
    lived = parts.group_by("session").agg(time=pl.col("aas").sum())
    stood = account_rows(ledger, "runq.throttled", scope="session").drop_nulls("aas").select("session", "aas")
    pids = (
        case.table("cut_tasks", cell)
        .filter((pl.col("role") == "session") & ~pl.col("worker"))
        .unique("session", keep="first")
        .select("session", "pid")
    )
    sessions = stood.join(lived, on="session").join(pids, on="session", how="left", maintain_order="left")
    sessions = sessions.filter((pl.col("time") > 0) & (pl.col("aas") >= OF_SESSION * pl.col("time")))
    share = (pl.col("aas") / pl.col("time")).clip(0, 1)
    return sessions.select(pl.col("pid").fill_null(0), share).rows()


@of_cell
def _throttled_groups(case: Case, cell: str) -> list[tuple[str, float]]:
    """Returns groups of sessions only that were throttled, with the share of the time, the largest first."""
    throttled = (pl.col("scope") == "sessions") & (pl.col("key") == "throttled_ns") & (pl.col("delta") > 0)
    share = (pl.col("delta") / pl.col("wall_ns")).clip(0, 1).alias("share")
    groups = case.levels(cell, "cgroup").filter(throttled).select("place", share)
    return groups.sort("share", descending=True).rows()


@check("sessions-stopped")
def stopped(case: Case) -> Iterator[Claim]:
    """Yields sessions whose process was stopped by a signal or a tracer, or frozen with its control group."""
    cells = []
    for cell in case.usable:
        ledger = case.table("ledger", cell["cell"])
        standing = account_rows(ledger, "sleep").filter(pl.col("detail").str.starts_with(f"{STOPPED}/"))
        seconds = known_aas(standing)
        if seconds is not None and seconds > STOOD_S:
            cells.append(({"seconds": seconds}, cell))
    yield from case.worst("sessions-stopped", cells, "seconds")
